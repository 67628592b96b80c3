"""Versions of packages."""

from live_tree import lines, rows

from rdmadiag.sources.packages import parse_dpkg, parse_ofed_info, parse_rpm


def test_lines_of_dpkg_name_package_and_version():
    text = (
        "ii  ibverbs-providers:amd64    39.0-1                   amd64        User space provider drivers for libibverbs\n"
        "ii  libibverbs1:amd64          2410mlnx54-1.2410068     amd64        Library for direct userspace use of RDMA\n"
        "rc  rdma-core                  39.0-1                   amd64        RDMA core userspace infrastructure\n"
        "ii  bash                       5.1-6ubuntu1             amd64        GNU Bourne Again SHell\n"
    )
    found = rows(parse_dpkg(lines(text)), "package")
    assert [(row["package"], row["version"], row["state"]) for row in found] == [
        ("ibverbs-providers", "39.0-1", "ii"),
        ("libibverbs1", "2410mlnx54-1.2410068", "ii"),
        ("rdma-core", "39.0-1", "rc"),
    ]


def test_lines_of_rpm_are_split_before_the_version():
    text = "rdma-core-48.0-1.el9.x86_64\nmlnx-ofa_kernel-23.10-OFED.23.10.0.5.5.1.rhel9u2.x86_64\nbash-5.1.8-6.el9.x86_64\n"
    found = rows(parse_rpm(lines(text)), "package")
    assert [(row["package"], row["version"]) for row in found] == [
        ("rdma-core", "48.0-1.el9"),
        ("mlnx-ofa_kernel", "23.10-OFED.23.10.0.5.5.1.rhel9u2"),
    ]


def test_ofed_info_names_the_release():
    # MLNX_OFED_LINUX as in xcat2/xcat-core#4044; OFED-internal is what DOCA-OFED prints
    found = rows(parse_ofed_info(lines("MLNX_OFED_LINUX-5.8-1.1.2.1:\nOFED-internal-24.10-0.7.0:\n")), "package")
    assert [(row["package"], row["version"]) for row in found] == [
        ("MLNX_OFED_LINUX", "5.8-1.1.2.1"),
        ("OFED-internal", "24.10-0.7.0"),
    ]
