"""Exchange of connection data over TCP: each end tells its QPs, its GID and its memory, and checks what the other told."""

from __future__ import annotations

import json
import socket
import time
from typing import Any, NamedTuple

from rdmadiag.errors import RdmadiagError
from rdmadiag.explain.gid import full_gid
from rdmadiag.verbs.attributes import MTUS, PSN_MASK
from rdmadiag.verbs.qp import Peer

MOST_BYTES = 1 << 16
"""Longest message [bytes]."""
MOST_QPS = 1024


class BadOffer(RdmadiagError):
    """What the peer told is no connection data: names the field and what was wanted. Or nothing came in time."""


class Memory(NamedTuple):
    """A region that the peer may use: `address`, `length` [bytes] and the key for it."""

    address: int
    length: int
    rkey: int


class Offer(NamedTuple):
    """What one end tells: its QPs as (qpn, psn), where they are, and its memory. `gid` as an IPv6 address in full."""

    qps: tuple[tuple[int, int], ...]
    gid: str
    mtu: int = 4096
    lid: int = 0
    rd_atomic: int = 16
    memory: Memory = Memory(0, 0, 0)
    device: str = ""

    def peer(self, index: int) -> Peer:
        """Return what this side must know of one QP."""
        qpn, psn = self.qps[index]
        return Peer(qpn, psn, self.gid, self.mtu, self.lid, self.rd_atomic)

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return {**self._asdict(), "qps": [list(one) for one in self.qps], "memory": list(self.memory)}


def read(value: Any) -> Offer:
    """Return an offer from an object that the peer sent. Raises BadOffer."""
    if not isinstance(value, dict):
        raise BadOffer(f"connection data: {str(value)[:40]!r}; wanted an object")
    qps = value.get("qps")
    if not isinstance(qps, list) or not 0 < len(qps) <= MOST_QPS:
        raise BadOffer(f"connection data: qps is not a list of 1 to {MOST_QPS} pairs of QPN and PSN")
    pairs = []
    for one in qps:
        if not isinstance(one, list) or len(one) != 2:
            raise BadOffer(f"connection data: qps holds {str(one)[:40]!r}; wanted a pair of QPN and PSN")
        pairs.append((_number("qpn", one[0], 1, PSN_MASK), _number("psn", one[1], 0, PSN_MASK)))
    memory = value.get("memory")
    if not isinstance(memory, list) or len(memory) != 3:
        raise BadOffer("connection data: memory is not a list of address, length and rkey")
    where = Memory(
        _number("address", memory[0], 0, (1 << 64) - 1),
        _number("length", memory[1], 0, (1 << 64) - 1),
        _number("rkey", memory[2], 0, (1 << 32) - 1),
    )
    mtu = _number("mtu", value.get("mtu"), 256, 4096)
    if mtu not in MTUS:
        raise BadOffer(f"connection data: mtu {mtu}; wanted one of {', '.join(map(str, MTUS))}")
    told = value.get("gid")
    gid = full_gid(told) if isinstance(told, str) else None
    if gid is None:
        raise BadOffer(f"connection data: gid {str(told)[:60]!r}; wanted an IPv6 address")
    device = value.get("device", "")
    return Offer(
        tuple(pairs), gid, mtu, _number("lid", value.get("lid", 0), 0, 0xFFFF),
        _number("rd_atomic", value.get("rd_atomic"), 0, 255), where, device[:64] if isinstance(device, str) else "",
    )  # fmt: skip


def _number(name: str, value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise BadOffer(f"connection data: {name} is {str(value)[:40]!r}; wanted an integer from {low} to {high}")
    return value


def swap(link: socket.socket, mine: Offer, seconds: float = 10.0) -> Offer:
    """Send this end's data over a connected socket and return the other's: a line of JSON each. Raises BadOffer."""
    deadline = time.monotonic() + seconds
    line = bytearray()
    try:
        link.settimeout(seconds)
        link.sendall(json.dumps(mine.as_json(), separators=(",", ":")).encode() + b"\n")
        while not line.endswith(b"\n"):
            link.settimeout(max(0.001, deadline - time.monotonic()))
            part = link.recv(1)  # what follows the line is not ours
            if not part:
                raise BadOffer("connection data: the peer closed the connection before it told any")
            line += part
            if len(line) > MOST_BYTES:
                raise BadOffer(f"connection data: a line of more than {MOST_BYTES} bytes")
    except OSError as error:
        raise BadOffer(f"connection data: {error}") from error
    try:
        return read(json.loads(line))
    except (ValueError, RecursionError):
        raise BadOffer(f"connection data: {bytes(line[:40])!r} is no JSON") from None
