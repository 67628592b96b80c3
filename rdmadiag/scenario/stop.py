"""Signals end a run in order: its faults come off and its evidence is kept."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

INTERRUPTED = "interrupted by"
"""How the reason of a run begins that a signal ended."""


@contextlib.contextmanager
def signals(stop: Callable[[str], None]) -> Iterator[None]:
    """Call `stop` with the reason at SIGINT, SIGTERM and SIGHUP, the first time; outside of the main thread nothing is done."""
    # Ctrl-C and a kill end the run in order: faults off, evidence kept. A second one is the system's own.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}

    def handle(number: int, frame: Any) -> None:
        stop(f"{INTERRUPTED} {signal.Signals(number).name}")
        back()

    def back() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        before[each] = signal.signal(each, handle)
    try:
        yield
    finally:
        back()
