"""Blocks of pcapng files: sections in either byte order, interfaces with their link type and clock, packets, drop counts."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

SECTION, INTERFACE, OLD_PACKET, SIMPLE, STATISTICS, PACKET = 0x0A0D0D0A, 1, 2, 3, 5, 6
BLOCK_BYTES = 4 << 20
"""Longest block believed [bytes]."""
INTERFACES = 4096
"""Most interfaces kept of a section."""


class Blocks:
    """What must be remembered between the chunks of one file."""

    def __init__(self) -> None:
        self.order = "<"
        self.interfaces: list[tuple[int, int, int, int]] = []
        """Link type, snaplen, clock ticks a second, offset [s] of each interface of this section."""
        self.links: set[int] = set()
        self.snaplen = 0
        self.dropped: int | None = None
        self.until: int | None = None
        """When the interfaces' last statistics were written: until then the capture ran [ns since 1970]."""

    def scan(self, data: bytes) -> tuple[int, tuple[np.ndarray, ...], str]:
        """Read the whole blocks of `data`. Returns how far they go, columns of the packets (see capture.Chunk), and what is wrong there."""
        rows: list[tuple[int, int, int, int, int]] = []
        at, size, problem = 0, len(data), ""
        while at + 12 <= size:
            if data[at : at + 4] == b"\n\r\r\n":
                magic = data[at + 8 : at + 12]
                if magic not in (b"\x1a\x2b\x3c\x4d", b"\x4d\x3c\x2b\x1a"):
                    problem = f"a section header without its byte-order magic (found {magic.hex()})"
                    break
                self.order = ">" if magic == b"\x1a\x2b\x3c\x4d" else "<"
                self.interfaces = []
            kind, length = struct.unpack_from(self.order + "II", data, at)
            if length < 12 or length > BLOCK_BYTES:
                problem = f"a block that claims {length} bytes; wanted 12 to {BLOCK_BYTES}"
                break
            padded = length + -length % 4
            if at + padded > size:
                break
            problem = self._block(kind, data, at + 8, at + length - 4, rows)
            if problem:
                break
            at += padded
        columns = np.array(rows, np.int64).reshape(-1, 5)
        start, captured, length_on_wire, time, link = (np.ascontiguousarray(columns[:, n]) for n in range(5))
        return at, (start, captured, length_on_wire, time, link.astype(np.int32)), problem

    def _block(self, kind: int, data: bytes, start: int, end: int, rows: list[Any]) -> str:
        if kind in (PACKET, OLD_PACKET):
            if end - start < 20:
                return "a packet block shorter than its fields; wanted 32 bytes or more"
            if kind == PACKET:
                number, high, low, captured, length = struct.unpack_from(self.order + "IIIII", data, start)
            else:
                number, _, high, low, captured, length = struct.unpack_from(self.order + "HHIIII", data, start)
            if captured > end - start - 20:
                return f"a packet that claims {captured} bytes in a block that has room for {end - start - 20}"
            if number >= len(self.interfaces):
                return f"a packet of interface {number}, which no block before it describes"
            link, _, ticks, offset = self.interfaces[number]
            stamp = (high << 32 | low) & 0x7FFFFFFFFFFFFFFF
            time = min(stamp * 1_000_000_000 // ticks + offset * 1_000_000_000, (1 << 63) - 1)
            rows.append((start + 20, captured, length, max(time, -(1 << 62)), link))
        elif kind == SIMPLE and end - start >= 4 and self.interfaces:
            (length,) = struct.unpack_from(self.order + "I", data, start)
            link, snaplen, _, _ = self.interfaces[0]
            captured = min(length, end - start - 4, snaplen or length)
            rows.append((start + 4, captured, length, 0, link))
        elif kind == INTERFACE:
            if end - start < 8 or len(self.interfaces) >= INTERFACES:
                return "an interface block shorter than its fields, or too many of them"
            link, _, snaplen = struct.unpack_from(self.order + "HHI", data, start)
            ticks, offset = 1_000_000, 0
            for code, value in self._options(data, start + 8, end):
                if code == 9 and value:
                    power = value[0] & 0x7F
                    ticks = max(1, min(2**power if value[0] & 0x80 else 10**power, 10**30))
                elif code == 14 and len(value) == 8:
                    (offset,) = struct.unpack(self.order + "q", value)
                    offset = offset if abs(offset) < 1 << 32 else 0
            self.interfaces.append((link, snaplen, ticks, offset))
            self.links.add(link)
            self.snaplen = max(self.snaplen, snaplen)
        elif kind == STATISTICS and end - start >= 12:
            number, high, low = struct.unpack_from(self.order + "III", data, start)
            if number < len(self.interfaces):
                _, _, ticks, offset = self.interfaces[number]
                stamp = (high << 32 | low) & 0x7FFFFFFFFFFFFFFF
                until = min(stamp * 1_000_000_000 // ticks + offset * 1_000_000_000, (1 << 63) - 1)
                self.until = max(self.until or 0, until)
            for code, value in self._options(data, start + 12, end):
                if code in (5, 7) and len(value) == 8:  # isb_ifdrop, isb_osdrop
                    self.dropped = (self.dropped or 0) + struct.unpack(self.order + "Q", value)[0]
        return ""

    def _options(self, data: bytes, at: int, end: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        while at + 4 <= end and len(found) < 256:
            code, length = struct.unpack_from(self.order + "HH", data, at)
            if code == 0 or at + 4 + length > end:
                break
            found.append((code, data[at + 4 : at + 4 + length]))
            at += 4 + length + -length % 4
        return found
