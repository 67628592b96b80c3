"""Sees packets come to the switch and leave it, and counts those that left otherwise: `python -S -m rdmadiag.lab.compare PORT...`.

The witness of faults that change packets on their way: it looks at the ports' own packets (AF_PACKET), knows nothing of what
changes them, and takes a packet for changed when it left with another ICRC than it came with, and a valid one: the ICRC covers all that
a switch may not change. ACKs are left out. Every half second it prints one JSON object. Standard library only, and little work a packet.
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

from rdmadiag.errors import HostRefused
from rdmadiag.roce import packet

REMEMBERED = 8192
"""Packets that came last; older ones have left."""
TELL_SECONDS = 0.5
BUFFER_BYTES = 64 << 20
OUTGOING = 4  # PACKET_OUTGOING, linux/if_packet.h
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 26, 33
_ETH_P_ALL = 3
_ICRC = packet.ICRC_BYTES


class Comparison:
    """What came and what left: packets `compared`, and `changed` of them, which left with another ICRC that is valid, too."""

    def __init__(self) -> None:
        self.compared = self.changed = 0
        self._came: dict[bytes, bytes] = {}

    def came(self, frame: bytes) -> None:
        """Take note of a frame that came to the switch."""
        came = self._came
        came[_name(frame)] = frame[-_ICRC:]
        if len(came) > REMEMBERED:
            del came[next(iter(came))]

    def left(self, frame: bytes) -> None:
        """Compare a frame that left with what came."""
        known = self._came.get(_name(frame))
        if known is None:
            return
        self.compared += 1
        if known != frame[-_ICRC:] and (at := packet.places(frame)) is not None:
            right = packet.packet_icrc(memoryview(frame)[at.l3 : at.icrc], at.udp - at.l3)
            self.changed += frame[-_ICRC:] == right.to_bytes(_ICRC, "little")

    def told(self) -> str:
        """Return the counts as a line."""
        return json.dumps({"compared": self.compared, "changed": self.changed})


def _name(frame: bytes) -> bytes:
    # Of IPv4 without options: MAC addresses, IP identification, DestQP, PSN; so each transmission has a name of its own.
    return frame[:12] + frame[18:20] + frame[47:50] + frame[51:54]


def listen(port: str) -> socket.socket:
    """Return a socket that hears RoCEv2 over IPv4 without options at a port, both ways, but for ACKs. Raises HostRefused."""
    program = [
        (0x28, 0, 0, 12),
        (0x15, 0, 9, 0x0800),
        (0x30, 0, 0, 14),  # version and length of the IP header
        (0x15, 0, 7, 0x45),
        (0x30, 0, 0, 23),
        (0x15, 0, 5, 17),
        (0x28, 0, 0, 36),
        (0x15, 0, 3, packet.UDP_PORT),
        (0x30, 0, 0, 42),  # BTH opcode
        (0x15, 1, 0, 0x11),
        (0x06, 0, 0, 0xFFFF),
        (0x06, 0, 0, 0),
    ]
    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
        wanted = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
        opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, wanted)
        with contextlib.suppress(PermissionError):  # in a namespace of an ordinary user
            opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER_BYTES)
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
