"""Recorded trials, and trials made of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from rdmadiag.prove.trials import HEALTHY, Trial
from rdmadiag.scenario.record import Folder

DATA = Path(__file__).parent.parent / "data" / "trials"
RECORDED = DATA / "blackout-01"
TAG: str = next(iter(json.loads((RECORDED / "run.json").read_text())["faults"]))["tag"]


def told(fault: str, number: int, *causes: str, **more: Any) -> dict[str, Any]:
    """Return a trial's diagnosis as the judge makes it: what was named, first to last."""
    return {
        "trial": Trial(fault, number).id, "fault": fault, "acted": "yes" if fault else "", "problem": "", "detect_seconds": 1.0 if fault else None,
        "causes": [[cause, "confirmed"] for cause in causes], "signs": [f"rule {cause}" for cause in causes], "stripped": {},
        "findings": [{"rule": cause, "kind": "cause", "answer": "confirmed", "severity": "error", "message": "m"} for cause in causes],
        **more,
    }  # fmt: skip


class Recorded:
    """A runner that hands out copies of recorded trials instead of making any; `made` lists what was asked for."""

    def __init__(self, stop_at: int = 10**9) -> None:
        self.made: list[str] = []
        self.stop_at = stop_at

    def __call__(self, trial: Trial, parent: str, progress: Any) -> Folder:
        """Return a copy of a recorded trial under the wanted name."""
        self.made.append(trial.id)
        source = DATA / ("healthy-03" if not trial.fault else "blackout-01")
        folder = Folder(shutil.copytree(source, Path(parent) / trial.id))
        facts = folder.read("run.json") | {"scenario": trial.id, "seed": trial.seed}
        if len(self.made) >= self.stop_at:
            facts["end"] = {"how": "aborted", "reason": "interrupted by SIGINT"}
        folder.write("run.json", facts)
        return folder


__all__ = ["DATA", "HEALTHY", "RECORDED", "TAG", "Recorded", "told"]
