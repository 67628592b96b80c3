"""Where each rule fires: on which captured nodes and field reports of tests/data, or in which run that is planned."""

from __future__ import annotations

import json
from pathlib import Path

from rdmadiag.diagnose import check

DATA = Path(__file__).parent / "data"


def folders() -> list[Path]:
    """Return every captured node, field report and published text."""
    reports = [path for path in (DATA / "reports").glob("[0-9]*") if path.is_dir()]
    others = [
        path
        for kind in ("more", "blind", "blind2a", "blind2b")
        for path in (DATA / "reports" / kind).glob("*")
        if path.is_dir()
    ]
    return [
        *sorted(path.parent for path in (DATA / "nodes").glob("*/expected.json")),
        *sorted(reports),
        *sorted(others),
        *sorted(path.parent for path in (DATA / "texts").glob("*/expected.json")),
    ]


def fired() -> dict[str, list[str]]:
    """Return for each rule that answers yes somewhere the names of the nodes and reports on which it does."""
    found: dict[str, list[str]] = {}
    for folder in folders():
        expect = folder / "expect.json"
        request = check.Request(given=(str(folder),), budget=60.0, expect=str(expect) if expect.exists() else None)
        for name, result in check.check(request).results.items():
            if any(answer.wrong == 1 for answer in result.answers):
                found.setdefault(name, []).append(folder.name)
    return found


def planned() -> dict[str, str]:
    """Return the run in which each other rule is to fire."""
    runs: dict[str, str] = json.loads((DATA / "planned.json").read_text())
    return runs
