"""A run is judged from its folder alone: a real one (tests/data/runs), and what becomes of the verdict when parts of it are changed."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdmadiag.errors import BadFile
from rdmadiag.scenario import measure, report
from rdmadiag.scenario.record import Folder

RUNS = Path(__file__).parent.parent / "data" / "runs"
Change = Callable[[Path], None]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a copy of a real run's folder."""
    return Path(shutil.copytree(RUNS / "kv-peer-frozen", tmp_path / "run"))


def edit(path: Path, change: Callable[[Any], None]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def facts(change: Callable[[Any], None]) -> Change:
    return lambda folder: edit(folder / "run.json", change)


def told(change: Callable[[Any], None]) -> Change:
    return lambda folder: edit(folder / "scenario.json", lambda data: change(data["scenario"]))


def test_a_real_run_is_judged_again_and_gets_the_same(run: Path) -> None:
    first, again = report.judged(str(run)), report.judged(str(run))
    assert first["verdict"] == "PASS", first["reason"]
    assert first == again


def test_what_it_measured_is_what_happened(run: Path) -> None:
    quantities = report.judged(str(run))["quantities"]
    assert quantities["stall_seconds"]["value"] == pytest.approx(7.857, abs=0.01)
    assert quantities["status.SOFTWARE_DEADLINE"]["value"] >= 1
    assert quantities["wrong_blocks"]["value"] == 0
    assert quantities["signal.transport_retries_exceeded"]["value"] == 0
    assert quantities["kernel_warnings"]["value"] == 0


def test_what_fails_while_a_fault_is_being_put_on_is_counted_from_when_nothing_was_on(run: Path) -> None:
    def detected() -> Any:
        return measure.read(Folder(run)).measured.quantities["detect_seconds"].value

    (begin,) = (fault["begin_seconds"] for fault in json.loads((run / "run.json").read_text())["faults"])
    fails = begin + detected()
    facts(lambda data: data["faults"][0].update(start_seconds=fails - 0.25, begin_seconds=fails + 1))(run)
    assert detected() == pytest.approx(0.25, abs=0.01)
    facts(lambda data: data["faults"][0].update(start_seconds=fails + 0.5))(run)
    assert detected() == math.inf  # that error was there before the fault, and no other came


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda folder: shutil.rmtree(folder / "evidence/after"), "INVALID"),
        (lambda folder: shutil.rmtree(folder / "evidence/before"), "INVALID"),
        (lambda folder: (folder / "workload/result.json").unlink(), "INVALID"),
        (lambda folder: (folder / "events.jsonl").unlink(), "INVALID"),
        (lambda folder: (folder / "events.jsonl").write_text(""), "INVALID"),
        (facts(lambda run: run["faults"][0].update(reverted="no", proof="it is still stopped")), "REVERT_FAILED"),
        (facts(lambda run: run["faults"][0].pop("reverted")), "REVERT_FAILED"),
        (facts(lambda run: run["faults"][0].update(begin_seconds=None)), "NOT_FIRED"),
        (facts(lambda run: run["faults"][0]["own"].update(answer="no")), "NOT_FIRED"),
        (facts(lambda run: run["faults"][0].pop("own")), "INVALID"),
        (facts(lambda run: run["end"].update(how="running")), "INVALID"),
        (facts(lambda run: run["end"].update(how="aborted", reason="Ctrl-C")), "ABORTED"),
        (facts(lambda run: run["end"].update(how="unsupported", reason="no rxe")), "UNSUPPORTED"),
        (facts(lambda run: run["workload"].pop("end_seconds")), "INVALID"),
        (told(lambda data: data["expect"].update(errors=0)), "FAIL"),
        (told(lambda data: data["expect"].update({"signal.cnp_sent": 0})), "INVALID"),
        (told(lambda data: data["expect"].update({"recovery_seconds": {"max": 0.1}})), "FAIL"),
        (told(lambda data: data["findings"].update(must=["transport-retries-exceeded"])), "FAIL"),
        (told(lambda data: data["steady"].update({"goodput_before": {"min": 1e12}})), "INVALID"),
        (told(lambda data: data["fired"].update({"stall_seconds": {"min": 60}})), "NOT_FIRED"),
    ],
)  # fmt: skip
def test_a_run_that_was_otherwise_gets_another_verdict(run: Path, change: Change, verdict: str) -> None:
    change(run)
    found = report.judged(str(run))
    assert found["verdict"] == verdict, found["reason"]


def test_no_time_is_counted_from_what_is_of_the_background(run: Path) -> None:
    before = measure.read(Folder(run)).measured.quantities

    def add(data: Any) -> None:
        around = {
            **data["faults"][0],
            "name": "dcqcn",
            "begin_seconds": 0.5,
            "start_seconds": 0.1,
            "end_seconds": 1e4,
            "off_seconds": 1e4,
        }
        data["faults"].append({**around, "background": True})

    edit(run / "run.json", add)
    with_it = measure.read(Folder(run)).measured
    names = ("goodput_during", "goodput_after", "stall_seconds", "first_byte_seconds", "detect_seconds")
    assert [with_it.quantities[name].value for name in names] == [before[name].value for name in names]
    assert [held.background for held in with_it.faults] == [False, True]
    assert with_it.quantities["goodput_before"].value is not None


def test_what_collecting_takes_from_the_workload_is_not_counted_as_goodput_after(run: Path) -> None:
    events = run / "events.jsonl"
    text = events.read_text()
    found = measure.read(Folder(run))
    end, back = found.goodput.end, found.measured.quantities["goodput_after"].value
    for looked, counted in ((end - 1.0, found.goodput.between(end - 1.0, end)), (0.0, back)):
        look = {"seconds": looked, "from": "witness", "kind": "looked", "values": {"phase": "during"}}
        events.write_text(f"{text}{json.dumps(look)}\n")
        after = measure.read(Folder(run)).measured.quantities["goodput_after"].value
        assert after == counted and (counted != back or not looked)
    (held,) = found.measured.faults
    assert held.end_seconds is not None
    assert measure.read(Folder(run)).measured.looked_late_seconds == -held.end_seconds


def test_goodput_that_did_not_come_back_is_never_and_fails(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    kept = [line for line in lines if line["seconds"] < 10 or line["kind"] not in ("layer", "progress", "verified")]
    (run / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    found = report.judged(str(run))
    assert found["verdict"] == "FAIL" and "recovery_seconds is never" in found["reason"]


@pytest.mark.parametrize("name", ["run.json", "scenario.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\xfe\x00", b'{"schema": "rdmadiag.run/1"'])
def test_what_is_no_run_is_refused_with_its_name(run: Path, name: str, content: bytes) -> None:
    (run / name).write_bytes(content)
    with pytest.raises(BadFile) as refused:
        report.judged(str(run))
    assert refused.value.path.endswith(name)


@pytest.mark.parametrize("name", ["events.jsonl", "samples.jsonl"])
def test_a_last_line_that_is_cut_off_is_left_out_and_garbage_is_named(run: Path, name: str) -> None:
    text = (run / name).read_text()
    (run / name).write_text(text[:-20])
    assert report.judged(str(run))["verdict"] in ("PASS", "INVALID")
    (run / name).write_text("no JSON\n" + text)
    assert any(f"{name}: line 1" in problem for problem in report.judged(str(run))["problems"])


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(key=st.sampled_from(["faults", "workload", "end", "problems", "kernel_warnings", "lab", "started", "seconds"]), value=VALUES)  # fmt: skip
def test_any_facts_are_judged_and_never_pass_by_accident(tmp_path: Path, key: str, value: Any) -> None:
    folder = tmp_path / "run"
    if not folder.exists():
        shutil.copytree(RUNS / "kv-peer-frozen", folder)
        shutil.rmtree(folder / "evidence/during")
    data = json.loads((RUNS / "kv-peer-frozen/run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**data, key: value}))
    shutil.rmtree(folder / "evidence", ignore_errors=True)
    found = measure.read(Folder(folder))
    assert found.measured.problems


def test_a_folder_of_a_taken_name_gets_a_number(tmp_path: Path) -> None:
    assert [Folder.make(tmp_path, "loss").path.name for _ in range(3)] == ["loss", "loss-2", "loss-3"]


def test_what_is_wrong_in_published_requests_is_known_though_others_failed(run: Path) -> None:
    record = {"schema": "rdmadiag.kv/1", "record": "request", "run": "1", "version": 1, "path": "rxe1"}
    audit = ("corrupt", "stale", "missing", "torn", "misplaced")
    lines = [
        record | {"request": 1, "state": "failed", **dict.fromkeys(audit)},
        record | {"request": 2, "state": "published", **dict.fromkeys(audit, 0), "torn": 2},
    ]
    (run / "workload" / "kv.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    quantities = report.judged(str(run))["quantities"]
    assert [quantities[name]["value"] for name in audit] == [0, 0, 0, 2, 0]


def test_what_was_captured_on_both_hosts_is_compared(run: Path) -> None:
    captures = run / "evidence" / "captures"
    captures.mkdir()
    packets = (RUNS.parent / "pcaps" / "softroce-6.1-requester-lab.pcap").read_bytes()
    (captures / "v1.pcapng.gz").write_bytes(gzip.compress(packets))
    (captures / "v2.pcapng.gz").write_bytes(gzip.compress(packets))
    assert "wire-tap-loss" not in {finding["rule"] for finding in report.judged(str(run))["findings"]["during"]}
    (captures / "v2.pcapng.gz").write_bytes(gzip.compress(without_every_ninth(packets)))
    assert "wire-tap-loss" in {finding["rule"] for finding in report.judged(str(run))["findings"]["during"]}


def without_every_ninth(pcap: bytes) -> bytes:
    """Return a capture (pcap, little-endian) as a tap behind a loss of every ninth packet would have it."""
    kept, at, number = [pcap[:24]], 24, 0
    while at < len(pcap):
        size = 16 + int.from_bytes(pcap[at + 8 : at + 12], "little")
        number += 1
        if number % 9:
            kept.append(pcap[at : at + size])
        at += size
    return b"".join(kept)
