"""Runs of real programs on this machine: events, and what is done to an end from outside."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rdmadiag import workloads
from rdmadiag.workloads import OnThisMachine, WorkloadError
from tests.workloads import HOSTS

SERVER = "sh -c 'echo listening; exec sleep 300'"


def start(client: str, server: str = SERVER, **given: object) -> workloads.Run:
    parameters = {"client": client, "server": server, "ready": "listening|^READY", **given}
    return workloads.start("command", OnThisMachine(list(HOSTS)), parameters)


def lines(*texts: str, then: str = "") -> str:
    shown = "; ".join(f"echo {text}" for text in ("READY", *texts))
    return f"sh -c '{shown}; {then or 'true'}'"


def test_a_run_ends_with_its_client_and_says_what_was_claimed() -> None:
    with start(lines("moved 100", "moved 250"), patterns=r"moved (?P<bytes>\d+)", unit_bytes=10) as run:
        result = run.finish(30)
    assert result["claimed_bytes"] == 2500
    assert result["exit_codes"] == {"server": 143, "client": 0}
    assert result["problems"] == [] and result["carried"]["answer"] == "unknown"
    kinds = [(event.end, event.kind) for event in run.events]
    assert kinds[:2] == [("server", "ready"), ("client", "ready")]


def test_claims_of_rdma_that_no_counter_can_confirm_are_in_doubt() -> None:
    with start(lines("moved 100"), patterns=r"moved (?P<bytes>\d+)", carrier="rdma") as run:
        result = run.finish(30)
    assert result["ok"] == "unknown" and "no counter of RDMA traffic" in result["doubts"][0]


def test_an_error_without_recovery_fails_the_run_in_the_programs_words() -> None:
    with start(
        lines("moved 100", "bang 12", then="exit 3"), patterns="moved (?P<bytes>\\d+)\nbang (?P<error>\\d+)"
    ) as run:
        result = run.finish(30)
    assert result["ok"] == "no"
    assert result["problems"] == ["the client ended with exit code 3", "the client: 12"]


def test_a_killed_end_is_started_again_under_its_name_and_claims_add_up() -> None:
    with start(lines("moved 100", then="exec sleep 300"), patterns=r"moved (?P<bytes>\d+)") as run:
        run.wait("client", "progress", 30)
        run.kill("client")
        assert not run.is_running("client") and run.is_running("server")
        since = len(run.events)
        run.restart("client")
        run.wait("client", "progress", 30, since)
        run.stop("client")
        result = run.finish(30)
    assert result["claimed_bytes"] == 200
    done = [event.values["by"] for event in run.events if event.kind == "stopped" and event.end == "client"]
    assert done == ["kill", "restart", "stop"]


def test_a_frozen_end_says_nothing_until_it_is_thawed() -> None:
    with start(
        """sh -c 'echo READY; while :; do echo moved 1; sleep 0.02; done'""", patterns=r"moved (?P<bytes>\d+)"
    ) as run:
        run.wait("client", "progress", 30)
        run.freeze("client")
        time.sleep(0.3)
        count = len(run.events)
        time.sleep(0.3)
        assert len(run.events) == count
        run.thaw("client")
        run.wait("client", "progress", 30, count)
        run.stop("client")


def test_a_client_that_stands_still_until_it_is_stopped_had_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    from rdmadiag.workloads import _run

    monkeypatch.setattr(_run, "STALL_SECONDS", 0.2)
    with start(lines("moved 100", then="exec sleep 300"), patterns=r"moved (?P<bytes>\d+)", seconds=0.5) as run:
        result = run.finish(30)
    assert [text for text in result["problems"] if "claimed no more bytes" in text], result["problems"]


def test_a_client_that_does_not_end_is_stopped_and_the_run_failed() -> None:
    with start(lines(then="exec sleep 300")) as run:
        result = run.finish(0.2)
    assert "the client did not end in time and was stopped" in result["problems"]


def test_an_end_that_dies_before_it_is_ready_is_named_with_its_last_words() -> None:
    with pytest.raises(WorkloadError, match=r"server on h2 ended with exit code 5[^|]*\| no such thing"):
        start(lines(), server="sh -c 'echo no such thing >&2; exit 5'")


def test_nothing_is_left_of_a_run_that_was_not_finished(tmp_path: Path) -> None:
    with start(f"sh -c 'echo $$ > {tmp_path}/pid; echo READY; exec sleep 300'"):
        pid = int((tmp_path / "pid").read_text())
        assert os.path.exists(f"/proc/{pid}")
    assert not os.path.exists(f"/proc/{pid}")


def test_a_long_line_without_an_end_is_cut_and_the_last_one_is_read() -> None:
    with start(
        "sh -c 'echo READY; head -c 200000 /dev/zero | tr \\\\0 x; printf moved\\ 7'", patterns=r"moved (?P<bytes>\d+)"
    ) as run:
        result = run.finish(30)
    assert result["claimed_bytes"] == 7


def test_a_missing_program_is_named_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads.load("perftest"), "PROGRAMS", {"ib_write_bwx": "perftest"})
    with pytest.raises(WorkloadError, match="h1 has no ib_write_bwx: apt-get install perftest"):
        workloads.start("perftest", OnThisMachine(list(HOSTS)))


def test_a_client_that_had_ended_by_itself_did_not_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    from rdmadiag.workloads import _run

    monkeypatch.setattr(_run, "STALL_SECONDS", 0.1)
    with start(lines("moved 100", then="sleep 0.3; exit 3"), patterns=r"moved (?P<bytes>\d+)") as run:
        run.wait("client", "ended", 30)
        run.stop("client")
        result = run.finish(5)
    assert result["problems"] == ["the client ended with exit code 3"]
