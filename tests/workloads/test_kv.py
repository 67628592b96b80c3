"""The kv workload on this machine: two processes, events as they come, every byte compared."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rdmadiag import workloads
from rdmadiag.kv.live import Live
from rdmadiag.scenario import measure
from rdmadiag.workloads import Host, OnThisMachine, kv

HERE = [Host(name, "none", 1, "lo", "127.0.0.1", "127.0.0.1") for name in ("h1", "h2")]


def test_a_transfer_tells_layers_claims_and_what_was_verified() -> None:
    given = {"requests": 2, "layers": 2, "tokens": 64, "tcp_port": 0x6B76, "send": "--merge-bytes 4096", "mode": "pull"}
    with workloads.start("kv", OnThisMachine(HERE), given) as run:
        result = run.finish(60)
    assert result["problems"] == [] and result["ok"] == "yes", result
    assert result["carrier"] == "tcp" and result["carried"]["answer"] == "unknown"
    assert result["content"]["answer"] == "yes" and result["content"]["bytes"] == result["claimed_bytes"]
    assert sorted(event.values["layer"] for event in run.events if event.kind == "layer") == [0, 0, 1, 1, 2, 2, 3, 3]
    assert result["results"]["client"]["published"] == 2


def test_a_second_sender_runs_beside_and_ends_with_the_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    beside = tmp_path / "beside.out"
    monkeypatch.setattr(kv, "BESIDE", str(beside))
    given = {"seconds": 600, "layers": 2, "tokens": 64, "tcp_port": 0x6B77, "beside": "--tokens 16"}
    with workloads.start("kv", OnThisMachine(HERE), given) as run:
        run.wait(workloads.CLIENT, "verified", 60)
        for _ in run.follow(60):
            if "request 1000001: published over tcp0" in beside.read_text():
                break
        run.stop(workloads.CLIENT)
        result = run.finish(60)
    assert "request 1000001: published over tcp0" in beside.read_text()
    assert result["content"]["wrong"] == 0 and result["content"]["blocks"] > 0
    assert subprocess.run(["pgrep", "-f", "[1]27.0.0.1:27511"], check=False).returncode == 1  # nothing of it is left


def test_recovery_is_told_as_error_reconnect_and_recovered() -> None:
    said: list[dict[str, object]] = []
    live = Live(lambda event: said.append(dict(event)))
    live("connected", {"kind": "rdma", "path": "rxe1"})
    live("detected", {"status": "RETRY_EXC_ERR", "path": "rxe1", "reason": "reconnect", "request": 3})
    live("moved", {"status": "RETRY_EXC_ERR", "path": "rxe1", "to_path": "rxe1b"})
    live("completed", {"bytes": 4096})
    live("request", {"why": None, "audited": 1, "corrupt": 1, "bytes": 4096, "blocks": 1, "request": 3}
         | dict.fromkeys(("stale", "missing", "torn", "misplaced"), 0))  # fmt: skip
    assert [event["event"] for event in said if event["event"] != "progress"] == [
        "ready",
        "error",
        "reconnect",
        "recovered",
        "verified",
    ]
    assert said[0]["carrier"] == "rdma" and said[-1]["wrong"] == 1


def test_a_listening_end_that_is_killed_and_started_again_is_taken_up_by_the_sending_end() -> None:
    given = {"layers": 2, "tokens": 64, "slots": 32, "seconds": 60, "tcp_port": 7102}
    with workloads.start("kv", OnThisMachine(HERE), given) as run:
        run.wait("client", "verified", 60)
        run.kill("server")
        run.restart("server")
        since = len(run.events)
        assert run.wait("client", "reconnect", 60).values["why"].startswith("session: the peer's process went away")
        run.wait("client", "recovered", 60)
        run.wait("client", "verified", 60, since)
        run.stop("client")
        result = run.finish(30)
    assert result["content"]["answer"] == "yes"
    counts = measure._of_events(
        [{"from": e.end, "kind": e.kind, "seconds": e.seconds, "values": e.values} for e in run.events], 1e9
    )
    assert counts["event.session"].value == 1 and counts["errors"].value >= 1


def test_turns_of_mode_dual_are_a_workload_too() -> None:
    given = {"mode": "dual", "layers": 2, "tokens": 64, "slots": 32, "requests": 3, "store": "8,16", "tcp_port": 7103}
    with workloads.start("kv", OnThisMachine(HERE), given) as run:
        result = run.finish(60)
    assert result["content"]["answer"] == "yes" and result["exit_codes"]["client"] == 0, result
    assert result["results"]["client"]["paths"][0]["state"] == "healthy"
