"""Captures written by ourselves: a filter in the kernel, a ring shared with it, a ring of pcapng files, and what was dropped.

packet(7) and Documentation/networking/packet_mmap.rst (TPACKET_V3); draft-ietf-opsawg-pcapng. Each file is whole by itself: its own
section, interface and, at its end, the counts of drops so far (isb_ifdrop), which `rdmadiag pcap` reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rdmadiag.errors import BadInput, HostRefused, NotPresent
from rdmadiag.roce.packet import UDP_PORT

BLOCK_BYTES, BLOCKS = 1 << 20, 32
"""The ring that the kernel fills: 32 MB, some 0.2 s of 128-byte cuts at a million packets a second."""
RETIRE_MS = 100
_SOL_PACKET, _RX_RING, _STATISTICS, _VERSION = 263, 5, 6, 10
_TPACKET_V3 = 2
_SO_ATTACH_FILTER = 26
_ETH_P_ALL = 3
_READY, _VLAN_VALID, _TPID_VALID = 1, 1 << 4, 1 << 6
_SECTION = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)


class Recorded(NamedTuple):
    """A recording: files that are there, packets and bytes written, what the kernel dropped for want of room, time [s]."""

    files: list[str]
    packets: int
    bytes: int
    dropped: int
    seconds: float


def kernel_filter(snaplen: int) -> list[tuple[int, int, int, int]]:
    """Return a classic BPF program (code, jt, jf, k): RoCEv2, RoCEv1 and pause frames, with one VLAN tag or none, cut to `snaplen`.

    IPv4 with options passes, later fragments do not; IPv6 with extension headers does not.
    """
    code: list[tuple[int, int, str, str]] = []  # code, k, label when true, label when false; "" is the next one
    names: dict[str, int] = {}

    def network(at: int, where: str) -> None:
        # What follows Ethernet type `at`, which is in the accumulator.
        l3 = at + 2
        code.extend(
            [(0x15, 0x8915, "yes", ""), (0x15, 0x8808, "yes", ""), (0x15, 0x0800, "", f"{where}6"),
             (0x30, l3 + 9, "", ""), (0x15, 17, "", "no"),
             (0x28, l3 + 6, "", ""), (0x45, 0x1FFF, "no", ""),
             (0xB1, l3, "", ""), (0x48, l3 + 2, "", ""), (0x15, UDP_PORT, "yes", "no")]
        )  # fmt: skip
        names[f"{where}6"] = len(code)
        code.extend(
            [(0x15, 0x86DD, "", f"{where}other"), (0x30, l3 + 6, "", ""), (0x15, 17, "", "no"),
             (0x28, l3 + 42, "", ""), (0x15, UDP_PORT, "yes", "no")]
        )  # fmt: skip
        names[f"{where}other"] = len(code)

    code.append((0x28, 12, "", ""))
    network(12, "plain")
    code.extend([(0x15, 0x8100, "tag", ""), (0x15, 0x88A8, "", "no")])
    names["tag"] = len(code)
    code.append((0x28, 16, "", ""))
    network(16, "tagged")
    names["no"] = len(code)
    code.append((0x06, 0, "", ""))
    names["yes"] = len(code)
    code.append((0x06, snaplen, "", ""))

    def away(label: str, place: int) -> int:
        return names[label] - place - 1 if label else 0

    return [(what, away(true, n), away(false, n), k) for n, (what, k, true, false) in enumerate(code)]


def attach(opened: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    """Let the kernel keep from a socket what a filter does not accept."""
    packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    whole = struct.pack("HP", len(program), ctypes.addressof(packed))
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, whole)


class Files:
    """A ring of pcapng files: `prefix-00001.pcapng` and so on; of more than `most` the oldest is removed."""

    def __init__(self, prefix: str, netdev: str, snaplen: int, size: int, most: int) -> None:
        self.prefix, self.size, self.most = prefix, size, most
        self.names: list[str] = []
        self._number = self._written = 0
        self._file: BinaryIO | None = None
        name = netdev.encode()
        option = struct.pack("<HH", 2, len(name)) + name + bytes(-len(name) % 4)  # if_name
        body = struct.pack("<HHI", 1, 0, snaplen) + option + struct.pack("<HHB3xHH", 9, 1, 9, 0, 0)  # nanoseconds
        self._head = _SECTION + struct.pack("<II", 1, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    def write(self, blocks: list[bytes], received: int, dropped: int) -> None:
        """Write packet blocks, into the next file when this one is full. Raises HostRefused."""
        try:
            if self._file is not None and self._written >= self.size:
                self.close(received, dropped)
            if self._file is None:
                self._number += 1
                name = f"{self.prefix}-{self._number:05}.pcapng"
                self._file = Path(name).open("wb")  # noqa: SIM115 closed by close()
                self.names.append(name)
                self._file.write(self._head)
                self._written = len(self._head)
                while len(self.names) > self.most:
                    Path(self.names.pop(0)).unlink(missing_ok=True)
            data = b"".join(blocks)
            self._file.write(data)
            self._written += len(data)
        except OSError as error:
            raise HostRefused(
                f"write {self.prefix}-*.pcapng", os.strerror(error.errno or 0), "free room, or another folder"
            ) from error

    def close(self, received: int, dropped: int) -> None:
        """End the file with what the kernel delivered and dropped."""
        if self._file is None:
            return
        now = time.time_ns()
        body = struct.pack("<III", 0, now >> 32, now & 0xFFFFFFFF)
        body += struct.pack("<HHQHHQHH", 4, 8, received, 5, 8, dropped, 0, 0)  # isb_ifrecv, isb_ifdrop
        self._file.write(struct.pack("<II", 5, len(body) + 12) + body + struct.pack("<I", len(body) + 12))
        self._file.close()
        self._file = None


class Ring:
    """The ring of a netdev that the kernel fills with packets."""

    def __init__(self, netdev: str, snaplen: int) -> None:
        """Raise NotPresent for a netdev that is not there, HostRefused without CAP_NET_RAW."""
        self._next = self.received = self.dropped = 0
        with contextlib.ExitStack() as undo:
            self._open(netdev, snaplen, undo)
            undo.pop_all()

    def _open(self, netdev: str, snaplen: int, undo: contextlib.ExitStack) -> None:
        try:
            self.socket = undo.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
            attach(self.socket, kernel_filter(snaplen))
            self.socket.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V3)
            wanted = struct.pack("7I", BLOCK_BYTES, BLOCKS, 2048, BLOCK_BYTES // 2048 * BLOCKS, RETIRE_MS, 0, 0)
            self.socket.setsockopt(_SOL_PACKET, _RX_RING, wanted)
            self._map = mmap.mmap(self.socket.fileno(), BLOCK_BYTES * BLOCKS)
            self.socket.bind((netdev, _ETH_P_ALL))
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise NotPresent(f"no netdev {netdev!r}; `ip link` lists them") from error
            raise HostRefused(
                f"capture on {netdev}", os.strerror(error.errno or 0), "run as root (CAP_NET_RAW)"
            ) from error

    def blocks(self) -> list[bytes]:
        """Return the packets of the next block as pcapng packet blocks; empty when it is not ready."""
        data, base = self._map, self._next * BLOCK_BYTES
        status, count, at = struct.unpack_from("III", data, base + 8)
        if not status & _READY:
            return []
        found = []
        at += base
        for _ in range(count):
            step, seconds, nanoseconds, captured, length, flags, mac = struct.unpack_from("6IH", data, at)
            frame = data[at + mac : at + mac + captured]
            if flags & _VLAN_VALID:  # the kernel took the tag out
                (tag,) = struct.unpack_from("I", data, at + 32)
                (kind,) = struct.unpack_from("H", data, at + 36)
                kind = kind if flags & _TPID_VALID else 0x8100
                frame = frame[:12] + struct.pack(">HH", kind, tag & 0xFFFF) + frame[12:]
                captured, length = captured + 4, length + 4
            stamp = seconds * 1_000_000_000 + nanoseconds
            pad = -captured % 4
            total = 32 + captured + pad
            head = struct.pack("<7I", 6, total, 0, stamp >> 32, stamp & 0xFFFFFFFF, captured, length)
            found.append(head + frame + bytes(pad) + struct.pack("<I", total))
            at += step
        struct.pack_into("I", data, base + 8, 0)
        self._next = (self._next + 1) % BLOCKS
        return found

    def count(self) -> None:
        """Bring `received` and `dropped` up to date."""
        received, dropped, _ = struct.unpack("3I", self.socket.getsockopt(_SOL_PACKET, _STATISTICS, 12))
        self.received += received
        self.dropped += dropped

    def close(self) -> None:
        """Let the ring go."""
        self._map.close()
        self.socket.close()


def record(
    netdev: str,
    prefix: str,
    *,
    snaplen: int = 128,
    file_bytes: int = 100 << 20,
    files: int = 10,
    seconds: float = 0.0,
    count: int = 0,
    stopped: Callable[[], bool] = lambda: False,
    ready: Callable[[], None] = lambda: None,
) -> Recorded:
    """Capture RoCE packets of a netdev into a ring of files until `seconds`, `count` packets (0: no such limit), or `stopped()`.

    Raises BadInput, NotPresent, HostRefused.
    """
    if not 64 <= snaplen <= 65535 or file_bytes < 1 << 16 or files < 1:
        raise BadInput("wanted: snaplen 64 to 65535 bytes, files of 64 KiB or more, and at least one")
    ring, written = Ring(netdev, snaplen), Files(prefix, netdev, snaplen, file_bytes, files)
    start, packets, size = time.monotonic(), 0, 0
    poll = select.poll()
    poll.register(ring.socket, select.POLLIN)
    try:
        ready()
        while not stopped() and (not seconds or time.monotonic() - start < seconds) and (not count or packets < count):
            blocks = ring.blocks()
            if not blocks:
                poll.poll(RETIRE_MS)
                continue
            blocks = blocks[: count - packets] if count else blocks
            ring.count()
            written.write(blocks, ring.received, ring.dropped)
            packets += len(blocks)
            size += sum(map(len, blocks))
        drained = time.monotonic() + 2 * RETIRE_MS / 1000  # what is in a block that is not full yet comes with the next
        while not count and time.monotonic() < drained:
            if blocks := ring.blocks():
                written.write(blocks, ring.received, ring.dropped)
                packets += len(blocks)
                size += sum(map(len, blocks))
            else:
                poll.poll(RETIRE_MS)
        ring.count()
    finally:
        written.close(ring.received, ring.dropped)
        ring.close()
    return Recorded(written.names, packets, size, ring.dropped, time.monotonic() - start)
