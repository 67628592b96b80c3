"""Capture files as chunks of raw packets: pcap (us, ns, both byte orders) and pcapng, read in order from any stream.

Formats: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html and draft-ietf-opsawg-pcapng. Memory is one chunk, whatever a
file holds or claims; what is damaged ends the reading with a `problem`, and all before it stands.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from rdmadiag.errors import BadFile

CHUNK_BYTES = 8 << 20
"""Bytes of a file that are worked on at once."""
PACKET_BYTES = 4 << 20
"""Longest packet or block believed [bytes]; tcpdump's own limit is 256 KiB."""
PADDING = 256
"""Zero bytes behind a chunk, so that a window at its last packet does not end outside."""
ETHERNET, RAW, RAW_BSD, RAW_OLD, SLL, NULL, LOOP, ERF, IPV4, IPV6, INFINIBAND, SLL2 = (
    1, 101, 12, 14, 113, 0, 108, 197, 228, 229, 247, 276,
)  # fmt: skip
LINK_NAMES = {
    ETHERNET: "Ethernet", RAW: "raw IP", RAW_BSD: "raw IP", RAW_OLD: "raw IP", SLL: "Linux cooked", SLL2: "Linux cooked v2",
    NULL: "BSD loopback", LOOP: "BSD loopback", ERF: "ERF", IPV4: "raw IPv4", IPV6: "raw IPv6", INFINIBAND: "InfiniBand",
}  # fmt: skip
MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
PCAPNG = b"\n\r\r\n"


class Stream(Protocol):
    """What a capture is read from: `read` returns fewer bytes than asked only at the end."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""


class Chunk(NamedTuple):
    """Packets as they lie in a file. Arrays have one entry a packet."""

    data: np.ndarray
    """All bytes, uint8, PADDING zeros behind them."""
    start: np.ndarray
    """Where each packet starts in `data`, int64."""
    captured: np.ndarray
    """Bytes of it that are there, int64."""
    length: np.ndarray
    """Bytes that it had on the wire, int64."""
    time: np.ndarray
    """When it was seen [ns since 1970], int64."""
    link: np.ndarray
    """Link type of the interface, int32."""
    frame: int
    """Number of the first packet, from 1."""
    position: int
    """Bytes of the file read so far."""


class Capture:
    """Reads a capture. After the last chunk: `problem` (text, '' when it was read to its end), `dropped`, `kind`, `links`, `snaplen`."""

    def __init__(self, stream: Stream, path: str) -> None:
        self._stream, self.path = stream, path
        self.problem = ""
        self.kind = ""
        self.dropped: int | None = None
        """Packets that the capturing interfaces say they lost [count]; None where the file does not say."""
        self.until: int | None = None
        """Until when the capture ran [ns since 1970]; None where the file does not say."""
        self.links: set[int] = set()
        self.snaplen = 0
        self._frame = 1
        self._position = 0
        self._rest = b""

    def chunks(self) -> Iterator[Chunk]:
        """Yield chunks. Raises BadFile when it is no capture at all."""
        head = self._read(24)
        if head[:4] in MAGICS:
            yield from self._pcap(head)
        elif head[:4] == PCAPNG:
            self._rest = head
            yield from self._pcapng()
        else:
            raise BadFile(
                self.path, "byte 0", f"not a capture (first bytes {head[:4].hex() or 'none'}); wanted pcap or pcapng"
            )

    def _read(self, size: int) -> bytes:
        try:
            part = self._stream.read(size)
        except Exception as error:  # noqa: BLE001 - whatever a stream raises (OSError, Damaged, TimeoutError): what came before stands
            self.problem = self.problem or f"{getattr(error, 'strerror', None) or error}"
            return b""
        self._position += len(part)
        return part

    def _fill(self, rest: bytes, wanted: int) -> tuple[bytes, bool]:
        # More bytes behind `rest`; True when the file goes on.
        part = self._read(max(wanted, CHUNK_BYTES))
        return rest + part, bool(part)

    def _made(self, data: bytes, *columns: np.ndarray) -> Chunk:
        padded = np.zeros(len(data) + PADDING, np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        frame = self._frame
        self._frame += len(columns[0])
        start, captured, length, time, link = columns
        return Chunk(padded, start, captured, length, time, link, frame, self._position)

    def _pcap(self, head: bytes) -> Iterator[Chunk]:
        if len(head) < 24:
            raise BadFile(
                self.path, f"byte {len(head)}", "the file ends in its own header; wanted 24 bytes of pcap header"
            )
        order, unit = MAGICS[head[:4]]
        self.kind = f"pcap, {'ns' if unit == 1 else 'us'}"
        self.snaplen, link = struct.unpack(order + "II", head[16:24])
        link &= 0xFFFF
        self.links.add(link)
        rest = b""
        while True:
            data, more = self._fill(rest, 16)
            at, starts, problem = _records(data, order)
            if starts:
                where = np.array(starts, np.int64)
                fields = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), 16)[where]
                seconds, part, captured, length = (fields.view(order + "u4")[:, n].astype(np.int64) for n in range(4))
                yield self._made(
                    data,
                    where + 16,
                    captured,
                    length,
                    seconds * 1_000_000_000 + part * unit,
                    np.full(len(where), link, np.int32),
                )
            rest = data[at:]
            if problem or not more:
                self._end(rest, problem, "packet")
                return

    def _end(self, rest: bytes, problem: str, what: str) -> None:
        # Notes where and why reading stopped, unless the file ended where it should.
        if problem or rest:
            place = f"at byte {self._position - len(rest)} (packet {self._frame})"
            self.problem = self.problem or f"{place}: {problem or f'the file ends inside a {what}'}"

    def _pcapng(self) -> Iterator[Chunk]:
        from rdmadiag.roce import pcapng

        self.kind = "pcapng"
        reader = pcapng.Blocks()
        rest = self._rest
        while True:
            data, more = self._fill(rest, 32)
            at, found, problem = reader.scan(data)
            self.links |= reader.links
            self.snaplen, self.dropped = max(self.snaplen, reader.snaplen), reader.dropped
            self.until = reader.until
            if len(found[0]):
                yield self._made(data, *found)
            rest = data[at:]
            if problem or not more:
                self._end(rest, problem, "block")
                return


def _records(data: bytes, order: str) -> tuple[int, list[int], str]:
    # Where the whole records of a pcap start, how far they go, and what is wrong behind them.
    starts: list[int] = []
    append, unpack = starts.append, struct.Struct(order + "I").unpack_from
    at, end, before, wait = 0, len(data) - 16, -1, 0
    while at <= end:
        (size,) = unpack(data, at + 8)
        behind = at + 16 + size
        if behind > end + 16:
            if size > PACKET_BYTES:
                return at, starts, f"a packet that claims {size} bytes; wanted at most {PACKET_BYTES}"
            break
        append(at)
        at = behind
        wait -= 1
        if size == before and wait <= 0:  # packets of one size follow each other: as many of them at once as there are
            run = _alike(data, at, size, (end + 16 - at) // (16 + size), order)
            starts.extend(range(at, at + run * (16 + size), 16 + size))
            at += run * (16 + size)
            wait = 0 if run > 32 else 256
        before = size
    return at, starts, ""


def _alike(data: bytes, at: int, size: int, limit: int, order: str) -> int:
    # How many records from `at` on are of this size.
    stride, count, found = 16 + size, 16, 0
    fields = np.frombuffer(data, np.uint8)
    while found < limit:
        count = min(count, limit - found)
        part = fields[at + found * stride + 8 :]
        lengths = np.lib.stride_tricks.as_strided(part, (count, 4), (stride, 1)).copy().view(order + "u4")[:, 0]
        same = lengths == size
        if not same.all():
            return found + int(same.argmin())
        found, count = found + count, count * 8
    return found
