"""Run all benchmarks and print their table: `make bench`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tests.benchmarks._timing import Ratio


def main() -> None:
    """Print a Markdown row for every ratio of every bench_*.py that has some."""
    print("| what | median | peer | ratio | wanted | |\n|---|---|---|---|---|---|")
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        if len(sys.argv) > 1 and path.stem not in sys.argv[1:]:
            continue
        found = importlib.import_module(f"tests.benchmarks.{path.stem}").measure()
        for row in found if isinstance(found, list) else []:
            assert isinstance(row, Ratio)
            print(
                f"| {row.name} | {row.seconds * 1000:.0f} ms | {row.peer_seconds * 1000:.0f} ms | {row.ratio:.2f} | {row.wanted} | {row.note} |",
                flush=True,
            )


main()
