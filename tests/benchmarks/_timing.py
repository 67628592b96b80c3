"""Times of whole processes and of functions, taken in turn with a peer, so that a noisy machine hits both alike."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Ratio(NamedTuple):
    """Medians of a command and its peer [s], the median of their ratios pair by pair, and what is wanted of it."""

    name: str
    seconds: float
    peer_seconds: float
    ratio: float
    wanted: str
    note: str = ""


def pairs(work: Callable[[], Any], peer: Callable[[], Any], rounds: int) -> tuple[float, float, float]:
    """Run both in turn. Returns their medians [s] and the median of the ratios pair by pair."""
    work(), peer()
    times = [(_timed(work), _timed(peer)) for _ in range(rounds)]
    return (
        statistics.median(a for a, _ in times),
        statistics.median(b for _, b in times),
        statistics.median(a / b for a, b in times),
    )


def _timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def process(command: Sequence[str], environment: dict[str, str] | None = None) -> Callable[[], int]:
    """Return a function that runs a command to its end."""

    def run() -> int:
        return subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            check=False,
        ).returncode

    return run


def peak_bytes(command: Sequence[str]) -> int:
    """Return the peak resident memory of a command [bytes]."""
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.execvp(command[0], list(command))
    _, _, usage = os.wait4(pid, 0)
    assert isinstance(usage, resource.struct_rusage)
    return usage.ru_maxrss * 1024
