"""The witness of changed packets: what it takes for a change, and what not."""

from __future__ import annotations

from rdmadiag.lab.compare import Comparison
from rdmadiag.roce import forge, packet
from rdmadiag.roce.packet import Path

THERE = Path("10.0.0.1", "10.0.0.2", "02:00:00:00:00:01", "02:00:00:00:00:02", tos=2)


def data(psn: int = 5) -> bytes:
    return forge.write(THERE, dest_qp=18, psn=psn, rkey=1, va=0, payload=b"x" * 64).data


def changed(frame: bytes, at: int, valid: bool) -> bytes:
    out = bytearray(frame)
    out[at] ^= 0xFF
    if valid:
        places = packet.places(out)
        assert places is not None
        packet.seal(out, places)
    return bytes(out)


def test_a_packet_that_leaves_as_it_came_is_not_changed_and_one_with_another_byte_is() -> None:
    seen = Comparison()
    frames = [data(n) for n in range(4)]
    for frame in frames:
        seen.came(frame)
    marked = bytearray(frames[0])
    places = packet.places(marked)
    assert places is not None
    packet.mark_ce(marked, places)
    payload = places.data + 3
    for frame in (bytes(marked), frames[1], changed(frames[2], payload, True), changed(frames[3], payload, False)):
        seen.left(frame)
    assert (seen.compared, seen.changed, seen.broken) == (4, 1, 1)


def test_a_rewritten_rkey_and_a_rewritten_opcode_are_changes_and_what_never_came_is_nothing() -> None:
    seen = Comparison()
    frame = data()
    seen.left(frame)
    seen.came(frame)
    places = packet.places(frame)
    assert places is not None
    seen.left(changed(frame, places.bth + 12 + 8, True))
    out = bytearray(frame)
    out[places.bth] = 0x04
    packet.seal(out, places)
    seen.left(bytes(out))
    assert (seen.compared, seen.changed) == (2, 2)


def test_answers_are_not_taken_for_requests_with_the_same_psn() -> None:
    seen = Comparison()
    seen.came(data(7))
    seen.left(forge.ack(THERE, dest_qp=18, psn=7).data)
    assert seen.compared == 0
