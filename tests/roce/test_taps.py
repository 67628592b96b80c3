"""Two captures of one path: what became of the packets between them, whatever the clocks of the two say."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rdmadiag.roce import analysis, taps
from rdmadiag.roce.taps import Tap, compare
from tests.roce.captures import MS, US, A, B, aeth, bth, frame, pcap, pcapng, reth

Packet = tuple[int, bytes]
SENT, WAY, CLOCKS = 40, 20 * US, 7_000_000 * MS
"""Requests, the way from end to end, and how far the second capture's clock is ahead [ns]."""


def write(
    psn: int, size: int = 1000, opcode: int = 0x0A, ip_id: int | None = None, ce: bool = False, flip: int = 0
) -> bytes:
    body = bytes([flip]) + bytes(15) + bytes(size) if opcode == 0x0A else bytes(size)
    return frame(bth(opcode, 34, psn, ack=1) + body, ip_id=psn if ip_id is None else ip_id, tos=3 if ce else 2)


def ack(psn: int, syndrome: int = 31) -> bytes:
    return frame(bth(0x11, 17, psn) + aeth(syndrome, psn), B, A, ip_id=psn)


def requests(count: int = SENT, apart: int = MS) -> list[Packet]:
    return [(n * apart, write(n)) for n in range(count)]


def answers(count: int = SENT, apart: int = MS, later: int = 300 * US) -> list[Packet]:
    return [(n * apart + later, ack(n)) for n in range(count)]


def tapped(frames: Sequence[Packet], snaplen: int = 0) -> Tap:
    tap = Tap()
    frames = sorted(frames, key=lambda one: one[0])
    data = pcap(frames, ns=True, snaplen=snaplen) if snaplen else pcapng(frames)
    analysis.analyse(io.BytesIO(data), "x", each=tap)
    return tap


def between(
    sent: Sequence[Packet],
    came: Callable[[int, bytes], Sequence[Packet]],
    back: Callable[[int, bytes], Sequence[Packet]] = lambda at, packet: [(at + WAY, packet)],
    more: Sequence[Packet] = (),
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Return the paths there and back, and all kinds of packets, of a capture at A and one at B whose clock is elsewhere."""
    replies = answers()
    at_a = [*sent, *(one for at, packet in replies for one in back(at, packet))]
    at_b = [*(one for at, packet in sent for one in came(at, packet)), *replies, *more]
    found = compare(tapped(at_a), tapped([(at + CLOCKS, packet) for at, packet in at_b]))
    there = next(path for path in found.paths if path["src"] == A)
    other = next(path for path in found.paths if path["src"] == B)
    return there, other, found.packets


def straight(at: int, packet: bytes) -> list[Packet]:
    return [(at + WAY, packet)]


def test_a_healthy_path_shows_its_round_trip_and_nothing_else() -> None:
    there, back, _ = between(requests(), straight)
    assert there["both"] >= SENT - 2 and back["both"] >= SENT - 2
    assert abs(there["round_trip_us"] - 2 * WAY / 1000) < 1
    for name in ("lost", "again", "strange", "changed", "overtaken", "marked"):
        assert not there[name] and not back[name]


def test_losses_are_counted_by_their_order_and_length() -> None:
    lost = (10, 11, 12, 30)
    there, back, kinds = between(requests(), lambda at, packet: [] if at // MS in lost else straight(at, packet))
    assert there["lost"] == 4 and there["longest_run"] == 3 and there["runs"] == 2 and there["lost_at_end"] == 0
    assert there["passed_after_long"] >= 20 and not back["lost"]
    assert [kind["lost"] for kind in kinds if kind["opcode"] == 0x0A] == [4]


def test_a_cut_loses_all_that_comes_last() -> None:
    there, _, _ = between(requests(), lambda at, packet: [] if at >= 20 * MS else straight(at, packet))
    assert there["lost_at_end"] == there["lost"] >= 15


def test_a_small_mtu_loses_the_long_ones_only() -> None:
    sent = [(n * MS, write(n, 1000 if n % 2 else 10)) for n in range(SENT)]
    there, _, _ = between(sent, lambda at, packet: [] if len(packet) > 900 and at > 10 * MS else straight(at, packet))
    assert there["passed_after_long"] == 0 and there["passed_after_short"] >= 10 and there["lost_least_bytes"] > 900


def test_lengths_are_those_on_the_wire_and_two_captures_may_keep_different_parts() -> None:
    sent = [(n * MS, write(n, 1000 if n % 2 else 10)) for n in range(SENT)]
    came = [(at + WAY, packet) for at, packet in sent if len(packet) < 900 or at < 10 * MS]
    back = answers()
    here = tapped([*sent, *((at + WAY, packet) for at, packet in back)], 96)
    for snaplen in (96, 128, 65535):
        there = tapped([*came, *back], snaplen)
        (path,) = [path for path in compare(here, there).paths if path["src"] == A]
        assert path["lost"] >= 13 and path["lost_least_bytes"] > 900 and path["passed_after_long"] == 0, snaplen
        assert path["both"] >= 20 and not path["changed"] and not path["strange"], snaplen


def test_what_comes_twice_is_told_from_what_was_never_sent() -> None:
    strange = (15 * MS + 500 * US, frame(bth(0x11, 17, 15) + aeth(0x62), B, A, ip_id=999))
    twice = lambda at, packet: straight(at, packet) * (2 if at == 20 * MS else 1)  # noqa: E731
    there, _, _ = between(requests(), twice)
    assert there["again"] == 1 and there["strange"] == 0 and there["again_lag_us"] == 0
    later = lambda at, packet: [*straight(at, packet), (at + 5 * MS, packet)][: 2 if at == 20 * MS else 1]  # noqa: E731
    assert abs(between(requests(), later)[0]["again_lag_us"] - 4980) < 1
    at_a = [*requests(), *((at + WAY, packet) for at, packet in answers()), strange]
    at_b = [
        *((at + WAY + CLOCKS, packet) for at, packet in requests()),
        *((at + CLOCKS, packet) for at, packet in answers()),
    ]
    found = compare(tapped(at_a), tapped(at_b))
    (nak,) = [kind for kind in found.packets if kind["strange"]]
    assert nak["syndrome"] == 0x62 and nak["src"] == B and nak["dst"] == A and nak["psn_ahead"] == 0


def test_a_packet_damaged_on_its_way_is_one_changed_not_one_lost_and_one_forged() -> None:
    def damage(at: int, packet: bytes) -> list[Packet]:
        return [(at + WAY, write(20, flip=0x5A))] if at == 20 * MS else straight(at, packet)

    there, _, _ = between(requests(), damage)
    assert (there["changed"], there["lost"], there["strange"]) == (1, 0, 0)
    assert (there["changed_opcode"], there["changed_rkey"]) == (0, 0)


def test_a_rewritten_opcode_and_a_rewritten_key_are_told_apart() -> None:
    def sent(psn: int, opcode: int = 0x0A, rkey: int = 7) -> bytes:
        return frame(bth(opcode, 34, psn) + reth(0, rkey, 900) + bytes(900), ip_id=psn)

    def rewrite(at: int, packet: bytes) -> list[Packet]:
        psn = at // MS
        return [(at + WAY, sent(psn, 0x06) if psn == 10 else sent(psn, rkey=8) if psn in (20, 21) else packet)]

    there, _, _ = between([(n * MS, sent(n)) for n in range(SENT)], rewrite)
    assert (there["changed"], there["changed_opcode"], there["changed_rkey"], there["lost"]) == (3, 1, 2, 0)


@pytest.mark.parametrize("snaplen,seen", [(96, 2), (62, 0)])
def test_a_rewritten_key_is_seen_in_cut_packets_too_where_the_reth_is_kept(snaplen: int, seen: int) -> None:
    def sent(psn: int, rkey: int = 7) -> bytes:
        return frame(bth(0x0A, 34, psn) + reth(0, rkey, 900) + bytes(900), ip_id=psn)

    here = [(n * MS, sent(n)) for n in range(SENT)]
    there = [(n * MS + WAY, sent(n, 8 if n in (20, 21) else 7)) for n in range(SENT)]
    back = answers()
    found = compare(tapped([*here, *((at + WAY, packet) for at, packet in back)], snaplen), tapped([*there, *back], 96))
    (path,) = [path for path in found.paths if path["src"] == A]
    assert (path["changed"], path["changed_rkey"], path["lost"], path["strange"]) == (seen, seen, 0, 0)


def test_packets_that_are_overtaken_are_not_lost() -> None:
    late = lambda at, packet: [(at + WAY + (3 * MS if at == 20 * MS else 0), packet)]  # noqa: E731
    there, _, _ = between(requests(), late)
    assert there["overtaken"] == 1 and there["lost"] == 0


def test_marks_made_between_the_taps_are_counted() -> None:
    def mark(at: int, packet: bytes) -> list[Packet]:
        return [(at + WAY, write(at // MS, ce=True))] if at in (20 * MS, 21 * MS) else straight(at, packet)

    there, _, _ = between(requests(), mark)
    assert there["marked"] == 2 and there["lost"] == 0


def test_a_delay_shows_in_the_round_trip_and_a_narrow_link_in_what_is_sent_at_once() -> None:
    there, _, _ = between(requests(), lambda at, packet: [(at + WAY + (10 * MS if at > 5 * MS else 0), packet)])
    assert 9_000 < there["round_trip_us"] < 11_000 and 9_000 < there["wait_us_p50"] < 11_000
    trains = [(n // 4 * 10 * MS + n % 4 * 10 * US, write(n)) for n in range(4 * SENT)]
    slow = lambda at, packet: [(at + WAY + (at % (10 * MS)) * 100, packet)]  # noqa: E731
    there, _, _ = between(trains, slow)
    assert 900 < there["train_gap_us_p50"] < 1100 and 0.007 < there["train_gbps"] < 0.009


def test_what_passed_before_a_loss_had_waited_where_a_queue_was_full_and_not_where_packets_are_just_lost() -> None:
    trains = [(n // 8 * 10 * MS + n % 8 * 10 * US, write(n)) for n in range(20 * 8)]

    def full(at: int, packet: bytes) -> list[Packet]:  # the fifth packet of each train finds no room
        place = at % (10 * MS) // (10 * US)
        return [(at + WAY + place * 500 * US, packet)] if place < 5 else []

    def lossy(at: int, packet: bytes) -> list[Packet]:
        place = at % (10 * MS) // (10 * US)
        return [(at + WAY + place * 500 * US, packet)] if place > 2 else []

    assert 1_900 < between(trains, full)[0]["wait_at_loss_us"] < 2_100
    there, _, _ = between(
        trains, lambda at, packet: lossy(at, packet) if at % (20 * MS) < 10 * MS else straight(at, packet)
    )
    assert there["lost"] and there["wait_at_loss_us"] < 100
    assert "wait_at_loss_us" not in between(requests(), straight)[0]


def test_captures_of_different_paths_say_nothing() -> None:
    assert compare(tapped(requests()), tapped(answers())).paths == []
    assert compare(Tap(), Tap()).flows == []


def test_captures_of_one_direction_do_not_tell_which_tap_is_nearer() -> None:
    found = compare(tapped(requests()), tapped([(at + CLOCKS + WAY, packet) for at, packet in requests()]))
    assert found.paths == [] and found.flows[0]["both"] == SENT


def test_a_capture_that_says_how_long_it_ran_shows_what_was_lost_after_its_last_packet() -> None:
    here = tapped([*requests(), *((at + WAY, packet) for at, packet in answers(20))])
    there = tapped(
        [(at + CLOCKS, packet) for at, packet in [*((at + WAY, packet) for at, packet in requests(20)), *answers(20)]]
    )
    (path,) = [path for path in compare(here, there).paths if path["src"] == A]
    assert not path["lost"]
    there.until = CLOCKS + 500 * MS
    (path,) = [path for path in compare(here, there).paths if path["src"] == A]
    assert path["lost_at_end"] == path["lost"] >= 15


def test_what_is_not_kept_of_a_long_capture_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taps, "LIMIT", 50)
    here = tapped([*requests(), *((at + WAY, packet) for at, packet in answers())])
    there = tapped(
        [(at + CLOCKS, packet) for at, packet in [*((at + WAY, packet) for at, packet in requests()), *answers()]]
    )
    here.until = there.until = CLOCKS + 500 * MS
    assert here.count == there.count == 50 and here.left_out > 0
    found = compare(here, there)
    assert [path["lost"] for path in found.paths] == [0, 0] and sum(
        row["only_a"] + row["only_b"] for row in found.flows
    ) == 0
