"""A lab's boot, its restore from a saved state, and what `exec` adds to a command, each beside its limit."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from rdmadiag import lab as labs
from rdmadiag.lab import places
from tests.benchmarks._timing import Ratio

ROUNDS = 7
NAME = "bench"


def _up(options: labs.Options) -> float:
    start = time.perf_counter()
    labs.up(options, NAME)
    return time.perf_counter() - start


def _beside(name: str, seconds: list[float], limit: float, wanted: str, note: str = "") -> Ratio:
    middle = statistics.median(seconds)
    spread = f"{min(seconds):.2f} to {max(seconds):.2f} s, {len(seconds)} times"
    return Ratio(name, middle, limit, middle / limit, wanted, f"{spread}{note}")


def measure() -> list[Ratio]:
    """Boot, restore and use a lab; the peer of each row is its limit."""
    options = labs.Options(folder=str(Path.cwd()), mtu=4199)  # a state of its own, which may be taken away
    before = set(places.cache_folder("states").iterdir())
    booted, restored = [], []
    for _ in range(ROUNDS):
        labs.take_down(NAME)
        booted.append(_up(options))
        labs.take_down(NAME)
        restored.append(_up(options))
        (new,) = set(places.cache_folder("states").iterdir()) - before
        if len(booted) < ROUNDS:
            new.unlink()
    lab = labs.find(NAME)
    loop = ["sh", "-c", "i=0; while [ $i -lt 20 ]; do /bin/true; i=$((i+1)); done"]
    added, alone = [], []
    for _ in range(20):
        start = time.perf_counter()
        lab.run(["/bin/true"])
        middle = time.perf_counter()
        lab.run(loop)
        alone.append((time.perf_counter() - middle) / 20)
        added.append(max(middle - start - alone[-1], 0.0))
    accelerator = lab.record["accelerator"].upper()
    lab.down()
    new.unlink()
    note = f"; /bin/true alone in the guest: {statistics.median(alone) * 1000:.0f} ms"
    return [
        _beside(f"lab up, two ACTIVE rxe devices, booted ({accelerator})", booted, 6.0, "under 6 s"),
        _beside(f"the same from a saved state ({accelerator})", restored, 2.0, "under 2 s"),
        _beside("what exec adds to /bin/true", added, 0.1, "under 0.1 s", note),
    ]
