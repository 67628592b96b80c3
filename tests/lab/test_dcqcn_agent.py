"""The DCQCN agent on frames: what it answers, which `tc` lines it writes, that its rates are those of the algorithm."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rdmadiag.errors import BadInput
from rdmadiag.lab import dcqcn_agent
from rdmadiag.lab.dcqcn import PAPER
from rdmadiag.lab.dcqcn_agent import Agent
from rdmadiag.roce import forge, packet
from rdmadiag.roce.packet import Path

THERE = Path("10.0.0.1", "10.0.0.2", "02:00:00:00:00:01", "02:00:00:00:00:02", tos=2)
PLAN = {"netdev": "v2", "device": "rxe2", "line": 40e6, "like": "paper", "slower": 200}


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> tuple[Agent, list[str], list[bytes]]:
    """Return an agent with one queue pair (18, whose other end is 33), what it told `tc`, and what it sent."""
    monkeypatch.setattr(dcqcn_agent, "peers", lambda device: {18: 33})
    lines: list[str] = []
    sent: list[bytes] = []
    return Agent(dict(PLAN), lines.append, sent.append), lines, sent


def data(marked: bool = True, qp: int = 18, psn: int = 5) -> bytes:
    frame = bytearray(forge.write(THERE, dest_qp=qp, psn=psn, rkey=1, va=0, payload=b"x" * 64).data)
    if marked:
        at = packet.places(frame)
        assert at is not None
        packet.mark_ce(frame, at)
    return bytes(frame)


def test_a_marked_packet_is_answered_with_a_cnp_to_the_senders_queue_pair(
    agent: tuple[Agent, list[str], list[bytes]],
) -> None:
    what, _, sent = agent
    what.take(data(marked=False), 0.0)
    assert sent == []
    for n in range(5):
        what.take(data(psn=n), 0.004 * n)  # a CNP a 50 us times 200 = 10 ms
    assert len(sent) == 2 and what.counts["ce_seen"] == 5 and what.counts["cnps_sent"] == 2
    at = packet.places(sent[0])
    assert at is not None and at.opcode == 0x81 and packet.get(sent[0], "dest_qp", at) == 33
    assert sent[0][:6] == bytes.fromhex("020000000001") and sent[0][26:34] == bytes([10, 0, 0, 2, 10, 0, 0, 1])


def test_a_cnp_cuts_the_rate_of_its_queue_pair_and_time_brings_it_back(
    agent: tuple[Agent, list[str], list[bytes]],
) -> None:
    what, lines, _ = agent
    what.take(forge.cnp(THERE, dest_qp=18).data, 1.0)
    assert lines[0].startswith("class add dev v2 parent 6d1d: classid 6d1d:2 htb rate 40000000bit")
    assert "match ip dst 10.0.0.1" in lines[0] and "match u32 0x21 0x00ffffff at 32 flowid 6d1d:2" in lines[0]
    assert "class change dev v2 parent 6d1d: classid 6d1d:2 htb rate 20000000bit" in lines[1]
    assert what.due() == pytest.approx(1.0 + PAPER.timer * 200)
    what.go_on(1.0 + PAPER.timer * 200 * 1.001, {2: 1000})
    assert "htb rate 30000000bit" in lines[-1]
    for n in range(2, 40):
        what.go_on(1.0 + PAPER.timer * 200 * n, {2: 1000 * n})
    assert "htb rate 40000000bit" in lines[-1] and what.due() is None
    told = json.loads(what.told(2.0))
    assert told["emulated"] is True and told["rates"] == {"18": 40000000} and told["rate_cuts"] == 1


def test_a_second_cnp_makes_no_second_class(agent: tuple[Agent, list[str], list[bytes]]) -> None:
    what, lines, _ = agent
    for n in range(3):
        what.take(forge.cnp(THERE, dest_qp=18).data, n * 1e-3)
    assert [line.split()[1] for line in lines] == ["add", "change", "change", "change"]


def test_what_names_no_queue_pair_of_this_host_is_counted_and_asked_for_rarely(
    agent: tuple[Agent, list[str], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    what, lines, sent = agent
    asked: list[str] = []
    monkeypatch.setattr(dcqcn_agent, "peers", lambda device: asked.append(device) or {})
    for n in range(100):
        what.take(forge.cnp(THERE, dest_qp=99).data, n * 1e-3)
        what.take(data(qp=98, psn=n), n * 1e-3)
    assert lines == [] and sent == [] and what.counts["unknown_qps"] >= 100
    assert asked == ["rxe2"]


def test_other_packets_and_garbage_are_nothing(agent: tuple[Agent, list[str], list[bytes]]) -> None:
    what, lines, sent = agent
    for frame in (b"", b"\0" * 60, data()[:30], forge.cnp(THERE, dest_qp=18).data[:-10]):
        what.take(frame, 0.0)
    assert (lines, sent, what.counts["cnps_heard"]) == ([], [], 0)


@pytest.mark.parametrize(
    "change", [{"like": "tcp"}, {"line": "fast"}, {"netdev": None, "device": None, "slower": None}]
)
def test_a_plan_that_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="a plan of the DCQCN agent"):
        Agent({**PLAN, **change}, lambda line: None, lambda frame: None)
