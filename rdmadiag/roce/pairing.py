"""Which stream of answers belongs to which stream of requests: by the user's map, by CM handshakes, else by the PSNs that answers echo.

An answer carries the PSN of its request, and never comes before it. Each answer votes for the stream between its two hosts that last sent
that PSN; a stream of answers is paired when nearly all its votes agree, and left alone when they do not: no guess is made.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rdmadiag.errors import BadInput
from rdmadiag.roce import headers
from rdmadiag.roce.columns import Columns
from rdmadiag.roce.streams import NONE, Segments, Streams

BY_ECHO, BY_CM, BY_USER = 1, 2, 3
METHODS = ("not paired", "PSN echo", "CM handshake", "user")
SHARE = 0.8
"""Share of the votes that decides."""
VOTERS = 64
"""Votes taken from a stream of answers in each chunk."""


class End(NamedTuple):
    """One end of a connection: its address and QP number, and the first PSN that it sends where that is known."""

    address: str
    qpn: int
    psn: int | None = None


Connection = tuple[End, End]


def read(text: str) -> Connection:
    """Read ADDRESS:QPN=ADDRESS:QPN, the two ends of one connection. Raises BadInput."""
    ends = []
    for part in text.split("=", 1):
        address, _, qpn = part.rpartition(":")
        try:
            end = End(str(ipaddress.ip_address(address.strip("[]"))), int(qpn, 0))
        except ValueError:
            end = End("", -1)
        if not 0 <= end.qpn <= 0xFFFFFF:
            raise BadInput(f"--pair {text}: wanted ADDRESS:QPN=ADDRESS:QPN, for example 10.0.0.1:0x11=10.0.0.2:0x22")
        ends.append(end)
    if len(ends) != 2:
        raise BadInput(f"--pair {text}: wanted two ends, ADDRESS:QPN=ADDRESS:QPN")
    return ends[0], ends[1]


def _halves(address: str) -> tuple[int, int]:
    # As the columns have an address: an IPv4 one as ::ffff:a.b.c.d.
    given = ipaddress.ip_address(address)
    value = int(given) | (0xFFFF << 32 if given.version == 4 else 0)
    return value >> 64, value & 0xFFFFFFFFFFFFFFFF


class Pairs:
    """Votes of answers for streams of requests."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.found: set[Connection] = set()
        """Connections that a user or CM told of and whose streams were there."""
        self.votes: dict[int, Counter[int]] = {}
        self.weak: dict[int, Counter[int]] = {}
        """Votes of NAK 60: the PSN that they carry may never have been sent by the right stream. They count where there are no others."""

    def vote(
        self, c: Columns, s: Segments, answer: np.ndarray, table: dict[str, np.ndarray] | None, offset: int
    ) -> None:
        """Let unpaired answers of this chunk vote, and pair what is decided."""
        t = self.streams.t
        if table is None or not len(answer):
            return
        answer = answer[t["partner"][s.stream[answer]] == NONE]
        if not len(answer):
            return
        rank = np.arange(len(answer)) - np.repeat(*_runs(s.stream[answer]))
        rows = answer[rank < VOTERS][: 1 << 17]
        o = s.order[rows]
        rows = rows[~headers.MIDDLE[c.opcode[o]]]
        o = s.order[rows]
        if not len(o):
            return
        mixed = self.streams.mixed
        request_streams = table["stream"]
        src, dst = t["src"][request_streams], t["dst"][request_streams]
        hosts = mixed(src[:, 0], src[:, 1], dst[:, 0], dst[:, 1])
        last = (table["end"] - 1) & 0xFFFFFF
        keys = mixed(np.concatenate([hosts, hosts]), np.concatenate([last, table["psn"]]))
        orders = np.concatenate([table["order"]] * 2)
        owner = np.concatenate([request_streams] * 2)
        asked = mixed(mixed(c.dst[o, 0], c.dst[o, 1], c.src[o, 0], c.src[o, 1]), c.psn[o])
        wanted = np.unique(asked)
        asked_for = wanted[np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)] == keys
        keys, orders, owner = keys[asked_for], orders[asked_for], owner[asked_for]
        turn = np.lexsort((orders, keys))
        keys, orders, owner = keys[turn], orders[turn], owner[turn]
        low, high = np.searchsorted(keys, asked), np.searchsorted(keys, asked, side="right")
        when = offset + o
        weak = (c.dense("AETH", 0, 1)[o] == 0x60).tolist()
        for n in range(len(rows)):
            if low[n] == high[n]:
                continue
            at = int(low[n]) + int(np.searchsorted(orders[low[n] : high[n]], when[n])) - 1
            if at >= low[n]:
                stream = int(s.stream[rows[n]])
                (self.weak if weak[n] else self.votes).setdefault(stream, Counter())[int(owner[at])] += 1
        self._decide(np.unique(s.stream[rows]).tolist())

    def told(self, connections: Sequence[Connection], method: int) -> None:
        """Pair the newest streams of connections that are known from elsewhere; what is paired already stays."""
        t = self.streams.t[: self.streams.count]
        for connection in connections:
            for one, two in (connection, connection[::-1]):
                source, target = (np.array(_halves(end.address), np.uint64) for end in (one, two))
                free = t["partner"] == NONE
                there = (t["src"] == source).all(1) & (t["dst"] == target).all(1) & (t["destqp"] == two.qpn)
                back = (t["src"] == target).all(1) & (t["dst"] == source).all(1) & (t["destqp"] == one.qpn)
                if one.psn is not None:  # another life of these QP numbers starts with another PSN
                    there &= t["first_psn"] == one.psn
                asked = np.nonzero(free & there & (t["space"] == headers.REQUEST))[0]
                answered = np.nonzero(free & back & (t["space"] == headers.RESPONSE))[0]
                for answer in answered.tolist():  # of several lives the one that began last before the first answer
                    before = asked[(t["first_time"][asked] <= t["first_time"][answer]) & (t["partner"][asked] == NONE)]
                    if not len(before):
                        continue
                    request = int(before[-1])
                    t["partner"][request], t["partner"][answer] = answer, request
                    t["method"][request] = t["method"][answer] = method
                    self.found.add(connection)

    def _decide(self, streams: list[int]) -> None:
        t = self.streams.t
        for stream in streams:
            votes = self.votes.get(stream) or self.weak.get(stream)
            if not votes:
                continue
            (best, count), total = votes.most_common(1)[0], votes.total()
            if count < SHARE * total or t["partner"][best] != NONE:
                continue
            t["partner"][stream], t["partner"][best] = best, stream
            t["votes"][stream], t["voters"][stream], t["method"][stream] = count, total, BY_ECHO
            t["method"][best] = BY_ECHO
            self.votes.pop(stream, None)
            self.weak.pop(stream, None)


def _runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Start of the run of equal values that each element is in, as (starts, lengths) for numpy.repeat.
    starts = np.nonzero(np.diff(values, prepend=-1))[0]
    return starts, np.diff(np.append(starts, len(values)))


def confidence(entry: Any) -> str:
    """Return how sure a pairing is: 'certain', 'high', 'medium', or 'none'."""
    if entry["method"] in (BY_CM, BY_USER):
        return "certain"
    if entry["method"] != BY_ECHO:
        return "none"
    return "high" if entry["voters"] >= 8 and entry["votes"] >= 0.95 * entry["voters"] else "medium"
