"""The report of a run as one object, rdmadiag.run-report/1: what every output format of rdmadiag/render/run shows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rdmadiag.scenario import judge, measure, record
from rdmadiag.scenario.goodput import BIN_SECONDS
from rdmadiag.scenario.measure import Run
from rdmadiag.scenario.record import Folder

SCHEMA = "rdmadiag.run-report/1"
SERIES = {
    "retransmissions": ("retransmissions", "ack_timeouts", "seq_err_naks_received", "implied_nak_seq_errors"),
    "cnps": ("cnp_sent", "cnp_received", "cnp_handled"),
}
"""What is shown over time, and the meanings of counters that it adds up."""
_EVENTS = (
    "ready",
    "error",
    "reconnect",
    "recovered",
    "stopped",
    "ended",
    "begin",
    "end",
    "budget",
    "problem",
    record.LOOKED,
)
EVENTS_MOST = 400


def judged(path: str) -> dict[str, Any]:
    """Judge the run in a folder, from what is stored there alone, and return its report. Raises BadFile."""
    folder = Folder(path)
    run = measure.read(folder)
    return build(run, judge.judge(run.scenario, run.measured), str(folder.path))


def build(run: Run, verdict: judge.Verdict, path: str) -> dict[str, Any]:
    """Return the report of a run."""
    facts, found = run.facts, run.scenario
    return {
        "schema": SCHEMA,
        "scenario": found.id,
        "label": found.label,
        "title": found.title,
        "about": found.about,
        "finding": found.finding,
        "verdict": verdict.verdict,
        "exit_code": verdict.exit_code,
        "reason": verdict.reason,
        "answers": [answer._asdict() for answer in verdict.answers],
        "faults": [_fault(entry) for entry in facts.get("faults", []) if isinstance(entry, dict)],
        "quantities": {
            name: {"value": "never" if value == math.inf else value, "origin": origin}
            for name, (value, origin) in sorted(run.measured.quantities.items())
        },
        "problems": list(run.measured.problems),
        "series": _series(run),
        "events": _events(run.events),
        "findings": {phase: _findings(report) for phase, report in run.reports.items()},
        "environment": _environment(facts),
        "started": facts.get("started"),
        "seconds": facts.get("seconds"),
        "seed": facts.get("seed"),
        "chosen": dict(found.chosen),
        "folder": path,
    }


def _fault(entry: Mapping[str, Any]) -> dict[str, Any]:
    names = (
        "name", "fault", "on", "parameters", "values", "for_seconds", "start_seconds", "begin_seconds", "end_seconds",
        "off_seconds", "waited_for", "plan", "do", "own", "other", "how", "why", "reverted", "proof", "tag",
    )  # fmt: skip
    return {name: entry.get(name) for name in names}


def _events(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    shown = [dict(event) for event in events if event.get("kind") in _EVENTS]
    return shown[:EVENTS_MOST]


def _findings(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = ("rule", "kind", "answer", "severity", "title", "message", "subject", "evidence", "fix", "lies_in")
    return [{name: finding.get(name) for name in names} for finding in report.get("findings", [])]


def _environment(facts: Mapping[str, Any]) -> dict[str, Any]:
    told = facts.get("lab")
    lab: Mapping[str, Any] = told if isinstance(told, dict) else {}
    names = (
        "name",
        "backend",
        "accelerator",
        "kernel",
        "hosts",
        "rails",
        "kernel_per_host",
        "namespaces",
        "rate_bits_per_second",
        "port",
    )
    return {
        "rdmadiag": facts.get("rdmadiag"),
        "machine": facts.get("machine"),
        "lab": {name: lab.get(name) for name in names},
        "links": [
            {
                name: link.get(name)
                for name in ("host", "device", "netdev", "address", "active_mtu", "gid_index", "port")
            }
            for link in lab.get("links", [])
            if isinstance(link, dict)
        ],
        "workload": facts.get("workload"),
    }


def _series(run: Run) -> dict[str, Any]:
    flow = run.goodput.bins
    points: dict[str, list[list[float]]] = {name: [] for name in SERIES}
    states: list[list[Any]] = []
    by_node: dict[str, list[Mapping[str, Any]]] = {}
    for sample in run.samples:
        by_node.setdefault(str(sample.get("node")), []).append(sample)
    for series in by_node.values():
        for earlier, later in itertools.pairwise(series):
            for name, meanings in SERIES.items():
                grown = _grown(earlier, later, meanings)
                if grown is not None:
                    points[name].append([float(later["seconds"]), grown])
        states += [[float(s["seconds"]), dict(qps)] for s in series if isinstance(qps := s.get("qps"), Mapping)]
    return {
        "bin_seconds": BIN_SECONDS,
        "goodput_bytes_per_second": [round(nbytes / BIN_SECONDS) for nbytes in flow],
        **{name: sorted(series) for name, series in points.items()},
        "qp_states": sorted(states, key=lambda state: float(state[0])),
    }


def _grown(earlier: Mapping[str, Any], later: Mapping[str, Any], meanings: Sequence[str]) -> float | None:
    """Return how much the counters of these meanings grew between two samples; None where no device has one."""
    before, now = earlier.get("counters"), later.get("counters")
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return None
    total, known = 0, False
    for port, values in now.items():
        was = before.get(port)
        if not isinstance(values, Mapping) or not isinstance(was, Mapping):
            continue
        for counter, value in values.items():
            if _meanings().get(counter) in meanings and isinstance(value, int) and isinstance(was.get(counter), int):
                known = True
                total += max(0, value - was[counter])
    return total if known else None


@cache
def _meanings() -> dict[str, str]:
    from rdmadiag.explain.counters import COUNTERS

    return {row[1]: row[2] for row in COUNTERS}
