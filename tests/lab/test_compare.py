"""The witness of changed packets: what it takes for a change, and what not."""

from __future__ import annotations

from rdmadiag.lab.compare import REMEMBERED, Comparison
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
    # What leaves with its old ICRC is damaged, and the receiver drops it: nothing that arrives otherwise.
    for frame in (bytes(marked), frames[1], changed(frames[2], payload, True), changed(frames[3], payload, False)):
        seen.left(frame)
    assert (seen.compared, seen.changed) == (4, 1)


def test_another_icrc_that_is_not_valid_is_no_change() -> None:
    seen = Comparison()
    seen.came(data())
    seen.left(changed(data(), len(data()) - 1, False))
    assert (seen.compared, seen.changed) == (1, 0)


def test_a_rewritten_rkey_and_a_rewritten_opcode_are_changes_and_what_never_came_is_nothing() -> None:
    seen = Comparison()
    frame = data()
    seen.left(frame)
    places = packet.places(frame)
    assert places is not None and seen.compared == 0
    seen.came(frame)
    seen.left(changed(frame, places.bth + 12 + 8, True))
    out = bytearray(frame)
    out[places.bth] = 0x04
    packet.seal(out, places)
    seen.came(frame)
    seen.left(bytes(out))
    assert (seen.compared, seen.changed) == (2, 2)


def test_each_transmission_is_compared_with_itself() -> None:
    seen = Comparison()
    first, again = data(), bytearray(data())
    places = packet.places(again)
    assert places is not None
    packet.put(again, "ip_id", 77, places)
    packet.seal(again, places)
    assert first[-4:] != again[-4:]  # the ICRC covers the IP identification
    seen.came(first)
    seen.came(bytes(again))
    seen.left(first)
    seen.left(bytes(again))
    assert (seen.compared, seen.changed) == (2, 0)


def test_only_what_came_last_is_remembered() -> None:
    seen = Comparison()
    for n in range(REMEMBERED + 5):
        seen.came(data(n))
    seen.left(data(0))
    seen.left(data(REMEMBERED))
    assert seen.compared == 1
