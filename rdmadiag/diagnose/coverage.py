"""Where each rule fires on something real: captured nodes, field reports, measured faults, published texts, lab runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from rdmadiag.diagnose import check, rulebook
from rdmadiag.errors import BadInput

WANTED = 90
"""How many rules are to fire on something that is not their own example."""

KINDS = ("nodes", "reports", "faults", "texts", "captures", "runs")
"""Folders of evidence below the data folder; whatever holds an origin or an expectation is one piece of it."""
NODE = "ibstat.txt"
"""What else is known of the node between whose ends two captures were made."""


def default_folder() -> str:
    """Return the data folder of a source checkout. Raises BadInput where there is none (an installed package)."""
    folder = os.path.join(os.path.dirname(os.path.normpath(rulebook.shipped_folder())), "tests", "data")
    if not os.path.isdir(folder):
        raise BadInput(f"{folder}: no such folder; name one with --data, such as tests/data of a source checkout")
    return folder


def pieces(data: str) -> Iterator[str]:
    """Yield the folders and packet captures that are one piece of evidence each, sorted by kind and name."""
    for kind in KINDS:
        yield from _below(os.path.join(data, kind))
    captures = os.path.join(data, "pcaps")
    if os.path.isdir(captures):
        yield from (os.path.join(captures, name) for name in sorted(os.listdir(captures)) if name.endswith(".pcap"))


def _below(folder: str) -> Iterator[str]:
    if not os.path.isdir(folder):
        return
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            yield from [path] if _is_piece(path) else _below(path)


def _is_piece(path: str) -> bool:
    # A captured node or a text has its expectation in it, a report beside it; a measured fault has one folder an end.
    inside = os.path.exists(os.path.join(path, "expected.json")) or os.path.exists(os.path.join(path, "client"))
    return inside or os.path.exists(f"{path}.expected.json")


def fired(data: str, progress: Callable[[str], None] = lambda text: None) -> dict[str, list[str]]:
    """Return for each rule that answers yes somewhere the names of the pieces of evidence on which it does."""
    found: dict[str, list[str]] = {}
    for folder in pieces(data):
        name = os.path.basename(folder)
        progress(name)
        if taps := taps_of(folder):
            for rule in sorted({f["rule"] for f in taps["findings"] if f["answer"] == "confirmed"}):
                found.setdefault(rule, []).append(name)
            continue
        expect = os.path.join(folder, "expect.json")
        request = check.Request(given=(folder,), budget=60.0, expect=expect if os.path.exists(expect) else None)
        for rule, result in check.check(request).results.items():
            if any(answer.wrong == 1 for answer in result.answers):
                found.setdefault(rule, []).append(name)
    return found


def taps_of(folder: str) -> dict[str, Any] | None:
    """Return the report of two captures of one path (tap-1..., tap-2...), with what is known of their node beside; None without two."""
    from rdmadiag.diagnose import wire

    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    taps = [os.path.join(folder, name) for name in names if name.startswith("tap-")]
    if len(taps) != 2:
        return None
    if NODE not in names:
        return wire.look([], taps).report
    given, *both = (f"node={path}" for path in (os.path.join(folder, NODE), *taps))
    return check.check(check.Request(given=(given,), taps=tuple(both), budget=60.0)).report


def planned(data: str) -> dict[str, str]:
    """Return the run in which each other rule is to fire, from planned.json of the data folder; empty without one."""
    path = os.path.join(data, "planned.json")
    if not os.path.exists(path):
        return {}
    with open(path) as stream:
        runs: dict[str, Any] = json.load(stream)
    return {str(rule): str(run) for rule, run in runs.items()}
