"""Medians with an interval from few repeats, the knee of a curve, and what is recommended from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

ENOUGH = 0.95
"""A point from which on more brings less than this share of the best is the knee."""


class Median(NamedTuple):
    """A median and the interval that holds the true one with at least 95 %; low and high are None below six values."""

    middle: float
    low: float | None
    high: float | None


def median(values: Sequence[float]) -> Median:
    """Return the median and its interval by order statistics: no shape of the distribution is assumed. Raises ValueError for none."""
    ordered, count = sorted(values), len(values)
    if not count:
        raise ValueError("no values")
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    rank, outside = -1, 0.0
    while True:  # the most values that can be left out at each end
        outside += math.comb(count, rank + 1) / 2**count
        if outside > 0.025:
            break
        rank += 1
    if rank < 0:
        return Median(middle, None, None)
    return Median(middle, ordered[rank], ordered[count - 1 - rank])


ROUGH = 0.1
"""From this spread of the runs of one point on, a knee is rough: 5 % of a rate cannot be told from chance."""


def knee(points: Mapping[int, float]) -> int | None:
    """Return the smallest x from which on every y is at least 95 % of the largest; None for no points.

    Of a curve that falls again, the part up to its top is judged: what comes after the top is no reason to go there.
    """
    if not points:
        return None
    most = max(points.values())
    top = next(x for x in sorted(points) if points[x] == most)
    found = top
    for x in sorted((x for x in points if x <= top), reverse=True):
        if points[x] < ENOUGH * most:
            break
        found = x
    return found
