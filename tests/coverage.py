"""Where each rule fires: on which evidence of tests/data, or in which run that is planned."""

from __future__ import annotations

from pathlib import Path

from rdmadiag.diagnose import coverage

DATA = Path(__file__).parent / "data"


def folders() -> list[Path]:
    """Return every captured node, field report, measured fault and published text."""
    return [Path(folder) for folder in coverage.pieces(str(DATA))]


def fired() -> dict[str, list[str]]:
    """Return for each rule that answers yes somewhere the names of the evidence on which it does."""
    return coverage.fired(str(DATA))


def planned() -> dict[str, str]:
    """Return the run in which each other rule is to fire."""
    return coverage.planned(str(DATA))
