"""Sees packets come to the switch and leave it, and counts those that left otherwise: `python -S -m rdmadiag.lab.compare PORT...`.

The witness of faults that change packets on their way: it looks at the ports' own packets (AF_PACKET), knows nothing of what
changes them, and takes a packet for changed when it left with other bytes from its BTH on than it came with. Every half second it
prints one JSON object. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import socket
import struct
import sys
import time
import zlib
from collections import OrderedDict

from rdmadiag.errors import HostRefused
from rdmadiag.lab.decide import ANSWERS
from rdmadiag.roce import packet

REMEMBERED = 8192
"""Packets that came and have not been seen to leave; the oldest are forgotten."""
TELL_SECONDS = 0.5
OUTGOING = 4  # PACKET_OUTGOING, linux/if_packet.h
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 26, 33
_ETH_P_ALL = 3
_ICRC = packet.ICRC_BYTES


class Comparison:
    """What came and what left: packets `compared`; of them `changed` left otherwise and with a valid ICRC, `broken` with another."""

    def __init__(self) -> None:
        self.compared = self.changed = self.broken = 0
        self._came: OrderedDict[bytes, int] = OrderedDict()

    def came(self, frame: bytes) -> None:
        """Take note of a frame that came to the switch."""
        if (at := packet.places(frame)) is not None:
            self._came[_name(frame, at)] = _sum(frame, at)
            if len(self._came) > REMEMBERED:
                self._came.popitem(last=False)

    def left(self, frame: bytes) -> None:
        """Compare a frame that left with what came."""
        at = packet.places(frame)
        known = None if at is None else self._came.get(_name(frame, at))
        if at is None or known is None:
            return
        self.compared += 1
        if known != _sum(frame, at):
            right = packet.packet_icrc(memoryview(frame)[at.l3 : at.icrc], at.udp - at.l3)
            if frame[at.icrc : at.icrc + _ICRC] == right.to_bytes(_ICRC, "little"):
                self.changed += 1
            else:
                self.broken += 1

    def told(self) -> str:
        """Return the counts as a line."""
        return json.dumps({"compared": self.compared, "changed": self.changed, "broken": self.broken})


def _name(frame: bytes, at: packet.Places) -> bytes:
    # Who sends to which QP, the PSN, and whose PSNs they are; an opcode may be changed, but no request becomes an answer.
    bth = at.bth
    return frame[:12] + frame[bth + 5 : bth + 8] + frame[bth + 9 : bth + 12] + bytes([frame[bth] in ANSWERS])


def _sum(frame: bytes, at: packet.Places) -> int:
    # Without what a switch may change: marks in the BTH's byte 4, all before the BTH, and the ICRC, which covers the IP header's number.
    view = memoryview(frame)
    return zlib.crc32(view[at.bth + 5 : at.icrc], zlib.crc32(view[at.bth : at.bth + 4]))


def listen(port: str) -> socket.socket:
    """Return a socket that hears RoCEv2 over IPv4 at a port, both ways. Raises HostRefused."""
    program = [
        (0x28, 0, 0, 12),
        (0x15, 0, 5, 0x0800),
        (0x30, 0, 0, 23),
        (0x15, 0, 3, 17),
        (0x28, 0, 0, 36),
        (0x15, 0, 1, packet.UDP_PORT),
        (0x06, 0, 0, 0xFFFF),
        (0x06, 0, 0, 0),
    ]
    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
        wanted = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
        opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, wanted)
        with contextlib.suppress(PermissionError):  # in a namespace of an ordinary user
            opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        opened.bind((port, _ETH_P_ALL))
    except OSError as error:
        raise HostRefused(f"listen at {port}", os.strerror(error.errno or 0), "run as root (CAP_NET_RAW)") from error
    opened.setblocking(False)
    return opened


def drain(links: list[socket.socket]) -> tuple[list[bytes], list[bytes]]:
    """Return the frames that are there: those that came, and those that left."""
    came: list[bytes] = []
    left: list[bytes] = []
    for link in links:
        try:
            for _ in range(REMEMBERED // 4):
                frame, place = link.recvfrom(65536)
                (left if place[2] == OUTGOING else came).append(frame)
        except BlockingIOError:
            pass
    return came, left


def run(ports: list[str]) -> None:
    """Compare until the process is ended."""
    links, seen, told = [listen(port) for port in ports], Comparison(), 0.0
    waiting: list[bytes] = []  # what left is compared when what came before it has surely been read: a turn later
    while True:
        select.select(links, [], [], 0.05 if waiting else TELL_SECONDS)
        came, left = drain(links)
        for frame in came:
            seen.came(frame)
        for frame in waiting:
            seen.left(frame)
        waiting = left
        if time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            sys.stdout.write(seen.told() + "\n")
            sys.stdout.flush()


def main() -> int:
    """Compare at the ports given as arguments."""
    try:
        run(sys.argv[1:])
    except HostRefused as error:
        sys.stderr.write(f"rdmadiag: {error}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
