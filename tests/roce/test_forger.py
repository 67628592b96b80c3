"""What the forger makes of packets that go to its victim: right QPN and PSN, within its bounds, to nobody else."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.errors import BadInput
from rdmadiag.roce import forge, packet
from rdmadiag.roce.forger import KINDS, Forger, hear
from rdmadiag.roce.packet import Path

TO_REQUESTER = Path("10.0.0.2", "10.0.0.1", "02:00:00:00:00:02", "02:00:00:00:00:01", 50000)
ACK = forge.ack(TO_REQUESTER, dest_qp=0x22, psn=0x64).data
WRITE = forge.write(TO_REQUESTER, dest_qp=0x11, psn=0xFFFFFF, rkey=7, va=4096).data
VALUES = {"error": "remote-access", "ahead": 0, "timer": 14, "rkey": 5, "va": 0, "kind": "tver", "by": 1000}


def forger(kind: str, **changes: Any) -> Forger:
    """Return a forger for the requester."""
    plan = {"kind": kind, "netdev": "p1", "addresses": ["10.0.0.1"], "rate": 10, "most": 5, "values": VALUES}
    return Forger({**plan, **changes})


def fields(frame: bytes | None) -> tuple[int, int, int]:
    """Return opcode, DestQP and PSN of a frame, whose ICRC must be good."""
    assert frame is not None
    at = packet.places(frame)
    heard = hear(frame)
    assert at and heard
    sealed = bytearray(frame)
    packet.seal(sealed, at)
    assert bytes(sealed) == frame, "its ICRC is wrong"
    return heard.opcode, heard.dest_qp, heard.psn


def test_a_nak_answers_the_oldest_psn_that_is_not_acknowledged() -> None:
    assert fields(forger("nak").take(ACK, 0.0)) == (0x11, 0x22, 0x65)
    ahead = forger("nak", values={**VALUES, "ahead": 10000})
    assert fields(ahead.take(ACK, 0.0)) == (0x11, 0x22, 0x65 + 10000)


def test_a_forged_write_has_the_psn_that_is_due_and_psns_wrap() -> None:
    assert fields(forger("write").take(WRITE, 0.0)) == (0x0A, 0x11, 0)


def test_a_replay_is_bit_by_bit() -> None:
    assert forger("replay").take(WRITE, 0.0) == WRITE


def test_a_cnp_names_the_requesters_qp() -> None:
    assert fields(forger("cnp").take(ACK, 0.0))[:2] == (0x81, 0x22)


@pytest.mark.parametrize("kind", KINDS)
def test_only_packets_that_tell_what_is_needed_are_answered(kind: str) -> None:
    heeds_acks = kind in ("cnp", "nak", "rnr-nak")
    assert (forger(kind).take(ACK, 0.0) is not None) == heeds_acks
    assert (forger(kind).take(WRITE, 0.0) is not None) != heeds_acks


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_sent_to_an_address_that_is_not_permitted(kind: str) -> None:
    one = forger(kind, addresses=["192.0.2.1"])
    assert one.take(ACK, 0.0) is None and one.take(WRITE, 0.0) is None and one.sent == 0


def test_it_keeps_to_its_rate_and_to_its_most() -> None:
    one = forger("nak")
    sent = [one.take(ACK, n * 0.01) is not None for n in range(200)]
    assert sum(sent[:100]) <= 5 + 1 and sum(sent) == 5, "rate 10/s over 1 s, at most 5 in all"
    slow = forger("nak", rate=1, most=100)
    assert sum(slow.take(ACK, n * 0.1) is not None for n in range(31)) <= 5


@pytest.mark.parametrize("plan", [{}, {"kind": "x"}, {"kind": "nak"}], ids=str)
def test_a_plan_that_is_none_is_said(plan: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="a plan of the forger"):
        Forger(plan)
    ran = subprocess.run(
        [sys.executable, "-m", "rdmadiag.roce.forger", json.dumps(plan)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2 and "a plan of the forger" in ran.stderr


@given(st.binary(max_size=200))
def test_no_frame_makes_it_fail(frame: bytes) -> None:
    for kind in KINDS:
        forger(kind).take(frame, 0.0)


@given(st.integers(0, len(WRITE) - 1), st.integers(0, 255))
def test_no_changed_byte_makes_it_fail(place: int, value: int) -> None:
    frame = bytearray(WRITE)
    frame[place] = value
    for kind in KINDS:
        forger(kind).take(bytes(frame), 0.0)
