"""What a transfer measured, as lines of JSON: one object a line, `rdmadiag check --from FILE` reads them.

Each line has `"schema": "rdmadiag.kv/1"` and `record`: transfer, request, operation, goodput, event, route, path, job, cache. The
columns of the tables kv_* (rdmadiag/evidence/schema.sql) are its keys.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rdmadiag.kv.transport import READ, SUCCESS, Timed

SCHEMA = "rdmadiag.kv/1"
BIN_SECONDS = 0.1
BEFORE, DURING, AFTER = "before", "during", "after"
SAMPLES = 100_000
"""Latencies kept of one operation and path; beyond that every second one is."""


def quantile(sorted_values: list[float], share: float) -> float:
    """Return the value below which a share of sorted values lies (nearest rank)."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


class _Series:
    """Completions of one operation, path and status."""

    def __init__(self) -> None:
        self.count = self.nbytes = self.depth_sum = self.depth_max = 0
        self.seconds: list[float] = []
        self.every = 1

    def add(self, timed: Timed) -> None:
        self.count += 1
        self.nbytes += timed.work.length
        self.depth_sum += timed.depth
        self.depth_max = max(self.depth_max, timed.depth)
        if self.count % self.every == 0:
            self.seconds.append(timed.seconds)
            if len(self.seconds) > SAMPLES:
                del self.seconds[::2]
                self.every *= 2


class Recorder:
    """Collects what one run measures; thread-safe. Times are seconds since it was made."""

    def __init__(self, mode: str, run: str | None = None) -> None:
        self.run, self.mode = run or secrets.token_hex(4), mode
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._series: dict[tuple[str, str, str], _Series] = {}
        self._bins: Counter[int] = Counter()
        self._busy: dict[int, float] = {}
        self._marks: list[tuple[float, str]] = []
        self._events: list[dict[str, Any]] = [{"event": "begin", "seconds": 0.0}]
        self.requests: list[dict[str, Any]] = []
        self.caches: list[dict[str, Any]] = []
        self.routes: list[dict[str, Any]] = []
        self.paths: list[dict[str, Any]] = []
        self.jobs: list[dict[str, Any]] = []
        self.totals: Counter[str] = Counter()
        self.facts: dict[str, Any] = {}
        self.watch: Callable[[str, Mapping[str, Any]], None] | None = None

    def show(self, what: str, **values: Any) -> None:
        """Tell the watcher, where there is one, what just happened; it is called by any thread."""
        if self.watch is not None:
            self.watch(what, values)

    def now(self) -> float:
        """Return the time since the run began [s]."""
        return time.monotonic() - self._start

    def ended(self, path: str, timed: Timed) -> None:
        """Note the end of a work request."""
        with self._lock:
            self._series.setdefault((path, timed.work.op, timed.status), _Series()).add(timed)
            if timed.status == SUCCESS:
                at = timed.posted + timed.seconds - self._start
                self._bins[int(at / BIN_SECONDS)] += timed.work.length
        if timed.status == SUCCESS:
            self.show("completed", bytes=timed.work.length)

    def busy(self, since: float, until: float) -> None:
        """Note that a transfer was under way in this time [s since the beginning]."""
        with self._lock:
            at = int(since / BIN_SECONDS)
            while at * BIN_SECONDS < until:
                part = min(until, (at + 1) * BIN_SECONDS) - max(since, at * BIN_SECONDS)
                self._busy[at] = self._busy.get(at, 0.0) + max(0.0, part)
                at += 1

    def event(self, event: str, **values: Any) -> None:
        """Note something that happened once: reconnect, fallback, lease_expired, fault, fault_removed, demoted, returned, preempted."""
        with self._lock:
            now = self.now()
            self._events.append({"event": event, "seconds": round(now, 6), **values})
            if event in ("fault", "fault_removed"):
                self._marks.append((now, DURING if event == "fault" else AFTER))
        self.show(event, **values)

    def phase(self, seconds: float) -> str | None:
        """Return before, during or after the fault; None where no fault was noted."""
        if not self._marks:
            return None
        return next((phase for at, phase in reversed(self._marks) if at <= seconds), BEFORE)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the result."""
        for record, values in self.rows():
            yield json.dumps({"schema": SCHEMA, "record": record, "run": self.run, **values}, separators=(",", ":"))

    def rows(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield (record, values): the rows of the evidence tables."""
        busy = sum(self._busy.values())
        done = sum(self._bins.values())
        yield (
            "transfer",
            {
                "mode": self.mode,
                **self.facts,
                **self.totals,
                "seconds": round(self.now(), 6),
                "busy_seconds": round(busy, 6),
                "acknowledged_bytes": done,
                "bytes_per_second": round(done / busy, 1) if busy else None,
            },
        )
        for request in self.requests:
            yield "request", request
        for (path, op, status), series in sorted(self._series.items()):
            seconds = sorted(series.seconds)
            yield (
                "operation",
                {
                    "path": path,
                    "op": op,
                    "status": status,
                    "operations": series.count,
                    "bytes": series.nbytes,
                    "p50_seconds": round(quantile(seconds, 0.5), 9),
                    "p99_seconds": round(quantile(seconds, 0.99), 9),
                    "max_seconds": round(seconds[-1], 9),
                    "depth_mean": round(series.depth_sum / series.count, 2),
                    "depth_max": series.depth_max,
                },
            )
        for at in sorted({*self._bins, *self._busy}):
            middle = (at + 0.5) * BIN_SECONDS
            values = {"start_seconds": round(at * BIN_SECONDS, 3), "bytes": self._bins[at]}
            yield "goodput", {**values, "busy_seconds": round(self._busy.get(at, 0.0), 6), "phase": self.phase(middle)}
        for event in self._events:
            yield "event", event
        for route in self.routes:
            yield "route", {**route, **self._acknowledged(str(route["path"]))}
        for one in self.paths:
            yield "path", one
        for job in self.jobs:
            yield "job", job
        for cache in self.caches:
            yield "cache", cache

    def _acknowledged(self, path: str) -> dict[str, int]:
        done = [(op, one.nbytes) for (at, op, status), one in self._series.items() if at == path and status == SUCCESS]
        read = sum(size for op, size in done if op == READ)
        return {"acknowledged_bytes": sum(size for _, size in done), "read_bytes": read}
