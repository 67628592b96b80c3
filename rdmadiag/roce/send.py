"""Ready-made frames sent in batches, fields changed from packet to packet without a packet being built in the loop.

A frame is laid out many times in one buffer; a field that changes is a column of bytes over it, the ICRC follows by the
linearity of the CRC, and sendmmsg(2) hands a batch to an AF_PACKET socket. It sends only with a Permit, which the lab and the
inject room give (`python -m rdmadiag.roce.send` reads a plan with one from its input; the lab runs it so in its switch).
Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import json
import os
import socket
import struct
import sys
import time
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from rdmadiag.errors import BadInput, HostRefused, RdmadiagError
from rdmadiag.roce import forge, packet

BATCH = 256
"""Most packets of one system call."""
_WAIT_SECONDS = 0.0005


class Permit(NamedTuple):
    """Who said that frames may leave by a netdev, and to which IP addresses; given by the lab or the inject room only."""

    netdev: str
    addresses: tuple[str, ...]
    by: str


class Change(NamedTuple):
    """A field (packet.FIELDS) of the n-th packet: `values` in turn, or where there are none start + n * step."""

    field: str
    start: int = 0
    step: int = 1
    values: tuple[int, ...] = ()

    def of(self, first: int, count: int) -> list[int]:
        """Return the values of `count` packets from the n-th on."""
        if self.values:
            size = len(self.values)
            return [self.values[n % size] for n in range(first, first + count)]
        return [self.start + n * self.step for n in range(first, first + count)]


class Sent(NamedTuple):
    """What the kernel took: packets, bytes, time [s]; `refused`: how often its queue was full and the batch was tried again."""

    packets: int
    bytes: int
    seconds: float
    refused: int


class Template:
    """A frame and what changes in it; fills a buffer with a batch of its packets. A wrong ICRC stays as wrong as it was."""

    def __init__(self, frame: bytes, changes: Sequence[Change] = ()) -> None:
        """Raise BadInput where a frame has no such field, or two changes share bytes."""
        self.frame, self.changes = frame, tuple(changes)
        self._columns: list[tuple[int, list[int] | None, int]] = []  # offset, ICRC by value, shift in the IP checksum
        at = packet.places(frame)
        if not changes:
            return
        if at is None:
            raise BadInput(f"nothing can be changed in a frame of {len(frame)} bytes that is no whole RoCEv2 packet")
        self._at = at
        v4 = frame[at.l3] >> 4 == 4
        zeroed, taken = bytearray(frame), set[int]()
        self._places: list[tuple[int, int]] = []
        for change in changes:
            found = packet.field_at(change.field, at)
            if found is None or (change.field in ("tos", "ttl", "ip_id") and not v4):
                raise BadInput(f"the frame to send has no field {change.field!r}")
            start, size = found
            if taken & set(range(start, start + size)):
                raise BadInput(f"field {change.field!r} is changed twice")
            taken |= set(range(start, start + size))
            zeroed[start : start + size] = bytes(size)
            self._places.append((start, size))
        wrong = struct.unpack_from("<I", frame, at.icrc)[0] ^ packet.packet_icrc(frame[at.l3 : at.icrc], at.udp - at.l3)
        self._icrc = packet.packet_icrc(zeroed[at.l3 : at.icrc], at.udp - at.l3) ^ wrong
        masked = {at.l3 + n for n in packet.MASKED_V4} if v4 else set(range(at.l3, at.l3 + 4)) | {at.l3 + 7}
        self._tables = {n: _table(at.icrc - 1 - n) for n in taken if n not in masked}
        self._in_header = v4 and any(start < at.udp for start, _ in self._places)
        zeroed[at.l3 + 10 : at.l3 + 12] = b"\0\0"
        self._sum = sum(struct.unpack(f">{(at.udp - at.l3) // 2}H", zeroed[at.l3 : at.udp])) if v4 else 0

    def dangers(self) -> frozenset[str]:
        """Return what is known to harm the receiver in the frame, or in a syndrome that it is changed to."""
        found = forge.dangers(self.frame)
        for change in self.changes:
            every = change.of(0, 256)
            if change.field == "syndrome" and not all(forge.is_safe(value & 0xFF) for value in every):
                found |= {"reserved-aeth"}
        return found

    def fill(self, buffer: bytearray, first: int, count: int) -> None:
        """Write what changes in `count` packets, from the n-th on, into a buffer of copies of the frame."""
        if not self.changes:
            return
        stride, size = len(self.frame), len(self.frame) * count
        constant, crcs, sums = self._icrc, [0] * count, [self._sum] * count
        for change, (start, width) in zip(self.changes, self._places, strict=True):
            limit = (1 << 8 * width) - 1
            raw = struct.pack(f">{count}Q", *[value & limit for value in change.of(first, count)])
            for n in range(width):
                column = raw[8 - width + n :: 8]
                buffer[start + n : size : stride] = column
                table = self._tables.get(start + n)
                if table is not None and column.count(column[0]) == count:
                    constant ^= table[column[0]]
                elif table is not None:
                    crcs = [crc ^ table[byte] for crc, byte in zip(crcs, column, strict=True)]
                if self._in_header and start < self._at.udp:
                    shift = 0 if (start + n - self._at.l3) % 2 else 8
                    sums = [total + (byte << shift) for total, byte in zip(sums, column, strict=True)]
        self._write(buffer, size, self._at.icrc, struct.pack(f"<{count}I", *[constant ^ crc for crc in crcs]), 4)
        if self._in_header:
            folded = [~((total & 0xFFFF) + (total >> 16)) & 0xFFFF for total in sums]
            self._write(buffer, size, self._at.l3 + 10, struct.pack(f">{count}H", *folded), 2)

    def _write(self, buffer: bytearray, size: int, at: int, raw: bytes, width: int) -> None:
        for n in range(width):
            buffer[at + n : size : len(self.frame)] = raw[n::width]


def _table(behind: int) -> list[int]:
    # What each value of a byte with `behind` bytes after it adds to the CRC of the whole.
    zeros = bytes(behind)
    nothing = zlib.crc32(bytes(behind + 1))
    return [zlib.crc32(bytes([value]) + zeros) ^ nothing for value in range(256)]


class Iovec(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Message(ctypes.Structure):
    """struct msghdr."""

    _fields_ = [
        ("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32), ("iov", ctypes.POINTER(Iovec)), ("iov_length", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t), ("flags", ctypes.c_int),
    ]  # fmt: skip


class Header(ctypes.Structure):
    """struct mmsghdr."""

    _fields_ = [("message", Message), ("length", ctypes.c_uint)]


def libc() -> ctypes.CDLL:
    """Return the C library, for sendmmsg and recvmmsg, which Python's socket module does not have."""
    return ctypes.CDLL(None, use_errno=True)


def open_socket(netdev: str) -> socket.socket:
    """Return an AF_PACKET socket that sends by a netdev and hears nothing. Raises HostRefused."""
    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.bind((netdev, 0))
    except OSError as error:
        how = "run as root (CAP_NET_RAW)" if error.errno in (errno.EPERM, errno.EACCES) else "ip link"
        raise HostRefused(f"send by {netdev}", os.strerror(error.errno or 0), how) from error
    return opened


def destination(frame: bytes) -> str | None:
    """Return the IP address that a frame goes to; None when it is no IP packet."""
    at = 12
    while frame[at : at + 2] in (b"\x81\x00", b"\x88\xa8", b"\x91\x00"):
        at += 4
    size = {b"\x08\x00": (18, 4), b"\x86\xdd": (26, 16)}.get(frame[at : at + 2])
    address = frame[at + size[0] : at + sum(size)] if size else b""
    return str(ipaddress.ip_address(address)) if size and len(address) == size[1] else None


def send(
    templates: Sequence[Template],
    permit: Permit,
    *,
    count: int,
    seconds: float,
    rate: float | None = None,
    accept: Sequence[str] = (),
) -> Sent:
    """Send `count` packets of the templates in turn within `seconds`, `rate` a second (None: as fast as the kernel takes them).

    Both bounds hold; what was sent is returned. Needs CAP_NET_RAW. `accept` names forge.DANGERS that may be sent. Raises BadInput for
    what the permit does not cover, HostRefused when the kernel refuses.
    """
    _check(templates, permit, count, seconds, rate, accept)
    ways = len(templates)
    room = max(BATCH // ways, 1)
    buffers = [bytearray(template.frame * room) for template in templates]
    headers, keep = _headers(templates, buffers, room)
    call, moved, refused, size = libc().sendmmsg, 0, 0, 0
    with open_socket(permit.netdev) as opened:
        start = time.monotonic()
        filled = -1  # the packet that the buffers start with
        while moved < count and (now := time.monotonic()) - start < seconds:
            due = count if rate is None else min(count, int((now - start) * rate) + 1)
            turn = moved // ways * ways  # buffers always start with the first template
            want = min(due - turn, room * ways)
            if due <= moved:
                time.sleep(max(min(start + moved / (rate or 1) - now, start + seconds - now), 0))
                continue
            if filled != turn:
                for template, buffer in zip(templates, buffers, strict=True):
                    template.fill(buffer, turn // ways, room if rate is None else -(-want // ways))
                filled = turn if rate is None else -1
            skip = moved - turn
            taken = call(opened.fileno(), ctypes.byref(headers, skip * ctypes.sizeof(Header)), want - skip, 0)
            if taken > 0:
                moved += taken
                size += sum(len(templates[n % ways].frame) for n in range(skip, skip + taken))
                continue
            number = ctypes.get_errno()
            if number not in (errno.ENOBUFS, errno.EAGAIN, errno.EINTR):
                raise HostRefused(
                    f"send a frame of {len(templates[skip % ways].frame)} bytes by {permit.netdev}", os.strerror(number)
                )
            refused += 1
            time.sleep(_WAIT_SECONDS)
        del keep
        return Sent(moved, size, time.monotonic() - start, refused)


def _check(
    templates: Sequence[Template], permit: Permit, count: int, seconds: float, rate: float | None, accept: Sequence[str]
) -> None:
    if not templates or len(templates) > BATCH:
        raise BadInput(f"wanted 1 to {BATCH} frames to send, got {len(templates)}")
    if count < 1 or not 0 < seconds <= 3600 or (rate is not None and rate <= 0):
        raise BadInput("sending has bounds: wanted a count from 1 on, 0 to 3600 seconds, and a rate above 0 or none")
    for template in templates:
        to = destination(template.frame)
        if to not in permit.addresses:
            raise BadInput(
                f"a frame goes to {to or 'no IP address'}; {permit.by} permits {', '.join(permit.addresses) or 'none'}"
            )
        forge.refuse(template.dangers(), accept)


def _headers(templates: Sequence[Template], buffers: Sequence[bytearray], room: int) -> tuple[Any, list[Any]]:
    ways = len(templates)
    headers = (Header * (room * ways))()
    vectors = (Iovec * (room * ways))()
    views = [(ctypes.c_char * len(buffer)).from_buffer(buffer) for buffer in buffers]
    bases = [ctypes.addressof(view) for view in views]
    for n in range(room * ways):
        size = len(templates[n % ways].frame)
        vectors[n] = Iovec(bases[n % ways] + n // ways * size, size)
        headers[n].message.iov = ctypes.pointer(vectors[n])
        headers[n].message.iov_length = 1
    return headers, [views, vectors]


def from_plan(plan: dict[str, Any]) -> Sent:
    """Send what a plan says (JSON): permit, frames (name, parameters, changes), count, seconds, rate, accept. Raises as `send`."""
    accept = tuple(plan.get("accept", ()))
    templates = []
    for entry in plan["frames"]:
        frame = forge.build(entry["name"], entry.get("parameters", {}), accept)
        changes = [
            Change(c["field"], c.get("start", 0), c.get("step", 1), tuple(c.get("values", ())))
            for c in entry.get("changes", ())
        ]
        templates.append(Template(frame.data, changes))
    permit = Permit(plan["permit"]["netdev"], tuple(plan["permit"]["addresses"]), plan["permit"]["by"])
    return send(templates, permit, count=plan["count"], seconds=plan["seconds"], rate=plan.get("rate"), accept=accept)


def main() -> int:
    """Read a plan from the standard input, send, and print what was sent."""
    try:
        sent = from_plan(json.load(sys.stdin))
    except (RdmadiagError, KeyError, TypeError, ValueError) as error:
        sys.stderr.write(f"rdmadiag: {type(error).__name__}: {error}\n")
        return 2
    sys.stdout.write(json.dumps({"schema": "rdmadiag.sent/1", **sent._asdict()}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
