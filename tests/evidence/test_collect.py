"""All evidence of one run: a live node, a captured tree, what was pasted; what was looked for and what was not given."""

import io
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rdmadiag.errors import BadFile, HostRefused, NotGiven
from rdmadiag.evidence import collect, given
from rdmadiag.evidence.collect import Options
from rdmadiag.evidence.row import Gap, Json, Printed, Row, Rows, Text
from rdmadiag.evidence.store import Evidence
from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import parse_tree

COUNTER = "/sys/class/infiniband/mlx5_0/hw_counters/x"


def read_counters(host, skip=frozenset()):
    if "mlx5_0" not in skip:
        yield Row(
            "counter",
            {"device": "mlx5_0", "kind": "hw_counters", "counter": "x", "value": int(host.read(COUNTER))},
            COUNTER,
        )


def read_modules(host):
    for line in host.read("/proc/modules").splitlines():
        yield Row("module", {"module": line.split()[0]}, "/proc/modules")


def read_port(host):
    yield Row(
        "port", {"device": "mlx5_0", "port": 1, "state": host.read("/sys/class/infiniband/mlx5_0/state")}, "/state"
    )


def read_log(host):
    yield Printed("dmesg", host.run("dmesg"), "dmesg", 100.0)


def parse_ports(lines):
    for line in lines:
        if line.text.startswith("port "):
            yield Row("port", {"device": "mlx5_0", "port": 1, "phys_state": line.text[5:]}, line.number)


def parse_qps(found):
    yield Rows("resource", ("device", "name", "current"), [("mlx5_0", "qp", len(found))], 1)


MODULES = {
    "counters": SimpleNamespace(TABLES=("counter",), SAMPLED=True, read=read_counters),
    "kernel_log": SimpleNamespace(
        TABLES=("kernel_event",),
        read=read_log,
        TEXTS=(Text("dmesg", (r"^\[ *[0-9]+\.[0-9]{6}\] ",), lambda lines: (), ("dmesg",), log="kernel"),),
    ),
    "modules": SimpleNamespace(TABLES=("module",), read=read_modules),
    "ports": SimpleNamespace(
        TABLES=("port",), read=read_port, TEXTS=(Text("ports", (r"^ports:",), parse_ports, ("ports",)),)
    ),
    "qps": SimpleNamespace(
        TABLES=("resource",),
        TEXTS=(Json("qps", (("lqpn",),), parse_qps),),
    ),
}
LIBRARY = collect.library(MODULES, [("flap", 0, "kernel", r"(?P<netdev>\w+): Link down")], cached=False)
TREE = f"""# seconds 20
/proc/sys/kernel/hostname:node-a
/proc/modules:mlx5_core 1 0
/proc/modules:ib_core 1 0
/sys/class/infiniband/mlx5_0/state:4: ACTIVE
{COUNTER}:15
"""


class Live(CapturedHost):
    """A live node made of a tree."""

    live = True

    def __init__(self, text=TREE, log="[    1.000000] Linux version 6\n[   90.000000] eth0: Link down\n"):
        super().__init__(parse_tree(text)[0], "node-a")
        self.log = log

    def run(self, command):
        if self.log is None:
            raise HostRefused("/dev/kmsg", "not permitted (EPERM)", "run as root")
        return self.log

    def clock(self):
        return time.monotonic()


def rows(evidence, sql):
    return evidence.db.execute(sql).fetchall()


def gaps(evidence):
    return {(table, kind) for table, kind in rows(evidence, 'SELECT "table", kind FROM gap')}


def look(host=None, modules=MODULES, **options):
    evidence = Evidence()
    timings = collect.live(
        evidence, host or Live(), modules, LIBRARY, Options(**{"window": 0.05, "budget": 5.0, **options})
    )
    return evidence, timings


def give(*specs, **options):
    evidence = Evidence()
    unread = collect.from_paths(evidence, [str(spec) for spec in specs], MODULES, LIBRARY, Options(**options))
    evidence.finish()
    return evidence, unread


# --- a live node ---


def test_a_live_node_is_read_with_two_samples_and_its_own_log():
    evidence, timings = look()
    assert rows(evidence, "SELECT node, state, delta, seconds > 0, origin FROM counter") == [
        ("node-a", "two samples", 0, 1, COUNTER)
    ]
    assert rows(evidence, "SELECT netdev, age_seconds, recent, origin FROM log") == [("eth0", 10.0, 1, "dmesg:2")]
    assert rows(evidence, "SELECT source, log, complete FROM reading WHERE origin LIKE 'dmesg%'") == [
        ("dmesg", "kernel", 1)
    ]
    assert {row[0] for row in rows(evidence, "SELECT source FROM reading WHERE origin = 'live' AND complete")} == {
        "counters", "kernel_log", "modules", "ports",
    }  # fmt: skip
    assert [timing.source for timing in timings] == ["counters", "kernel_log", "modules", "ports", "counters"]
    assert gaps(evidence) == set()


def test_without_a_window_there_is_one_sample():
    evidence, timings = look(window=0.0)
    assert rows(evidence, "SELECT state, delta FROM counter") == [("one sample", None)]
    assert len(timings) == 4


def test_what_the_node_refuses_is_a_gap_that_says_what_root_would_add():
    evidence, _ = look(Live(log=None))
    assert rows(evidence, 'SELECT "table", kind, how FROM gap') == [("kernel_event", "not_permitted", "run as root")]
    assert rows(evidence, "SELECT 1 FROM reading WHERE source = 'kernel_log'") == []


def test_adapters_set_aside_are_a_gap_and_their_source_is_not_complete():
    def read(host, skip=frozenset()):
        if "mlx5_1" not in skip:
            yield Gap(("counter",), "EINVAL", "restricted", "ask the owner", "mlx5_1")

    evidence, _ = look(modules={"counters": SimpleNamespace(TABLES=("counter",), SAMPLED=True, read=read)})
    assert gaps(evidence) == {("counter", "restricted")}
    assert rows(evidence, "SELECT 1 FROM reading") == []


def test_a_gap_of_the_first_sample_is_said_once():
    def read(host, skip=frozenset()):
        yield Gap(("counter",), "EIO", "unreadable", "", "mlx5_1")

    evidence, _ = look(modules={"counters": SimpleNamespace(TABLES=("counter",), SAMPLED=True, read=read)})
    assert rows(evidence, "SELECT count(*) FROM gap") == [(1,)]


# --- captured trees and what lies beside them ---


@pytest.fixture
def node(tmp_path):
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "tree.txt").write_text(TREE)
    (folder / "tree.before.txt").write_text(f"# seconds 10\n{COUNTER}:5\n")
    return folder


def test_a_captured_tree_is_read_with_its_earlier_sample(node):
    evidence, unread = give(node)
    assert rows(evidence, "SELECT node, delta, seconds, per_second, origin FROM counter") == [
        ("node-a", 10, 10.0, 1.0, f"{node}/tree.txt:{COUNTER}")
    ]
    assert unread == []
    assert gaps(evidence) >= {("kernel_event", "not_given"), ("resource", "not_given")}
    assert ("module", "not_given") not in gaps(evidence)


def test_a_tree_in_a_folder_a_tar_and_a_text_give_the_same_rows(node, tmp_path):
    tree, _ = parse_tree(TREE)
    with tarfile.open(tmp_path / "b.tgz", "w:gz") as archive:
        for path, content in tree.entries.items():
            (tmp_path / "folder" / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "folder" / path[1:]).write_bytes(content + b"\n")
            info = tarfile.TarInfo("bundle" + path)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    (node / "tree.before.txt").unlink()
    wanted = "SELECT node, device, counter, value, state FROM counter UNION SELECT node, module, 0, 0, 0 FROM module"
    found = [rows(give(path)[0], wanted) for path in (node, tmp_path / "b.tgz", tmp_path / "folder")]
    assert found[0] == found[1] == found[2] and len(found[0]) == 3


def test_texts_beside_and_below_a_tree_are_about_its_node(node):
    (node / "ports.txt").write_text("ports:\nport LinkUp\n")
    (node / "logs").mkdir()
    (node / "logs/dmesg.txt").write_text("[    1.000000] eth0: Link down\n")
    evidence, _ = give(node)
    assert evidence.nodes() == ["node-a"]
    assert rows(evidence, "SELECT state, phys_state, origin FROM port") == [
        ("4: ACTIVE", "LinkUp", f"{node}/tree.txt:/state, {node}/ports.txt:2")
    ]
    assert rows(evidence, "SELECT origin FROM log") == [(f"{node}/logs/dmesg.txt:1",)]


def test_a_part_that_the_tree_lacks_is_not_given_even_when_another_source_was_complete(node):
    def partly(host):
        yield Row("port", {"device": "mlx5_0", "port": 2}, "/x")

    def lacks(host):
        raise NotGiven("/proc/modules", "the captured tree does not hold it")
        yield

    modules = {
        "also": SimpleNamespace(TABLES=("module", "port"), read=partly),
        "modules": SimpleNamespace(TABLES=("module",), read=lacks),
    }
    evidence = Evidence()
    collect.from_paths(evidence, [str(node)], modules, LIBRARY, Options())
    assert ("module", "not_given") in gaps(evidence) and ("port", "not_given") not in gaps(evidence)


def test_what_was_looked_for_and_is_absent_is_no_gap(tmp_path):
    text = TREE.replace("/proc/modules:mlx5_core 1 0\n/proc/modules:ib_core 1 0\n", "# absent: /proc/modules\n")
    (tmp_path / "tree.txt").write_text(text)
    assert ("module", "not_given") not in gaps(give(tmp_path)[0])
    (tmp_path / "tree.txt").write_text(text.replace("# absent", "# other"))
    assert ("module", "not_given") in gaps(give(tmp_path)[0])


def test_the_name_given_is_the_trees_node(node):
    assert give(f"prefill={node}")[0].nodes() == ["prefill"]


def test_a_tree_without_a_host_name_is_named_after_its_folder(node):
    (node / "tree.txt").write_text("/proc/modules:x 1\n")
    assert give(node)[0].nodes() == ["bundle"]


# --- pasted texts ---


def test_every_row_names_file_and_line(tmp_path):
    (tmp_path / "x.txt").write_text('root@n1:~# ports\nport LinkUp\nroot@n1:~# qps\n[{"lqpn": 5}]\n')
    evidence, _ = give(tmp_path / "x.txt")
    assert rows(evidence, "SELECT node, origin FROM port") == [("n1", f"{tmp_path}/x.txt:2")]
    assert rows(evidence, "SELECT node, current, origin FROM resource") == [("n1", 1, f"{tmp_path}/x.txt:4")]


def test_two_nodes_are_two_from_options(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("ports:\nport LinkUp\n")
    evidence, _ = give(f"prefill={tmp_path}/a.txt", f"decode={tmp_path}/b.txt")
    assert evidence.nodes() == ["decode", "prefill"]
    assert not any(kind == "assumed" for _, kind in gaps(evidence))


def test_what_comes_through_a_pipe_is_about_the_same_node_as_the_file_beside_it(tmp_path, monkeypatch):
    (tmp_path / "x.txt").write_text("root@n1:~# ports\nport LinkUp\n")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'[{"lqpn": 5}]'), isatty=lambda: False))
    evidence, _ = give("-", tmp_path / "x.txt")
    assert evidence.nodes() == ["n1"]


def test_texts_that_nothing_knows_are_named(tmp_path):
    (tmp_path / "poem.txt").write_text("a poem\n")
    evidence, unread = give(tmp_path)
    assert unread == [str(tmp_path / "poem.txt")]
    assert rows(evidence, "SELECT 1 FROM reading") == []


def test_a_bad_file_is_an_error_where_it_was_named_and_a_gap_in_a_folder(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"\0\0")
    with pytest.raises(BadFile, match="binary"):
        give(tmp_path / "x.bin")
    with pytest.raises(BadFile, match="binary"):
        give(f"n={tmp_path}/x.bin")
    assert gaps(give(tmp_path)[0]) == {("reading", "unreadable")}


def test_an_excerpt_of_the_kernel_log_rules_nothing_out(tmp_path):
    (tmp_path / "dmesg.txt").write_text("[  100.000000] x\n")
    evidence, _ = give(tmp_path / "dmesg.txt")
    assert ("kernel_event", "not_given") in gaps(evidence)
    assert rows(evidence, "SELECT reason FROM gap WHERE \"table\" = 'kernel_event'")[0][0].startswith("only an excerpt")


def test_a_whole_kernel_log_leaves_no_gap(tmp_path):
    (tmp_path / "dmesg.txt").write_text("[    0.000000] Linux version 6\n[  100.000000] x\n")
    assert ("kernel_event", "not_given") not in gaps(give(tmp_path / "dmesg.txt")[0])


def test_what_the_budget_does_not_reach_is_one_gap(tmp_path):
    for name in "abcdef":
        (tmp_path / name).write_text("ports:\n")
    with pytest.raises(BadFile, match="in time"):
        give(tmp_path, budget=0.0)


def test_more_files_than_are_taken_are_one_gap(tmp_path, monkeypatch):
    monkeypatch.setattr(given, "FILES", 3)
    for name in "abcdef":
        (tmp_path / name).write_text("ports:\n")
    evidence, _ = give(tmp_path)
    assert rows(evidence, "SELECT kind FROM gap WHERE source = 'given' AND kind != 'not_given'") == [("truncated",)]


def test_an_excerpt_beside_the_whole_is_no_gap(checked: Callable[..., dict[str, Any]]) -> None:
    report = checked(Path(__file__).parent.parent / "data/nodes/mlx5-roce-8nic-h100")
    assert "pci" not in {table for gap in report["gaps"] for table in gap["tables"]}


def test_file_names_that_are_no_text_do_no_harm(tmp_path):
    folder = os.fsencode(tmp_path)
    for name, content in ((b"\xff.txt", b"ports:\nport LinkUp\n"), (b"\xfe.bin", b"\0"), (b"\xfdpoem", b"a poem")):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
    os.symlink(b"/nowhere", os.path.join(folder, b"\xfclink"))
    evidence, unread = give(tmp_path)
    assert rows(evidence, "SELECT origin FROM port") == [(f"{tmp_path}/\ufffd.txt:2",)]
    assert unread == [f"{tmp_path}/\ufffdpoem"]
    assert rows(evidence, "SELECT count(*) FROM gap WHERE kind = 'unreadable'") == [(2,)]
    with pytest.raises(BadFile, match="binary"):
        give(f"{tmp_path}/\udcfe.bin")


@pytest.mark.parametrize("end", [3001, 40_001, 90_001, 150_001])
def test_a_tree_that_is_cut_off_is_a_gap_and_proves_no_absence(
    tmp_path: Path, checked: Callable[..., dict[str, Any]], end: int
) -> None:
    whole = (Path(__file__).parent.parent / "data/nodes/mlx5-roce-8nic-h100/tree.txt").read_bytes()
    (tmp_path / "tree.txt").write_bytes(whole[:end].rstrip(b"\n"))
    report = checked(tmp_path)
    assert [f["rule"] for f in report["findings"] if f["answer"] == "confirmed" and f["severity"] != "info"] == []
    assert report["summary"]["exit_code"] == 3
    assert "truncated" in {gap["kind"] for gap in report["gaps"]}
