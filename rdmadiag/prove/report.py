"""All trials as one object, rdmadiag.prove/1: faults by what was named first, recall and precision with intervals, false alarms."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rdmadiag import __version__
from rdmadiag.prove import trials
from rdmadiag.prove.intervals import wilson
from rdmadiag.prove.trials import HEALTHY, FaultClass
from rdmadiag.scenario.judge import YES

SCHEMA = "rdmadiag.prove/1"
BAR_SHARE, BAR_HEALTHY = 0.95, 50
"""Share of runs in which the right class must be named first; healthy runs that must be without a finding at warning or above."""
NOTHING = "(nothing)"
"""What is named where no cause is."""
ALARMS = ("warning", "error", "critical")


def build(told: Sequence[Mapping[str, Any]], known: Sequence[FaultClass]) -> dict[str, Any]:
    """Return the report of trials (rdmadiag.trial/1)."""
    good = [one for one in told if not one["problem"] and one["acted"] in ("", YES)]
    under = [one for one in good if one["fault"]]
    names = sorted({one["fault"] for one in told if one["fault"]})
    rows = [_fault(name, [one for one in told if one["fault"] == name], known) for name in names]
    right = sum(row["right"] for row in rows)
    low, high = wilson(right, len(under))
    healthy = _healthy([one for one in told if not one["fault"]])
    shared = _shared(names, known)
    share = right / len(under) if under else 0.0
    return {
        "schema": SCHEMA,
        "rdmadiag": __version__,
        "figures": {"runs": len(under), "right": right, "share": round(share, 4), "interval": _pair(low, high)},
        "bar": {
            "share": BAR_SHARE,
            "healthy": BAR_HEALTHY,
            "named": share >= BAR_SHARE and bool(under),
            "silent": healthy["runs"] >= BAR_HEALTHY and not healthy["alarms"],
            "all_faults": set(names) == set(trials.to_prove()),
            "told_apart": not shared,
            "met": share >= BAR_SHARE and healthy["runs"] >= BAR_HEALTHY and not healthy["alarms"] and not shared
            and set(names) == set(trials.to_prove()),
        },
        "faults": rows,
        "classes": [_class(one, told) for one in known if set(one.faults) & set(names)],
        "precision": _precision(good, known),
        "matrix": _matrix(good, known),
        "healthy": healthy,
        "shared": shared,
        "left_out": [
            {"trial": one["trial"], "why": one["problem"] or f"not proven to have acted: {one['acted']}"}
            for one in told
            if one not in good
        ],
        "not_proven": [{"fault": name, "why": why} for name, why in trials.not_proven().items()],
        "stripped": dict(sum((Counter(one["stripped"]) for one in told), Counter())),
        "trials": list(told),
    }  # fmt: skip


def first(told: Mapping[str, Any]) -> str:
    """Return the rule that a trial's judge named first."""
    causes = told["causes"]
    return str(causes[0][0]) if causes else NOTHING


def _pair(low: float, high: float) -> list[float]:
    return [round(low, 4), round(high, 4)]


def _fault(name: str, told: Sequence[Mapping[str, Any]], known: Sequence[FaultClass]) -> dict[str, Any]:
    written = trials.diagnosis(name)
    rules = trials.right_rules(name, known)
    good = [one for one in told if not one["problem"] and one["acted"] == YES]
    right = [one for one in good if first(one) in rules]
    times = [one["detect_seconds"] for one in good if one["detect_seconds"] is not None]
    low, high = wilson(len(right), len(good))
    return {
        "fault": name,
        "class": trials.class_of(name, known),
        "runs": len(good),
        "left_out": len(told) - len(good),
        "right": len(right),
        "confirmed": sum(one["causes"][0][1] == "confirmed" for one in right),
        "recall": round(len(right) / len(good), 4) if good else None,
        "interval": _pair(low, high),
        "detected": len(times),
        "detect_seconds": round(statistics.median(times), 2) if times else None,
        "first": dict(Counter(first(one) for one in good).most_common()),
        "rules": sorted(written.rules) if written else [],
        "why": written.why if written else "nothing is written down beside this fault",
    }


def _healthy(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    good = [one for one in told if not one["problem"]]
    alarms = [
        {"trial": one["trial"], "rule": finding["rule"], "severity": finding["severity"], "message": finding["message"]}
        for one in good
        for finding in one["findings"]
        if finding["answer"] == "confirmed" and finding["severity"] in ALARMS
    ]
    wrong = len({alarm["trial"] for alarm in alarms})
    return {"runs": len(good), "alarmed": wrong, "interval": _pair(*wilson(wrong, len(good))), "alarms": alarms}


def _names(known: Sequence[FaultClass], told: Mapping[str, Any]) -> str:
    return trials.class_of(told["fault"], known) if told["fault"] else HEALTHY


def _precision(good: Sequence[Mapping[str, Any]], known: Sequence[FaultClass]) -> list[dict[str, Any]]:
    """Of the runs in which a class's rules were named first: how many were of that class."""
    found = []
    for name in sorted({_names(known, one) for one in good} - {HEALTHY}):
        members = {one["fault"] for one in good if _names(known, one) == name}
        rules = frozenset(rule for fault in members for rule in trials.right_rules(fault, known))
        named = [one for one in good if _named(one, rules)]
        hits = sum(_names(known, one) == name for one in named)
        found.append(
            {
                "class": name,
                "named": len(named),
                "right": hits,
                "precision": round(hits / len(named), 4) if named else None,
                "interval": _pair(*wilson(hits, len(named))),
            }
        )
    return found


def _named(told: Mapping[str, Any], rules: frozenset[str]) -> bool:
    # A healthy node's possible causes are nobody's alarm: there only what is confirmed counts.
    return first(told) in rules and (bool(told["fault"]) or told["causes"][0][1] == "confirmed")


def _matrix(good: Sequence[Mapping[str, Any]], known: Sequence[FaultClass]) -> dict[str, Any]:
    rows = sorted({one["fault"] or HEALTHY for one in good}, key=lambda name: (name == HEALTHY, name))
    cells = {row: Counter(first(one) for one in good if (one["fault"] or HEALTHY) == row) for row in rows}
    columns = list(dict.fromkeys(rule for row in rows for rule, _ in cells[row].most_common()))
    return {
        "rows": rows,
        "columns": columns,
        "cells": [[cells[row][column] for column in columns] for row in rows],
        "right": [[row != HEALTHY and column in trials.right_rules(row, known) for column in columns] for row in rows],
    }


def _class(one: FaultClass, told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Show a class column by column: in what share of a fault's runs each sign was seen."""
    runs = {
        name: [t for t in told if t["fault"] == name and not t["problem"] and t["acted"] == YES] for name in one.faults
    }
    signs = sorted({sign for many in runs.values() for t in many for sign in t["signs"]})
    columns = []
    for sign in signs:
        counts = {name: sum(sign in t["signs"] for t in many) for name, many in runs.items()}
        spans = [wilson(count, len(runs[name])) for name, count in counts.items() if runs[name]]
        same = max((low for low, _ in spans), default=0.0) <= min((high for _, high in spans), default=1.0)
        columns.append({"sign": sign, "runs": counts, "same": same})
    return {
        "name": one.name,
        "why": one.why,
        "faults": list(one.faults),
        "runs": {name: len(many) for name, many in runs.items()},
        "columns": columns,
        "identical": all(column["same"] for column in columns) if min(map(len, runs.values())) else None,
    }  # fmt: skip


def _shared(names: Sequence[str], known: Sequence[FaultClass]) -> list[dict[str, Any]]:
    """Faults of different classes that one rule would be right for: they are not told apart."""
    by_rule: dict[str, set[str]] = {}
    for name in names:
        for rule in written.rules if (written := trials.diagnosis(name)) else ():
            by_rule.setdefault(rule, set()).add(name)
    return [
        {"rule": rule, "faults": sorted(found)}
        for rule, found in sorted(by_rule.items())
        if len({trials.class_of(name, known) for name in found}) > 1
    ]


def exit_code(report: Mapping[str, Any]) -> int:
    """Return 0 where the bar is met by what was run, 1 where it is not, 5 where nothing could be judged."""
    if not report["figures"]["runs"] and not report["healthy"]["runs"]:
        return 5
    named = report["bar"]["named"] or not report["figures"]["runs"]
    return 0 if named and not report["healthy"]["alarms"] and not report["shared"] else 1
