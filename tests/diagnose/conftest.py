"""Small rules and small evidence for tests of the engine and the differential."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.diagnose import engine, rulebook
from rdmadiag.evidence.row import Gap
from rdmadiag.evidence.store import Evidence

BASE: dict[str, Any] = {
    "kind": "cause",
    "layer": "qp",
    "severity": "error",
    "title": "Something is wrong",
    "message": "{device} is wrong",
    "query": ["SELECT node, device, origin, 1 AS wrong FROM device"],
    "examples": {"wrong": [{"device": [{"device": "a"}]}], "fine": [{}], "unknown": [{"gaps": ["device"]}]},
}


@pytest.fixture
def make_rule() -> Callable[..., rulebook.Rule]:
    """Return a function that makes a rule from a few keys; `query` may be a string."""

    def make(name: str, query: str | None = None, **keys: Any) -> rulebook.Rule:
        data = {**BASE, "id": name, **keys}
        if query is not None:
            data["query"] = [query]
        return rulebook.Rule(f"{name}.json", data)

    return make


@pytest.fixture
def write_rule(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a rule file and returns its path."""

    def write(name: str, **keys: Any) -> Path:
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({**BASE, "id": name, **keys}))
        return path

    return write


@pytest.fixture
def make_evidence() -> Callable[..., Evidence]:
    """Return a function that makes evidence: tables by name, `gaps` as names of tables."""

    def make(gaps: tuple[str, ...] = (), nodes: tuple[str, ...] = ("n",), **tables: list[dict[str, Any]]) -> Evidence:
        evidence = Evidence()
        for name, rows in tables.items():
            for row in rows:
                evidence.add(row.get("node", "n"), {k: v for k, v in row.items() if k != "node"}, name, "here")
        for node in nodes:
            evidence.add(node, {}, "node", "here")
        if gaps:
            evidence.gap(None, "test", Gap(gaps, "not permitted", "not_permitted", "run as root"))
        evidence.finish()
        return evidence

    return make


@pytest.fixture
def answers() -> Callable[..., list[int | None]]:
    """Return a function that evaluates one rule and gives its answers."""

    def run(evidence: Evidence, rule: rulebook.Rule, site: dict[str, Any] | None = None) -> list[int | None]:
        result = engine.evaluate(evidence, rulebook.Rulebook([rule]), {rule.id: site or {}})[rule.id]
        return [answer.wrong for answer in result.answers]

    return run
