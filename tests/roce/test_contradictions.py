"""What packets contradict: another payload under the same PSN, counts that go back, ACKs ahead of requests, IP IDs out of their row."""

from __future__ import annotations

import io
from typing import Any

import pytest

from rdmadiag.roce import analysis, capture, timeline
from tests.roce import captures as made
from tests.roce.captures import MS, US, A, B, aeth, bth, frame, reth

QP, PEER = 0x22, 0x11
Frames = list[tuple[int, bytes]]


def write(psn: int, fill: int = 0, size: int = 64, ip_id: int | None = None, **more: Any) -> bytes:
    body = bth(0x0A, QP, psn, 1) + reth(0x1000, 7, size) + bytes([fill]) * size
    return frame(body, A, B, ip_id=psn + 1 if ip_id is None else ip_id, **more)


def ack(psn: int, msn: int | None = None, syndrome: int = 0x1F, **more: Any) -> bytes:
    more.setdefault("ip_id", psn + 1)
    return frame(bth(0x11, PEER, psn) + aeth(syndrome, psn if msn is None else msn), B, A, sport=0xD000, **more)


def looked(frames: Frames, snaplen: int = 262144) -> analysis.Analysis:
    data = made.pcap(sorted(frames, key=lambda one: one[0]), ns=True, snaplen=snaplen)
    return analysis.analyse(io.BytesIO(data), "x")


def flow(frames: Frames, snaplen: int = 262144) -> dict[str, Any]:
    (row,) = looked(frames, snaplen).tables["flow"]
    return row


def clean(first: int, last: int, at: int = 0) -> Frames:
    return [
        one
        for n, psn in enumerate(range(first, last))
        for one in ((at + n * 10 * US, write(psn)), (at + n * 10 * US + 5 * US, ack(psn)))
    ]


def resent(fill: int, answer: bool = False, **more: Any) -> Frames:
    """Return clean traffic and a WRITE that is sent again after 100 ms, with another IP ID, before or after an answer to it."""
    late = [(2 * MS + 5 * US, ack(200))] if answer else []
    again = [(102 * MS, write(200, fill, ip_id=9000, **more)), (102 * MS + 5 * US, ack(200))]
    return [*clean(100, 200), (2 * MS, write(200)), *late, *again, *clean(201, 210, 103 * MS)]


def test_a_resend_of_the_same_data_is_the_same_whatever_its_ip_header_says() -> None:
    row = flow(resent(0, ttl=63, tos=3, sport=0xC123))
    assert (row["resends"], row["changed_resends"], row["changed_frames"]) == (1, 0, None)


@pytest.mark.parametrize("snaplen", [262144, 96])
def test_a_resend_with_other_data_is_seen_in_whole_packets_and_in_cut_ones(snaplen: int) -> None:
    row = flow(resent(0x5A), snaplen)
    assert (row["resends"], row["changed_resends"], row["changed_frames"]) == (1, 1, "201, 202")


def test_other_data_under_a_psn_that_was_answered_before_is_not_judged() -> None:
    row = flow(resent(0x5A, answer=True))
    assert (row["resends_answer_lost"], row["changed_resends"]) == (1, 0)


def test_a_packet_that_was_damaged_and_sent_again_right_is_repaired_not_changed() -> None:
    frames = [(t, write(200, 0x77, good=False) if f == write(200) else f) for t, f in resent(0)]
    row = flow(frames)
    assert (row["icrc_bad"], row["icrc_bad_resent"], row["changed_resends"]) == (1, 1, 0)
    last = [*clean(100, 200), (2 * MS, write(200, good=False))]
    assert (flow(last)["icrc_bad"], flow(last)["icrc_bad_resent"]) == (1, 0)


def test_data_is_compared_across_the_parts_in_which_a_capture_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "CHUNK_BYTES", 4096)
    assert flow(resent(0x5A))["changed_frames"] == "201, 202"
    assert flow(resent(0))["changed_resends"] == 0


def test_an_msn_goes_back_only_where_the_psn_goes_on() -> None:
    forged = [(2 * MS, write(200)), (2 * MS + US, ack(200, 0, syndrome=0x62)), (2 * MS + 5 * US, ack(200))]
    row = flow(clean(100, 200) + forged + clean(201, 210, 3 * MS))
    assert (row["msn_back"], row["msn_back_frame"]) == (1, 202)
    overtaken = [(t + (12 * US if f == ack(150) else 0), f) for t, f in clean(100, 200)]
    assert flow(overtaken)["msn_back"] == 0


def test_an_ack_ahead_of_all_that_was_sent_is_told_from_a_request_that_is_captured_late() -> None:
    row = flow([*clean(100, 200), (5 * MS, ack(700))])
    assert (row["acks_ahead"], row["acks_ahead_frame"], row["acks_ahead_seconds"]) == (1, 201, 0)
    row = flow([*clean(100, 200), (5 * MS, ack(700)), *clean(200, 210, 100 * MS)])
    assert row["acks_ahead_seconds"] == pytest.approx(0.095, rel=0.01)
    late = [(t + (7 * US if f == write(199) else 0), f) for t, f in clean(100, 200)]
    assert flow(late)["acks_ahead"] == 0 and "acks_ahead_frame" not in flow(clean(100, 200))


def test_ip_ids_out_of_their_row_are_counted_and_random_ones_have_no_row() -> None:
    odd = [(150 * 10 * US + n, write(200 + n, ip_id=40_000)) for n in (1, 2)]
    row = flow(clean(100, 200) + odd)
    assert row["odd_ip_ids"] == 1 and row["odd_ip_id_frame"] == 201 and row["ip_id_steps"] > 190
    mixed = [(n * 10 * US, write(100 + n, ip_id=n * 30_011 & 0xFFFF)) for n in range(100)]
    assert flow(mixed)["odd_ip_ids"] > flow(mixed)["ip_id_steps"]


def test_pad_counts_and_lengths_that_no_opcode_allows_are_malformed() -> None:
    first = frame(bth(0x06, QP, 300, pad=2) + reth(0, 7, 2048) + bytes(1024))
    uneven = frame(bth(0x04, QP, 301) + bytes(61))
    right = frame(bth(0x04, QP, 302, pad=3) + bytes(64))
    (row,) = looked([*clean(100, 200), (2 * MS, first), (3 * MS, uneven), (4 * MS, right)]).tables["capture"]
    assert (row["malformed"], row["malformed_frames"]) == (2, "201, 202")


def cnps(*at: int) -> Frames:
    return [(when, frame(bth(0x81, PEER, 0) + bytes(16), B, A, tos=0xC0, ip_id=n)) for n, when in enumerate(at)]


def paced(per_ms: dict[int, int], last: int) -> Frames:
    """Return so many WRITEs in each millisecond, and their ACKs."""
    times = [n * MS + k * MS // per_ms[n] for n in range(last) for k in range(per_ms[n])]
    return [one for psn, t in enumerate(times) for one in ((t, write(psn)), (t + 5 * US, ack(psn)))]


def test_how_long_a_sender_takes_to_recover_from_cnps() -> None:
    per_ms = {n: 20 if n < 10 or n >= 16 else 5 for n in range(30)}
    row = flow(paced(per_ms, 30) + cnps(10 * MS + 1, 10 * MS + 2, 11 * MS))
    assert row["cnp_recovery_ms"] == 6.0
    assert row["cnps_per_second"] == pytest.approx(2 / 1e-3, rel=0.01)
    never = {n: 20 if n < 10 else 5 for n in range(30)}
    assert flow(paced(never, 30) + cnps(10 * MS))["cnp_recovery_ms"] is None


def test_marks_of_answers_are_counted_apart_and_packets_for_each_ack() -> None:
    row = flow([*clean(100, 150), (MS, write(150)), (MS + US, write(151)), (MS + 5 * US, ack(151, tos=3))])
    assert (row["ce"], row["answer_ce"]) == (0, 1) and row["answer_ce_share"] == pytest.approx(1 / 51)
    assert row["packets_per_ack"] == pytest.approx(52 / 51)


def test_a_nak_says_whether_other_queue_pairs_went_on() -> None:
    other = [
        (t, f)
        for n in range(20)
        for t, f in (
            (n * MS, frame(bth(0x0A, 0x99, n, 1) + reth(0, 7, 64) + bytes(64), ip_id=n)),
            (n * MS + US, frame(bth(0x11, 0x98, n) + aeth(0x1F, n), B, A, ip_id=n)),
        )
    ]
    refused = [(2 * MS, write(200)), (2 * MS + 5 * US, ack(200, 199, syndrome=0x62))]
    (nak,) = looked(clean(100, 200) + refused + other).tables["flow_nak"]
    assert (nak["requests_after"], nak["flows_after"]) == (0, 1)


def test_the_table_of_a_flow_over_time_adds_up_to_the_flow() -> None:
    frames = sorted(resent(0x5A) + cnps(50 * MS), key=lambda one: one[0])
    row = flow(frames)
    kept = timeline.Collector(row)
    analysis.columns_of(io.BytesIO(made.pcap(frames, ns=True)), "x", kept)
    rows = [dict(zip(timeline.HEAD, values, strict=True)) for values in timeline.table(kept)]
    assert [sum(one[name] for one in rows) for name in ("requests", "sent_again", "answers", "cnps", "naks")] == [
        row["packets"], row["resent_packets"], row["packets"] - 1, 1, 0,
    ]  # fmt: skip
    width = rows[1]["seconds"] - rows[0]["seconds"]
    assert sum(one["goodput_gbps"] for one in rows) * width / 8e-9 == pytest.approx(row["fresh_bytes"])
