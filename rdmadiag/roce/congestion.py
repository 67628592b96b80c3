"""How the sender of a flow answers congestion notifications: its rate before and after them, and when it is back."""

from __future__ import annotations

import statistics
from typing import Any

from rdmadiag.roce.series import Series

RECOVERED, RECOVERY_BINS, EPISODE_BINS = 0.9, 10_000, 2
"""A sender has recovered from CNPs when it sends this share of what it sent before; looked for in so many intervals of 1 ms. CNPs that
are no further apart than so many intervals are one episode."""


def rates(series: Series, number: int, notice: int) -> dict[str, Any]:
    """Return what a flow sent before and after its CNPs (stream `notice`), and how long it took to recover, where intervals are 1 ms."""
    bins = series.bins[series.bins[:, 0] == number]
    times = series.notice_time[series.notice_stream == notice][:2000]
    if series.bin_ns > 1_000_000 or not len(bins) or not len(times):
        return {}
    by_bin = dict(zip(bins[:, 1].tolist(), bins[:, 2].tolist(), strict=True))
    slots = (times // series.bin_ns).tolist()
    before = [by_bin.get(slot - 1, 0) for slot in slots]
    after = [by_bin.get(slot + 1, 0) for slot in slots]
    scale = 8e-9 / (series.bin_ns / 1e9)
    recovered = []
    for first, last in _episodes(slots):
        wanted = RECOVERED * by_bin.get(first - 1, 0)
        back = (n for n in range(last + 1, last + RECOVERY_BINS) if by_bin.get(n, 0) >= wanted)
        if wanted and (slot := next(back, None)) is not None:
            recovered.append(slot - first)
    return {
        "gbps_before_cnp": statistics.fmean(before) * scale,
        "gbps_after_cnp": statistics.fmean(after) * scale,
        "cnp_recovery_ms": statistics.median(recovered) * series.bin_ns / 1e6 if recovered else None,
    }


def _episodes(slots: list[int]) -> list[tuple[int, int]]:
    # First and last interval of CNPs that follow each other.
    found: list[tuple[int, int]] = []
    for slot in slots:
        near = found and slot - found[-1][1] <= EPISODE_BINS
        found[-1:] = [(found[-1][0], slot)] if near else [*found[-1:], (slot, slot)]
    return found
