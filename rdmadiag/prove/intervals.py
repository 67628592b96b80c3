"""Intervals of shares."""

from __future__ import annotations

import math

Z95 = 1.959963984540054
"""Two-sided 95 % point of the normal distribution."""


def wilson(hits: int, of: int, z: float = Z95) -> tuple[float, float]:
    """Return the score interval of a share (Wilson 1927, eq. 7): the shares from which `hits` of `of` is not `z` deviations away."""
    if of <= 0:
        return 0.0, 1.0
    share, square = hits / of, z * z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = z * math.sqrt(share * (1 - share) / of + square / (4 * of * of)) / (1 + square / of)
    return max(0.0, middle - half), min(1.0, middle + half)
