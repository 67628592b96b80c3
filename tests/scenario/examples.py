"""Scenarios and runs for tests: small, whole, and changed in one place at a time."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from rdmadiag.scenario import scenario
from rdmadiag.scenario.judge import Held, Measure, Measured
from rdmadiag.scenario.scenario import Scenario

GOOD: dict[str, Any] = {
    "schema": "rdmadiag.scenario/1",
    "id": "example",
    "title": "A share of packets is lost",
    "about": ["an example"],
    "parameters": {"percent": {"default": 1, "unit": "percent", "values": [0.1, 1, 5]}},
    "topology": {"rate": "200mbit"},
    "workload": {"name": "kv", "parameters": {"mode": "push"}},
    "steady": {"errors": 0, "goodput_before": {"min": 1000}},
    "timeline": [{"inject": "loss", "parameters": {"percent": "$percent"}, "at_seconds": 3, "for_seconds": 4}],
    "fired": {"fault.loss.dropped": {"min": 1}, "signal.out_of_sequence": {"min": 1}},
    "expect": {"corrupt": 0, "goodput_after_share": {"min": 0.9}},
    "findings": {"must": ["packet-loss-on-path"], "must_not": ["rnr-*"]},
    "settle_seconds": 2,
    "seed": 7,
}


def changed(**parts: Any) -> dict[str, Any]:
    """Return the good scenario with parts replaced; None takes one out."""
    data = copy.deepcopy(GOOD) | parts
    return {name: part for name, part in data.items() if part is not None}


def bound(**parts: Any) -> Scenario:
    """Return a changed scenario with its parameters' defaults."""
    return scenario.bind("example.json", changed(**parts))


def written(folder: Path, **parts: Any) -> str:
    """Write a changed scenario and return its path."""
    path = folder / "example.json"
    path.write_text(json.dumps(changed(**parts)))
    return str(path)


HELD = Held("loss", "loss", 3.0, 7.0, "yes", "the qdisc is as it was")


def measured(**values: Any) -> Measured:
    """Return what a good run of the good scenario measured, with quantities replaced; None: not measured."""
    good: dict[str, Any] = {
        "errors": 0,
        "goodput_before": 1e6,
        "fault.loss.dropped": 12,
        "signal.out_of_sequence": 9,
        "corrupt": 0,
        "goodput_after_share": 0.98,
    }
    found = {name: Measure(value, "result.jsonl:1") for name, value in {**good, **values}.items()}
    return Measured(found, found, [HELD], ["packet-loss-on-path"], [])
