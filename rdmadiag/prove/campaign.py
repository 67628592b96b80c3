"""The trials one after another, each kept in a folder of its own, so that a run that was stopped goes on."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rdmadiag import __version__
from rdmadiag.diagnose import rulebook
from rdmadiag.errors import BadFile, BadInput
from rdmadiag.prove import judge, report, trials
from rdmadiag.prove.trials import Trial
from rdmadiag.scenario import run, stop
from rdmadiag.scenario.record import Folder

DIAGNOSIS = "diagnosis.json"


class At(NamedTuple):
    """How far it is: `left_seconds` is None before the first trial is over."""

    number: int
    total: int
    trial: str
    text: str
    left_seconds: float | None


Runner = Callable[[Trial, str, run.Progress], Folder]
"""Runs one trial, makes its folder below a parent, and returns it."""


def go(
    planned: Sequence[Trial],
    parent: str,
    runner: Runner,
    resume: bool = False,
    progress: Callable[[At], None] = lambda at: None,
) -> bool:
    """Run trials and judge each; return whether all were run (a signal ends it). Raises BadInput, LabError."""
    place = Path(parent)
    if not resume and place.exists() and any(place.glob("*/run.json")):
        raise BadInput(f"--report {parent}: has trials; --resume goes on with them, or give another folder")
    todo = [trial for trial in planned if not _is_done(place / trial.id)]
    took: list[float] = []
    for number, trial in enumerate(todo, len(planned) - len(todo) + 1):
        start = time.monotonic()
        left = sum(took) / len(took) * (len(planned) - number + 1) if took else None

        def tell(step: run.Step, number: int = number, trial: Trial = trial, left: float | None = left) -> None:
            progress(At(number, len(planned), trial.id, step.text, left))

        shutil.rmtree(place / trial.id, ignore_errors=True)
        folder = runner(trial, parent, tell)
        if interrupted(folder):
            return False
        tell(run.Step("judging", 0.0, 0.0))
        diagnosed(str(folder.path), digest())
        took.append(time.monotonic() - start)
    return True


def _is_done(path: Path) -> bool:
    try:
        facts = Folder(path).read("run.json")
    except BadFile:
        return False
    end, held = facts.get("end"), facts.get("faults")
    acted = (
        all(isinstance(one, Mapping) and judge.acted(one) == "yes" for one in held) if isinstance(held, list) else False
    )
    return isinstance(end, Mapping) and end.get("how") == "done" and acted and not facts.get("problems")


def interrupted(folder: Folder) -> bool:
    """Tell whether a signal ended a trial."""
    end = folder.read("run.json").get("end")
    return isinstance(end, Mapping) and str(end.get("reason", "")).startswith(stop.INTERRUPTED)


def digest() -> str:
    """Return what a diagnosis depends on beside its folder: release and rules."""
    import os

    summary = hashlib.sha256(__version__.encode())
    for folder, _, names in sorted(os.walk(rulebook.shipped_folder())):
        for name in sorted(names):
            if name.endswith(".json"):
                summary.update(Path(folder, name).read_bytes())
    for source in sorted(Path(__file__).parent.parent.rglob("*.py")):
        summary.update(str(source.stat().st_mtime_ns).encode())
    return summary.hexdigest()[:16]


def diagnosed(path: str, made_with: str) -> dict[str, Any]:
    """Return the diagnosis of a trial's folder: what is kept there, or anew where rules or program have changed since."""
    folder = Folder(path)
    try:
        kept = folder.read(DIAGNOSIS, judge.SCHEMA)
        if kept.get("made_with") == made_with:
            return kept
    except BadFile:
        pass
    found = judge.judged(path) | {"made_with": made_with}
    folder.write(DIAGNOSIS, found)
    return found


def judged(parent: str, classes: str = "", progress: Callable[[At], None] = lambda at: None) -> dict[str, Any]:
    """Judge all trials of a folder, without a lab; return the report. Raises BadFile."""
    known = trials.classes(classes)
    paths, made_with, told = judge.of_folder(parent), digest(), []
    for number, path in enumerate(paths, 1):
        progress(At(number, len(paths), Path(path).name, "judging", None))
        told.append(diagnosed(path, made_with))
    return report.build(told, known) | {"folder": parent}
