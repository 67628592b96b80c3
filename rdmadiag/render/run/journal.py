"""The report of a run as a Chaos Toolkit journal, for tools that read those (chaostoolkit-lib, the journal of `chaos run`)."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

FILE = "journal.json"
_STATUS = {"PASS": "completed", "FAIL": "completed", "ABORTED": "interrupted", "REVERT_FAILED": "aborted"}


def render(report: Mapping[str, Any], terminal: bool = False, width: int = 100) -> str:
    """Return the journal as JSON."""
    return json.dumps(_journal(report), indent=1, default=str)


def _journal(report: Mapping[str, Any]) -> dict[str, Any]:
    start = _time(report["started"])
    end = start + timedelta(seconds=report["seconds"] or 0.0)
    before, after = _probes(report, ("requires", "steady")), _probes(report, ("fired", "expect", "findings"))
    deviated = report["verdict"] == "FAIL"
    return {
        "chaoslib-version": "1.45.0",
        "platform": platform.platform(),
        "node": platform.node(),
        "experiment": {
            "version": "1.0.0",
            "title": report["title"],
            "description": " ".join(report["about"]),
            "tags": ["rdmadiag", report["scenario"]],
            "configuration": {"seed": report["seed"], **report["chosen"]},
            "method": [_activity(fault) for fault in report["faults"]],
            "rollbacks": [],
        },
        "start": start.isoformat(),
        "end": end.isoformat(),
        "duration": report["seconds"] or 0.0,
        "status": _STATUS.get(report["verdict"], "failed"),
        "deviated": deviated,
        "steady_states": {
            "before": {"steady_state_met": all(one["tolerance_met"] for one in before), "probes": before},
            "after": {"steady_state_met": all(one["tolerance_met"] for one in after), "probes": after},
            "during": [],
        },
        "run": [_ran(fault, start) for fault in report["faults"]],
        "rollbacks": [_taken_back(fault, start) for fault in report["faults"]],
        "extension": {
            "rdmadiag": {"verdict": report["verdict"], "reason": report["reason"], "folder": report["folder"]}
        },
    }


def _time(text: Any) -> datetime:
    try:
        return datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return datetime.fromtimestamp(0, timezone.utc)


def _provider(fault: Mapping[str, Any]) -> dict[str, Any]:
    if fault.get("on"):  # done to a process of the workload, which a replay has to name itself
        return {"type": "process", "path": "kill", "arguments": f"-{fault['fault']} {fault['on']}"}
    arguments = {"fault": fault["fault"], "parameters": fault["parameters"], "for_seconds": fault["for_seconds"]}
    return {"type": "python", "module": "rdmadiag.chaostoolkit", "func": "inject", "arguments": arguments}


def _activity(fault: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "action", "name": fault["name"], "provider": _provider(fault)}


def _probes(report: Mapping[str, Any], parts: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "activity": {"type": "probe", "name": f"{a['part']}: {a['question']}", "tolerance": a["wanted"]},
            "status": "failed" if a["answer"] == "unknown" else "succeeded",
            "output": a["got"],
            "tolerance_met": a["answer"] == "yes",
        }
        for a in report["answers"]
        if a["part"] in parts
    ]


def _ran(fault: Mapping[str, Any], start: datetime) -> dict[str, Any]:
    begin, end = fault["begin_seconds"], fault["end_seconds"]
    proven = all(
        isinstance(fault.get(kind), Mapping) and fault[kind].get("answer") == "yes" for kind in ("own", "other")
    )
    return {
        "activity": _activity(fault),
        "status": "succeeded" if begin is not None and proven else "failed",
        "output": {"own": fault.get("own"), "other": fault.get("other"), "waited_for": fault["waited_for"]},
        "start": (start + timedelta(seconds=begin or 0.0)).isoformat(),
        "end": (start + timedelta(seconds=end or begin or 0.0)).isoformat(),
        "duration": max(0.0, (end or 0.0) - (begin or 0.0)),
    }


def _taken_back(fault: Mapping[str, Any], start: datetime) -> dict[str, Any]:
    at = (start + timedelta(seconds=fault["end_seconds"] or 0.0)).isoformat()
    return {
        "activity": {"type": "action", "name": f"take back {fault['name']}"},
        "status": "succeeded" if fault["reverted"] == "yes" else "failed",
        "output": fault["proof"],
        "start": at,
        "end": at,
        "duration": 0.0,
    }
