"""Versions of packages that RDMA needs: lines of dpkg -l and rpm -qa, and ofed_info -s."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rdmadiag.evidence.row import Line, Row, Text
from rdmadiag.patterns import late

TABLES = ("package",)

_NAMES = (
    r"rdma-core|libibverbs|ibverbs|librdmacm|rdmacm|libibumad|infiniband-diags|perftest|opensm|ucx|libucx"
    r"|mlnx|mlx|mft|kmod-mlnx|kmod-mft|kernel-mft|ofed|doca|knem|kmod-knem|xpmem|openmpi|mstflint"
    r"|libnccl|nvidia-peer|nvidia-fs|nvidia-driver|libfabric|efa|dkms-efa|rccl|amdgpu|libmlx|bnxt|irdma"
)
_DPKG = late(
    rf"(?P<state>[uirph][nicufhwWtT]R?)\s+(?P<package>(?:{_NAMES})[a-z0-9.+-]*)(?::[a-z0-9]+)?\s+(?P<version>\d\S*)(?:\s|$)"
)
_RPM = late(
    rf"(?P<package>(?:{_NAMES})[A-Za-z0-9_+-]*?)-(?P<version>\d[A-Za-z0-9_.~+^]*-[A-Za-z0-9_.~+^]+?)\.(?:x86_64|aarch64|noarch|ppc64le)\s*$"
)
_OFED = late(r"(?P<package>MLNX_OFED_LINUX|OFED-internal|DOCA-OFED|DOCA|doca-ofed)-(?P<version>\d[\w.-]*?):?\s*$")


def parse_dpkg(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse lines of `dpkg -l`."""
    for number, text in lines:
        if match := _DPKG.match(text):
            yield Row("package", {**match.groupdict(), "manager": "dpkg"}, number)


def parse_rpm(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse lines of `rpm -qa`."""
    for number, text in lines:
        if match := _RPM.match(text):
            yield Row("package", {**match.groupdict(), "manager": "rpm", "state": "ii"}, number)


def parse_ofed_info(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ofed_info -s`, and the first line of `ofed_info`."""
    for number, text in lines:
        if match := _OFED.match(text.partition(" (")[0]):
            yield Row("package", {**match.groupdict(), "manager": "ofed_info", "state": "ii"}, number)


TEXTS = (
    Text(
        "dpkg -l",
        (
            r"^[uirph][nicufhwWtT] +(rdma-core|libibverbs1|ibverbs-|libmlx5|mlnx-|ofed-|ucx|perftest|librdmacm|doca-|libnccl)",
        ),
        parse_dpkg,
        ("dpkg", "apt"),
    ),
    Text(
        "rpm -qa",
        (
            r"^(rdma-core|libibverbs|librdmacm|mlnx-|kmod-mlnx|ucx|perftest|doca-|mft)[A-Za-z0-9_+-]*-[0-9][A-Za-z0-9_.~+^-]*\.(x86_64|aarch64|noarch)",
        ),
        parse_rpm,
        ("rpm",),
    ),
    Text(
        "ofed_info",
        (r"^(MLNX_OFED_LINUX|OFED-internal|DOCA-OFED)-[0-9]",),
        parse_ofed_info,
        ("ofed_info",),
    ),
)
