"""Invariant CRC of many RoCE packets at once; of one packet it is rdmadiag.roce.packet.packet_icrc.

CRC-32 (the one of zlib) over eight bytes of ones in the place of the LRH, then the L3 header to the last pad byte, with the fields
that switches and routers may change set to ones: IPv4 TOS, TTL and checksum; IPv6 traffic class, flow label and hop limit; the UDP
checksum; byte 4 of the BTH (FECN, BECN). It is stored low byte first. (IBA vol 1 annex A17.4.3; kernel rxe_icrc.c)
"""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np

from rdmadiag.roce.packet import BTH_MASKED, MASKED_V4

UNCHECKABLE, GOOD, BAD = 0, 1, 2
SHORT_BYTES = 36
"""Up to this length after the BTH the packets of one length are done together [bytes]."""


@cache
def _byte_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


@cache
def _position_tables(length: int) -> tuple[np.ndarray, int]:
    # CRC is linear: the CRC of a message is the XOR of what each byte at its place adds, and a constant.
    table = _byte_table()
    places = np.empty((length, 256), np.uint32)
    places[-1] = table
    for at in range(length - 2, -1, -1):
        after = places[at + 1]
        places[at] = (after >> 8) ^ table[after & 0xFF]
    return places, zlib.crc32(bytes(length))


def crc32_rows(rows: np.ndarray) -> np.ndarray:
    """Return zlib.crc32 of each row of an (n, length) array of bytes."""
    count, length = rows.shape
    if not length:
        return np.zeros(count, np.uint32)
    places, constant = _position_tables(length)
    result = np.full(count, constant, np.uint32)
    for at in range(length):
        result ^= places[at].take(rows[:, at])
    return result


def crc32_more(state: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return zlib.crc32(row, state) for each row of an (n, length) array of bytes."""
    table = _byte_table()
    value = ~state.astype(np.uint32)
    for at in range(rows.shape[1]):
        value = table.take((value ^ rows[:, at]) & np.uint32(0xFF)) ^ (value >> np.uint32(8))
    return ~value


def masked_headers(l3: np.ndarray, version: int, udp: bool) -> np.ndarray:
    """Return rows of L3, L4 and BTH bytes with ones before them and in the masked fields; `l3` is (n, header bytes)."""
    out = np.empty((len(l3), 8 + l3.shape[1]), np.uint8)
    out[:, :8] = 0xFF
    out[:, 8:] = l3
    body = out[:, 8:]
    if version == 4:
        for at in MASKED_V4:
            body[:, at] = 0xFF
    else:
        body[:, 0] |= 0x0F
        body[:, 1:4] = 0xFF
        body[:, 7] = 0xFF
    if udp:
        body[:, -14:-12] = 0xFF
    body[:, -12 + BTH_MASKED] = 0xFF
    return out


def check(
    data: np.ndarray, l3: np.ndarray, bth: np.ndarray, end: np.ndarray, version: np.ndarray, roce1: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compare the ICRC of whole packets with what they carry.

    `data`: the bytes of all packets; `l3`, `bth`, `end`: where the L3 header and BTH of each packet start and its ICRC ends;
    `version`: 4 or 6; `roce1`: no UDP header. Returns GOOD or BAD for each, and the CRC of its headers to the end of the BTH.
    """
    state = np.zeros(len(l3), np.uint32)
    layout = (bth - l3) << 4 | version.astype(np.int64) << 1 & 14 | roce1
    for kind in np.unique(layout).tolist():
        length, ip, first = kind >> 4, (kind & 14) >> 1, bool(kind & 1)
        rows = np.nonzero(layout == kind)[0]
        for part in np.array_split(rows, max(1, len(rows) >> 16)):
            window = np.lib.stride_tricks.sliding_window_view(data, length + 12)[l3[part]]
            state[part] = crc32_rows(masked_headers(window, ip, not first))
    headers = state.copy()
    rest = end - 4 - (bth + 12)
    for size in np.unique(rest[rest <= SHORT_BYTES]):
        rows = np.nonzero(rest == size)[0]
        if size > 0:
            window = np.lib.stride_tricks.sliding_window_view(data, int(size))[bth[rows] + 12]
            state[rows] = crc32_more(state[rows], window)
    long = np.nonzero(rest > SHORT_BYTES)[0]
    if len(long):
        view, crc32 = memoryview(data.data), zlib.crc32
        places = zip((bth[long] + 12).tolist(), (end[long] - 4).tolist(), state[long].tolist(), strict=True)
        state[long] = np.fromiter((crc32(view[a:b], s) for a, b, s in places), np.uint32, len(long))
    carried = np.lib.stride_tricks.sliding_window_view(data, 4)[end - 4].view("<u4")[:, 0]
    return np.where(carried == state, GOOD, BAD).astype(np.uint8), headers


def body(headers: int, icrc: int, length: int) -> int:
    """Return what tells the bytes behind two BTHs apart, whatever the headers before them: `length` bytes, without the ICRC.

    The CRC of a message is that of its headers and as many zeros, and what its body adds to it: linear, and the same for the same body.
    """
    return zlib.crc32(bytes(length), headers) ^ icrc
