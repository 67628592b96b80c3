"""Two captures of one path: which packets only one of them has, so that a loss lies between the two."""

from __future__ import annotations

from typing import Any

import numpy as np

from rdmadiag.roce.columns import Columns, address

LIMIT = 1 << 22
"""Most packets kept of each tap."""
MARGIN_NS = 1_000_000
"""Packets this near to the start or end of what both captured are not judged [ns]."""
FRAMES = 3


class Tap:
    """The packets of one capture: what tells them apart, their flow, time and frame. Call it with each chunk's columns."""

    def __init__(self) -> None:
        self._parts: list[dict[str, np.ndarray]] = []
        self.count = 0
        self.names: dict[int, tuple[str, str, int]] = {}
        self.left_out = 0

    def __call__(self, c: Columns) -> None:
        """Take a chunk."""
        keep = slice(0, max(0, LIMIT - self.count))
        self.left_out += max(0, len(c) - (LIMIT - self.count))
        first = np.lib.stride_tricks.sliding_window_view(c.data, 16)[c.bth].view("<u8")
        flow = _mixed(c.src[:, 0], c.src[:, 1], c.dst[:, 0], c.dst[:, 1], c.destqp)
        packet = _mixed(flow, c.ip_id, c.end - c.bth, first[:, 0] & np.uint64(0xFFFFFF00FFFFFFFF), first[:, 1])
        part = {"flow": flow, "packet": packet, "time": c.time, "frame": c.frame}
        self._parts.append({name: values[keep].copy() for name, values in part.items()})
        self.count += len(self._parts[-1]["time"])
        for key, row in zip(*np.unique(flow[keep], return_index=True), strict=True):
            if int(key) not in self.names:
                self.names[int(key)] = (address(*c.src[row]), address(*c.dst[row]), int(c.destqp[row]))

    def columns(self) -> dict[str, np.ndarray]:
        """Return all that was taken, with the turn of each packet among equal ones."""
        names = ("flow", "packet", "time", "frame")
        if not self._parts:
            return {name: np.empty(0, np.int64) for name in (*names, "turn")}
        found = {name: np.concatenate([part[name] for part in self._parts]) for name in names}
        order = np.argsort(found["packet"], kind="stable")
        sorted_ = found["packet"][order]
        starts = np.nonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1]]))[0]
        turn = np.empty(len(order), np.int64)
        turn[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
        found["turn"] = turn
        return found


def _mixed(*parts: np.ndarray) -> np.ndarray:
    value = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        value = (value ^ part.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(29)
    return value


def compare(a: Tap, b: Tap) -> list[dict[str, Any]]:
    """Return rows of table tap_loss. Packets outside of the time that both captured are not judged."""
    one, two = a.columns(), b.columns()
    mine = _mixed(one["packet"], one["turn"])
    theirs = _mixed(two["packet"], two["turn"])
    _, at, there = np.intersect1d(mine, theirs, return_indices=True)
    if not len(at):
        return []
    offset = int(np.median(two["time"][there] - one["time"][at]))
    start = max(int(one["time"].min()), int(two["time"].min()) - offset) + MARGIN_NS
    end = min(int(one["time"].max()), int(two["time"].max()) - offset) - MARGIN_NS
    if start >= end:  # short captures: from the first packet that both have to the last
        start, end = int(one["time"][at].min()), int(one["time"][at].max())
    only_a = np.setdiff1d(np.arange(len(mine)), at)
    only_b = np.setdiff1d(np.arange(len(theirs)), there)
    only_a = only_a[(one["time"][only_a] >= start) & (one["time"][only_a] <= end)]
    only_b = only_b[(two["time"][only_b] - offset >= start) & (two["time"][only_b] - offset <= end)]
    rows = []
    for key in np.unique(np.concatenate([one["flow"], two["flow"]])).tolist():
        both = one["flow"][at] == np.uint64(key)
        lost_a = only_a[one["flow"][only_a] == np.uint64(key)]
        lost_b = only_b[two["flow"][only_b] == np.uint64(key)]
        if not both.any():
            continue  # a flow of which one tap sees nothing takes another path
        src, dst, qpn = a.names.get(key) or b.names[key]
        frames_a = ", ".join(map(str, one["frame"][lost_a[:FRAMES]].tolist()))
        frames_b = ", ".join(map(str, two["frame"][lost_b[:FRAMES]].tolist()))
        first = None if len(lost_a) and len(lost_b) else 0 if len(lost_b) else 1
        rows.append(
            {
                "src": src,
                "dst": dst,
                "qpn": qpn,
                "both": int(both.sum()),
                "only_a": len(lost_a),
                "only_b": len(lost_b),
                "a_first": first,
                "delay_us": float(np.median(two["time"][there[both]] - one["time"][at[both]])) / 1e3,
                "frames_a": frames_a or None,
                "frames_b": frames_b or None,
                "filter": f"frame.number in {{{frames_a or frames_b}}}" if frames_a or frames_b else None,
            }
        )
    return rows
