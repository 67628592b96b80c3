"""Tests of workloads; those on real SoftRoCE are in tests/softroce."""

from __future__ import annotations

from pathlib import Path

from rdmadiag.workloads import Host, Note

DATA = Path(__file__).parent.parent / "data" / "workloads"
HOSTS = (
    Host("h1", "rxe1", 1, "v1", "10.0.0.1", "10.0.100.1"),
    Host("h2", "rxe2", 1, "v2", "10.0.0.2", "10.0.100.2"),
)


def notes(reader: object, text: str, stream: int = 1) -> list[Note]:
    """Return what a reader makes of a text."""
    return [note for line in text.splitlines() for note in reader(stream, line)]  # type: ignore[operator]
