"""What is run: each fault so many times with seeds of its own, healthy runs in between, and which faults count as one class."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag import faults
from rdmadiag.diagnose.rulebook import read_json
from rdmadiag.errors import BadFile
from rdmadiag.faults import Diagnosis
from rdmadiag.scenario import scenario
from rdmadiag.scenario.scenario import Scenario

SCHEMA = "rdmadiag.fault-classes/1"
CLASSES_MOST, FAULTS_MOST = 5, 3
"""Classes that there may be, and faults in one."""
HEALTHY = "healthy"
BEGIN_SECONDS, HOLD_SECONDS, HEALTHY_SECONDS = 2.0, 60.0, 12.0


class Trial(NamedTuple):
    """One run: `fault` is empty where nothing is done."""

    fault: str
    number: int

    @property
    def id(self) -> str:
        """The name of its folder."""
        return f"{self.fault or HEALTHY}-{self.number:02}"

    @property
    def seed(self) -> int:
        """The seed of the fault and of the workload."""
        return self.number


class FaultClass(NamedTuple):
    """Faults that count as one: what they leave is the same."""

    name: str
    faults: tuple[str, ...]
    why: str


def classes(path: str = "") -> list[FaultClass]:
    """Return the classes, as they were written down before any run. Raises BadFile with the place."""
    path = path or os.path.join(os.path.dirname(__file__), "classes.json")
    data = read_json(path)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("classes"), list):
        raise BadFile(path, "/schema", f"wanted an object of schema {SCHEMA} with a list `classes`")
    if len(data["classes"]) > CLASSES_MOST:
        raise BadFile(path, "/classes", f"{len(data['classes'])} classes; wanted {CLASSES_MOST} at most")
    found: list[FaultClass] = []
    for n, entry in enumerate(data["classes"]):
        place = f"/classes/{n}"
        if not isinstance(entry, dict) or not all(isinstance(entry.get(k), str) and entry[k] for k in ("name", "why")):
            raise BadFile(path, place, "wanted an object with texts `name` and `why`, and a list `faults`")
        members = entry.get("faults")
        if not isinstance(members, list) or not 2 <= len(members) <= FAULTS_MOST:
            raise BadFile(path, f"{place}/faults", f"wanted 2 to {FAULTS_MOST} names of faults")
        for fault in members:
            if fault not in faults.names():
                raise BadFile(path, f"{place}/faults", f"no fault {fault!r}; `rdmadiag inject list` shows all")
            if any(fault in other.faults for other in found) or members.count(fault) > 1:
                raise BadFile(path, f"{place}/faults", f"{fault} is in a class already")
        found.append(FaultClass(entry["name"], tuple(members), entry["why"]))
    return found


def to_prove() -> list[str]:
    """Return the names of the faults that are to be named: all but those that are none (`DIAGNOSIS = None`) or cannot be put on here."""
    left = not_proven()
    return [
        name for name in faults.names() if getattr(faults.find(name), "DIAGNOSIS", "") is not None and name not in left
    ]


def not_proven() -> dict[str, str]:
    """Return the faults that no trial can put on, each with the reason that its file gives (`NOT_PROVEN`)."""
    found = {name: getattr(faults.find(name), "NOT_PROVEN", "") for name in faults.names()}
    return {name: why for name, why in found.items() if why}


def class_of(fault: str, known: Sequence[FaultClass]) -> str:
    """Return the name of a fault's class: its own where it is in none."""
    return next((one.name for one in known if fault in one.faults), fault)


def diagnosis(fault: str) -> Diagnosis | None:
    """Return what is written down beside a fault; None where nothing is. Raises BadInput for an unknown fault."""
    found = getattr(faults.find(fault), "DIAGNOSIS", None)
    return found if isinstance(found, Diagnosis) else None


def right_rules(fault: str, known: Sequence[FaultClass]) -> frozenset[str]:
    """Return the rules that name a fault's class rightly."""
    members = next((one.faults for one in known if fault in one.faults), (fault,))
    return frozenset(rule for each in members if (told := diagnosis(each)) is not None for rule in told.rules)


def plan(chosen: Sequence[str], runs: int, healthy: int) -> list[Trial]:
    """Return the trials, in rounds: each fault once, with its share of healthy runs, then again. Raises BadInput for an unknown fault."""
    names = list(dict.fromkeys(chosen)) or to_prove()
    for name in names:
        faults.find(name)
    rounds: list[Trial] = []
    done = 0
    for number in range(1, runs + 1):
        rounds += [Trial(name, number) for name in names]
        until = healthy * number // runs
        rounds += [Trial("", n + 1) for n in range(done, until)]
        done = until
    return rounds + [Trial("", n + 1) for n in range(done, healthy)]


def scenario_of(trial: Trial) -> Scenario:
    """Return the scenario of a trial."""
    told = diagnosis(trial.fault) if trial.fault else None
    entry: dict[str, Any] = {
        "inject": trial.fault,
        "name": "fault",
        "parameters": dict(told.parameters) if told else {},
        "at_seconds": BEGIN_SECONDS,
        "for_seconds": HOLD_SECONDS,
    }
    workload: Mapping[str, Any] = told.workload if told else {}
    data = {
        "schema": scenario.SCHEMA,
        "id": trial.id,
        "title": f"{trial.fault or 'Nothing'} under steady work, to be named",
        "about": ["A run of `rdmadiag prove`."],
        "workload": {"name": "paced", "parameters": dict(workload)},
        "captures": True,
        "timeline": [entry] if trial.fault else [],
        "expect": {},
        "findings": {},
        "abort": {"kernel_warnings": False, "silent_seconds": 120, "run_seconds": 240},
        "settle_seconds": 1.0 if trial.fault else HEALTHY_SECONDS,
        "seed": trial.seed,
    }
    return scenario.restored(f"prove {trial.id}", data, {})
