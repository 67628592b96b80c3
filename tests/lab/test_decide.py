"""What becomes of packets in the switch, decided over frames alone."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rdmadiag.lab import changes, pattern
from rdmadiag.lab.decide import Decider
from rdmadiag.roce import forge, packet

PATH = packet.Path("10.0.0.1", "10.0.0.2", "02:00:00:00:00:01", "02:00:00:00:00:02")
HOSTS = {b"\2\0\0\0\0\1": ("h1", "p1"), b"\2\0\0\0\0\2": ("h2", "p2")}

ATOMIC = packet.build(PATH, forge.bth(0x14, 17, 5) + struct.pack(">QIQQ", 0x1000, 0xABC, 1, 0))


def decider(match: dict[str, Any], action: dict[str, Any]) -> Decider:
    return Decider(changes.read([{"match": match, "action": action}]), HOSTS)


def request(psn: int, opcode: int = 0x0A, qp: int = 17, payload: bytes = bytes(16), path: packet.Path = PATH) -> bytes:
    extra = struct.pack(">QII", 0x1000, 0xABC, len(payload)) if opcode in (0x06, 0x0A) else b""
    return packet.build(path, forge.bth(opcode, qp, psn) + extra + payload)


def take(what: Decider, frame: bytes, now: float = 0.0) -> list[bytes]:
    """Return what is sent for a frame."""
    buffer = bytearray(frame)
    return [bytes(buffer) if data is None else data for data in what.take(memoryview(buffer), now)]


def valid(frame: bytes) -> bool:
    at = packet.places(frame)
    assert at is not None
    return packet.packet_icrc(frame[at.l3 : at.icrc], at.udp - at.l3) == struct.unpack_from("<I", frame, at.icrc)[0]


def dropped(match: dict[str, Any], frames: list[bytes]) -> list[int]:
    what = decider(match, {"do": "drop"})
    return [n for n, frame in enumerate(frames) if not take(what, frame)]


@pytest.mark.parametrize(
    ("match", "wanted"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"from": "h2"}, [5]),
        ({"to": "h2"}, [0, 1, 2, 3, 4]),
        ({"opcode": ["RDMA_WRITE_FIRST"]}, [0]),
        ({"qp": 18}, [3]),
        ({"qp": {"nth": 2}, "to": "h2"}, [3]),
        ({"psn": [6, 7], "to": "h2"}, [1, 2, 4]),
        ({"psn": {"relative": 2}, "qp": 17}, [2]),
        ({"retransmission": 1}, [4]),
        ({"occurrence": [2, 3]}, [1, 2]),
        ({"budget": 2}, [0, 1]),
        ({"rkey": 0xABC}, [0, 3]),
        ({"rkey": 0xABD}, []),
        ({"syndrome": [0x60, 0x64]}, [5]),
        ({"syndrome": 0x1F}, []),
        ({"opcode": 0x07, "occurrence": 2, "qp": 17}, [2]),
    ],
)
def test_exactly_the_packets_that_a_match_names_are_met(match: dict[str, Any], wanted: list[int]) -> None:
    frames = [
        request(5, 0x06),
        request(6, 0x07),
        request(7, 0x07),
        request(90, qp=18),
        request(6, 0x07),
        forge.nak(PATH.back(), dest_qp=33, psn=6).data,
    ]
    assert dropped(match, frames) == wanted


def test_a_psn_relative_to_the_first_wraps() -> None:
    assert dropped({"psn": {"relative": 2}}, [request((0xFFFFFF + n) & 0xFFFFFF) for n in range(4)]) == [2]


def test_the_same_seed_meets_the_same_packets_and_another_one_others() -> None:
    frames = [request(n) for n in range(200)]
    first = dropped({"probability": 0.3, "seed": 7}, frames)
    assert first == dropped({"probability": 0.3, "seed": 7}, frames)
    assert first != dropped({"probability": 0.3, "seed": 8}, frames)
    assert 20 < len(first) < 110


def test_bursts_meet_the_packets_of_the_model_also_where_the_kernel_does_not_choose_them() -> None:
    _, hit = pattern.in_bursts(0.05, 0.3, 1.0, 0.0, 3)
    chances = {"enter": 0.05, "leave": 0.3}
    found = dropped({"bursts": chances, "seed": 3}, [request(n) for n in range(400)])
    assert found == [number for number in hit if number < 400] and len(found) > 20


@pytest.mark.parametrize(
    ("field", "value", "frame"),
    [
        ("rkey", 0x1234, request(5)),
        ("va", 0x7F00000000, request(5)),
        ("length", 4096, request(5, 0x06)),
        ("psn", 99, request(5)),
        ("opcode", 0x04, request(5, 0x07)),
        ("pkey", 0x1234, request(5)),
        ("dest_qp", 0xABCDE, request(5)),
        ("syndrome", 0x2E, forge.ack(PATH, dest_qp=1, psn=5).data),
        ("rkey", 0x1234, ATOMIC),
        ("va", 0x7F00000000, ATOMIC),
    ],
)
def test_a_rewritten_field_has_its_value_and_the_icrc_is_valid(field: str, value: int, frame: bytes) -> None:
    what = decider({}, {"do": "rewrite", "set": {field: value}})
    (out,) = take(what, frame)
    at = packet.places(out)
    assert at is not None and packet.get(out, field, at) == value and valid(out)
    found = packet.field_at(field, at)
    assert found is not None
    kept = [n for n in range(len(out) - 4) if out[n] != frame[n]]
    assert kept and set(kept) <= set(range(found[0], sum(found)))
    assert vars(what.rules[0].counts) == {"seen": 1, "matched": 1, "done": 1, "missed": 0, "bytes": len(frame)}


def test_a_packet_without_the_field_passes_as_it_was_and_is_counted_as_missed() -> None:
    what = decider({}, {"do": "rewrite", "set": {"rkey": 1, "psn": 2}})
    frame = request(5, 0x07)
    assert take(what, frame) == [frame]
    assert (what.rules[0].counts.done, what.rules[0].counts.missed) == (0, 1)


@pytest.mark.parametrize("good", [True, False])
def test_one_byte_of_the_payload_is_corrupted_with_or_without_a_valid_icrc(good: bool) -> None:
    frame = request(5, payload=bytes(range(16)))
    what = decider({}, {"do": "corrupt", "offset": 3, "mask": 0x81, "icrc": "valid" if good else "invalid"})
    (out,) = take(what, frame)
    at = packet.places(out)
    assert at is not None
    assert [n - at.data for n in range(at.icrc) if out[n] != frame[n]] == [3] and out[at.data + 3] == 3 ^ 0x81
    assert valid(out) is good
    beyond = decider({}, {"do": "corrupt", "offset": 16})
    assert take(beyond, frame) == [frame] and beyond.rules[0].counts.missed == 1


def test_a_mark_leaves_icrc_and_checksum_valid() -> None:
    for path in (PATH, PATH._replace(src="2001:db8::1", dst="2001:db8::2")):
        (out,) = take(decider({"qp": {"nth": 1}}, {"do": "mark_ce"}), request(5, path=path))
        at = packet.places(out)
        assert at is not None and valid(out)
        six = path is not PATH
        assert (out[at.l3 + 1] >> 4 & 3 if six else out[at.l3 + 1] & 3) == 3
        assert six or packet.checksum(out[at.l3 : at.udp]) == 0


def test_a_packet_reordered_by_n_goes_behind_the_nth_after_it() -> None:
    what = decider({"psn": 5}, {"do": "reorder", "by": 2, "seconds": 1})
    frames = [request(n) for n in (5, 6, 7, 8)]
    assert [out for frame in frames for out in take(what, frame)] == [frames[n] for n in (1, 2, 0, 3)]
    assert what.due(100.0) == [] and what.next_due() is None and what.held_bytes == 0


def test_a_packet_reordered_with_nothing_behind_it_goes_when_its_time_is_up() -> None:
    what = decider({"psn": 5}, {"do": "reorder", "by": 2, "seconds": 1})
    frame = request(5)
    assert take(what, frame, 10.0) == []
    assert what.due(10.9) == [] and what.next_due() == 11.0
    assert what.due(11.0) == [("p2", frame)]
    assert take(what, request(6)) == [request(6)] and take(what, request(7)) == [request(7)]


def test_a_delayed_packet_goes_after_its_time_and_a_duplicate_at_once() -> None:
    what = decider({}, {"do": "delay", "seconds": 0.5})
    assert take(what, request(5), 1.0) == [] and take(what, request(6), 1.2) == []
    assert what.due(1.5) == [("p2", request(5))] and what.next_due() == 1.7
    assert take(decider({}, {"do": "duplicate", "copies": 2}), request(5)) == [request(5)] * 3


def test_held_packets_go_in_order_when_they_are_released_and_none_is_held_after() -> None:
    what = decider({"qp": 17}, {"do": "hold"})
    assert [take(what, request(n)) for n in (5, 6)] == [[], []]
    assert take(what, request(7, qp=18)) == [request(7, qp=18)]
    assert what.release("other") == []
    assert what.release() == [("p2", request(5)), ("p2", request(6))]
    assert take(what, request(7)) == [request(7)] and what.due(1e9) == []


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rdmadiag.lab.decide.HELD_BYTES", 200)
    what = decider({}, {"do": "hold"})
    outs = [take(what, request(n)) for n in range(3)]
    assert [len(out) for out in outs] == [0, 0, 1] and what.rules[0].counts.missed == 1


@settings(max_examples=300, deadline=None)
@example(bytes(12) + b"\x08\x00", False)  # a header of IPv4, and nothing behind it
@given(st.binary(max_size=120), st.booleans())
def test_frames_that_are_no_packets_pass_and_raise_nothing(data: bytes, ours: bool) -> None:
    what = decider({}, {"do": "rewrite", "set": {"psn": 1}})
    frame = (request(5)[:42] + data) if ours else data
    assert len(take(what, frame)) == 1
