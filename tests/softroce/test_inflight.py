"""Packets of verbs and of perftest changed in the lab's switch: what the change does to them, and that its counts are what was seen."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rdmadiag import lab as labs
from rdmadiag.errors import BadInput
from rdmadiag.lab import LabError, inflight
from tests.softroce.conftest import Worker, pingpong, wait_until

WRITES = ["RDMA_WRITE_FIRST", "RDMA_WRITE_ONLY"]


@contextlib.contextmanager
def changed(lab: labs.Lab, match: dict[str, Any], action: dict[str, Any]) -> Iterator[inflight.Running]:
    with inflight.changes(
        lab, [{"name": "it", "match": {"from": "h1", "to": "h2", **match}, "action": action}]
    ) as running:
        yield running


def tables(lab: labs.Lab) -> str:
    return lab.run(["nft", "list", "ruleset"], host="switch").text


def test_a_rewritten_rkey_ends_a_write_with_a_remote_access_error_and_nothing_is_written(
    lab: labs.Lab, verbs: Worker
) -> None:
    with changed(lab, {"opcode": WRITES}, {"do": "rewrite", "set": {"rkey": "0x1"}}) as running:
        told = verbs("compared", count=1)
    assert told["statuses"] == ["REM_ACCESS_ERR"] and told["states"] == ["ERR", "ERR"]
    assert told["touched"] is False
    count = running.count("it")
    assert (count["done"], count["missed"], count["where"]) == (1, 0, "program")


def test_one_corrupted_byte_with_a_valid_icrc_arrives_as_one_wrong_byte_and_nobody_notices(
    lab: labs.Lab, verbs: Worker
) -> None:
    with changed(
        lab, {"opcode": "RDMA_WRITE_MIDDLE", "occurrence": 3}, {"do": "corrupt", "offset": 100, "mask": 0xFF}
    ) as running:
        told = verbs("compared", count=1)
    assert told["statuses"] == ["SUCCESS"]
    assert (told["wrong"], told["first_wrong"]) == (1, [3 * 4096 + 100])
    assert running.count("it")["done"] == 1


def test_without_a_valid_icrc_the_packet_is_lost_and_sent_again(lab: labs.Lab, verbs: Worker) -> None:
    with changed(
        lab, {"opcode": "RDMA_WRITE_MIDDLE", "occurrence": 3}, {"do": "corrupt", "icrc": "invalid"}
    ) as running:
        told = verbs("compared", count=1)
    assert told["statuses"] == ["SUCCESS"] and told["wrong"] == 0
    assert told["moved"][1]["out_of_seq_request"] == 1
    assert running.count("it")["done"] == 1


def test_the_nth_last_packet_of_a_write_is_dropped_by_the_kernel(lab: labs.Lab, verbs: Worker) -> None:
    with changed(lab, {"opcode": "RDMA_WRITE_LAST", "occurrence": 2}, {"do": "drop"}) as running:
        told = verbs("compared", count=4)
    assert told["statuses"] == ["SUCCESS"] * 4 and told["wrong"] == 0
    assert told["moved"][1]["out_of_seq_request"] == 1
    count, all_counts = running.count("it"), running.counts()
    assert (count["done"], count["where"], all_counts["visited"]) == (1, "kernel", 0)
    assert count["seen"] >= 5  # four messages, and what was sent again


def test_an_acknowledgement_turned_into_an_rnr_nak_makes_the_sender_wait_and_send_again(
    lab: labs.Lab, verbs: Worker
) -> None:
    forged = {
        "name": "rnr",
        "match": {"from": "h2", "to": "h1", "opcode": "RC_ACKNOWLEDGE", "budget": 1},
        "action": {"do": "rewrite", "set": {"syndrome": "0x2e"}},
    }
    with inflight.changes(lab, [forged]) as running:
        told = verbs("compared", count=1, size=64)
    assert told["statuses"] == ["SUCCESS"] and told["states"] == ["RTS", "RTS"]
    assert told["moved"][0]["rcvd_rnr_err"] == 1
    assert "send_rnr_err" not in told["moved"][1]  # the responder never said so
    assert told["moved"][1]["duplicate_request"] >= 1
    assert running.count("rnr")["done"] == 1


@pytest.mark.long
def test_the_nth_qp_and_a_psn_relative_to_its_first_are_met(lab: labs.Lab, verbs: Worker) -> None:
    with changed(lab, {"qp": {"nth": 2}, "psn": {"relative": 1}, "retransmission": [1, 9]}, {"do": "drop"}) as resent:
        verbs("compared", count=1)
        told = verbs("compared", count=1)
    assert told["statuses"] == ["SUCCESS"] and resent.count("it")["seen"] == 0
    with changed(lab, {"qp": {"nth": 2}, "psn": {"relative": 1}, "budget": 1}, {"do": "drop"}) as running:
        first = verbs("compared", count=1)
        second = verbs("compared", count=1)
    assert "out_of_seq_request" not in first["moved"][1] and second["moved"][1]["out_of_seq_request"] == 1
    assert running.count("it")["done"] == 1


def test_duplicates_and_reordered_packets_harm_no_data(lab: labs.Lab, verbs: Worker) -> None:
    twice = {
        "name": "twice",
        "match": {"from": "h1", "psn": {"relative": 2}, "budget": 1},
        "action": {"do": "duplicate"},
    }
    late = {
        "name": "late",
        "match": {"from": "h1", "psn": {"relative": 20}, "budget": 1},
        "action": {"do": "reorder", "by": 2},
    }
    with inflight.changes(lab, [twice, late]) as running:
        told = verbs("compared", count=2)
    assert told["statuses"] == ["SUCCESS"] * 2 and told["wrong"] == 0
    # Two NAKs may come of one late packet: it is taken, and the next one after it is then too far ahead again.
    assert told["moved"][1]["out_of_seq_request"] in (1, 2) and told["moved"][1]["duplicate_request"] >= 1
    assert [running.count(name)["done"] for name in ("twice", "late")] == [1, 1]


def test_what_is_held_arrives_when_it_is_released(lab: labs.Lab, verbs: Worker) -> None:
    with changed(lab, {"opcode": "RDMA_WRITE_ONLY", "budget": 1}, {"do": "hold", "seconds": 600}) as running:
        told = verbs("hold", timeout=20, retry_cnt=6)
        try:
            assert told["qpns"]
            assert verbs("held_work", size=64, seconds=1.0)["statuses"] == []
            assert running.count("it")["kept"] == 1
            assert running.release("it")["changes"][0]["kept"] == 0
            assert verbs("held_work", count=1, size=64, seconds=30.0)["statuses"][:1] == ["SUCCESS"]
        finally:
            verbs("let_go")


def test_a_killed_program_lets_traffic_pass_and_leaves_no_rule(lab: labs.Lab) -> None:
    with pytest.raises(LabError, match="ended"), changed(lab, {}, {"do": "delay", "seconds": 30}) as running:
        assert "rdmadiag_inflight" in tables(lab)
        assert lab.run(["kill", "-9", str(running.pid)]).code == 0
        wait_until(lambda: "rdmadiag_inflight" not in tables(lab))
        assert lab.run(pingpong("rxe2", "rxe1", "10.0.0.2", count=20), timeout_seconds=90).code == 0
        running.counts()
    with changed(lab, {}, {"do": "mark_ce"}):  # takes away what the killed one left
        left = lab.run(["sh", "-c", "ls /sys/class/net | grep -c rdf"], host="switch").text
    assert left.strip() == "1"


@pytest.mark.long
def test_a_program_that_stands_still_lets_traffic_pass_after_some_seconds(lab: labs.Lab) -> None:
    with changed(lab, {}, {"do": "delay", "seconds": 0.001}) as running:
        assert lab.run(["kill", "-STOP", str(running.pid)]).code == 0
        time.sleep(11)
        assert lab.run(pingpong("rxe2", "rxe1", "10.0.0.2", count=20), timeout_seconds=90).code == 0
        assert lab.run(["kill", "-CONT", str(running.pid)]).code == 0


def test_a_host_that_is_not_in_the_lab_is_refused_before_anything_starts(lab: labs.Lab) -> None:
    with pytest.raises(BadInput, match="no host 'h9'; there are h1, h2"):
        inflight.Running(lab, [{"match": {"from": "h9"}, "action": {"do": "drop"}}])


@pytest.mark.long
def test_perftest_under_seeded_loss_loses_as_many_packets_as_are_counted(lab: labs.Lab) -> None:
    script = """
    timeout 100 ib_write_bw -d rxe2 -x 1 -s 65536 -n 60 -t 4 -u 18 -F > /dev/null 2>&1 & server=$!; tries=0
    until timeout 90 ib_write_bw -d rxe1 -x 1 -s 65536 -n 60 -t 4 -u 18 -F 10.0.0.2 > /tmp/bw.txt 2>&1; do
      tries=$((tries+1)); [ $tries -lt 20 ] || { cat /tmp/bw.txt; exit 1; }; sleep 0.5
    done; wait $server
    """

    with changed(lab, {"opcode": "RDMA_WRITE_MIDDLE", "probability": 0.01, "seed": 5}, {"do": "drop"}) as running:
        assert lab.run(["sh", "-c", script], timeout_seconds=150).code == 0
    counts = running.counts()
    assert counts["changes"][0]["done"] > 0 and counts["changes"][0]["seed"] == 5
    assert counts["sent"] == counts["visited"] - counts["changes"][0]["done"] - counts["queue_full"]
