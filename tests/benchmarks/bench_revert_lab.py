"""How long after a death nothing of a fault is in force, in a lab, with the lease that users get: mechanism by way of dying, for docs/performance.md.

Not a ratio: it prints a table of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from rdmadiag import lab as labs
from rdmadiag.faults._steps import LEASE_SECONDS
from rdmadiag.inject import everything
from tests.softroce import dying

NAME = "bench-revert"
HEADS = {
    "table": "owned nft table",
    "detour": "qdisc behind a gate",
    "process": "process",
    "changer": "process with a table",
    "change": "kernel state",
}


def measure() -> list[object]:
    """Print the table."""
    lab = labs.up(labs.Options(folder=str(dying.ROOT)), NAME)
    print(f"| died | {' | '.join(HEADS[name] for name in dying.MECHANISMS)} |")
    print(f"|---{'|---' * len(dying.MECHANISMS)}|", flush=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for nth, way in enumerate(dying.WAYS):
                told = [
                    _cell(lambda: dying.dies(lab, name, way, Path(folder, f"{nth}-{name}"), LEASE_SECONDS))  # noqa: B023
                    for name in dying.MECHANISMS
                ]
                print(f"| {way} | {' | '.join(told)} |", flush=True)
            told = [
                _cell(lambda: dying.on_a_full_disk(lab, name, Path(folder, f"d-{name}"), LEASE_SECONDS))  # noqa: B023
                for name in dying.MECHANISMS
            ]
            print(f"| watchdog, with the journal's disk full | {' | '.join(told)} |", flush=True)
            told = []
            for name in dying.MECHANISMS:
                lab, clean = dying.in_a_restart(lab, name, Path(folder, f"r-{name}"), LEASE_SECONDS)
                told.append(_cell(lambda: clean))  # noqa: B023
            print(f"| guest, restarted (its start included) | {' | '.join(told)} |", flush=True)
    finally:
        labs.take_down(NAME)
    return []


def _cell(measured: Callable[[], dying.Clean]) -> str:
    try:
        seconds, by, table_seconds = measured()
    except AssertionError as error:
        everything()
        return f"NOT AS WANTED: {error}".replace("\n", " ")[:200]
    if by == dying.ITSELF:
        return f"{seconds:.1f} s"
    table = "" if table_seconds is None else f" (its table gone after {table_seconds:.1f} s)"
    return f"{by}, {seconds:.1f} s{table}"
