"""Captures as real adapters and taps make them, forged, in which nothing is wrong: no warning, and each ICRC that is there is good.

What is in them is taken from published dumps and manuals: MigReq set (ConnectX, Huawei), CNPs with source port 0 and DSCP 48 that are paced by
port, ACKs that acknowledge several requests, credits, VLAN priorities, IPv6 without IP ID, padding, FCS, mirrors (NVIDIA: RoCE CNP packet
format, Adaptive Retransmission; Wireshark wiki; facts of SIGCOMM'23 Lumina about CNP pacing).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.diagnose import wire
from tests.roce import captures as made
from tests.roce.captures import MS, US, A, B, aeth, bth, frame, reth
from tests.roce.test_engine import cm, req

A6, B6 = "2001:db8::a", "2001:db8::b"
PMTU = 1024
Frames = list[tuple[int, bytes]]


class Adapter:
    """Makes the packets of one connection as an adapter would: requests by `one`, answers by `two`, MSNs and IP IDs that count."""

    def __init__(
        self, one: str = A, two: str = B, qp: int = 0x1A2, peer: int = 0x1B7, psn: int = 0x7FFFFC, **more: Any
    ) -> None:
        self.one, self.two, self.qp, self.peer, self.psn, self.more = one, two, qp, peer, psn, more
        self.msn, self.ids, self.time = 0, {one: 100, two: 9000}, 0
        self.frames: Frames = []

    def put(self, source: str, body: bytes, wait: int = 2 * US, **more: Any) -> None:
        """Add one packet, so long after the one before."""
        self.time += wait
        self.ids[source] = self.ids[source] + 1 & 0xFFFF
        target = self.two if source == self.one else self.one
        given = {"ip_id": self.ids[source], "tos": 26 << 2 | 2, "sport": 0xC000 + self.qp, **self.more, **more}
        self.frames.append((self.time, frame(body, source, target, **given)))

    def request(self, opcode: int, extra: bytes = b"", payload: int = 0, ack: int = 0, psns: int = 1) -> None:
        """Add a request; it takes `psns` PSNs."""
        pad = -payload % 4
        self.put(self.one, bth(opcode, self.qp, self.psn, ack, pad, mig=1) + extra + bytes(payload + pad))
        self.psn = self.psn + psns & 0xFFFFFF

    def ack(self, messages: int = 1, syndrome: int = 0x05) -> None:
        """Acknowledge all that was sent, which ended so many messages."""
        self.msn += messages
        self.put(self.two, bth(0x11, self.peer, self.psn - 1 & 0xFFFFFF, mig=1) + aeth(syndrome, self.msn), 12 * US)

    def write(self, size: int, ack: bool = True) -> None:
        """WRITE, in as many packets as it takes."""
        left, head = size, reth(0x7F00_0000_0000, 0x1804E0, size)
        while left:
            part = min(left, PMTU)
            first, last = left == size, left == part
            opcode = 0x0A if first and last else 0x06 if first else 0x08 if last else 0x07
            self.request(opcode, head if first else b"", part, int(last and ack))
            left -= part
        if ack:
            self.ack()

    def read(self, size: int) -> None:
        """READ, with its data."""
        count = -(-size // PMTU)
        psn = self.psn
        self.request(0x0C, reth(0x7F00_0000_0000, 0x1804E0, size), psns=count, ack=1)
        self.msn += 1
        for n in range(count):
            opcode = 0x10 if count == 1 else 0x0D if n == 0 else 0x0F if n == count - 1 else 0x0E
            part = min(PMTU, size - n * PMTU)
            head = aeth(0x05, self.msn) if opcode != 0x0E else b""
            pad = -part % 4
            body = bth(opcode, self.peer, psn + n & 0xFFFFFF, pad=pad, mig=1) + head + bytes(part + pad)
            self.put(self.two, body, 10 * US if n == 0 else US)

    def send(self, size: int = 100) -> None:
        """SEND of one packet."""
        self.request(0x04, b"", size, 1)
        self.ack()

    def atomic(self) -> None:
        """FETCH_ADD."""
        psn = self.psn
        self.request(0x14, struct.pack(">QIQQ", 0x7F00_0000_0000, 0x1804E0, 1, 0), ack=1)
        self.msn += 1
        self.put(self.two, bth(0x12, self.peer, psn, mig=1) + aeth(0x05, self.msn) + bytes(8), 11 * US)

    def cnp(self, to: str, qp: int) -> None:
        """CNP, as ConnectX sends it: source port 0, DSCP 48."""
        source = self.two if to == self.one else self.one
        self.put(source, bth(0x81, qp, 0, mig=1, congestion=0x40) + bytes(16), US, sport=0, tos=48 << 2 | 2)


def mixed(**more: Any) -> Adapter:
    """A connection with some of everything."""
    it = Adapter(**more)
    for n in range(12):
        it.write(3000 + n)
        it.read(2500)
        it.send()
        it.atomic()
        it.write(64, ack=False)
        it.write(64, ack=False)
        it.write(5000, ack=False)
        it.ack(3, 0x06)
    return it


def handshake() -> Frames:
    """A CM handshake over RoCEv2: REQ, MRA, REP, RTU; and at the end DREQ, DREP."""
    rep = bytearray(36)
    rep[0:4], rep[4:8] = (9).to_bytes(4, "big"), (5).to_bytes(4, "big")
    rep[12:15], rep[20:23], rep[27] = (0x1A2).to_bytes(3, "big"), (77).to_bytes(3, "big"), 7 << 5
    mra = (9).to_bytes(4, "big") + (5).to_bytes(4, "big") + bytes(8)
    rtu = (5).to_bytes(4, "big") + (9).to_bytes(4, "big")
    dreq = rtu + (0x1A2).to_bytes(3, "big") + bytes(5)
    drep = (9).to_bytes(4, "big") + (5).to_bytes(4, "big")
    return [
        (0, cm(A, B, 0x10, req(0x1B7, 0x7FFFFC, 5))),
        (MS, cm(B, A, 0x11, mra)),
        (30 * MS, cm(B, A, 0x13, bytes(rep))),
        (31 * MS, cm(A, B, 0x14, rtu)),
        (900 * MS, cm(A, B, 0x15, dreq)),
        (901 * MS, cm(B, A, 0x16, drep)),
    ]


def warnings(tmp_path: Path, frames: Frames, data: bytes | None = None, sort: bool = True) -> list[str]:
    """Return what is confirmed or suspected at warning or above, and 'bad ICRC' when one is bad."""
    path = tmp_path / "healthy.pcap"
    path.write_bytes(data or made.pcap(sorted(frames, key=lambda item: item[0]) if sort else frames, ns=True))
    looked = wire.look([str(path)])
    said = [f["rule"] for f in looked.report["findings"] if f["severity"] != "info"]
    ((bad,),) = looked.evidence.db.execute("SELECT icrc_bad FROM capture").fetchall()
    return sorted(said) + ["bad ICRC"] * bool(bad)


def vlan(priority: int, number: int = 100) -> int:
    return priority << 13 | number


def changed(frames: Frames, how: Callable[[bytes], bytes]) -> Frames:
    return [(time, how(data)) for time, data in frames]


def test_an_adapter_that_does_some_of_everything(tmp_path: Path) -> None:
    assert warnings(tmp_path, mixed().frames) == []


def test_a_connection_by_cm_from_its_handshake_to_its_end(tmp_path: Path) -> None:
    traffic = [(time + 40 * MS, data) for time, data in mixed().frames]
    assert warnings(tmp_path, handshake() + traffic) == []


def test_source_ports_that_are_qp_numbers_also_those_of_other_protocols(tmp_path: Path) -> None:
    it = Adapter(qp=0x48, peer=0x45, psn=0xFFFFF0)
    for n in range(37):
        it.more["sport"] = 69
        it.write(1024 if n % 5 else 3000, ack=False)
        it.more["sport"] = 72
        it.ack(1, 0x05 + n % 2)
    assert warnings(tmp_path, it.frames) == []
    (flow,) = wire.look([str(tmp_path / "healthy.pcap")]).report["flows"]
    assert (flow["qpn"], flow["peer_qpn"], flow["pmtu"], flow["acks"], flow["state"]) == (0x48, 0x45, 1024, 37, "idle")
    assert flow["confidence"] == "high" and 12.0 <= flow["ack_us_p50"] <= 14.0


def test_ipv6_gids_vlans_with_priorities_and_a_route(tmp_path: Path) -> None:
    for more in (
        {"one": A6, "two": B6},
        {"vlans": (vlan(3),)},
        {"vlans": (vlan(3, 7), vlan(3, 100))},
        {"ttl": 61},
        {"one": A6, "two": B6, "vlans": (vlan(5),)},
    ):
        assert warnings(tmp_path, mixed(**more).frames) == [], more


def test_padding_and_fcs_at_the_end_of_frames(tmp_path: Path) -> None:
    frames = mixed().frames
    assert warnings(tmp_path, changed(frames, lambda data: data.ljust(60, b"\0"))) == []
    assert warnings(tmp_path, changed(frames, lambda data: data.ljust(60, b"\0") + b"\xde\xad\xbe\xef")) == []


@pytest.mark.parametrize("snaplen", [64, 70, 96, 128])
def test_a_capture_that_keeps_only_the_headers(tmp_path: Path, snaplen: int) -> None:
    frames = mixed().frames
    assert warnings(tmp_path, frames, made.pcap(frames, snaplen=snaplen)) == []


def test_a_capture_that_starts_and_ends_in_the_middle(tmp_path: Path) -> None:
    frames = mixed().frames
    for first in range(1, 40):
        assert warnings(tmp_path, frames[first : len(frames) - first]) == [], first


def test_a_tap_of_one_direction(tmp_path: Path) -> None:
    for end in (A, B):
        mine = [f for f in mixed().frames if f[1][26:30] == bytes(map(int, end.split(".")))]
        assert warnings(tmp_path, mine) == [], end


def test_a_capture_that_loses_packets_itself(tmp_path: Path) -> None:
    frames = mixed().frames
    for step in (7, 11, 13, 29):
        kept = [f for n, f in enumerate(frames) if n % step]
        assert warnings(tmp_path, kept) == [], step


def test_a_mirror_of_both_ports_delivers_each_packet_twice(tmp_path: Path) -> None:
    for more in ({}, {"one": A6, "two": B6}, {"ip_id": 0}):
        twice = [(time + k * US, data) for time, data in mixed(**more).frames for k in (0, 1)]
        assert warnings(tmp_path, twice) == [], more


def tunnelled(kind: str, data: bytes) -> bytes:
    """Return a frame in the tunnel of a mirror session (draft-foschiano-erspan-03, RFC 2784, RFC 7348)."""
    gre = {
        "ERSPAN I": struct.pack(">HH", 0, 0x88BE),
        "ERSPAN II": struct.pack(">HHI", 0x1000, 0x88BE, 7) + struct.pack(">HHI", 0x1000 | 100, 5, 0),
        "ERSPAN III": struct.pack(">HHI", 0x1000, 0x22EB, 7) + struct.pack(">HHIHH", 0x2000, 5, 1, 0, 0),
        "ERSPAN III, with a subheader": struct.pack(">HHI", 0x1000, 0x22EB, 7) + struct.pack(">HHIHH", 0x2000, 5, 1, 0, 1) + bytes(8),
        "GRE": struct.pack(">HHI", 0x2000, 0x6558, 42),
        "VXLAN": b"",
    }[kind]  # fmt: skip
    if kind == "VXLAN":
        gre = struct.pack(">HHHH", 50000, 4789, 16 + len(data), 0) + b"\x08\0\0\0\0\0\x2a\0"
    protocol = 17 if kind == "VXLAN" else 47
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(gre) + len(data), 9, 0, 60, protocol, 0) + bytes(
        [192, 0, 2, 1, 192, 0, 2, 2]
    )
    return b"\2\0\0\0\7\1" + b"\2\0\0\0\7\2" + b"\x08\0" + head + gre + data


@pytest.mark.parametrize(
    "kind", ["ERSPAN I", "ERSPAN II", "ERSPAN III", "ERSPAN III, with a subheader", "GRE", "VXLAN"]
)
def test_a_mirror_that_comes_in_a_tunnel_is_read_as_what_is_in_it(tmp_path: Path, kind: str) -> None:
    frames = mixed().frames
    inside = changed(frames, lambda data: tunnelled(kind, data))
    assert warnings(tmp_path, inside) == []
    flows = [wire.look([str(path)]).report["flows"] for path in (tmp_path / "healthy.pcap", _plain(tmp_path, frames))]
    for (one,) in flows:
        for name in ("node", "origin"):
            del one[name]
    assert flows[0] == flows[1] and flows[0][0]["packets"] > 100
    cut = changed(inside, lambda data: data[:45])
    assert warnings(tmp_path, cut) == []


def _plain(folder: Path, frames: Frames) -> Path:
    path = folder / "plain.pcap"
    path.write_bytes(made.pcap(frames, ns=True))
    return path


def test_a_handshake_mirrored_twice_is_one(tmp_path: Path) -> None:
    twice = [(time + k * 300 * US, data) for time, data in handshake()[:1] for k in (0, 1)]
    assert warnings(tmp_path, twice) == []


def test_packets_in_another_order_that_no_nak_answers(tmp_path: Path) -> None:
    frames = mixed().frames
    for n in range(5, len(frames) - 2, 9):
        (one, first), (two, second) = frames[n], frames[n + 1]
        frames[n], frames[n + 1] = (one, second), (two, first)
    assert warnings(tmp_path, frames) == []


def test_data_of_reads_that_comes_in_another_order(tmp_path: Path) -> None:
    it = Adapter()
    for _ in range(10):
        it.read(6000)
        n = len(it.frames) - 4
        (one, first), (two, second) = it.frames[n], it.frames[n + 1]
        it.frames[n], it.frames[n + 1] = (one, second), (two, first)
    assert warnings(tmp_path, it.frames) == []


def test_stamps_that_go_backwards_and_a_clock_that_is_set(tmp_path: Path) -> None:
    frames = mixed().frames
    jitter = [(max(0, time - 3 * US * (n % 2)), data) for n, (time, data) in enumerate(frames)]
    assert warnings(tmp_path, jitter, sort=False) == []
    half = len(frames) // 2
    back = [(time + 3_600_000 * MS if n < half else time, data) for n, (time, data) in enumerate(frames)]
    assert warnings(tmp_path, back, sort=False) == []
    assert warnings(tmp_path, [(0, data) for _, data in frames], sort=False) == []


def test_ecn_marks_that_cnps_answer_for_all_qps_of_a_port_at_once(tmp_path: Path) -> None:
    one, two = Adapter(), Adapter(qp=0x2A2, peer=0x2B7, psn=5)
    for it in (one, two):
        for n in range(60):
            it.more["tos"] = 26 << 2 | 3 if n % 2 else 26 << 2 | 2
            it.write(3000)
    for _ in range(4):
        one.cnp(A, one.peer)
    assert warnings(tmp_path, one.frames + two.frames) == []


def test_dc_manufacturer_opcodes_unreliable_datagrams_and_unreliable_connections(tmp_path: Path) -> None:
    it = mixed()
    for opcode in (0x44, 0x4A, 0x4C, 0x51, 0xC4, 0xE0, 0xFF):  # DC uses the RD opcodes, with headers of its own
        it.put(A, bth(opcode, 0x9, 1, mig=1) + bytes(24))
    for n in range(20):
        it.put(A, bth(0x64, 0x77, n, mig=1) + struct.pack(">II", 0x11111111, 0x55) + bytes(64))
        it.put(A, bth(0x2A, 0x99, n, mig=1) + reth(0, 7, 8) + bytes(8))
    assert warnings(tmp_path, it.frames) == []


def test_partition_keys_of_full_and_limited_members(tmp_path: Path) -> None:
    frames = mixed().frames
    limited = Adapter(qp=0x300, peer=0x301)
    for n in range(5):
        limited.put(A, bth(0x04, 0x300, n, 1, mig=1, pkey=0x7FFF) + bytes(8))
        limited.put(B, bth(0x11, 0x301, n, mig=1, pkey=0xFFFF) + aeth(0x1F, n + 1))
    assert warnings(tmp_path, frames + limited.frames) == []


def test_flows_whose_answers_take_another_link(tmp_path: Path) -> None:
    seen = mixed()
    other = Adapter(qp=0x400, peer=0x401)
    for _ in range(40):
        other.write(1500)
    kept = [f for f in other.frames if f[1][26:30] == bytes([10, 0, 0, 1])]
    assert warnings(tmp_path, seen.frames + kept) == []


def test_engines_that_start_each_connection_with_psn_0(tmp_path: Path) -> None:
    frames = []
    for n in range(6):
        it = Adapter(qp=0x500 + n, peer=0x600 + n, psn=0)
        it.time = n * 3 * US
        for _ in range(20):
            it.write(2000)
        frames += it.frames
    again = Adapter(qp=0x500, peer=0x600, psn=0, sport=0xC777)
    again.time = 2_000 * MS
    for _ in range(20):
        again.write(2000)
    assert warnings(tmp_path, frames + again.frames) == []


def test_a_connection_that_rests_for_a_long_time(tmp_path: Path) -> None:
    it = mixed()
    it.time += 60_000 * MS
    it.write(64)
    it.time += 60_000 * MS
    it.put(A, b"".join([bth(0x81, 1, 0, congestion=0x40), bytes(16)]))
    assert warnings(tmp_path, it.frames) == []


def test_a_stale_connection_that_is_rejected_once_and_then_accepted(tmp_path: Path) -> None:
    rej = (0).to_bytes(4, "big") + (4).to_bytes(4, "big") + b"\0\0" + (10).to_bytes(2, "big")
    first = [(0, cm(A, B, 0x10, req(0x1B7, 1, 4))), (MS, cm(B, A, 0x12, rej))]
    assert warnings(tmp_path, first + [(time + 5 * MS, data) for time, data in handshake()]) == []


def test_global_pause_on_a_link_that_is_lossless_by_it(tmp_path: Path) -> None:
    pause = b"\x01\x80\xc2\0\0\1" + made.MACS[B] + b"\x88\x08\x00\x01\xff\xff" + bytes(42)
    assert warnings(tmp_path, [*mixed().frames, (5, pause)]) == []


def test_icrcs_that_the_adapter_fills_in_behind_the_capture_are_unknown_not_wrong(tmp_path: Path) -> None:
    frames = mixed().frames
    unfilled = [(t, data if data[26:30] != bytes([10, 0, 0, 1]) else data[:-4] + b"\0\0\0\0") for t, data in frames]
    path = tmp_path / "x.pcap"
    path.write_bytes(made.pcap(unfilled, ns=True))
    findings = wire.look([str(path)]).report["findings"]
    assert [(f["rule"], f["answer"]) for f in findings if f["severity"] != "info"] == [("wire-icrc-bad", "unknown")]
