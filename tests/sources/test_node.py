"""The node itself."""

from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, lines, rows

from rdmadiag.sources.node import TEXTS, parse_boot, parse_cmdline, parse_hostname, parse_uname, read

METAL = """\
/proc/sys/kernel/hostname:node-a
/proc/sys/kernel/osrelease:6.1.0-18-amd64
/proc/uptime:3600.25 7200.00
/proc/1/cgroup:0::/init.scope
/proc/self/status:Name:\tpython3
/proc/self/status:Uid:\t1000\t0\t0\t0
/proc/modules:ib_core 1 0 - Live 0x0
/proc/cmdline:BOOT_IMAGE=/vmlinuz iommu=pt
/proc/cpuinfo:flags\t\t: fpu vme sse
/sys/class/dmi/id/sys_vendor:Dell Inc.
"""


def only(host):
    (row,) = rows(read(host), "node")
    return row


def test_a_bare_metal_node_is_read_whole():
    assert only(LiveTree(METAL, texts={"uname -m": "x86_64"})) == {
        "hostname": "node-a",
        "kernel": "6.1.0-18-amd64",
        "arch": "x86_64",
        "uptime_seconds": 3600.25,
        "container": "",
        "virtual": "",
        "root": 1,
        "modules_supported": 1,
        "cmdline": "BOOT_IMAGE=/vmlinuz iommu=pt",
    }


def test_a_virtual_machine_is_told_by_its_board_or_its_processor():
    assert only(LiveTree("/sys/class/dmi/id/sys_vendor:QEMU\n"))["virtual"] == "kvm"
    assert only(LiveTree("/proc/cpuinfo:flags : fpu hypervisor\n"))["virtual"] == "unknown"
    assert only(LiveTree("/sys/class/dmi/id/product_name:c5.metal\n"))["virtual"] == ""
    assert "virtual" not in only(LiveTree("/proc/cpuinfo:Features : fp asimd\n"))


def test_a_container_is_told_by_what_its_runtime_leaves():
    assert only(LiveTree("/.dockerenv:\n"))["container"] == "docker"
    assert only(LiveTree("/proc/1/cgroup:0::/kubepods.slice/kubepods-pod1.slice\n"))["container"] == "kubernetes"
    overlay = (
        "/proc/1/cgroup:0::/\n/proc/1/mountinfo:1 2 0:1 / / rw - overlay overlay rw,lowerdir=/var/lib/containerd/x\n"
    )
    assert only(LiveTree(overlay))["container"] == "containerd"


def test_a_kernel_without_modules_is_an_answer():
    assert only(LiveTree(METAL.replace("/proc/modules", "/proc/other")))["modules_supported"] == 0


def test_what_cannot_be_read_stays_unknown():
    assert "cmdline" not in only(LiveTree(METAL, refused=["/proc/cmdline"]))


def test_uname_gives_name_kernel_and_machine():
    text = "Linux node-a 5.15.0-105-generic #115-Ubuntu SMP Mon Apr 15 09:52:04 UTC 2024 x86_64 x86_64 x86_64 GNU/Linux"
    assert rows(parse_uname(lines(text)), "node") == [
        {"hostname": "node-a", "kernel": "5.15.0-105-generic", "arch": "x86_64"}
    ]
    assert rows(parse_uname(lines("$ uname -r\n6.1.0-18-amd64")), "node") == [{"kernel": "6.1.0-18-amd64"}]


def test_hostname_is_taken_only_after_its_prompt():
    assert rows(parse_hostname(lines("$ hostname\nnode-a")), "node") == [{"hostname": "node-a"}]
    assert rows(parse_hostname(lines("node-a")), "node") == []


def test_kernel_command_line_is_taken_as_it_is():
    assert rows(parse_cmdline(lines("BOOT_IMAGE=/vmlinuz iommu=pt \n")), "node") == [
        {"cmdline": "BOOT_IMAGE=/vmlinuz iommu=pt"}
    ]


def test_the_boot_log_tells_kernel_command_line_and_hypervisor():
    text = """\
[    0.000000] Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org) (gcc-12) #1 SMP
[    0.000000] Command line: BOOT_IMAGE=/vmlinuz iommu=pt
[    0.000000] Hypervisor detected: KVM
"""
    assert rows(parse_boot(lines(text)), "node") == [
        {"kernel": "6.1.0-18-amd64"},
        {"cmdline": "BOOT_IMAGE=/vmlinuz iommu=pt"},
        {"virtual": "kvm"},
    ]


@given(st.text())
def test_no_text_raises(text):
    for kind in TEXTS:
        list(kind.parse(lines(text)))
