"""What happens in a run, as events for a program that looks on: ready, progress, layer, error, reconnect, recovered, verified."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from rdmadiag.kv.health import DEMOTED, PROBATION, RETURNED

EVERY_SECONDS = 0.1
"""The shortest time between two reports of progress."""

_WRONG = ("corrupt", "stale", "missing", "torn", "misplaced")
_CONNECTS = ("reconnect", "moved", "fallback", "back")
_STATES = (DEMOTED, PROBATION, RETURNED, "preempted")


class Live:
    """A watcher of a Recorder; `emit` gets each event as one object and is called by one thread at a time."""

    def __init__(self, emit: Callable[[Mapping[str, Any]], None]) -> None:
        self._emit, self._lock = emit, threading.Lock()
        self._bytes, self._told_at, self._failed_at = 0, 0.0, 0.0

    def __call__(self, what: str, values: Mapping[str, Any]) -> None:
        """Take what a recorder shows."""
        with self._lock:
            if what == "completed":
                self._completed(int(values["bytes"]))
            elif what == "connected":
                self._emit({"event": "ready", "carrier": values["kind"], "path": values["path"]})
            elif what == "plane":
                self._progress()
                self._emit({"event": "layer", "request": values["request"], "layer": values["plane"]})
            elif what == "detected":
                self._failed_at = self._failed_at or time.monotonic()
                words = f"{values['status']} on {values['path']}: {values['reason']}"
                of = {"request": values["request"]} if "request" in values else {}  # mode dual: a block, of any of them
                self._emit({"event": "error", "words": words, "status": values["status"], **of})
            elif what in _CONNECTS:
                way, after = f"{values['path']} to {values['to_path']}", values.get("status")
                self._emit({"event": "reconnect", "why": f"{what} after {after}: {way}" if after else f"{what}: {way}"})
            elif what == "session":
                self._emit({"event": "reconnect", "why": f"session: {values['reason']}"})
            elif what in _STATES:
                self._emit({"event": "path", "path": values["path"], "state": what})
            elif what == "request":
                self._request(values)

    def _progress(self) -> None:
        self._told_at = time.monotonic()
        self._emit({"event": "progress", "bytes": self._bytes})

    def _completed(self, size: int) -> None:
        self._bytes += size
        now = time.monotonic()
        if self._failed_at:
            self._emit({"event": "recovered", "seconds": round(now - self._failed_at, 6)})
            self._failed_at = 0.0
        if now - self._told_at >= EVERY_SECONDS:
            self._progress()

    def _request(self, row: Mapping[str, Any]) -> None:
        self._progress()
        if row["why"]:
            self._failed_at = self._failed_at or time.monotonic()
            self._emit({"event": "error", "words": row["why"], "status": "failed", "request": row["request"]})
        if row["audited"]:
            wrong = sum(row[name] or 0 for name in _WRONG)
            counts = {"bytes": row["bytes"], "blocks": row["blocks"], "wrong": wrong}
            self._emit({"event": "verified", "request": row["request"], **counts})
