"""rdmadiag collect: a bundle says what the node says, redacted or not, and holds no secret."""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.cli import cli
from rdmadiag.diagnose import capture, check
from rdmadiag.diagnose.redact import Redactor
from rdmadiag.errors import BadFile, HostRefused, NotGiven, NotPresent
from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import Tree, parse_tree

NODES = sorted(path.parent for path in (Path(__file__).parent.parent / "data/nodes").glob("*/tree.txt"))
RXE = Path(__file__).parent.parent / "data/nodes/rxe-rnr"
COMMANDS = {
    "dmesg": "dmesg.txt",
    "rdma link show": "rdma-link.json",
    "rdma dev show": "rdma-dev.json",
    "rdma res show": "rdma-res.json",
    "rdma res show qp": "rdma-res-qp.json",
    "rdma res show cq": "rdma-res-cq.json",
    "rdma res show mr": "rdma-res-mr.json",
    "rdma res show ctx": "rdma-res-ctx.json",
    "ip addr": "ip-addr.json",
    "ip route": "ip-route.json",
}


class AsLive(CapturedHost):
    """A captured node that answers like a live one: its texts are what the door's commands print, and what is not there is not there."""

    def __init__(self, node: Path) -> None:
        tree, seconds = parse_tree((node / "tree.txt").read_text())
        super().__init__(tree, "node-a", seconds)
        self.live, self.root, self.node = True, True, node

    def _missing(self, path: str) -> NotPresent:
        return NotPresent(f"{path}: not there")

    def run(self, command: str) -> str:
        name = self.node / COMMANDS.get(command, "nosuch")
        if not name.exists():
            raise NotPresent(f"{command}: not there")
        return name.read_text()

    def usable(self, path: str) -> bool | None:
        return "rdma_cm" not in path


def said(report: dict[str, Any]) -> list[Any]:
    told = ("rule", "answer", "severity", "subject", "message", "explained_by", "also_possible", "settle")
    return [{name: finding[name] for name in told} for finding in report["findings"]]


def bundle_of(host: CapturedHost, path: Path, **options: Any) -> Path:
    capture.write(str(path), capture.capture(host, 0, 30, **options))
    return path


@pytest.mark.parametrize("node", NODES, ids=lambda path: path.name)
def test_a_bundle_says_what_the_node_says(node: Path, tmp_path: Path, checked: Callable[..., dict[str, Any]]) -> None:
    host = AsLive(node)
    live = check.check(check.Request(window=0, budget=60), host=host).report
    report = checked(f"node-a={bundle_of(host, tmp_path / 'b.tar.gz')}")
    assert said(report) == said(live)
    assert report["summary"]["rules"] == live["summary"]["rules"]
    assert report["summary"]["exit_code"] == live["summary"]["exit_code"]
    told = ("kind", "reason", "tables")
    gaps = [[gap[name] for name in told] for gap in report["gaps"]]
    assert gaps == [[gap[name] for name in told] for gap in live["gaps"]]


@pytest.mark.parametrize("node", NODES, ids=lambda path: path.name)
def test_a_redacted_bundle_has_the_same_findings(
    node: Path, tmp_path: Path, checked: Callable[..., dict[str, Any]]
) -> None:
    host = AsLive(node)
    name = host.read("/proc/sys/kernel/hostname")
    live = check.check(check.Request(window=0, budget=60), host=host).report
    report = checked(bundle_of(host, tmp_path / "b.tar.gz", redact=Redactor(b"k", [host.name, name])))
    rules = [[(f["rule"], f["answer"], f["subject"].get("device")) for f in r["findings"]] for r in (report, live)]
    assert rules[0] == rules[1]
    assert report["summary"]["rules"] == live["summary"]["rules"]


def _content(path: Path) -> str:
    with tarfile.open(path) as archive:
        return "\n".join(
            [member.name for member in archive] + [archive.extractfile(m).read().decode() for m in archive]  # type: ignore[union-attr]
        )


@pytest.mark.parametrize("node", NODES[::4], ids=lambda path: path.name)
def test_nothing_that_names_the_node_is_left_in_a_redacted_bundle(node: Path, tmp_path: Path) -> None:
    host = AsLive(node)
    name = host.read("/proc/sys/kernel/hostname")
    plain = _content(bundle_of(host, tmp_path / "a.tar"))
    text = _content(bundle_of(host, tmp_path / "b.tar", redact=Redactor(os.urandom(8), [host.name, name])))
    assert name in plain and name not in text
    macs = set(re.findall(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b(?!:)", plain)) - {
        "00:00:00:00:00:00",
        "ff:ff:ff:ff:ff:ff",
    }
    fours = {ip for ip in re.findall(r"(?<![\w.])(?:10|192|172)(?:\.\d+){3}(?![\w.])", plain) if not ip.endswith(".0")}
    gids = {gid for gid in re.findall(r"\b(?:[0-9a-f]{4}:){7}[0-9a-f]{4}\b", plain) if gid.strip("0:")}
    assert [found for found in macs | gids if found in text] == []
    assert [found for found in fours if re.search(rf"(?<![\d.]){re.escape(found)}(?![\d.])", text)] == []


def test_the_unpacked_bundle_is_read_like_the_archive(tmp_path: Path, checked: Callable[..., dict[str, Any]]) -> None:
    path = bundle_of(AsLive(RXE), tmp_path / "b.tar.gz")
    with tarfile.open(path) as archive:
        for member in archive:
            (tmp_path / "out" / member.name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "out" / member.name).write_bytes(archive.extractfile(member).read())  # type: ignore[union-attr]
    assert said(checked(f"node-a={tmp_path}/out")) == said(checked(f"node-a={path}"))


def test_no_secret_is_in_a_bundle(tmp_path: Path) -> None:
    noted = {kind: {} for kind in ("files", "links", "folders", "absent", "seen", "refused", "usable", "commands")}
    noted["files"] = {
        "/proc/7/environ": "NCCL_DEBUG=WARN\0AWS_SECRET_ACCESS_KEY=hush1\0MC_API_TOKEN=hush2\0UCX_TLS=rc\0PATH=/hush5",
        "/proc/7/cmdline": "serve\0--api-key\0hush3\0--url\0https://me:hush4@host/",
        "/proc/cmdline": "BOOT_IMAGE=/vmlinuz iscsi_password=hush6 quiet",
    }
    noted["commands"] = {"dmesg": "login token: hush7 then"}
    capture._take_secrets_out(noted)
    left = json.dumps(noted)
    assert "hush" not in left
    assert noted["files"]["/proc/7/environ"] == "NCCL_DEBUG=WARN\0UCX_TLS=rc"
    assert "quiet" in left and "serve" in left and "host/" in left


def test_what_the_recording_does_not_hold_is_not_given_and_never_absent(tmp_path: Path) -> None:
    tree, _ = parse_tree(
        "# recorded live root\n/sys/class/infiniband/\n# listed: /sys/class/infiniband/mlx5_0\n# absent: /x/y\n"
    )
    host = CapturedHost(tree)
    assert host.ls("/sys/class/infiniband") == ["mlx5_0"]
    for path in ("/sys/class/infiniband/mlx5_0", "/sys/class/infiniband/mlx5_0/fw_ver", "/sys/class/infiniband/mlx5_1"):
        with pytest.raises(NotGiven):
            host.read(path)
    with pytest.raises(NotPresent):
        host.read("/x/y")
    assert host.live and host.root


def test_what_was_refused_is_refused_in_the_bundle_for_the_same_reason() -> None:
    tree, _ = parse_tree(
        "# recorded live user\n# refused: /a b\tnot permitted (EPERM)\trun as root\n# refused: dmesg\tno\t\n"
    )
    host = CapturedHost(tree)
    with pytest.raises(HostRefused, match="not permitted") as refused:
        host.read("/a b")
    assert refused.value.how == "run as root"
    with pytest.raises(HostRefused, match="dmesg: no"):
        host.run("dmesg")


def test_a_damaged_bundle_is_no_traceback(tmp_path: Path, checked: Callable[..., dict[str, Any]]) -> None:
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / "tree.txt").write_text(
        "# recorded live root\n# bytes: /x\tzz\n# refused:\n# usable: /y\n# link: /l\n/proc/uptime:1 1\n"
    )
    for manifest in (
        "{",
        "[]",
        '{"schema": "rdmadiag.bundle/1", "commands": {"dmesg": "../../etc/passwd"}, "gaps": [1, {}]}',
    ):
        (folder / "manifest.json").write_text(manifest)
        assert checked(folder)["schema"] == "rdmadiag.report/1"


@given(st.text(alphabet="# recorded:refusedlistedbytes/\t\n01x", max_size=200))
def test_any_text_may_be_a_recording(text: str) -> None:
    tree, _ = parse_tree("# recorded live root\n" + text + "\n")
    assert isinstance(tree, Tree)


PRESSED = "processors-overloaded,memory-nearly-full"
"""What this machine is pressed by may have changed from the one look to the other."""


def test_the_command_writes_a_file_once_and_checks_of_it_and_of_the_node_agree(tmp_path: Path) -> None:
    path = str(tmp_path / "n.tar.gz")
    done = CliRunner().invoke(cli, ["collect", "-o", path, "--window", "0", "--format", "json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["bytes"] == os.path.getsize(path)
    reports = [
        json.loads(CliRunner().invoke(cli, ["check", *words, "--skip", PRESSED, "--format", "json"]).stdout)
        for words in (["--from", path], ["--window", "0"])
    ]
    assert [(f["rule"], f["answer"]) for f in reports[0]["findings"]] == [
        (f["rule"], f["answer"]) for f in reports[1]["findings"]
    ]
    again = CliRunner().invoke(cli, ["collect", "-o", path])
    assert isinstance(again.exception, BadFile) and "is there already" in str(again.exception)


def test_an_archive_of_an_unknown_kind_and_a_key_that_is_none_are_refused(tmp_path: Path) -> None:
    for words, wanted in (
        (["-o", str(tmp_path / "x.rar")], "must end in"),
        (["-o", str(tmp_path / "nosuch/x.tar")], "cannot be written"),
        (["-o", str(tmp_path / "x.tar"), "--redact-key", "/dev/zero"], "not a regular file"),
    ):
        done = CliRunner().invoke(cli, ["collect", "--window", "0", *words])
        assert isinstance(done.exception, BadFile) and wanted in str(done.exception)


# --- what is replaced ---


def test_an_address_keeps_its_kind_and_its_subnet() -> None:
    redact = Redactor(b"key", ["node-a.example.com"])
    one, two, other = (redact(ip) for ip in ("10.1.2.5", "10.1.2.9", "10.7.2.5"))
    assert one != "10.1.2.5" and one.startswith("10.")
    assert one.split(".")[:3] == two.split(".")[:3] != other.split(".")[:3]
    assert redact("10.1.2.0/24") == ".".join([*one.split(".")[:3], "0/24"])
    for kept in ("127.0.0.1", "255.255.255.0", "0.0.0.0", "::1", "ff:ff:ff:ff:ff:ff", "12:34:56", "0000:18:00.0", "::"):
        assert redact(kept) == kept


def test_a_gid_of_a_mac_or_an_address_is_made_of_the_replaced_one() -> None:
    redact = Redactor(b"key", [])
    mac = redact("a0:88:c2:00:12:34").replace(":", "")
    assert mac.startswith("a088c2") and mac != "a088c2001234"
    assert redact("fe80::a288:c2ff:fe00:1234") == f"fe80::a288:c2ff:fe{mac[6:8]}:{mac[8:].lstrip('0')}"
    assert redact("fe80:0000:0000:0000:a288:c2ff:fe00:1234") == f"fe80:0000:0000:0000:a288:c2ff:fe{mac[6:8]}:{mac[8:]}"
    four = bytes(int(part) for part in redact("10.1.2.5").split(".")).hex()
    assert redact("0000:0000:0000:0000:0000:ffff:0a01:0205") == f"0000:0000:0000:0000:0000:ffff:{four[:4]}:{four[4:]}"
    assert redact("enxa088c2001234") == f"enx{mac}"


def test_a_guid_and_the_gid_of_its_port_are_replaced_alike() -> None:
    redact = Redactor(b"key", [])
    guid = redact("a088:c203:0011:1234")
    assert guid.startswith("a088:c2") and guid != "a088:c203:0011:1234"
    assert redact("fe80:0000:0000:0000:a088:c203:0011:1234") == f"fe80:0000:0000:0000:{guid}"
    assert redact("GUID 0xa088c20300111234") == f"GUID 0x{guid.replace(':', '')}"


def test_two_bundles_of_one_key_fit_together_and_of_two_do_not() -> None:
    assert Redactor(b"a", ["x"])("10.1.2.3 x") == Redactor(b"a", ["x"])("10.1.2.3 x")
    assert Redactor(b"a", ["x"])("10.1.2.3 x") != Redactor(b"b", ["x"])("10.1.2.3 x")


@given(st.text(alphabet="0123456789abcdef:./ x-\n", max_size=80))
def test_any_text_is_redacted_and_twice_the_same(text: str) -> None:
    redact = Redactor(b"key", ["n"])
    assert redact(text) == redact(text)
