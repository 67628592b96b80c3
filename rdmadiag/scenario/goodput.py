"""Goodput of a run: payload by time, before, during and after the faults; when it stalled, and when it was back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

BIN_SECONDS = 0.1
WINDOW_SECONDS = 0.5
RECOVERED_SHARE = 0.8
"""Share of the goodput before the fault, over WINDOW_SECONDS, at which a run is called recovered."""


class Delivery(NamedTuple):
    """Payload that arrived at some time between two times [s]."""

    since: float
    until: float
    nbytes: float


class Goodput(NamedTuple):
    """Payload in each BIN_SECONDS from time 0 on."""

    bins: list[float]

    @property
    def end(self) -> float:
        """Where the last bin ends [s]."""
        return len(self.bins) * BIN_SECONDS

    def between(self, since: float, until: float) -> float | None:
        """Return bytes/s between two times, of whole bins; None where there is no whole bin."""
        part = self.bins[_up(since) : _down(min(until, self.end))]
        return sum(part) / (len(part) * BIN_SECONDS) if part else None

    def recovered(self, since: float, wanted: float) -> float | None:
        """Return when, from a time on, goodput was at least `wanted` [bytes/s] for a window; inf: never; None: too short to tell."""
        width = round(WINDOW_SECONDS / BIN_SECONDS)
        first = _up(since)
        if len(self.bins) - first < width:
            return None
        for at in range(first, len(self.bins) - width + 1):
            if sum(self.bins[at : at + width]) >= wanted * WINDOW_SECONDS:
                return max(since, at * BIN_SECONDS)
        return math.inf

    def first_byte(self, since: float) -> float | None:
        """Return when payload arrived first from a time on; inf: never; None: the run ended at once."""
        first = _up(since)
        if first >= len(self.bins):
            return None
        return next(
            (max(since, at * BIN_SECONDS) for at in range(first, len(self.bins)) if self.bins[at] > 0), math.inf
        )


def stall(deliveries: Iterable[Delivery], since: float, until: float) -> float | None:
    """Return the longest time between two times in which no payload was reported [s]; None where nothing could be."""
    if until <= since:
        return None
    at = [since, *sorted(d.until for d in deliveries if since < d.until < until), until]
    return max(later - earlier for earlier, later in itertools.pairwise(at))


def _up(seconds: float) -> int:
    return max(0, math.ceil(seconds / BIN_SECONDS - 1e-9))


def _down(seconds: float) -> int:
    return max(0, math.floor(seconds / BIN_SECONDS + 1e-9))


def goodput(deliveries: Iterable[Delivery], until: float) -> Goodput:
    """Spread deliveries over bins up to a time [s]; what came before 0 or after it is left out."""
    bins = [0.0] * max(0, min(_down(until), 10_000_000))
    for since, end, nbytes in deliveries:
        since = max(0.0, min(since, end))
        first, last = _down(since), _down(end)
        if first >= len(bins) or end < 0 or nbytes <= 0:
            continue
        if first == last or end - since <= 0:
            bins[first] += nbytes
            continue
        for at in range(first, min(last + 1, len(bins))):
            part = min(end, (at + 1) * BIN_SECONDS) - max(since, at * BIN_SECONDS)
            bins[at] += nbytes * part / (end - since)
    return Goodput(bins)


def of_progress(points: Sequence[tuple[float, float]], begin: float) -> list[Delivery]:
    """Turn (time, bytes so far) of one start of a program into deliveries; a count that goes back begins anew."""
    found, last, at = [], 0.0, begin
    for seconds, nbytes in points:
        if nbytes < last:
            last = 0.0
        if nbytes > last:
            found.append(Delivery(at, seconds, nbytes - last))
        last, at = nbytes, seconds
    return found
