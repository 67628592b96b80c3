"""Several runs: which scenarios with which values and seeds, one after another, and the exit code of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.scenario import judge, lint, report, run, scenario, stop
from rdmadiag.scenario.scenario import Scenario


def settings(words: Sequence[str]) -> dict[str, str]:
    """Read NAME=VALUE words. Raises BadInput."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise BadInput(f"--set {word}: wanted NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def plan(
    words: Sequence[str], chosen: Mapping[str, Any], matrix: bool = False, repeat: int = 1, seed: int | None = None
) -> list[Scenario]:
    """Return the scenarios to run, in order; all are checked before the first runs. Raises BadFile, BadInput."""
    from rdmadiag.diagnose import rulebook

    book, found = rulebook.load(), []
    for word in words:
        each = list(scenario.matrix(word, chosen)) if matrix else [scenario.load(word, chosen)]
        for one in each:
            lint.check(one, book)
            for number in range(repeat):
                first = one.seed if seed is None else seed
                found.append(one.with_seed(first + number))
    return found


def one(
    found: Scenario, parent: str, lab: str = "", backend: str = "auto", progress: run.Progress = lambda step: None
) -> dict[str, Any]:
    """Run one scenario and judge it; its report. Raises BadInput where its folder cannot be made."""
    folder = run.run(found, parent, lab=lab, backend=backend, progress=progress)
    return report.judged(str(folder.path))


def exit_code(reports: Sequence[Mapping[str, Any]]) -> int:
    """Return the exit code of several runs: that of the worst verdict."""
    return judge.EXIT_CODES[judge.worst([str(one["verdict"]) for one in reports])]


def interrupted(report: Mapping[str, Any]) -> bool:
    """Tell whether a signal ended a run: whoever sent it wants no further one."""
    return report["verdict"] == judge.ABORTED and str(report["reason"]).startswith(stop.INTERRUPTED)
