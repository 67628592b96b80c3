"""Packets of verbs and of perftest changed in the lab's switch: what the change does to them, and that its counts are what was seen."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rdmadiag import lab as labs
from rdmadiag.errors import BadInput
from rdmadiag.lab import LabError, inflight, pattern
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


@pytest.fixture
def pair(verbs: Worker) -> Iterator[dict[str, Any]]:
    """Return what is to be known of a connected pair whose requester resends after 67 ms."""
    yield verbs("open_pair", one={"timeout": 14, "psn": 1000}, two={"timeout": 14, "psn": 2000})
    verbs("close_pair")


ONCE = "written once"
"""What becomes of a WRITE whose changed packet the receiver drops: it comes again."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ({"va": 8192}, "written to 8192"),
        ({"length": 128}, "REM_INV_REQ_ERR"),
        ({"psn": 1005}, ONCE),
        ({"opcode": 0x15}, ONCE),
        ({"pkey": 0x1234}, ONCE),
        ({"dest_qp": 0xABCDE}, ONCE),
        ({"rkey": 0x1}, "REM_ACCESS_ERR"),
    ],
)
def test_each_field_of_a_request_can_be_rewritten(
    lab: labs.Lab, verbs: Worker, pair: dict[str, Any], values: dict[str, int], outcome: str
) -> None:
    wanted = {name: value + (pair["address"] if name == "va" else 0) for name, value in values.items()}
    with changed(lab, {"opcode": "RDMA_WRITE_ONLY", "budget": 1}, {"do": "rewrite", "set": wanted}) as running:
        told = verbs("write_text", text="changed on its way")
    assert running.count("it")["done"] == 1
    if outcome.startswith("written"):
        assert told["statuses"] == ["SUCCESS"] and told["places"] == [8192 if "va" in values else 0]
        again = told["moved"][0].get("completer_retry_err", 0)
        assert (again == 0) if "va" in values else (again >= 1)
        assert told["moved"][1].get("out_of_seq_request", 0) == (1 if "psn" in values else 0)
    else:
        assert told["statuses"] == [outcome] and told["places"] == [] and told["states"] == ["ERR", "ERR"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("match", "where"),
    [
        ({"qp": "of the pair"}, "kernel"),
        ({"psn": [1000, 1001]}, "kernel"),
        ({"rkey": "of the pair"}, "kernel"),
        ({"opcode": "RDMA_WRITE_ONLY", "occurrence": 1}, "kernel"),
        ({"from": "h2", "to": "h1", "syndrome": [0, 31]}, "kernel"),
        ({"from": "h2", "to": "h1", "opcode": 0x11, "probability": 1, "seed": 4}, "kernel"),
        ({"bursts": {"enter": 1, "leave": 0.0001}}, "kernel"),
        ({"qp": {"nth": 1}}, "program"),
        ({"psn": {"relative": 0}}, "program"),
    ],
)
def test_each_match_meets_a_write_of_the_pair_or_its_answer_once(
    lab: labs.Lab, verbs: Worker, pair: dict[str, Any], match: dict[str, Any], where: str
) -> None:
    own = {"qp": pair["qpns"][1], "rkey": pair["rkey"]}
    wanted = {key: own[key] if value == "of the pair" else value for key, value in match.items()}
    with changed(lab, {**wanted, "budget": 1}, {"do": "drop"}) as running:
        told = verbs("write_text", text="dropped once")
    count = running.count("it")
    assert (count["done"], count["where"]) == (1, where) and count["seen"] >= 1
    assert told["statuses"] == ["SUCCESS"] and told["places"] == [0]
    assert told["moved"][0]["completer_retry_err"] >= 1  # it was sent again
    assert ("duplicate_request" in told["moved"][1]) == (match.get("from") == "h2")


@pytest.mark.long
def test_what_is_not_named_is_not_met(lab: labs.Lab, verbs: Worker, pair: dict[str, Any]) -> None:
    others = [{"qp": pair["qpns"][1] + 1}, {"psn": 999}, {"rkey": pair["rkey"] ^ 1}, {"syndrome": 0x62}]
    wanted = [{"name": str(n), "match": match, "action": {"do": "drop"}} for n, match in enumerate(others)]
    with inflight.changes(lab, wanted) as running:
        told = verbs("write_text", text="left alone")
    assert told["statuses"] == ["SUCCESS"] and "completer_retry_err" not in told["moved"][0]
    assert [entry["done"] for entry in running.counts()["changes"]] == [0, 0, 0, 0]


@pytest.mark.long
def test_a_resend_is_met_as_such_and_a_delayed_packet_comes_late(
    lab: labs.Lab, verbs: Worker, pair: dict[str, Any]
) -> None:
    first = {"name": "first", "match": {"from": "h1", "psn": {"relative": 0}, "budget": 1}, "action": {"do": "drop"}}
    second = {"name": "again", "match": {"from": "h1", "retransmission": 1}, "action": {"do": "drop"}}
    third = {"name": "late", "match": {"from": "h1", "retransmission": 2}, "action": {"do": "delay", "seconds": 0.03}}
    with inflight.changes(lab, [first, second, third]) as running:
        told = verbs("write_text", text="third time")
    assert told["statuses"] == ["SUCCESS"] and told["places"] == [0]
    assert [running.count(name)["done"] for name in ("first", "again", "late")] == [1, 1, 1]


def test_a_loss_model_is_done_by_the_kernel_and_loses_exactly_its_packets(lab: labs.Lab, verbs: Worker) -> None:
    bursts = {"enter": 0.02, "leave": 0.5}
    with changed(lab, {"opcode": "RDMA_WRITE_MIDDLE", "bursts": bursts, "seed": 2}, {"do": "drop"}) as running:
        told = verbs("compared", count=8, timeout=15)
    assert told["statuses"] == ["SUCCESS"] * 8 and told["wrong"] == 0
    count = running.count("it")
    _, hit = pattern.in_bursts(0.02, 0.5, 1.0, 0.0, 2)
    assert count["done"] == sum(number < count["seen"] for number in hit) > 0
    assert (count["where"], running.counts()["visited"], count["seed"]) == ("kernel", 0, 2)


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
    count, counts = running.count("it"), running.counts()
    _, hit = pattern.randomly(0.01, 5)
    assert count["done"] == sum(number < count["seen"] for number in hit) > 0
    assert (count["seed"], count["where"], counts["visited"]) == (5, "kernel", 0)
