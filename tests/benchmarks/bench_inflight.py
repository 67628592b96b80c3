"""What packets changed in the switch cost: time added to a packet, packets a second, and what traffic that is not met keeps of its rate.

On a lab of its own; the same work is done with and without the changes in turn, at least ten pairs.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

from rdmadiag import lab as labs
from rdmadiag.lab import inflight
from tests.benchmarks._timing import Ratio

PAIRS = 12
NAME = "bench-inflight"
OTHER = {"match": {"from": "h1", "to": "h2", "qp": 0xFFFFF0}, "action": {"do": "duplicate"}}
"""A change that meets no packet of the run: its rules are there, its QP is not."""
ALL = {"match": {"from": "h1", "to": "h2", "retransmission": 1 << 20}, "action": {"do": "drop"}}
"""A change for which every packet visits the program, and is sent on as it was."""


def _in_turn(
    lab: labs.Lab, verbs: Any, change: dict[str, Any], work: str, **arguments: Any
) -> list[tuple[float, float]]:
    found = []
    for _ in range(PAIRS):
        alone = verbs(work, **arguments)["seconds"]
        with inflight.changes(lab, [change]):
            found.append((verbs(work, **arguments)["seconds"], alone))
    return found


def _row(name: str, pairs: list[tuple[float, float]], wanted: str, note: str) -> Ratio:
    mine, alone = (statistics.median(times) for times in zip(*pairs, strict=True))
    return Ratio(name, mine, alone, statistics.median(a / b for a, b in pairs), wanted, note)


def measure() -> list[Ratio]:
    """Return the times with changes beside those without."""
    from tests.softroce.conftest import Worker

    lab = labs.up(labs.Options(folder=os.getcwd()), NAME)
    try:
        verbs = Worker(NAME)
        stream = {"opcode": "RDMA_WRITE", "size": 65536, "count": 256}
        pairs = _in_turn(lab, verbs, OTHER, "streamed", **stream)
        kept = statistics.median(alone / mine for mine, alone in pairs)
        rows = [
            _row("16 MiB of WRITEs that no change meets", pairs, "at most 1/0.95", f"{kept:.3f} of the rate is kept")
        ]
        pairs = _in_turn(lab, verbs, ALL, "streamed", **stream)
        rate = statistics.median(16 * 256 / mine for mine, _ in pairs)
        rows.append(
            _row("the same, every packet through the program", pairs, "measured", f"{rate:.0f} packets/s of 4 KiB")
        )
        pairs = _in_turn(lab, verbs, ALL, "one_by_one", count=200)
        added = statistics.median((mine - alone) / 200 for mine, alone in pairs)
        note = f"{added * 1e6:.0f} us added to one packet"
        rows.append(
            _row("200 WRITEs of 64 bytes, one after the other, each through the program", pairs, "measured", note)
        )
        verbs.close()
        return rows
    finally:
        lab.down()
