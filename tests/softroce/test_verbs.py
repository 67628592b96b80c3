"""The verbs layer on real rxe: every operation, every wrong transition, and what faults do to completions, QPs and counters."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rdmadiag import lab as labs
from rdmadiag.lab import topology
from tests.softroce import rxe_behaviour
from tests.softroce.conftest import Worker

CASES = rxe_behaviour.ROWS[rxe_behaviour.KERNELS[0]]


@contextmanager
def at_switch(lab: labs.Lab, discipline: str, rate: str = "") -> Iterator[None]:
    """Put a queueing discipline below the rate limit (or another) of the switch's port p2, and the port's own back."""
    if rate:
        change(lab, f"qdisc change dev p2 root handle 1: tbf rate {rate} burst 15000 limit {lab.options.queue_bytes}")
    if discipline:
        change(lab, f"qdisc replace dev p2 parent 1:1 handle 20: {discipline}")
    try:
        yield
    finally:
        if discipline:
            change(lab, "qdisc del dev p2 root")
            for line in topology.qdiscs("p2", topology.shape(lab.options)):
                change(lab, line)


def change(lab: labs.Lab, words: str) -> None:
    ran = lab.run(["tc", *words.split()], host="switch")
    assert ran.code == 0, ran.err.decode()


@pytest.fixture(scope="session")
def measured(verbs: Worker) -> dict[str, rxe_behaviour.Row]:
    release = verbs("release")
    rows = rxe_behaviour.rows(release)
    if rows is None:
        pytest.skip(f"what rxe of Linux {release} does was not measured; known: {', '.join(rxe_behaviour.KERNELS)}")
    return rows


def test_pyverbs_is_the_distributions(verbs: Worker) -> None:
    assert "/dist-packages/pyverbs/" in verbs("found_pyverbs")


@pytest.mark.parametrize("listed", [False, True], ids=["by the extended QP", "by lists of ibv_send_wr"])
def test_every_operation_arrives_as_it_was_sent(verbs: Worker, listed: bool) -> None:
    assert verbs("operations", listed=listed) == {
        "poster": "_Listed" if listed else "_Extended",
        "RDMA_WRITE": "abcdefgh",
        "RDMA_READ": ["fromthem", 8],
        "RDMA_WRITE_WITH_IMM": ["abcdefgh", "RECV_RDMA_WITH_IMM", 0x01020304, 8, 70],
        "SEND": ["abcdefgh", "RECV", None],
        "scatter, gather": ["ef", "ghabcd", 7, 8],
        "inline": "inlined",
        "ATOMIC_FETCH_AND_ADD": [41, 42],
        "ATOMIC_CMP_AND_SWP": [42, 99],
        "batch": [[3], "abcdefgh" * 4],
        "crossed the wire": True,
    }


@pytest.mark.parametrize("opcode", ["RDMA_WRITE", "RDMA_READ"])
def test_a_stream_with_a_window_and_few_signals_moves_every_byte(verbs: Worker, opcode: str) -> None:
    told = verbs("streamed", opcode=opcode)
    assert (told["bad"], told["equal"], told["states"]) == ([], True, ["RTS", "RTS"])


@pytest.mark.parametrize("case", list(CASES))
def test_rxe_does_to_a_request_what_it_did_when_measured(
    verbs: Worker, lab: labs.Lab, measured: dict[str, rxe_behaviour.Row], case: str
) -> None:
    row = measured[case]
    with at_switch(lab, row.switch):
        told = verbs("work", **row.run)
    assert dict(Counter(told["statuses"])) == row.statuses
    assert told["states"] == list(row.states)
    assert rxe_behaviour.differences(row.requester, told["moved"][0]) == []
    assert rxe_behaviour.differences(row.responder, told["moved"][1]) == []
    assert told["wr_ids"] == sorted(told["wr_ids"])


def packet(held: dict[str, Any], opcode: int, payload: Any, psn: int = 0) -> str:
    """Return a frame of the first host to the second one's QP, with a right ICRC."""
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    from rdmadiag.roce import layers

    link = Ether(src=held["macs"][0], dst=held["macs"][1])
    ip = IP(src="10.0.0.1", dst="10.0.0.2", tos=2, flags="DF")
    bth = layers.BTH(opcode=opcode, dqpn=held["qpns"][1], psn=psn, ackreq=opcode != 0x81)
    return bytes(link / ip / UDP(sport=0xC000, dport=4791, chksum=0) / bth / payload).hex()


@pytest.fixture
def held(verbs: Worker) -> Iterator[dict[str, Any]]:
    """Return a connected pair that lives in the worker during a test."""
    yield verbs("hold", timeout=14, retry_cnt=7)
    verbs("let_go")


def test_a_forged_write_with_a_bad_rkey_stalls_its_victim(
    verbs: Worker, measured: dict[str, rxe_behaviour.Row], held: dict[str, Any]
) -> None:
    from rdmadiag.roce import layers

    reth = layers.RETH(va=held["memory"][0], rkey=held["memory"][2] ^ 0xFF, dmalen=8)
    assert verbs("inject", frames=[packet(held, 0x0A, reth / b"forgedxx", held["psns"][0])]) == 1
    told = verbs("held_work", seconds=4.0)
    assert told["statuses"] == []
    assert told["states"] == ["RTS", "ERR"]
    assert told["moved"][0]["completer_retry_err"] > 0


def test_rxe_does_not_react_to_congestion_notifications(
    verbs: Worker, measured: dict[str, rxe_behaviour.Row], held: dict[str, Any]
) -> None:
    from rdmadiag.roce import layers

    assert verbs("inject", frames=[packet(held, 0x81, layers.CNPPadding())], times=2000) == 2000
    told = verbs("held_work", count=4, seconds=20.0)
    assert told["statuses"] == ["SUCCESS"] * 4
    assert told["states"] == ["RTS", "RTS"]
    assert rxe_behaviour.differences({}, told["moved"][0]) == rxe_behaviour.differences({}, told["moved"][1]) == []


def test_a_switch_with_red_marks_packets_of_a_qp_that_is_ecn_capable(verbs: Worker, lab: labs.Lab) -> None:
    red = f"red limit {lab.options.queue_bytes} min 12000 max 60000 avpkt 1000 burst 25 probability 0.2 bandwidth 60mbit ecn"
    with at_switch(lab, red, "60mbit"):
        told = verbs("marked")
        marked = lab.run(["tc", "-s", "qdisc", "show", "dev", "p2"], host="switch").text
    assert told["statuses"] == ["SUCCESS"] * 32
    assert told["ecn"].get("3", 0) > 0, told["ecn"]
    assert "marked 0 " not in marked and "marked" in marked


def test_dropping_every_last_packet_of_a_write_stalls_it_for_ever(
    verbs: Worker, lab: labs.Lab, measured: dict[str, rxe_behaviour.Row]
) -> None:
    change(lab, "qdisc add dev p1 clsact")
    try:
        # UDP payload begins 28 bytes into the IPv4 packet: the opcode, RC WRITE LAST.
        change(lab, "filter add dev p1 ingress protocol ip prio 1 u32 match u8 0x08 0xff at 28 action drop")
        told = verbs("work", count=1, retry_cnt=7, timeout=12, seconds=4.0)
    finally:
        change(lab, "qdisc del dev p1 clsact")
    assert (told["statuses"], told["states"]) == ([], ["RTS", "RTS"])
    assert told["moved"][0]["completer_retry_err"] > 0


def test_a_wrong_transition_is_refused_with_the_masks_that_it_needs(verbs: Worker) -> None:
    told = verbs("transitions")
    assert told.pop("after reset") == "RESET"
    assert told.pop("connected again") == "RTS"
    assert {pair: (error, stayed) for pair, (error, _, stayed) in told.items()} == dict.fromkeys(("RESET to RTS", "RESET to INIT", "INIT to RTS", "INIT to RTR", "RTR to INIT", "RTS to RTS", "RTS to RTR", "ERR to RTS", "RESET to ERR"), ("WrongTransition", True))  # fmt: skip
    assert "missing IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX" in told["RESET to INIT"][1]
    assert "required 0x39" in told["RESET to INIT"][1]
    assert "not allowed IBV_QP_TIMEOUT" in told["RTS to RTS"][1]
    assert "from RESET it can go to RESET, INIT" in told["RESET to RTS"][1]


def test_a_wrong_value_is_refused_by_the_kernel_and_its_errno_kept(verbs: Worker) -> None:
    told = verbs("refused_by_the_kernel")
    assert told["class"] == "VerbsError"
    assert told["errno"] in (errno.EINVAL, errno.ENODATA)
    assert "INIT to RTR" in told["message"]


def test_a_drain_ends_every_send_and_receive(verbs: Worker) -> None:
    told = verbs("drained", count=20)
    assert told == {
        "sends": list(range(20)), "receives": list(range(1000, 1005)), "statuses": ["WR_FLUSH_ERR"], "again": [], "state": "ERR",
    }  # fmt: skip


def test_new_qps_take_the_place_of_failed_ones(verbs: Worker) -> None:
    told = verbs("anew")
    assert told == {"before": ["REM_ACCESS_ERR", "WR_FLUSH_ERR"], "changed": True, "after": ["SUCCESS", "SUCCESS"]}


def test_nothing_is_left_of_endpoints_that_were_closed_or_could_not_be_made(verbs: Worker) -> None:
    told = verbs("leaks")
    assert told["after"] == told["before"]
    assert "no GID index 99; the table has" in told["message"]


def test_an_event_channel_gives_completions_without_polling(verbs: Worker) -> None:
    assert verbs("by_channel") == {"empty": [], "imms": [0, 1, 2]}


def test_asynchronous_events_of_gid_qp_cq_and_port_are_read(verbs: Worker) -> None:
    told = verbs("asynchronous")
    assert told["none"] is None
    assert told["gid"] == ["GID_CHANGE", None, 1]
    assert "0000:0000:0000:0000:0000:ffff:0a00:004d" in told["table"]
    event, qpn = told["drained"]
    assert event == ["SQ_DRAINED", qpn, None]
    assert told["overrun"] == ["CQ_ERR", None, None]
    assert told["port down"] == [["PORT_ERR", None, 1], "DOWN"]
    assert "PORT_ACTIVE" in told["port up"]
    assert told["state"] == "ACTIVE"


def test_ends_are_connected_by_data_exchanged_over_tcp(verbs: Worker) -> None:
    assert verbs("over_tcp") == {"statuses": ["SUCCESS", "SUCCESS"], "device": "rxe2"}


def test_ends_are_connected_by_rdma_cm(verbs: Worker) -> None:
    told = verbs("by_rdma_cm")
    assert told == {
        "status": "SUCCESS", "timeout": 17, "theirs": ["18", "RTS", str(1 << 20)], "memory": "by cm", "nobody": "REJECTED",
    }  # fmt: skip


def test_a_device_that_is_not_there_is_named_with_those_that_are(verbs: Worker) -> None:
    assert verbs("missing_device").startswith("BadInput: no RDMA device 'mlx5_0'; libibverbs sees rxe1, rxe2")
