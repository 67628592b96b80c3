"""Faults that hit chosen packets, on a real lab: what they do to verbs, and both proofs. What becomes of them when something dies: test_comes_off.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rdmadiag.inject import everything, in_lab, inject
from rdmadiag.lab import Lab
from tests.softroce.conftest import Worker, wait_until

SIZE = 1 << 16
"""Bytes of a message: 16 packets."""
PLACE = "nft list tables; tc qdisc show; ip -o link; ls /run/rdmadiag-inject 2>/dev/null"
pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def look(lab: Lab) -> Iterator[Callable[[], str]]:
    """Return a function that reads the switch's state; at the end it must be as it was."""

    def read() -> str:
        return lab.run(["sh", "-c", PLACE], host="switch").text

    before = read()
    yield read
    everything()
    assert read() == before


def under(
    lab: Lab, verbs: Worker, fault: str, values: dict[str, Any], **work: Any
) -> tuple[dict[str, Any], dict[str, int]]:
    """Move data from h1 to h2 under a fault; return what came of it and what the fault counted. Both proofs must have come."""
    with inject(fault, values, in_lab(lab), for_seconds=300) as injection:
        told = verbs("compared", seconds=60.0, **work)
        deadline = time.monotonic() + 60
        while (fired := injection.fired()).answer != "yes" and time.monotonic() < deadline:
            time.sleep(0.5)
    assert (fired.own.answer, fired.other.answer) == ("yes", "yes"), fired
    assert (injection.outcome.verdict, injection.outcome.problems) == ("FIRED", [])
    return told, dict(fired.own.values)


@pytest.mark.long
def test_a_byte_turned_with_a_valid_icrc_is_seen_by_who_compares_and_by_nobody_else(
    lab: Lab, verbs: Worker, look: Callable[[], str]
) -> None:
    told, counted = under(lab, verbs, "payload-corrupted", {"nth": 4, "offset": 100}, count=1)
    assert told["statuses"] == ["SUCCESS"] and told["states"] == ["RTS", "RTS"]
    assert (told["wrong"], told["first_wrong"]) == (1, [3 * 4096 + 100])
    assert not {"out_of_seq_request", "retry_exceeded_err"} & set(told["moved"][1])
    assert counted == {"done": 1}


@pytest.mark.long
def test_an_rkey_rewritten_on_its_way_is_refused_by_the_peer(lab: Lab, verbs: Worker, look: Callable[[], str]) -> None:
    told, counted = under(lab, verbs, "rkey-rewritten", {}, count=1)
    assert told["statuses"] == ["REM_ACCESS_ERR"] and told["states"] == ["ERR", "ERR"]
    assert told["touched"] is False and counted == {"done": 1}


@pytest.mark.long
def test_a_torn_write_leaves_its_first_packets_in_memory_and_an_error_at_the_requester(
    lab: Lab, verbs: Worker, look: Callable[[], str]
) -> None:
    told, _ = under(lab, verbs, "torn-write", {}, count=1)
    assert told["statuses"] == ["REM_INV_REQ_ERR"] and told["states"] == ["ERR", "ERR"]
    assert (told["wrong"], told["first_wrong"][0]) == (4096, SIZE - 4096)


@pytest.mark.long
def test_a_write_whose_last_packet_is_lost_is_mended_by_what_follows(
    lab: Lab, verbs: Worker, look: Callable[[], str]
) -> None:
    told, counted = under(lab, verbs, "write-last-lost", {"nth": 2}, count=4)
    assert told["statuses"] == ["SUCCESS"] * 4 and told["wrong"] == 0
    assert told["moved"][1]["out_of_seq_request"] >= 1 and counted == {"hit": 1}


@pytest.mark.long
def test_lost_read_responses_are_asked_for_again_without_a_nak(
    lab: Lab, verbs: Worker, look: Callable[[], str]
) -> None:
    told, counted = under(
        lab, verbs, "read-response-lost", {"percent": 10}, opcode="RDMA_READ", count=16, timeout=14, retry_cnt=6
    )
    assert set(told["statuses"]) == {"SUCCESS"} and told["wrong"] == 0
    assert "out_of_seq_request" not in told["moved"][1] and told["moved"][0]["completer_retry_err"] >= 1
    assert counted["hit"] >= 1


@pytest.mark.long
def test_what_is_lost_at_its_first_transmission_only_arrives_with_the_first_resend(
    lab: Lab, verbs: Worker, look: Callable[[], str]
) -> None:
    told, counted = under(
        lab, verbs, "first-transmission-lost", {"percent": 10, "source": "h1"}, count=16, retry_cnt=1, timeout=18
    )
    assert set(told["statuses"]) == {"SUCCESS"} and told["wrong"] == 0
    assert told["moved"][1]["out_of_seq_request"] >= 1 and counted["done"] >= 2


@pytest.mark.long
def test_a_forged_nak_ends_work_that_the_responder_had_taken(lab: Lab, verbs: Worker, look: Callable[[], str]) -> None:
    verbs("hold", timeout=18)
    try:
        with inject("forged-nak", {"victim": "h1", "rate": 1000}, in_lab(lab), for_seconds=300) as injection:
            # In messages of 256 packets 64 are on their way at once: the NAK comes before the next ACK does.
            told = verbs("held_work", count=30, size=1 << 20, seconds=60.0)
            wait_until(lambda: injection.fired().answer == "yes")  # the queue pair is there still, in ERR
            verbs("let_go")
    finally:
        verbs("let_go")
    assert "REM_ACCESS_ERR" in told["statuses"] and told["states"] == ["ERR", "RTS"]
    # Its owner had closed the queue pair before the last look.
    assert (injection.outcome.verdict, injection.outcome.problems) == ("FIRED", [])
