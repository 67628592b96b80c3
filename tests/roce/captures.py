"""Captures made for tests: frames built by hand from the byte tables, and long clean captures by repetition."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from rdmadiag.roce import icrc
from rdmadiag.roce.packet import packet_icrc

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
MACS = {A: b"\2\0\0\0\0\1", B: b"\2\0\0\0\0\2", C: b"\2\0\0\0\0\3"}
US = 1000
MS = 1_000_000


def bth(
    opcode: int, qpn: int, psn: int, ack: int = 0, pad: int = 0, se: int = 0, mig: int = 0, pkey: int = 0xFFFF, congestion: int = 0,
    tver: int = 0,
) -> bytes:  # fmt: skip
    return struct.pack(
        ">BBHII",
        opcode,
        se << 7 | mig << 6 | pad << 4 | tver,
        pkey,
        congestion << 24 | qpn,
        (ack << 31) | (psn & 0xFFFFFF),
    )


def reth(va: int, rkey: int, size: int) -> bytes:
    return struct.pack(">QII", va, rkey, size)


def aeth(syndrome: int, msn: int = 0) -> bytes:
    return struct.pack(">I", syndrome << 24 | msn)


def frame(
    body: bytes, src: str = A, dst: str = B, sport: int = 0xC123, tos: int = 2, ttl: int = 64, ip_id: int = 0, link: str = "ether",
    vlans: Sequence[int] = (), options: bytes = b"", good: bool = True, mac: bytes | None = None,
) -> bytes:  # fmt: skip
    """Return a frame around a BTH and what follows it, with its ICRC (a wrong one unless `good`)."""
    source, target = ipaddress.ip_address(src), ipaddress.ip_address(dst)
    udp = struct.pack(">HHHH", sport, 4791, 8 + len(body) + 4, 0)
    if source.version == 4:
        head = struct.pack(
            ">BBHHHBBH",
            0x45 + len(options) // 4,
            tos,
            20 + len(options) + len(udp) + len(body) + 4,
            ip_id,
            0x4000,
            ttl,
            17,
            0,
        )
        head += source.packed + target.packed + options
        total = sum(struct.unpack(f">{len(head) // 2}H", head))
        head = head[:10] + struct.pack(">H", 0xFFFF - (total % 0xFFFF or 0xFFFF) & 0xFFFF) + head[12:]
    else:
        head = (
            struct.pack(">IHBB", 6 << 28 | tos << 20, len(udp) + len(body) + 4, 17, ttl) + source.packed + target.packed
        )
    value = packet_icrc(head + udp + body, len(head)) ^ (0 if good else 1)
    packet = head + udp + body + value.to_bytes(4, "little")
    kind = b"\x08\x00" if source.version == 4 else b"\x86\xdd"
    tags = b"".join(b"\x81\x00" + struct.pack(">H", tag) for tag in vlans)
    if link == "raw":
        return packet
    if link == "sll":
        return b"\0\0\0\1\0\6\2\0\0\0\0\1\0\0" + kind + packet
    if link == "sll2":
        return kind + b"\0\0" + b"\0\0\0\2" + b"\0\1" + b"\0\6" + b"\2\0\0\0\0\1\0\0" + packet
    return MACS.get(dst, b"\2\0\0\0\1\2") + (mac or MACS.get(src, b"\2\0\0\0\1\1")) + tags + kind + packet


def pcap(
    frames: Iterable[tuple[int, bytes]], link: int = 1, order: str = "<", ns: bool = False, snaplen: int = 262144
) -> bytes:
    """Return a pcap file of (time [ns], frame)."""
    out = [struct.pack(order + "IHHiIII", 0xA1B23C4D if ns else 0xA1B2C3D4, 2, 4, 0, 0, snaplen, link)]
    for time, data in frames:
        part = time % 1_000_000_000 // (1 if ns else 1000)
        out.append(
            struct.pack(order + "IIII", time // 1_000_000_000, part, min(len(data), snaplen), len(data))
            + data[:snaplen]
        )
    return b"".join(out)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack(order + "II", kind, len(body) + 12) + body + struct.pack(order + "I", len(body) + 12)


def pcapng(frames: Iterable[tuple[int, bytes]], link: int = 1, order: str = "<", dropped: int | None = None) -> bytes:
    """Return a pcapng file with a nanosecond clock."""
    out = [block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)]
    resolution = struct.pack(order + "HHB3xHH", 9, 1, 9, 0, 0)
    out.append(block(1, struct.pack(order + "HHI", link, 0, 262144) + resolution, order))
    for time, data in frames:
        out.append(
            block(6, struct.pack(order + "IIIII", 0, time >> 32, time & 0xFFFFFFFF, len(data), len(data)) + data, order)
        )
    if dropped is not None:
        out.append(
            block(5, struct.pack(order + "III", 0, 0, 0) + struct.pack(order + "HHQHH", 5, 8, dropped, 0, 0), order)
        )
    return b"".join(out)


def long_capture(path: Path, packets: int, payload: int, snaplen: int, flows: int = 16) -> None:
    """Write a clean capture: WRITEs of four packets of `payload` bytes and their ACKs on some QPs, good ICRCs, cut to `snaplen`."""
    round_: list[bytes] = []
    for flow in range(flows):
        for n, opcode in enumerate((6, 7, 7, 8)):
            extra = reth(0x1000, 7, 4 * payload) if opcode == 6 else b""
            round_.append(
                frame(bth(opcode, 100 + flow, n, ack=int(n == 3)) + extra + bytes(payload), sport=0xC000 + flow)
            )
        round_.append(frame(bth(0x11, 200 + flow, 3) + aeth(0x1F, 1), B, A, sport=0xD000 + flow))
    kept = [data[:snaplen] for data in round_]
    starts = np.cumsum([0] + [16 + len(data) for data in kept[:-1]])
    template = np.frombuffer(
        b"".join(struct.pack("<IIII", 0, 0, len(k), len(r)) + k for k, r in zip(kept, round_, strict=True)), np.uint8
    )
    rounds = packets // len(kept) + 1
    with path.open("wb") as file:
        file.write(pcap([])[:24])
        written = 0
        batch = max(1, (4 << 20) // len(template))
        for first in range(0, rounds, batch):
            count = min(batch, rounds - first)
            data = np.tile(template, (count, 1))
            turn = np.arange(first, first + count)
            for n, start in enumerate(starts):
                time = (turn * len(kept) + n) * 2
                data[:, start : start + 4] = (1_700_000_000 + time // 1_000_000).astype("<u4")[:, None].view(np.uint8)
                data[:, start + 4 : start + 8] = (time % 1_000_000).astype("<u4")[:, None].view(np.uint8)
                psn = ((turn * 4 + (n % 5 if n % 5 < 4 else 3)) & 0xFFFFFF) | (0x80000000 if n % 5 == 3 else 0)
                at = start + 16 + 14 + 20 + 8 + 8
                data[:, at : at + 4] = psn.astype(">u4")[:, None].view(np.uint8)
                if len(round_[n]) <= snaplen:
                    l3 = start + 16 + 14
                    rows = np.ascontiguousarray(data[:, l3 : start + 16 + len(round_[n]) - 4])
                    masked = icrc.masked_headers(rows[:, :40], 4, True)
                    value = icrc.crc32_more(icrc.crc32_rows(masked), rows[:, 40:])
                    data[:, start + 16 + len(round_[n]) - 4 : start + 16 + len(round_[n])] = value.astype("<u4")[
                        :, None
                    ].view(np.uint8)
            left = packets - written
            if count * len(kept) > left:
                whole, rest = divmod(left, len(kept))
                end = whole * len(template) + (int(starts[rest]) if rest else 0)
                file.write(data.tobytes()[:end])
                return
            file.write(data.tobytes())
            written += count * len(kept)
