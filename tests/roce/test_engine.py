"""The engine on made traffic in which one thing goes wrong: it is named, and nothing else is."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.diagnose import wire
from rdmadiag.errors import BadInput
from rdmadiag.roce import analysis, capture, pairing
from tests.roce import captures as made
from tests.roce.captures import MS, US, A, B, aeth, bth, frame, reth

PCAPS = Path(__file__).parent.parent / "data/pcaps"
QP, PEER = 0x22, 0x11
SILENCE = 500 * MS


def write(psn: int, **more: Any) -> bytes:
    more.setdefault("ip_id", more.pop("sent", 0) * 7919 + psn & 0xFFFF)
    return frame(bth(0x0A, QP, psn, 1) + reth(0x1000 + psn, 7, 64) + bytes(64), A, B, **more)


def ack(psn: int, syndrome: int = 0x1F, **more: Any) -> bytes:
    return frame(
        bth(0x11, PEER, psn) + aeth(syndrome, psn & 0xFFFFFF),
        B,
        A,
        sport=0xD000,
        ip_id=more.pop("ip_id", psn * 31 & 0xFFFF),
        **more,
    )


def clean(first: int, last: int, at: int = 0) -> list[tuple[int, bytes]]:
    """Return WRITEs and their ACKs, 10 us apart, answered after 5 us."""
    found = []
    for n, psn in enumerate(range(first, last)):
        found += [(at + n * 10 * US, write(psn & 0xFFFFFF)), (at + n * 10 * US + 5 * US, ack(psn & 0xFFFFFF))]
    return found


def looked(frames: list[tuple[int, bytes]]) -> analysis.Analysis:
    return analysis.analyse(io.BytesIO(made.pcap(sorted(frames, key=lambda item: item[0]), ns=True)), "x")


def only(frames: list[tuple[int, bytes]]) -> dict[str, Any]:
    (flow,) = looked(frames).tables["flow"]
    return flow


def odd(flow: dict[str, Any]) -> dict[str, Any]:
    """Return what of a flow's counts of trouble is not 0."""
    names = (
        "resends",
        "resent_packets",
        "nak_sequence",
        "nak_fatal",
        "rnr_naks",
        "illegal",
        "bad_length",
        "msn_back",
        "response_holes",
    )
    return {
        name: value
        for name, value in flow.items()
        if value and (name in names or name.startswith(("resends_", "holes_", "lost_", "other_")))
    }


def test_clean_traffic_shows_nothing_odd_and_is_paired_and_timed() -> None:
    flow = only(clean(100, 200))
    assert odd(flow) == {}
    assert (flow["peer_qpn"], flow["confidence"], flow["state"]) == (PEER, "high", "idle")
    assert flow["ack_us_p50"] == flow["ack_us_max"] == 5.0 and flow["latencies"] == 100


def test_psns_wrap_around() -> None:
    flow = only(clean(0xFFFFC0, 0x1000040))
    assert odd(flow) == {} and flow["state"] == "idle" and flow["latencies"] == 128


def test_a_request_lost_before_the_tap_and_asked_for_again() -> None:
    frames = [f for f in clean(100, 120) if f[0] != 100 * US or f[1] != write(110)]
    frames = [f for f in frames if f[0] < 100 * US]
    frames += [
        (110 * US, write(111)),
        (115 * US, ack(110, 0x60)),
        (120 * US, write(110, sent=2)),
        (121 * US, write(111, sent=2)),
    ]
    frames += [(125 * US, ack(111))]
    flow = only(frames)
    assert odd(flow) == {
        "resends": 1, "resent_packets": 2, "resends_after_nak": 1, "holes_lost_before_tap": 1, "lost_request_before_tap": 1, "nak_sequence": 1,
    }  # fmt: skip
    assert flow["hole_to_nak_us"] == 5.0 and flow["nak_to_resend_us"] == 5.0 and flow["state"] == "idle"


def test_a_request_lost_behind_the_tap() -> None:
    frames = clean(100, 110)
    frames += [
        (200 * US, write(110)),
        (201 * US, write(111)),
        (205 * US, ack(110, 0x60)),
        (210 * US, write(110, sent=2)),
    ]
    frames += [(211 * US, write(111, sent=2)), (216 * US, ack(111))]
    flow = only(frames)
    assert odd(flow) == {
        "resends": 1,
        "resent_packets": 2,
        "resends_after_nak": 1,
        "lost_request_after_tap": 1,
        "nak_sequence": 1,
    }


def test_an_answer_lost_behind_the_tap() -> None:
    frames = clean(100, 110) + [(10 * MS, write(109, sent=2)), (10 * MS + 5 * US, ack(109, ip_id=9))]
    flow = only(frames)
    assert odd(flow) == {"resends": 1, "resent_packets": 1, "resends_answer_lost": 1, "lost_answer_after_tap": 1}


def test_packets_that_overtake_each_other_are_no_loss() -> None:
    frames = clean(100, 110) + [
        (200 * US, write(111)),
        (201 * US, write(110)),
        (202 * US, write(112)),
        (207 * US, ack(112)),
    ]
    flow = only(frames)
    assert odd(flow) == {"holes_reordered": 1} and flow["state"] == "idle"


def test_a_packet_that_is_late_behind_its_nak_was_not_lost_and_neither_were_those_dropped_for_it() -> None:
    frames = clean(100, 110) + [
        (200 * US, write(111)),  # 110 is overtaken
        (203 * US, ack(110, 0x60)),
        (205 * US, write(110)),
        (206 * US, ack(110)),
        (207 * US, write(112)),
        (210 * US, ack(111, 0x60, ip_id=1)),  # 111 was dropped, as it was ahead
        (230 * US, write(110, sent=2)),  # for the first NAK
        (231 * US, write(111, sent=2)),
        (232 * US, write(112, sent=2)),
        (240 * US, ack(112)),
        (250 * US, write(111, sent=3)),  # for the second
        (251 * US, write(112, sent=3)),
        (260 * US, ack(112, ip_id=2)),
    ]
    flow = only(frames)
    assert odd(flow) == {
        "resends": 2,
        "resent_packets": 5,
        "resends_after_nak": 2,
        "holes_reordered": 1,
        "nak_sequence": 2,
    }


def test_what_follows_a_message_without_a_receive_is_not_lost_when_a_nak_asks_for_it() -> None:
    def send(psn: int, sent: int = 0) -> bytes:
        return frame(bth(0x04, QP, psn, 1) + bytes(8), A, B, ip_id=psn + 1000 * sent)

    frames = [
        (0, send(1)),
        (5 * US, ack(1, 0x2C)),
        (6 * US, send(2)),
        (9 * US, ack(1, 0x60, ip_id=1)),
        (700 * US, send(1, 2)),
        (701 * US, send(2, 2)),
        (710 * US, ack(2)),
    ]
    flow = only(frames)
    assert odd(flow) == {
        "resends": 1,
        "resent_packets": 2,
        "resends_after_rnr": 1,
        "nak_sequence": 1,
        "rnr_naks": 1,
    }


def test_a_mirror_that_takes_its_time_is_one_and_a_resend_is_none() -> None:
    twice = [(t + k * 3 * MS, f) for t, f in clean(100, 200) for k in (0, 1)]
    assert looked(twice).tables["capture"][0]["duplicates"] == 200
    resent = clean(100, 200) + [(1 * MS + n * US, write(150 + n, sent=2)) for n in range(50)]
    found = looked(resent)
    assert found.tables["capture"][0]["duplicates"] == 0
    assert found.tables["flow"][0]["resent_packets"] == 50


def test_what_the_capture_lost_is_no_loss_on_the_wire() -> None:
    frames = [f for f in clean(100, 200) if f[1] not in (write(150), write(151))]
    flow = only(frames)
    assert odd(flow) == {"holes_capture_loss": 2} and flow["state"] == "idle"


def test_random_capture_loss_makes_no_wrong_cause() -> None:
    import random

    random.seed(7)
    frames = [f for f in clean(100, 4100) if random.random() > 0.01]
    flow = only(frames)
    assert set(odd(flow)) <= {"holes_capture_loss"} and flow["holes_capture_loss"] > 10
    assert flow["state"] in ("idle", "in progress")


def test_one_direction_gives_no_cause_but_says_so() -> None:
    flow = only([f for f in clean(100, 200) if f[1][30:34] == bytes([10, 0, 0, 2])])
    assert flow["state"] == "answers not in the capture" and odd(flow) == {}
    assert flow["answers_seen"] is None and flow["open_psns"] is None


def test_mirror_duplicates_are_taken_out_and_counted() -> None:
    frames = [(t + k * 2 * US // 3, f) for t, f in clean(100, 200) for k in (0, 1)]
    found = looked(frames)
    assert found.tables["capture"][0]["duplicates"] == 200
    assert odd(found.tables["flow"][0]) == {}


def test_equal_packets_of_a_sender_with_a_constant_ip_id_stay() -> None:
    frames = [
        (0, write(1, ip_id=7)),
        (10 * US, write(1, ip_id=7)),
        (20 * US, write(2, ip_id=7)),
        (30 * US, write(3, ip_id=7)),
    ]
    found = looked(frames)
    assert found.tables["capture"][0]["duplicates"] == 0 and found.tables["capture"][0]["possible_duplicates"] == 1
    assert found.tables["flow"][0]["packets"] == 4


def test_equal_cnps_of_an_adapter_that_counts_ip_ids_elsewhere_stay() -> None:
    notices = [(2 * MS + n * 50 * US, frame(bth(0x81, QP, 0) + bytes(16), B, A, ip_id=0)) for n in range(5)]
    found = looked(clean(100, 200) + notices)
    row = found.tables["capture"][0]
    assert (row["duplicates"], row["possible_duplicates"], row["cnps"]) == (0, 4, 5)


def test_two_pairs_of_qps_with_the_same_psns_are_not_mixed_up() -> None:
    frames = []
    for n in range(50):
        for k in (0, 1):
            body = bth(0x0A, QP + k, 100 + n, 1) + reth(0, 7, 8) + bytes(8)
            frames.append((n * 100 * US + k * 20 * US, frame(body, ip_id=n * 2 + k, sport=0xC000 + k)))
            frames.append(
                (
                    n * 100 * US + k * 20 * US + 5 * US,
                    frame(bth(0x11, PEER + k, 100 + n) + aeth(0x1F, n), B, A, sport=0xD000 + k, ip_id=n * 2 + k),
                )
            )
    flows = looked(frames).tables["flow"]
    assert {(f["qpn"], f["peer_qpn"]) for f in flows} == {(QP, PEER), (QP + 1, PEER + 1)}


def test_pairs_that_cannot_be_told_apart_are_left_alone() -> None:
    frames = []
    for n in range(20):
        for k in (0, 1):
            frames.append(
                (n * 100 * US + k, frame(bth(0x0A, QP + k, 100 + n, 1) + reth(0, 7, 8) + bytes(8), ip_id=n * 2 + k))
            )
        for k in (0, 1) if n % 2 else (1, 0):
            frames.append(
                (n * 100 * US + 50 * US + k, frame(bth(0x11, PEER + k, 100 + n) + aeth(0x1F, n), B, A, ip_id=n * 2 + k))
            )
    for flow in looked(frames).tables["flow"]:
        assert flow["confidence"] in ("none", "medium", "high")
    paired = [f for f in looked(frames).tables["flow"] if f["peer_qpn"] is not None]
    assert len(paired) <= 1, (
        "both answers voted for the request that was sent last: at most one can be right, and none is guessed"
    )


def test_a_read_takes_a_psn_for_each_packet_of_its_answer() -> None:
    frames = []
    for n in range(4):
        psn = 100 + 3 * n
        frames.append((n * 100 * US, frame(bth(0x0C, QP, psn, 1) + reth(0x1000, 7, 3000), ip_id=n + 1)))
        for k, (opcode, size) in enumerate(((0x0D, 1024), (0x0E, 1024), (0x0F, 952))):
            head = aeth(0x1F, n + 1) if opcode != 0x0E else b""
            frames.append(
                (
                    n * 100 * US + (k + 1) * 5 * US,
                    frame(bth(opcode, PEER, psn + k) + head + bytes(size), B, A, ip_id=3 * n + k + 1),
                )
            )
    flow = only(frames)
    assert odd(flow) == {} and flow["state"] == "idle" and flow["pmtu"] == 1024 and flow["reads"] == 4
    assert flow["ack_us_p50"] == 15.0


def test_a_hole_in_read_data_is_counted_where_it_is() -> None:
    frames = [(0, frame(bth(0x0C, QP, 100, 1) + reth(0x1000, 7, 3000)))]
    for k, opcode in ((0, 0x0D), (2, 0x0F)):
        frames.append(
            (
                (k + 1) * 5 * US,
                frame(bth(opcode, PEER, 100 + k) + aeth(0x1F, 1) + bytes(1024 if k == 0 else 952), B, A, ip_id=k + 1),
            )
        )
    assert odd(only(frames))["response_holes"] == 1


def test_unreliable_connections_have_holes_and_no_stall() -> None:
    frames = [
        (n * 10 * US, frame(bth(0x2A, QP, psn) + reth(0, 7, 8) + bytes(8), ip_id=n))
        for n, psn in enumerate((1, 2, 5, 6))
    ]
    flow = only(frames)
    assert flow["state"] == "unreliable" and flow["transport"] == "UC" and flow["holes_open"] == 2


def test_an_opcode_out_of_order_is_found_and_a_hole_before_it_excuses_it() -> None:
    first = [
        (0, frame(bth(0x06, QP, 1) + reth(0, 7, 200) + bytes(100), ip_id=1)),
        (US, frame(bth(0x04, QP, 2) + bytes(8), ip_id=2)),
    ]
    assert only(first)["illegal"] == 1 and only(first)["illegal_frame"] == 2
    hole = [first[0], (US, frame(bth(0x04, QP, 3) + bytes(8), ip_id=2))]
    assert only(hole)["illegal"] == 0


def test_a_write_of_several_packets_is_as_long_as_its_reth_says() -> None:
    def message(size: int) -> list[tuple[int, bytes]]:
        parts = ((0x06, reth(0, 7, size) + bytes(256)), (0x07, bytes(256)), (0x08, bytes(100)))
        return [(n * US, frame(bth(opcode, QP, n) + body, ip_id=n)) for n, (opcode, body) in enumerate(parts)]

    assert only(message(612))["bad_length"] == 0
    assert only(message(613))["bad_length"] == 1


def test_cnps_belong_to_the_flow_that_they_slow_down() -> None:
    cnp = frame(bth(0x81, PEER, 0, congestion=0x40) + bytes(16), B, A, sport=0, tos=48 << 2 | 2)
    frames = [(t, f if t != 500 * US else write(150, tos=3)) for t, f in clean(100, 200)] + [
        (503 * US, cnp),
        (703 * US, cnp),
    ]
    flow = only(frames)
    assert (flow["cnps"], flow["ce"], flow["cnp_dscp"], flow["cnp_gap_us_min"]) == (2, 1, 48, 200.0)
    assert flow["ce_to_cnp_us"] == 3.0 and flow["ce_frame"] == 101


def test_another_mac_address_in_a_flow_is_found() -> None:
    frames = clean(100, 110) + [(1 * MS, write(110, mac=b"\2\0\0\0\0\x66", ttl=61))]
    flow = only(frames)
    assert flow["other_mac"] == 1 and flow["other_mac_frame"] == 21 and flow["other_ttl"] == 1


def test_a_qp_number_that_is_used_again_is_another_flow() -> None:
    frames = clean(100, 110) + [
        (t + 1_000 * MS, f) for t, f in ((0, write(0x800000, sport=0xC999)), (US, write(0x800001, sport=0xC999)))
    ]
    flows = looked(frames).tables["flow"]
    assert [f["life"] for f in flows] == [0, 1] and all(f["resends"] == 0 for f in flows)


def pfc(quanta: int) -> bytes:
    return (
        b"\x01\x80\xc2\0\0\1"
        + made.MACS[A]
        + b"\x88\x08\x01\x01\0\x08"
        + b"\0\0" * 3
        + quanta.to_bytes(2, "big")
        + bytes(34)
    )


def test_pause_frames_are_counted_by_sender() -> None:
    pause = b"\x01\x80\xc2\0\0\1" + made.MACS[B] + b"\x88\x08\x00\x01\xff\xff" + bytes(42)
    found = looked([*clean(1, 5), (1, pfc(0xFFFF)), (2, pfc(0)), (3, pause)]).tables["flow_control"]
    assert [(row["kind"], row["pauses"], row["resumes"], row["priorities"]) for row in found] == [
        ("PFC", 1, 1, "3"),
        ("global pause", 1, 0, ""),
    ]


def mad(attribute: int, body: bytes) -> bytes:
    head = bytes([1, 7, 2, 3]) + bytes(12) + attribute.to_bytes(2, "big") + bytes(6)
    return head + body + bytes(232 - len(body))


def cm(src: str, dst: str, attribute: int, body: bytes) -> bytes:
    return frame(
        bth(0x64, 1, 0) + bytes.fromhex("80010000") + b"\0" + (1).to_bytes(3, "big") + mad(attribute, body), src, dst
    )


def req(qpn: int, psn: int, local: int) -> bytes:
    body = bytearray(140)
    body[0:4] = local.to_bytes(4, "big")
    body[32:35], body[44:47], body[47] = qpn.to_bytes(3, "big"), psn.to_bytes(3, "big"), 20 << 3 | 7
    body[48:50], body[50], body[95] = b"\xff\xff", 3 << 4 | 6, 14 << 3
    return bytes(body)


def test_a_cm_handshake_gives_qpns_psns_and_settings() -> None:
    rep = bytearray(36)
    rep[0:4], rep[4:8] = (9).to_bytes(4, "big"), (5).to_bytes(4, "big")
    rep[12:15], rep[20:23], rep[27] = QP.to_bytes(3, "big"), (77).to_bytes(3, "big"), 5 << 5
    rtu = (5).to_bytes(4, "big") + (9).to_bytes(4, "big")
    shake = [(0, cm(A, B, 0x10, req(PEER, 100, 5))), (MS, cm(B, A, 0x13, bytes(rep))), (2 * MS, cm(A, B, 0x14, rtu))]
    found = looked(shake + clean(100, 105, 3 * MS))
    (row,) = found.tables["cm_handshake"]
    assert (row["qpn"], row["peer_qpn"], row["starting_psn"], row["peer_starting_psn"]) == (PEER, QP, 100, 77)
    assert (row["path_mtu"], row["timeout"], row["retry_cnt"], row["rnr_retry"], row["peer_rnr_retry"]) == (
        1024,
        14,
        7,
        6,
        5,
    )
    assert row["state"] == "RTU" and row["answer_ms"] == 1.0
    (flow,) = found.tables["flow"]
    assert (flow["confidence"], flow["cm_starting_psn"], flow["cm_timeout"], flow["cm_rnr_retry"]) == (
        "certain",
        100,
        14,
        5,
    )


def test_a_rejected_handshake_names_its_reason() -> None:
    rej = (0).to_bytes(4, "big") + (5).to_bytes(4, "big") + b"\0\0" + (8).to_bytes(2, "big")
    (row,) = looked([(0, cm(A, B, 0x10, req(PEER, 100, 5))), (MS, cm(B, A, 0x12, rej))]).tables["cm_handshake"]
    assert (row["state"], row["rej_reason"], row["rej_meaning"]) == ("REJ", 8, "invalid service id")


def test_a_requester_that_takes_its_request_back_was_not_rejected() -> None:
    rej = (5).to_bytes(4, "big") + (0).to_bytes(4, "big") + b"\0\0" + (4).to_bytes(2, "big")
    asked = [(n * 4000 * MS, cm(A, B, 0x10, req(PEER, 100, 5))) for n in range(3)]
    (row,) = looked([*asked, (9000 * MS, cm(A, B, 0x12, rej))]).tables["cm_handshake"]
    assert (row["state"], row["req_sent"], row["rej_frame"]) == ("REQ", 3, None)


def test_a_request_that_is_being_worked_on_is_answered() -> None:
    mra = (9).to_bytes(4, "big") + (5).to_bytes(4, "big") + bytes(8)
    asked = [(n * 4000 * MS, cm(A, B, 0x10, req(PEER, 100, 5))) for n in range(2)]
    (row,) = looked([*asked, (4001 * MS, cm(B, A, 0x11, mra))]).tables["cm_handshake"]
    assert (row["state"], row["req_sent"]) == ("MRA", 2)


def test_how_long_messages_took_and_how_much_was_in_flight() -> None:
    frames = []
    for n in range(4):
        parts = ((0x06, reth(0, 7, 600) + bytes(256)), (0x07, bytes(256)), (0x08, bytes(88)))
        for k, (opcode, body) in enumerate(parts):
            frames.append(
                (n * 100 * US + k * 10 * US, frame(bth(opcode, QP, 3 * n + k, k == 2) + body, ip_id=3 * n + k))
            )
        if n % 2:  # each second message is acknowledged, with the one before
            frames.append((n * 100 * US + 25 * US, ack(3 * n + 2)))
    flow = only(frames)
    assert (flow["in_flight_most"], flow["messages"], flow["latencies"]) == (6, 4, 2)
    assert (flow["ack_us_p50"], flow["message_us_p50"], flow["message_us_max"]) == (5.0, 25.0, 25.0)


@pytest.mark.parametrize("path", sorted(PCAPS.glob("*.pcap")), ids=lambda path: path.stem)
def test_chunks_do_not_change_what_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = analysis.analyse(io.BytesIO(path.read_bytes()), "x").tables
    monkeypatch.setattr(capture, "CHUNK_BYTES", 300)
    parts = analysis.analyse(io.BytesIO(path.read_bytes()), "x").tables
    changing = {"flow", "confidence", "in_flight_most"}  # streams are numbered, votes taken, by chunk

    def key(row: dict[str, Any]) -> str:
        return str(sorted((name, str(value)) for name, value in row.items() if name not in changing))

    for tables in (whole, parts):  # a hole that is filled in two chunks is two holes
        tables["flow_resend"] = [row for row in tables["flow_resend"] if row["what"] == "resend"]
    for table in ("capture", "flow", "flow_resend", "cm_handshake"):
        assert sorted(map(key, whole[table])) == sorted(map(key, parts[table])), table
    counts = [
        sorted((r["syndrome"], r["count"], r["frames"], str(r["victim_frame"])) for r in t["flow_nak"])
        for t in (whole, parts)
    ]
    assert counts[0] == counts[1]


def test_two_taps_place_a_loss_between_them(tmp_path: Path) -> None:
    frames = clean(100, 300)
    lost = write(200)
    (tmp_path / "a.pcap").write_bytes(made.pcap(frames, ns=True))
    (tmp_path / "b.pcap").write_bytes(made.pcap([(t + 7 * US, f) for t, f in frames if f != lost], ns=True))
    report = wire.look([], [str(tmp_path / "a.pcap"), str(tmp_path / "b.pcap")]).report
    (finding,) = [f for f in report["findings"] if f["rule"] == "wire-tap-loss" and f["answer"] == "confirmed"]
    (row,) = finding["evidence"]
    assert (row["only_a"], row["only_b"], row["qpn"], row["frames"]) == (1, 0, QP, "201")
    assert row["both"] > 100


def test_equal_taps_show_no_loss(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.pcap").write_bytes(made.pcap(clean(100, 300), ns=True))
    report = wire.look([], [str(tmp_path / "a.pcap"), str(tmp_path / "b.pcap")]).report
    assert "wire-tap-loss" not in {f["rule"] for f in report["findings"]}


def test_packed_captures_read_like_plain_ones(tmp_path: Path) -> None:
    import zstandard

    data = made.pcap(clean(100, 200))
    (tmp_path / "x.pcap").write_bytes(data)
    (tmp_path / "x.pcap.gz").write_bytes(gzip.compress(data))
    (tmp_path / "x.pcap.zst").write_bytes(zstandard.compress(data))
    (tmp_path / "x.pcapng").write_bytes(made.pcapng(clean(100, 200), dropped=12))
    found = [wire.look([str(tmp_path / name)]) for name in ("x.pcap", "x.pcap.gz", "x.pcap.zst", "x.pcapng")]
    flows = [
        [{k: v for k, v in f.items() if k not in ("origin", "node")} for f in one.report["flows"]] for one in found
    ]
    assert flows[0] == flows[1] == flows[2] == flows[3] and len(flows[0]) == 1
    assert found[3].evidence.db.execute("SELECT dropped FROM capture").fetchall() == [(12,)]


def test_qps_that_the_user_says_are_connected_are_paired_where_the_capture_cannot_tell() -> None:
    frames = []  # two flows of the same PSNs, in step
    for n in range(6):
        for qp in (0x22, 0x23):
            frames.append((n * 10 * US, frame(bth(0x0A, qp, n, 1) + reth(0, 7, 0), A, B, ip_id=n * 2 + qp)))
        for qp in (0x11, 0x12):
            frames.append((n * 10 * US + 5 * US, frame(bth(0x11, qp, n) + aeth(0x1F), B, A, ip_id=n * 2 + qp)))
    data = made.pcap(sorted(frames, key=lambda item: item[0]), ns=True)
    alone = analysis.analyse(io.BytesIO(data), "x").tables["flow"]
    assert sum(flow["peer_qpn"] is not None for flow in alone) < 2
    pairs = [pairing.read("10.0.0.1:0x12=10.0.0.2:0x22"), pairing.read("10.0.0.2:35=10.0.0.1:17")]
    told = analysis.analyse(io.BytesIO(data), "x", pairs=pairs)
    flows = {flow["qpn"]: flow for flow in told.tables["flow"]}
    assert {qp: flow["peer_qpn"] for qp, flow in flows.items()} == {0x22: 0x12, 0x23: 0x11}
    assert all((flow["pairing"], flow["confidence"]) == ("user", "certain") for flow in flows.values())
    assert told.partial == []


def test_a_pair_that_is_not_in_the_capture_is_said() -> None:
    pairs = [pairing.read("[2001:db8::1]:1=2001:db8::2:2")]
    found = analysis.analyse(io.BytesIO(made.pcap(clean(0, 5))), "x", pairs=pairs)
    assert found.partial == ["no flow of the pair 2001:db8::1:0x1=2001:db8::2:0x2, as --pair gives it"]


@pytest.mark.parametrize("text", ["", "10.0.0.1:1", "10.0.0.1=10.0.0.2", "a:1=b:2", "10.0.0.1:1=10.0.0.2:0x1000000"])
def test_a_pair_that_is_none_says_what_is_wanted(text: str) -> None:
    with pytest.raises(BadInput, match="wanted"):
        pairing.read(text)


def test_a_read_whose_data_never_comes_is_another_stall_than_a_write_without_answer() -> None:
    late = (SILENCE, frame(bth(0x11, 0x99, 1) + aeth(0x1F), B, A))
    read = frame(bth(0x0C, QP, 120, 1) + reth(0, 7, 4096), A, B, ip_id=77)
    for last, state in ((read, "READ unanswered"), (write(120), "no answer")):
        found = {flow["qpn"]: flow for flow in looked([*clean(100, 120), (200 * US, last), late]).tables["flow"]}
        assert (found[QP]["state"], found[QP]["open_psns"]) == (state, 1)


def test_a_sender_that_was_granted_no_credits_is_told_from_one_that_is_idle() -> None:
    def sends(syndrome: int, opcode: int) -> str:
        extra = reth(0, 7, 8) if opcode == 0x0A else b""
        frames = [(n * 10 * US, frame(bth(opcode, QP, n, 1) + extra + bytes(8), A, B, ip_id=n)) for n in range(20)]
        frames += [(n * 10 * US + 5 * US, ack(n, syndrome if n == 19 else 0x1F)) for n in range(20)]
        late = (SILENCE, frame(bth(0x11, 0x99, 1) + aeth(0x1F), B, A))
        return str({f["qpn"]: f for f in looked([*frames, late]).tables["flow"]}[QP]["state"])

    assert sends(0x00, 0x04) == "no credits"
    assert sends(0x1F, 0x04) == "idle" and sends(0x02, 0x04) == "idle"
    assert sends(0x00, 0x0A) == "idle"  # a WRITE takes no receive
