"""KV transfers over real rxe: every mode whole and equal, recovery of each kind, fences, and the TCP path on the second network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rdmadiag import lab as labs
from tests.softroce.conftest import Cli, Worker, environment


def whole(told: dict[str, Any]) -> bool:
    """Tell whether every request was published once, and every byte of it is what was sent."""
    return told["damage"] == 0 and [(row["state"], row["publications"], row["audited"]) for row in told["rows"]] == [
        ("published", 1, 1)
    ] * len(told["rows"])


def route(told: dict[str, Any], path: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in told["routes"] if one["path"] == path)
    return found


@pytest.mark.parametrize("mode", ["push", "push_imm", "pull"])
@pytest.mark.parametrize("signal_every", [1, 5])
def test_requests_arrive_whole_with_shuffled_pages_over_rdma(verbs: Worker, mode: str, signal_every: int) -> None:
    told = verbs("transfer", mode=mode, signal_every=signal_every, window=8)
    assert whole(told)
    assert (told["report"]["late_written"], told["report"]["canaries_damaged"]) == (0, 0)
    used = route(told, "rxe1")
    assert (used["kind"], used["peer_device"], used["on_the_wire"]) == ("rdma", "rxe2", True)
    assert used["acknowledged_bytes"] == 3 * 20 * 6 * 512
    assert len(used["qpns"].split()) == 2, "two QPs, kept over all requests"


@pytest.mark.parametrize("preset", ["mooncake", "ucx", "nccl", "3fs", "fast,timeout=14", "rnr"])
def test_every_set_of_rc_attributes_moves_a_request(verbs: Worker, preset: str) -> None:
    told = verbs("transfer", mode="push_imm", rc=preset, requests=1)
    assert whole(told)


@pytest.mark.parametrize("mode", ["push", "pull"])
@pytest.mark.parametrize("what", ["local", "remote", "deregistered"])
def test_a_qp_error_in_the_middle_is_recovered_with_new_qps_and_only_what_is_missing(
    verbs: Worker, mode: str, what: str
) -> None:
    told = verbs("fails_in_the_middle", mode=mode, what=what)
    assert whole(told)
    first = told["rows"][0]
    assert first["retries"] >= 1
    assert 0 <= first["resent_bytes"] <= first["retries"] * 4 * 2 * 2048, "no more than the windows of both QPs held"
    detected = [event["status"] for event in told["events"] if event["event"] == "detected"]
    assert (
        detected[0]
        in {"local": ("WR_FLUSH_ERR",), "remote": ("RETRY_EXC_ERR",), "deregistered": ("REM_ACCESS_ERR",)}[what]
    )
    used = route(told, "rxe1")
    assert used["connections"] == len(used["qpns"].split()) // 2 == 1 + first["reconnects"]
    assert told["report"]["late_written"] == 0


def test_a_receiver_that_posts_nothing_is_named_and_no_path_is_blamed(verbs: Worker) -> None:
    told = verbs("not_ready")
    row = told["rows"][0]
    assert row["state"] == "failed" and "RNR_RETRY_EXC_ERR" in row["why"]
    assert {event["event"] for event in told["events"]} == {"detected", "reconnect"}


def test_when_the_path_dies_what_is_missing_goes_by_tcp_over_the_second_network(verbs: Worker) -> None:
    told = verbs("path_lost")
    assert whole(told)
    assert {"event": "fallback", "status": "RETRY_EXC_ERR", "path": "rxe1", "to_path": "tcp0"} in told["events"]
    used = route(told, "tcp0")
    assert (used["device"], used["on_the_wire"]) == ("e1", True)
    assert used["wire_bytes_sent"] >= used["acknowledged_bytes"] > 0
    assert told["rows"][1]["path"] == "tcp0"


def test_a_path_that_came_back_is_asked_first_and_then_taken_again(verbs: Worker) -> None:
    told = verbs("path_returns")
    assert whole(told)
    assert told["rows"][0]["path"] == "tcp0"
    assert [row["path"] for row in told["rows"][-2:]] == ["rxe1", "rxe1"]
    names = [
        (event["event"], event["path"]) for event in told["events"] if event["event"] not in ("detected", "reconnect")
    ]
    assert names[:2] == [("demoted", "rxe1"), ("fallback", "rxe1")]
    assert names[-2:] == [("back", "tcp0"), ("returned", "rxe1")]
    assert told["report"]["late_written"] == 0


def test_a_blackout_shorter_than_the_retries_is_no_error_and_the_transfer_goes_on(verbs: Worker) -> None:
    told = verbs("short_blackout")
    assert whole(told)
    assert [(row["retries"], row["reconnects"], row["path"]) for row in told["rows"]] == [(0, 0, "rxe1")] * 2
    assert told["events"] == []
    assert told["moved"]["completer_retry_err"] >= 1, "the device knows what no completion says"


def test_when_the_path_dies_the_second_device_is_taken_before_tcp(verbs: Worker) -> None:
    told = verbs("path_lost", rails=2)
    assert whole(told)
    assert {"event": "moved", "status": "RETRY_EXC_ERR", "path": "rxe1", "to_path": "rxe2"} in told["events"]
    assert told["rows"][1]["path"] == "rxe2"
    assert route(told, "rxe2")["on_the_wire"] is True


def test_a_request_that_never_completes_is_ended_by_its_deadline(verbs: Worker) -> None:
    told = verbs("path_lost", rc="timeout=10,retry_cnt=7", deadline_seconds=1.0)
    assert whole(told)
    statuses = {event["status"] for event in told["events"] if event["event"] == "detected"}
    assert statuses == {"SOFTWARE_DEADLINE"}, "rxe retries without end with retry_cnt 7"


def test_a_request_without_any_way_left_fails_alone_and_gives_its_slots_back(verbs: Worker) -> None:
    told = verbs("no_way_left")
    row = told["rows"][0]
    assert (row["state"], row["publications"]) == ("failed", 0) and "every route was tried" in row["why"]
    assert (told["free"], told["quarantined"]) == (75, 0)


def test_new_qps_use_the_gid_that_is_there_now(verbs: Worker) -> None:
    told = verbs("gid_moved")
    assert whole(told)
    assert told["gids"] == ["0000:0000:0000:0000:0000:ffff:0a00:0001", "0000:0000:0000:0000:0000:ffff:0a00:0063"]
    assert told["rows"][1]["path"] == "rxe1" and told["rows"][1]["reconnects"] >= 1


@pytest.mark.parametrize("mode", ["push", "pull"])
def test_a_peer_process_that_is_killed_and_comes_back_is_taken_up_with_new_keys(verbs: Worker, mode: str) -> None:
    told = verbs("killed_peer", mode=mode)
    states = [(row["request"], row["version"], row["state"]) for row in told["rows"]]
    assert states[0] == (1, 1, "published")
    assert (2, 1, "failed") in states and (2, 2, "published") in states
    assert states[-1] == (4, 1, "published")
    assert "session" in told["events"] and told["damage"] == 0
    assert {row["path"] for row in told["rows"]} == {"rxe1"}


def test_a_late_write_into_slots_that_wait_for_a_fence_is_seen(verbs: Worker) -> None:
    report = verbs("late_write", unfenced=False)["report"]
    assert (report["late_written"], report["unfenced_reuses"]) == (2, 0)


def test_a_late_write_into_slots_that_were_lent_again_without_a_fence_is_seen(verbs: Worker) -> None:
    told = verbs("late_write", unfenced=True)
    assert (told["rows"][0]["state"], told["rows"][0]["misplaced"]) == ("published", 2)
    assert (told["report"]["late_written"], told["report"]["unfenced_reuses"]) == (2, 23)


def test_after_a_fence_no_write_lands(verbs: Worker) -> None:
    assert verbs("after_the_fence") == {"fenced": True, "status": "RETRY_EXC_ERR", "drained": True, "untouched": True}


def test_a_run_with_a_reconnect_leaves_no_qp_and_no_memory_registered(verbs: Worker) -> None:
    told = verbs("leaks")
    assert told["after"] == told["before"]


def test_blocks_of_a_store_take_rdma_or_tcp_and_the_dead_path_is_left_and_taken_again(verbs: Worker) -> None:
    told = verbs("dual_path")
    assert told["equal"] and told["small"] and told["equal while dead"] and told["equal after"]
    assert (told["bulk took"], told["small took"]) == (["rxe1"], ["tcp0"])
    assert (told["while dead"], told["after"]) == (["tcp0"], ["rxe1"])
    assert {"demoted", "probation", "returned"} <= set(told["events"])
    assert {
        ("rxe1", "RDMA_READ", "SUCCESS"),
        ("rxe1", "RDMA_WRITE", "SUCCESS"),
        ("tcp0", "RDMA_READ", "SUCCESS"),
    } <= set(map(tuple, told["operations"]))
    assert route(told, "tcp0")["on_the_wire"] is True
    assert route(told, "rxe1")["acknowledged_bytes"] >= 12 * 65536
    assert (told["report"]["late_written"], told["report"]["canaries_damaged"]) == (0, 0)


def test_an_urgent_read_preempts_a_large_one_that_is_under_way_by_rdma_and_that_goes_on_where_it_was(
    verbs: Worker,
) -> None:
    told = verbs("preempted")
    rdma, tcp = told["paths"]["rxe1"], told["paths"]["tcp0"]
    assert all(told["equal"].values()) and len(told["equal"]) == 5
    assert 0 < told["moved before"] < 1 << 20, "the first read was under way, and not done, when the urgent one came"
    assert told["order"][0] == 4, "the urgent one, the last that was asked for, is done first"
    assert rdma["preempted"] >= 1 and tcp["preempted"] == 0
    assert set(map(tuple, told["took"].values())) == {("rxe1",)}
    assert rdma["bytes"] == 5 << 20, "a part that had arrived is not read again"


def test_turns_of_agents_leave_a_dead_path_and_go_back_to_it_with_all_that_was_chosen_told(verbs: Worker) -> None:
    told = verbs("turns")
    assert told["changes"][0] == "demoted" and told["changes"][-2:] == ["probation", "returned"], told["changes"]
    assert told["states"] == ["published"] and not any(told["damage"].values())
    assert told["audited"] == told["requests"] and told["late"] == [0, 0]
    rdma, tcp = sorted(told["paths"], key=lambda path: str(path["kind"]))
    assert (rdma["path"], tcp["path"]) == ("rxe1", "tcp0")
    for path in (rdma, tcp):
        assert 0 < path["rtt_p50_seconds"] < 1 and path["bytes"] > 0
    assert rdma["demotions"] >= 1 and rdma["away_seconds"] > 0 and rdma["state"] == "healthy"
    assert {job["path"] for job in told["jobs"] if job["kind"] == "control"} >= {"tcp0"}
    assert {job["path"] for job in told["jobs"] if job["size"] == "bulk"} == {"rxe1", "tcp0"}
    assert [route["on_the_wire"] for route in told["routes"]] == [True, True]


def test_kv_run_in_a_lab_moves_requests_between_two_processes_and_a_check_reads_the_result(
    cli: Cli, lab: labs.Lab, tmp_path: Path
) -> None:
    import subprocess
    import sys

    result = tmp_path / "result.jsonl"
    words = ["kv", "run", "--lab", lab.name, "--shape", "page-1", "--layers", "4", "--requests", "2", "--tokens", "64"]
    ran = subprocess.run(
        [sys.executable, "-m", "rdmadiag", *words, "--output", str(result), "--format", "json"],
        capture_output=True, text=True, env=environment(), timeout=240, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["kind"], told["published"], told["failed"]) == ("rdma", 2, 0)
    assert told["routes"][0]["on_the_wire"] is True
    assert "request 1: published over rxe1" in ran.stderr
    checked = subprocess.run(
        [sys.executable, "-m", "rdmadiag", "check", "--from", str(result), "--format", "json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert checked.returncode == 0 and json.loads(checked.stdout)["findings"] == []
