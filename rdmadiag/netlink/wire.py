"""One dump and one attribute walk: how netlink messages are asked for and taken apart (uapi/linux/netlink.h).

Integers are host-endian; both supported machines are little-endian, so a recording can be read on either.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import Any, NamedTuple

Object = dict[str, Any]
Reader = Callable[[bytes, int, int], Any]
Fields = Mapping[int, "tuple[str, Reader]"]

REQUEST, ACK, DUMP, DUMP_INTERRUPTED = 0x01, 0x04, 0x300, 0x10
ERROR, DONE, FIRST_REAL_TYPE = 2, 3, 16
MAX_ERRNO = 4095  # the kernel's own bound
ATTEMPTS = 4  # of a dump that the kernel says changed while it was read
BUFFER_BYTES = 256 * 1024  # the kernel fills at most 32 KiB a read of a dump

_MESSAGE = Struct("=IHHII")
_HEADER = Struct("=HH")
_INT32 = Struct("=i")
_LETTERS = {1: "B", 2: "H", 4: "I", 8: "Q"}
_UNSIGNED = {size: Struct(f"={letter}").unpack_from for size, letter in _LETTERS.items()}
_header_at = _HEADER.unpack_from


class NetlinkError(OSError):
    """The kernel refused (errno is its answer) or the bytes are no netlink messages (errno is EBADMSG)."""


def malformed(what: str, position: int) -> NetlinkError:
    """Make the error for bytes that are not what they should be, `position` bytes into the recording."""
    return NetlinkError(errno.EBADMSG, f"netlink: {what} at byte {position}")


def messages(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (type, flags, start, stop) of every message's payload; raise NetlinkError where one does not fit."""
    position, end = 0, len(data)
    while position < end:
        if end - position < _MESSAGE.size:
            raise malformed("truncated message header", position)
        length, kind, flags, _sequence, _port = _MESSAGE.unpack_from(data, position)
        if length < _MESSAGE.size or position + length > end:
            raise malformed(f"message of {length} bytes does not fit", position)
        yield kind, flags, position + _MESSAGE.size, position + length
        position += (length + 3) & ~3


def attributes(data: bytes, start: int, stop: int, fields: Fields, into: Object) -> Object:
    """Read the attributes that `fields` (number to key and reader) names into `into`; others are skipped."""
    known = fields.get
    while stop - start >= 4:
        length, number = _header_at(data, start)
        end = start + length
        if length < 4 or end > stop:
            raise malformed(f"attribute {number & 0x3FFF} of {length} bytes does not fit", start)
        field = known(number & 0x3FFF)  # the two high bits say "nested" and "big-endian"; nested is not always set
        if field is not None:
            into[field[0]] = field[1](data, start + 4, end)
        start += (length + 3) & ~3
    return into


def entries(data: bytes, start: int, stop: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of the payload of every attribute numbered `wanted`: a table's entries."""
    while stop - start >= 4:
        length, number = _header_at(data, start)
        if length < 4 or start + length > stop:
            raise malformed(f"entry {number & 0x3FFF} of {length} bytes does not fit", start)
        if number & 0x3FFF == wanted:
            yield start + 4, start + length
        start += (length + 3) & ~3


class _Layout(NamedTuple):
    headers: tuple[int, ...]  # of every attribute, length and number as one integer
    unpack: Callable[[bytes, int], tuple[Any, ...]]  # header, value, header, value ...
    integers: list[tuple[str, int]]  # key, place among the unpacked
    others: list[tuple[str, Reader, int, int]]  # key, reader, start and stop within the entry


class AlikeReader:
    """Reads as `attributes` does, several times faster where entries look alike, as those of a large dump do.

    The first entry of each size teaches how its attributes lie; one unpacking and one comparison then prove that a
    further entry lies the same, and one that does not is walked.
    """

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._layouts: dict[int, _Layout] = {}

    def read(self, data: bytes, start: int, stop: int, into: Object) -> Object:
        """Read one entry's attributes into `into`; raise NetlinkError where one does not fit."""
        layout = self._layouts.get(stop - start)
        if layout is None:
            attributes(data, start, stop, self._fields, into)
            self._layouts[stop - start] = self._learn(data, start, stop)
            return into
        values = layout.unpack(data, start)
        if values[::2] != layout.headers:
            return attributes(data, start, stop, self._fields, into)
        for key, place in layout.integers:
            into[key] = values[place]
        for key, reader, first, last in layout.others:
            into[key] = reader(data, start + first, start + last)
        return into

    def _learn(self, data: bytes, start: int, stop: int) -> _Layout:
        headers: list[int] = []
        pattern, place = "=", start
        integers: dict[str, int] = {}
        others: dict[str, tuple[Reader, int, int]] = {}
        while stop - place >= _HEADER.size:
            length, number = _header_at(data, place)
            key, reader = self._fields.get(number & 0x3FFF, ("", None))
            size = length - _HEADER.size
            letter = _LETTERS.get(size) if reader is uint else None
            pattern += f"I{letter or f'{size}s'}{min(-length & 3, stop - place - length)}x"
            headers.append(uint(data, place, place + _HEADER.size))
            if letter:
                integers[key] = 2 * len(headers) - 1
            elif reader:
                others[key] = (reader, place - start + _HEADER.size, place - start + length)
            place += (length + 3) & ~3
        rest = [(key, *found) for key, found in others.items()]
        return _Layout(tuple(headers), Struct(pattern).unpack_from, list(integers.items()), rest)


def interrupted(data: bytes) -> bool:
    """Say whether the kernel marked a dump as changed while it was read (NLM_F_DUMP_INTR), in every attempt."""
    return any(flags & DUMP_INTERRUPTED for _kind, flags, _start, _stop in messages(data))


def attribute(number: int, payload: bytes) -> bytes:
    """Encode one attribute, padded to four bytes."""
    return _HEADER.pack(_HEADER.size + len(payload), number) + payload + bytes(-len(payload) & 3)


def exchange(family: int, kind: int, payload: bytes = b"", *, dump: bool = True, timeout_seconds: float = 5.0) -> bytes:
    """Ask the kernel once and return its raw messages.

    A dump that changed while it was read is asked for again, ATTEMPTS times in all; `interrupted` tells of the last.
    Raises OSError when the socket cannot be made, else NetlinkError: the kernel's errno, EMSGSIZE for a message larger
    than BUFFER_BYTES, ETIMEDOUT.
    """
    replies = b""
    for _attempt in range(ATTEMPTS):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family) as channel:
            channel.settimeout(timeout_seconds)
            replies = converse(channel, kind, payload, dump)
        if not interrupted(replies):
            break
    return replies


def converse(channel: socket.socket, kind: int, payload: bytes, dump: bool) -> bytes:
    """Send one request over an open netlink socket and collect the whole answer."""
    flags = REQUEST | (DUMP if dump else ACK)
    channel.sendto(_MESSAGE.pack(_MESSAGE.size + len(payload), kind, flags, 1, 0) + payload, (0, 0))
    replies, buffer = bytearray(), bytearray(BUFFER_BYTES)
    while True:
        try:
            size, _ancillary, told, sender = channel.recvmsg_into([buffer])
        except TimeoutError as error:
            raise NetlinkError(errno.ETIMEDOUT, f"netlink: no answer in {channel.gettimeout()} s") from error
        if told & socket.MSG_TRUNC:
            raise NetlinkError(errno.EMSGSIZE, f"netlink: a message exceeds {BUFFER_BYTES} bytes")
        if sender[0] != 0:  # only the kernel's port is 0
            continue
        part = bytes(memoryview(buffer)[:size])
        replies += part
        if _closes(part):
            return bytes(replies)


def _closes(part: bytes) -> bool:
    # Both endings carry an errno: ERROR as the answer to a request, DONE when a dump broke off on its way.
    for kind, _flags, start, stop in messages(part):
        if kind in (ERROR, DONE):
            code = -_INT32.unpack_from(part, start)[0] if stop - start >= 4 else 0
            if code > 0:
                raise NetlinkError(min(code, MAX_ERRNO), f"netlink: {os.strerror(min(code, MAX_ERRNO))}")
            return True
    return False


def uint(data: bytes, start: int, stop: int) -> int:
    """Read an integer as wide as it came, for a newer kernel may widen one."""
    try:
        number: int = _UNSIGNED[stop - start](data, start)[0]
    except KeyError:
        raise malformed(f"integer of {stop - start} bytes", start) from None
    return number


def flag(data: bytes, start: int, stop: int) -> bool:
    """Read an integer as a yes or no."""
    return uint(data, start, stop) != 0


def text(data: bytes, start: int, stop: int) -> str:
    """Read a string up to its NUL."""
    return data[start:stop].partition(b"\0")[0].decode("utf-8", "replace")


def span(_data: bytes, start: int, stop: int) -> tuple[int, int]:
    """Leave a table in place, to be walked with `entries`."""
    return start, stop


def word(*words: str, other: str = "UNKNOWN") -> Reader:
    """Make a reader that names an integer counted from 0; `other` is for those without a name."""
    known = dict(enumerate(words))

    def read(data: bytes, start: int, stop: int) -> str:
        return known.get(uint(data, start, stop), other)

    return read


def ip_address(data: bytes, start: int, stop: int) -> str:
    """Format 4 or 16 bytes as an IP address (a tunnel's link-layer address is one), others as a MAC address."""
    family = {4: socket.AF_INET, 16: socket.AF_INET6}.get(stop - start)
    return socket.inet_ntop(family, data[start:stop]) if family else data[start:stop].hex(":")
