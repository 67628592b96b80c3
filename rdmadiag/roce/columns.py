"""Header columns: every field of every RoCE packet of a chunk as an array, and a reason for each packet that is none.

Field layout: IBA vol 1, 9.2 to 9.3 and annex A17; kernel include/rdma/ib_pack.h. One entry a RoCE packet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rdmadiag.explain.opcode import HEADER_BYTES
from rdmadiag.roce import capture, headers, icrc
from rdmadiag.roce.capture import Chunk

ROCE2, ROCE1, NATIVE, NOT_IP, NOT_UDP, OTHER_PORT, FRAGMENT, CUT, LENGTH, TAGS, LINK, PAUSE, PFC, TUNNEL = range(14)
REASONS = (
    "RoCEv2",
    "RoCEv1",
    "native InfiniBand",
    "not IP",
    "IP, but not UDP",
    "UDP of another port",
    "IP fragment",
    "cut off before its headers end",
    "IP or UDP length that cannot be",
    "more VLAN tags than 8",
    "link type that is not read",
    "global pause frame",
    "PFC frame",
    "in a tunnel that is not read",
)
_TAGS = 8
_GRE, _VXLAN = 47, 4789


@dataclass
class Columns:
    """RoCE packets of one chunk. All arrays have the same length but `why`, which has an entry for every packet of the chunk."""

    why: np.ndarray
    """Index into REASONS for every packet of the chunk."""
    row: np.ndarray
    """Where in the chunk each RoCE packet is."""
    frame: np.ndarray
    """Its number in the capture, from 1, as Wireshark counts."""
    time: np.ndarray
    """[ns since 1970]."""
    version: np.ndarray
    """4 or 6."""
    roce1: np.ndarray
    src: np.ndarray
    """Address as two 64-bit halves, (n, 2) uint64; IPv4 as ::ffff:a.b.c.d."""
    dst: np.ndarray
    tos: np.ndarray
    ttl: np.ndarray
    ip_id: np.ndarray
    """IPv4 identification; 0 for IPv6."""
    sport: np.ndarray
    udp_checksum: np.ndarray
    opcode: np.ndarray
    flags: np.ndarray
    """BTH byte 1: SE, MigReq, PadCnt (2), TVer (4)."""
    pkey: np.ndarray
    congestion: np.ndarray
    """BTH byte 4: FECN 0x80, BECN 0x40, six reserved bits."""
    destqp: np.ndarray
    ackreq: np.ndarray
    psn: np.ndarray
    payload: np.ndarray
    """Payload without pad and ICRC [bytes]; negative when the lengths contradict the headers."""
    length: np.ndarray
    """Bytes on the wire, link header included."""
    whole: np.ndarray
    """The packet was captured to its last byte."""
    l3: np.ndarray
    bth: np.ndarray
    end: np.ndarray
    """Where the packet's L3 header and BTH start, and its ICRC ends, in the chunk's data."""
    data: np.ndarray
    smac: np.ndarray
    """Source MAC address as an integer, 0 where the link has none."""
    header_crc: np.ndarray | None = None
    """CRC of each packet's headers to the end of the BTH, where its ICRC is checked: `icrc` fills it."""
    pauses: list[tuple[int, int, int, int, tuple[int, ...]]] = field(default_factory=list)
    """PFC and pause frames: frame number, time [ns], source MAC, 1 for PFC, quanta by priority (one value for a global pause)."""

    def __len__(self) -> int:
        return len(self.frame)

    def extension(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows whose opcode has an extension header and whose bytes of it are there, and those bytes (n, size)."""
        offset = headers.OFFSET[name][self.opcode]
        size = HEADER_BYTES[name]
        rows = np.nonzero((offset > 0) & (self.bth + offset + size <= self.end))[0]
        return rows, _window(self.data, size)[self.bth[rows] + offset[rows]]

    def dense(self, name: str, at: int, size: int) -> np.ndarray:
        """Return a field of an extension header for every packet: `size` bytes at `at`; -1 where there is none (uint64: 0)."""
        rows, raw = self.extension(name)
        found = np.full(len(self), -1, np.int64) if size < 8 else np.zeros(len(self), np.uint64)
        found[rows] = _number(raw, at, size)
        return found

    def icrc(self) -> np.ndarray:
        """Return icrc.GOOD, BAD, or UNCHECKABLE (cut, or lengths that contradict) for every packet."""
        result = np.zeros(len(self), np.uint8)
        self.header_crc = np.zeros(len(self), np.uint32)
        rows = np.nonzero(self.whole & (self.payload >= 0))[0]
        if len(rows):
            result[rows], self.header_crc[rows] = icrc.check(
                self.data, self.l3[rows], self.bth[rows], self.end[rows], self.version[rows], self.roce1[rows]
            )
        return result

    def contents(self, rows: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what tells the payload of some packets apart, and how: icrc.GOOD by header CRC (high half) and ICRC (low), BAD not at all,
        UNCHECKABLE (cut) by the last eight bytes that were kept of it. `state` is what `icrc` returned.
        """
        last = _window(self.data, 8)[np.maximum(self.end[rows] - 8, 0)].view("<u8")[:, 0]
        kind = state[rows]
        kept = self.end[rows] - self.bth[rows] - headers.HEADER_BYTES[self.opcode[rows]] >= 8
        kind = np.where((kind == icrc.UNCHECKABLE) & (self.whole[rows] | ~kept), icrc.BAD, kind)
        sealed = last >> np.uint64(32)
        if self.header_crc is not None:
            sealed |= self.header_crc[rows].astype(np.uint64) << np.uint64(32)
        return np.where(kind == icrc.GOOD, sealed, last), kind


def _window(data: np.ndarray, size: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(data, size)


def _number(raw: np.ndarray, at: int, size: int) -> np.ndarray:
    if size in (2, 4, 8):
        return raw[:, at : at + size].view(f">u{size}")[:, 0].astype(np.uint64 if size == 8 else np.int64)
    value = raw[:, at].astype(np.int64)
    for n in range(1, size):
        value = value << 8 | raw[:, at + n]
    return value


def decode(chunk: Chunk, inside: bool = False) -> Columns:
    """Decode a chunk; never raises, whatever the packets hold. Of a mirror's tunnel (ERSPAN, GRE, VXLAN) the packet in it is taken."""
    why, l3, version_at = _link(chunk)
    data, limit = chunk.data, chunk.start + chunk.captured
    bth = np.zeros(len(why), np.int64)
    end = np.zeros(len(why), np.int64)
    version = np.zeros(len(why), np.uint8)
    roce1 = why == ROCE1
    _roce1(data, roce1, why, l3, limit, bth, end, version)
    ip = np.nonzero(why == ROCE2)[0]
    nibble = data[l3[ip]] >> 4
    short = l3[ip] + 1 > limit[ip]
    four, six = ip[(nibble == 4) & ~short], ip[(nibble == 6) & ~short]
    why[ip[((nibble != 4) & (nibble != 6)) | short]] = NOT_IP
    version[four], version[six] = 4, 6
    l4 = np.zeros(len(why), np.int64)
    _ipv4(chunk, four, why, l3, l4, end, limit)
    _ipv6(data, six, why, l3, l4, end, limit)
    _udp(data, np.nonzero(why == ROCE2)[0], why, l4, bth, end, limit)
    if (why == TUNNEL).any() and not inside:
        return decode(_taken_out(chunk, np.nonzero(why == TUNNEL)[0], l4), inside=True)
    rows = np.nonzero(why <= ROCE1)[0]
    return _columns(chunk, why, rows, l3[rows], l4[rows], bth[rows], end[rows], version[rows], version_at)


def _taken_out(chunk: Chunk, rows: np.ndarray, l4: np.ndarray) -> Chunk:
    # The chunk with packets in tunnels that hold an Ethernet frame starting there. RFC 2784, 2890, 7348; draft-foschiano-erspan-03.
    raw = _window(chunk.data, 20)[l4[rows]]
    flags, kind = _number(raw, 0, 2), _number(raw, 2, 2)
    head = 4 + 4 * ((flags >> 15 & 1) + (flags >> 13 & 1) + (flags >> 12 & 1))
    erspan2 = np.where(flags >> 12 & 1, 8, 0)  # without a sequence number it is type I, which has no header
    last = chunk.data[l4[rows] + head + 11]
    inner = l4[rows] + np.select(
        [raw[:, 2].astype(np.int64) << 8 | raw[:, 3] == _VXLAN, kind == 0x6558, kind == 0x88BE, kind == 0x22EB],
        [16, head, head + erspan2, head + 12 + 8 * (last & 1)],
        1 << 20,
    )
    whole = inner + 14 <= chunk.start[rows] + chunk.captured[rows]
    rows, inner = rows[whole], inner[whole]
    start, captured, length, link = (part.copy() for part in (chunk.start, chunk.captured, chunk.length, chunk.link))
    skipped = inner - start[rows]
    start[rows], link[rows] = inner, capture.ETHERNET
    captured[rows] -= skipped
    length[rows] -= skipped
    return chunk._replace(start=start, captured=captured, length=length, link=link)


def _link(chunk: Chunk) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # What each packet is by its link header (ROCE2 stands for "IP, to be looked at"), where L3 starts, and where the source MAC is.
    data, start, limit = chunk.data, chunk.start, chunk.start + chunk.captured
    why = np.full(len(start), LINK, np.uint8)
    l3 = start.copy()
    mac = np.full(len(start), -1, np.int64)
    for link in np.unique(chunk.link).tolist():
        rows: Any = slice(None) if len(chunk.link) and (chunk.link == link).all() else np.nonzero(chunk.link == link)[0]
        if link in (capture.RAW, capture.RAW_BSD, capture.RAW_OLD, capture.IPV4, capture.IPV6):
            why[rows] = ROCE2
        elif link in (capture.NULL, capture.LOOP):
            why[rows], l3[rows] = ROCE2, start[rows] + 4
        elif link in (capture.ERF, capture.INFINIBAND):
            why[rows] = NATIVE
        elif link in (capture.ETHERNET, capture.SLL, capture.SLL2):
            head, at = {capture.ETHERNET: (14, 12), capture.SLL: (16, 14), capture.SLL2: (20, 0)}[link]
            if link == capture.ETHERNET:
                mac[rows] = start[rows] + 6
            why[rows], l3[rows] = _ethertype(data, start[rows] + head, start[rows] + at, limit[rows])
    short = (l3 > limit) & ((why < NATIVE) | (why == NOT_IP) | (why == TAGS))
    why[short] = CUT
    return why, l3, mac


def _ethertype(data: np.ndarray, l3: np.ndarray, at: np.ndarray, limit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kind = _window(data, 2)[np.minimum(at, len(data) - 2)].view(">u2")[:, 0].astype(np.uint16)
    l3 = l3.copy()
    for _ in range(_TAGS):
        tagged = np.nonzero((kind == 0x8100) | (kind == 0x88A8) | (kind == 0x9100))[0]
        tagged = tagged[l3[tagged] + 4 <= limit[tagged]]
        if not len(tagged):
            break
        kind[tagged] = _window(data, 2)[l3[tagged] + 2].view(">u2")[:, 0]
        l3[tagged] += 4
    why = np.full(len(kind), NOT_IP, np.uint8)
    why[(kind == 0x0800) | (kind == 0x86DD)] = ROCE2
    why[kind == headers.ROCE1_ETHERTYPE] = ROCE1
    why[(kind == 0x8100) | (kind == 0x88A8) | (kind == 0x9100)] = TAGS
    control = np.nonzero(kind == 0x8808)[0]
    if len(control):
        inner = _window(data, 2)[np.minimum(l3[control], len(data) - 2)].view(">u2")[:, 0]
        why[control[inner == 1]] = PAUSE
        why[control[inner == 0x0101]] = PFC
    return why, l3


def _roce1(
    data: np.ndarray, mine: np.ndarray, why: np.ndarray, l3: np.ndarray, limit: np.ndarray, *out: np.ndarray
) -> None:
    bth, end, version = out
    rows = np.nonzero(mine)[0]
    if not len(rows):
        return
    bth[rows], version[rows] = l3[rows] + 40, 6
    why[rows[bth[rows] + 12 > limit[rows]]] = CUT
    rows = rows[why[rows] == ROCE1]
    end[rows] = bth[rows] + _number(_window(data, 2)[l3[rows] + 4], 0, 2)
    why[rows[end[rows] < bth[rows] + 16]] = LENGTH


def _ipv4(
    chunk: Chunk, rows: np.ndarray, why: np.ndarray, l3: np.ndarray, l4: np.ndarray, end: np.ndarray, limit: np.ndarray
) -> None:
    at = l3[rows]
    why[rows[at + 20 > limit[rows]]] = CUT
    raw = _window(chunk.data, 12)[at]
    head = (raw[:, 0] & 15).astype(np.int64) * 4
    total = _number(raw, 2, 2)
    # Captured before segmentation: no length in the header, the one of the wire holds.
    total = np.where(total == 0, chunk.start[rows] + chunk.length[rows] - at, total)
    fragment = _number(raw, 6, 2) & 0x3FFF
    l4[rows], end[rows] = at + head, at + total
    bad = (head < 20) | (total < head)
    kind = np.select(
        [why[rows] == CUT, bad, fragment != 0, raw[:, 9] == _GRE, raw[:, 9] != 17],
        [CUT, LENGTH, FRAGMENT, TUNNEL, NOT_UDP],
        ROCE2,
    )
    why[rows] = kind


def _ipv6(
    data: np.ndarray,
    rows: np.ndarray,
    why: np.ndarray,
    l3: np.ndarray,
    l4: np.ndarray,
    end: np.ndarray,
    limit: np.ndarray,
) -> None:
    at = l3[rows]
    why[rows[at + 40 > limit[rows]]] = CUT
    raw = _window(data, 8)[at]
    following = raw[:, 6].copy()
    there = at + 40
    end[rows] = there + _number(raw, 4, 2)
    for _ in range(8):
        more = np.nonzero(np.isin(following, (0, 43, 60)) & (there + 8 <= limit[rows]))[0]
        if not len(more):
            break
        pair = _window(data, 2)[there[more]]
        following[more] = pair[:, 0]
        there[more] += (pair[:, 1].astype(np.int64) + 1) * 8
    l4[rows] = there
    why[rows] = np.select([why[rows] == CUT, following == 44, following != 17], [CUT, FRAGMENT, NOT_UDP], ROCE2)


def _udp(
    data: np.ndarray,
    rows: np.ndarray,
    why: np.ndarray,
    l4: np.ndarray,
    bth: np.ndarray,
    end: np.ndarray,
    limit: np.ndarray,
) -> None:
    at = l4[rows]
    there = at + 8 <= limit[rows]
    raw = _window(data, 8)[np.where(there, at, 0)]
    port = _number(raw, 2, 2)
    bth[rows] = at + 8
    size = _number(raw, 4, 2)
    lies = (at + size > end[rows]) | (size < 8 + 12 + 4)
    end[rows] = np.where(lies, end[rows], at + size)
    why[rows] = np.select(
        [~there, port == _VXLAN, port != headers.UDP_PORT, lies, at + 20 > limit[rows]],
        [CUT, TUNNEL, OTHER_PORT, LENGTH, CUT],
        ROCE2,
    )


def _columns(
    chunk: Chunk, why: np.ndarray, rows: np.ndarray, l3: np.ndarray, l4: np.ndarray, bth: np.ndarray, end: np.ndarray,
    version: np.ndarray, mac_at: np.ndarray,
) -> Columns:  # fmt: skip
    data = chunk.data
    six = version == 6
    roce1 = why[rows] == ROCE1
    raw = _window(data, 40)[l3]
    src = np.empty((len(rows), 2), np.uint64)
    dst = np.empty((len(rows), 2), np.uint64)
    tos = raw[:, 1].copy()
    ttl = raw[:, 8].copy()
    ip_id = _number(raw, 4, 2)
    if six.any():
        long = raw[six]
        src[six], dst[six] = long[:, 8:24].view(">u8"), long[:, 24:40].view(">u8")
        tos[six] = (long[:, 0] & 15) << 4 | long[:, 1] >> 4
        ttl[six], ip_id[six] = long[:, 7], 0
    short = ~six
    if short.any():
        mapped = np.uint64(0xFFFF00000000)
        src[short, 0] = dst[short, 0] = 0
        src[short, 1] = mapped | raw[short, 12:16].view(">u4")[:, 0].astype(np.uint64)
        dst[short, 1] = mapped | raw[short, 16:20].view(">u4")[:, 0].astype(np.uint64)
    udp = _window(data, 8)[np.where(roce1, 0, l4)]
    base = _window(data, 12)[bth]
    opcode = base[:, 0].copy()
    flags = base[:, 1].copy()
    ext = headers.HEADER_BYTES[opcode].astype(np.int64)
    pad = (flags >> 4 & 3).astype(np.int64)
    smac = np.zeros(len(rows), np.int64)
    with_mac = np.nonzero(mac_at[rows] >= 0)[0]
    if len(with_mac):
        smac[with_mac] = _number(_window(data, 6)[mac_at[rows[with_mac]]], 0, 6)
    return Columns(
        why=why, row=rows, frame=rows + chunk.frame, time=chunk.time[rows], version=version, roce1=roce1, src=src, dst=dst, tos=tos,
        ttl=ttl, ip_id=ip_id, sport=np.where(roce1, 0, _number(udp, 0, 2)), udp_checksum=np.where(roce1, 0, _number(udp, 6, 2)),
        opcode=opcode, flags=flags, pkey=_number(base, 2, 2), congestion=base[:, 4].copy(), destqp=_number(base, 4, 4) & 0xFFFFFF,
        ackreq=base[:, 8] >> 7, psn=_number(base, 8, 4) & 0xFFFFFF, payload=end - 4 - bth - ext - pad, length=chunk.length[rows],
        whole=end <= chunk.start[rows] + chunk.captured[rows], l3=l3, bth=bth,
        end=np.minimum(end, chunk.start[rows] + chunk.captured[rows]), data=data, smac=smac, pauses=_pauses(chunk, why, mac_at),
    )  # fmt: skip


def _pauses(chunk: Chunk, why: np.ndarray, mac_at: np.ndarray) -> list[tuple[int, int, int, int, tuple[int, ...]]]:
    rows = np.nonzero((why == PAUSE) | (why == PFC))[0]
    found = []
    for row in rows.tolist():
        start = int(chunk.start[row])
        frame = chunk.data[start : start + int(chunk.captured[row])].tobytes()
        at = frame.find(b"\x88\x08", 12) + 2
        mac = int.from_bytes(frame[6:12], "big") if mac_at[row] >= 0 else 0
        if why[row] == PAUSE:
            quanta: tuple[int, ...] = (int.from_bytes(frame[at + 2 : at + 4], "big"),)
        else:
            enabled = int.from_bytes(frame[at + 2 : at + 4], "big")
            quanta = tuple(
                int.from_bytes(frame[at + 4 + 2 * n : at + 6 + 2 * n], "big") if enabled >> n & 1 else -1
                for n in range(8)
            )
        found.append((row + chunk.frame, int(chunk.time[row]), mac, int(why[row] == PFC), quanta))
    return found


def address(high: int, low: int) -> str:
    """Return an address as text from its two halves."""
    import ipaddress

    value = ipaddress.IPv6Address((int(high) << 64 | int(low)).to_bytes(16, "big"))
    return str(value.ipv4_mapped or value)
