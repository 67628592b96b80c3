"""Archives of sosreport and sysinfo-snapshot: their layout is known, their texts are read as what printed them.

The archives are made here after the layout that the two programs' sources publish (sos/report/plugins/__init__.py and its
plug-ins; sysinfo-snapshot.py); the texts in them are those of captured nodes. No archive of a real node is among the tests.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.diagnose import check
from rdmadiag.evidence import foreign, log_line

NODES = Path(__file__).parent.parent / "data/nodes"
RXE = NODES / "rxe-lab"
H100 = NODES / "mlx5-roce-8nic-h100"
SOS = "sosreport-node-a-2026-03-01-abcdefg"
SYSINFO = "sysinfo-snapshot-v3.7.9-node-a-20260301-1200"
ETHTOOL = "NIC statistics:\n     rx_prio3_pause: 7\n     tx_prio3_pause: 0\n"

SOS_FILES = {
    "sos_commands/host/hostname": "node-a\n",
    "sos_commands/infiniband/ibv_devinfo_-v": (RXE / "ibv_devinfo-v.txt").read_text(),
    "sos_commands/infiniband/ibstat": (RXE / "ibstat.txt").read_text(),
    "sos_commands/networking/ethtool_-S_eth1": ETHTOOL,
    "sos_commands/kernel/dmesg": (RXE / "dmesg.txt").read_text(),
    "sos_commands/kernel/lsmod": (RXE / "lsmod.txt").read_text(),
    "sos_commands/selinux/semodule_-l": "nonsense\n",
    "proc/modules": "rdma_rxe 135168 0 - Live 0x0000000000000000\nib_uverbs 163840 1 rdma_rxe, Live 0x0000000000000000\n",
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/vda\n",
    "sys/module/ib_core/parameters/netns_mode": "Y\n",
    "etc/passwd": "root:x:0:0::/root:/bin/sh\n",
    "usr/share/doc/readme": "nonsense\n",
}
SYSINFO_FILES = {
    "commands_txt_output/ibv_devinfo_v.txt": "Invoked Command: ibv_devinfo -v\n"
    + (RXE / "ibv_devinfo-v.txt").read_text(),
    "commands_txt_output/ethtool_S_eth1.txt": "Invoked Command: ethtool -S eth1\n" + ETHTOOL,
    "commands_txt_output/ulimit_l.txt": "Invoked Command: ulimit -l\n64\n",
    "dmesg": (RXE / "dmesg.txt").read_text(),
    "sysinfo-snapshot.html": "<html>" + (RXE / "ibstat.txt").read_text(),
}
KINDS = {"sos": (SOS, SOS_FILES), "sysinfo": (SYSINFO, SYSINFO_FILES)}


def archive(path: Path, top: str, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:xz") as made:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(text.encode())
            made.addfile(member, io.BytesIO(text.encode()))
        link = tarfile.TarInfo(f"{top}/dmesg-link")
        link.type, link.linkname = tarfile.SYMTYPE, "sos_commands/kernel/dmesg"
        made.addfile(link)
    return path


def folder(path: Path, top: str, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (path / top / name).parent.mkdir(parents=True, exist_ok=True)
        (path / top / name).write_text(text)
    return path


@pytest.fixture(params=["archive", "folder"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Path]:
    def make(kind: str) -> Path:
        top, files = KINDS[kind]
        return (
            archive(tmp_path / "x.tar.xz", top, files) if request.param == "archive" else folder(tmp_path, top, files)
        )

    return make


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    checked = check.check(check.Request(given=(str(path),), budget=60))
    return list(checked.evidence.db.execute(sql))


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_it_is_about_the_one_node_that_it_names(kind: str, made: Callable[[str], Path]) -> None:
    assert rows(made(kind), "SELECT node FROM node") == [("node-a",)]


@pytest.mark.parametrize("kind", KINDS)
def test_devices_and_the_kernel_log_are_read(kind: str, made: Callable[[str], Path]) -> None:
    path = made(kind)
    assert rows(path, "SELECT DISTINCT device FROM device")
    assert ("kernel",) in rows(path, "SELECT DISTINCT log FROM reading")


@pytest.mark.parametrize("kind", KINDS)
def test_the_netdev_of_ethtool_is_known_by_the_command(kind: str, made: Callable[[str], Path]) -> None:
    found = rows(made(kind), "SELECT netdev, value FROM counter WHERE counter = 'rx_prio3_pause'")
    assert found == [("eth1", 7)]


def test_what_sysinfo_snapshot_invoked_is_a_prompt(made: Callable[[str], Path]) -> None:
    assert log_line.prompt_command("Invoked Command: uname -r") == "uname -r"
    assert rows(made("sysinfo"), "SELECT soft FROM process_limit") == [(65536,)]


def test_a_line_of_a_file_keeps_its_number(made: Callable[[str], Path]) -> None:
    (origin,) = rows(made("sos"), "SELECT origin FROM counter WHERE counter = 'rx_prio3_pause'")[0]
    assert origin.endswith("ethtool_-S_eth1:2")


def test_what_a_sosreport_does_not_copy_is_not_given_and_not_absent(made: Callable[[str], Path]) -> None:
    path = made("sos")
    assert ("rdma_rxe",) in rows(path, "SELECT module FROM module")
    checked = check.check(check.Request(given=(str(path),), budget=60))
    confirmed = {f["rule"] for f in checked.report["findings"] if f["answer"] == "confirmed"}
    assert not confirmed & {"no-rdma-device", "no-rdma-adapter-on-pci", "uverbs-nodes-missing"}


def test_files_that_are_of_no_use_are_not_read(made: Callable[[str], Path]) -> None:
    checked = check.check(check.Request(given=(str(made("sos")),), budget=60))
    assert not [path for path in checked.report["summary"]["unrecognised"] if "selinux" in path or "passwd" in path]


def test_names_of_folders_tell_the_node() -> None:
    assert foreign.node(SOS, foreign.SOS, lambda name: None) == "node-a"
    assert foreign.node(SYSINFO, foreign.SYSINFO, lambda name: None) == "node-a"
    assert foreign.node("x", foreign.SOS, lambda name: b"../evil\n") is None
