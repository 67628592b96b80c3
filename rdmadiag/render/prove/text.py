"""The report for a terminal: figures first, then a line a fault."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from rdmadiag.render.prove import _words
from rdmadiag.render.text import printable


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return the figures and a table."""
    lines = [part for text in _words.summary(report) for part in textwrap.wrap(printable(text), width)]
    heads = ("fault", "runs", "right", "recall", "interval", "detected", "named first")
    rows = [
        (
            row["fault"],
            str(row["runs"]),
            str(row["right"]),
            _words.share(row["recall"]),
            _words.interval(row["interval"]) if row["runs"] else "-",
            _words.seconds(row["detect_seconds"]),
            _words.named(row),
        )
        for row in report["faults"]
    ]
    sizes = [max(len(str(row[n])) for row in [heads, *rows]) for n in range(len(heads) - 1)]
    for row in [heads, *rows]:
        cells = "  ".join(str(cell).ljust(size) for cell, size in zip(row, sizes, strict=False))
        lines.append(printable(f"{cells}  {row[-1]}").rstrip())
    for alarm in report["healthy"]["alarms"]:
        lines.append(printable(f"false alarm in {alarm['trial']}: {alarm['rule']}: {alarm['message']}"))
    for one in report["left_out"]:
        lines.append(printable(f"left out: {one['trial']}: {one['why']}"))
    return "\n".join(lines)
