"""Which stream of answers belongs to which stream of requests: by CM handshakes, else by the PSNs that answers echo.

An answer carries the PSN of its request, and never comes before it. Each answer votes for the stream between its two hosts that last sent
that PSN; a stream of answers is paired when nearly all its votes agree, and left alone when they do not: no guess is made.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from rdmadiag.roce import headers
from rdmadiag.roce.columns import Columns
from rdmadiag.roce.streams import NONE, Segments, Streams

BY_ECHO, BY_CM = 1, 2
METHODS = ("not paired", "PSN echo", "CM handshake")
SHARE = 0.8
"""Share of the votes that decides."""
VOTERS = 64
"""Votes taken from a stream of answers in each chunk."""


class Pairs:
    """Votes of answers for streams of requests."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
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
    if entry["method"] == BY_CM:
        return "certain"
    if entry["method"] != BY_ECHO:
        return "none"
    return "high" if entry["voters"] >= 8 and entry["votes"] >= 0.95 * entry["voters"] else "medium"
