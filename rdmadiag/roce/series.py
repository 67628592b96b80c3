"""What is kept over time, bounded: latencies, bytes by interval, congestion notifications."""

from __future__ import annotations

import numpy as np

from rdmadiag.roce.streams import Segments

SAMPLES = 1 << 19
"""Most latencies kept; of more every second, then every fourth is kept, and so on."""
BINS = 1 << 17
"""Most intervals kept over all streams; of more the intervals double in length."""
NOTICES = 1 << 16


class Times:
    """Times of one kind [ns], by stream."""

    def __init__(self) -> None:
        self._stream = np.empty(0, np.int32)
        self._ns = np.empty(0, np.int64)
        self._step = 1
        self._most: dict[int, int] = {}

    def add(self, stream: np.ndarray, ns: np.ndarray) -> None:
        """Add times."""
        if not len(stream):
            return
        order = np.argsort(stream, kind="stable")
        ids, starts = np.unique(stream[order], return_index=True)
        for one, most in zip(ids.tolist(), np.maximum.reduceat(ns[order], starts).tolist(), strict=True):
            if most > self._most.get(one, -1):
                self._most[one] = most
        self._stream = np.concatenate([self._stream, stream[:: self._step].astype(np.int32)])
        self._ns = np.concatenate([self._ns, ns[:: self._step]])
        while len(self._ns) > SAMPLES:
            self._step *= 2
            self._stream, self._ns = self._stream[::2].copy(), self._ns[::2].copy()

    def summary(self) -> dict[int, tuple[int, float, float, int]]:
        """Return count of samples, median, 99th percentile and maximum [ns] of every stream that has some."""
        order = np.lexsort((self._ns, self._stream))
        stream, ns = self._stream[order], self._ns[order]
        ids, starts, counts = np.unique(stream, return_index=True, return_counts=True)
        found = {}
        for one, start, count in zip(ids.tolist(), starts.tolist(), counts.tolist(), strict=True):
            mine = ns[start : start + count]
            found[one] = (
                count * self._step, float(mine[count // 2]), float(mine[min(count - 1, int(count * 0.99))]), self._most.get(one, 0),
            )  # fmt: skip
        return found


class Series:
    """What comes over time, by stream: `answers` from a request to its answer, `messages` from the start of a message to its answer.

    `bin_ns` is the length of an interval [ns].
    """

    def __init__(self) -> None:
        self.bin_ns = 1_000_000
        self.bins = np.zeros((0, 4), np.int64)
        """Stream, interval number, payload [bytes], packets."""
        self.answers, self.messages = Times(), Times()
        self.notice_stream = np.empty(0, np.int32)
        self.notice_time = np.empty(0, np.int64)
        self.notice_frame = np.empty(0, np.int64)
        self.notices_left_out = 0

    def take(self, t: np.ndarray, s: Segments, time: np.ndarray, payload: np.ndarray) -> None:
        """Add a chunk's packets to the intervals."""
        self._add(np.stack([s.stream, time // self.bin_ns, np.maximum(payload, 0), np.ones(len(time), np.int64)], 1))

    def _add(self, rows: np.ndarray) -> None:
        # Neighbours of one stream and interval first: few rows are left to sort.
        starts = np.nonzero((np.diff(rows[:, 0], prepend=-1) != 0) | (np.diff(rows[:, 1], prepend=-1) != 0))[0]
        sums = np.add.reduceat(rows[:, 2:], starts, axis=0)
        merged = np.concatenate([self.bins, np.concatenate([rows[starts, :2], sums], axis=1)])
        self.bins = self._merged(merged)
        while len(self.bins) > BINS:
            self.bin_ns *= 2
            self.bins[:, 1] >>= 1
            before = len(self.bins)
            self.bins = self._merged(self.bins)
            if len(self.bins) > 0.9 * before and self.bin_ns > 1 << 40:
                self.bins = self.bins[:BINS]

    @staticmethod
    def _merged(rows: np.ndarray) -> np.ndarray:
        order = np.lexsort((rows[:, 1], rows[:, 0]))
        rows = rows[order]
        starts = np.nonzero((np.diff(rows[:, 0], prepend=-1) != 0) | (np.diff(rows[:, 1], prepend=-1) != 0))[0]
        if not len(starts):
            return rows
        return np.concatenate([rows[starts, :2], np.add.reduceat(rows[:, 2:], starts, axis=0)], axis=1)

    def notices(self, stream: np.ndarray, time: np.ndarray, frame: np.ndarray) -> None:
        """Add CNPs."""
        room = NOTICES - len(self.notice_time)
        self.notices_left_out += max(0, len(stream) - room)
        self.notice_stream = np.concatenate([self.notice_stream, stream[:room].astype(np.int32)])
        self.notice_time = np.concatenate([self.notice_time, time[:room]])
        self.notice_frame = np.concatenate([self.notice_frame, frame[:room]])
