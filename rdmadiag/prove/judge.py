"""What the rules say of one trial, from its folder, with evidence that does not give the fault away."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rdmadiag.diagnose import check
from rdmadiag.errors import BadFile, RdmadiagError
from rdmadiag.explain.counters import COUNTERS
from rdmadiag.prove import strip
from rdmadiag.prove.trials import HEALTHY
from rdmadiag.scenario.judge import YES
from rdmadiag.scenario.record import BEFORE, CAPTURES, DURING, Folder

SCHEMA = "rdmadiag.trial/1"
BUDGET_SECONDS = 60.0
_QUIET = {row[1] for row in COUNTERS if not row[6]}
"""Counters that stand still in health."""


def judged(path: str) -> dict[str, Any]:
    """Return the diagnosis of a trial: rdmadiag.trial/1. Raises BadFile where the folder is no trial's."""
    folder = Folder(path)
    facts = folder.read("run.json", "rdmadiag.run/1")
    name, _, number = str(facts.get("scenario")).rpartition("-")
    if not name or not number.isdecimal():
        raise BadFile(f"{path}/run.json", "/scenario", "wanted the name of a trial: a fault and a number")
    entry = next((one for one in facts.get("faults", []) if isinstance(one, dict)), {})
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "trial": f"{name}-{number}",
        "fault": "" if name == HEALTHY else name,
        "seed": facts.get("seed"),
        "folder": path,
        "acted": acted(entry) if name != HEALTHY else "",
        "reverted": entry.get("reverted", YES),
        "problem": _problem(facts, name),
        "causes": [],
        "findings": [],
        "signs": [],
        "stripped": {},
        "detect_seconds": _detected(folder, entry) if entry else None,
    }
    if not result["problem"]:
        try:
            _look(folder, result)
        except RdmadiagError as error:
            result["problem"] = f"cannot be judged: {error}"
    return result


def acted(entry: Mapping[str, Any]) -> str:
    """Whether the fault is proven to have acted: its own means counted something."""
    own = entry.get("own")
    return str(own.get("answer")) if isinstance(own, Mapping) else str(entry.get("waited_for") or "unknown")


def _problem(facts: Mapping[str, Any], name: str) -> str:
    end = facts.get("end")
    how = end.get("how") if isinstance(end, Mapping) else None
    if how != "done":
        reason = end.get("reason") if isinstance(end, Mapping) else ""
        return f"{how or 'no end'}: {reason}"
    problems = facts.get("problems")
    return str(problems[0]) if isinstance(problems, list) and problems else ""


def _look(folder: Folder, result: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="rdmadiag-prove-") as place:
        found, result["stripped"] = strip.copy(folder, Path(place))
        if not found[BEFORE] or not found[DURING]:
            result["problem"] = "no evidence from before or during"
            return
        request = check.Request(
            given=(*found[DURING], *(f"{strip.NODE}={path}" for path in found["texts"])),
            taps=tuple(f"{strip.NODE}={path}" for path in found[CAPTURES]) if len(found[CAPTURES]) == 2 else (),
            previous=found[BEFORE][0],
            budget=BUDGET_SECONDS,
        )
        checked = check.check(request)
    findings = checked.report["findings"]
    result["findings"] = [
        {name: finding[name] for name in ("rule", "kind", "answer", "severity", "message")} for finding in findings
    ]
    result["causes"] = list(dict.fromkeys((f["rule"], f["answer"]) for f in findings if f["kind"] == "cause"))
    result["signs"] = sorted(_signs(checked))


def _signs(checked: check.Checked) -> set[str]:
    """Return what of the evidence differs from health, as columns by which faults can be compared."""
    db = checked.evidence.db
    signs = {f"rule {finding['rule']}" for finding in checked.report["findings"] if finding["answer"] == "confirmed"}
    signs |= {f"counter {name}" for (name,) in db.execute("SELECT DISTINCT name FROM signal WHERE delta > 0")}
    signs |= {f"status {status}" for (status,) in db.execute("SELECT DISTINCT wc_status FROM completion")}
    signs |= {f"QP {state}" for (state,) in db.execute("SELECT DISTINCT state FROM qp_group WHERE state <> 'RTS'")}
    signs |= {f"port {state}" for (state,) in db.execute("SELECT DISTINCT state FROM port WHERE state <> 'ACTIVE'")}
    return signs


def _detected(folder: Folder, entry: Mapping[str, Any]) -> float | None:
    """Return when the first sign came, from when nothing was on yet [s]: a counter that stands still in health, a state, an error.

    None where none came while it held.
    """
    begin, end = entry.get("start_seconds", entry.get("begin_seconds")), entry.get("end_seconds")
    if not isinstance(begin, (int, float)) or not isinstance(end, (int, float)):
        return None
    times: list[float] = []
    before: dict[Any, Mapping[str, Any]] = {}
    for sample in folder.lines("samples.jsonl"):
        at, node = float(sample["seconds"]), sample.get("node")
        if at >= begin and node in before and _changed(before[node], sample):
            times.append(at - begin)
            break
        if at < begin:
            before[node] = sample
    for event in folder.lines("events.jsonl"):
        if event.get("kind") == "error" and float(event["seconds"]) >= begin:
            times.append(float(event["seconds"]) - begin)
            break
    return round(min(times), 3) if times and min(times) <= end - begin else None


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    for port, values in now.get("counters", {}).items():
        was = before.get("counters", {}).get(port, {})
        if any(name in _QUIET and value > was.get(name, value) for name, value in values.items()):
            return True
    return now.get("ports") != before.get("ports") or bool((now.get("qps") or {}).get("ERR"))


def of_folder(parent: str) -> Sequence[str]:
    """Return the folders of trials below a folder, sorted. Raises BadFile where there is none."""
    found = sorted(str(path.parent) for path in Path(parent).glob("*/run.json"))
    if not found:
        raise BadFile(parent, "", "no trials in it; wanted the folder that `rdmadiag prove --report` filled")
    return found
