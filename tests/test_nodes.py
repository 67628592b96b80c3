"""Captured nodes: healthy ones are silent at warning and above; on faulty ones the fault is named first."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "data/nodes"
NODES = sorted(path.parent for path in FOLDER.glob("*/expected.json"))
LOUD = {"warning", "error", "critical"}


def expected(node: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((node / "expected.json").read_text())
    return data


HEALTHY = [node for node in NODES if expected(node).get("healthy")]
FAULTY = [node for node in NODES if "rule" in expected(node)]


def test_every_captured_node_says_what_is_expected_of_it() -> None:
    assert [node.name for node in NODES if node not in HEALTHY and node not in FAULTY] == []
    assert len(HEALTHY) >= 4


@pytest.mark.parametrize("node", NODES, ids=lambda path: path.name)
def test_a_captured_node_names_where_it_was_published(node: Path) -> None:
    assert re.search(r"\b[\w.-]+/[\w.-]+|Linux 6", (node / "origin.md").read_text())


@pytest.mark.parametrize("node", HEALTHY, ids=lambda path: path.name)
def test_a_healthy_node_is_silent_at_warning_and_above(node: Path, checked: Callable[..., dict[str, Any]]) -> None:
    report = checked(node)
    assert [f for f in report["findings"] if f["answer"] == "confirmed" and f["severity"] in LOUD] == []
    assert report["summary"]["exit_code"] == 0


@pytest.mark.parametrize("node", FAULTY, ids=lambda path: path.name)
def test_a_faulty_node_is_recognised_by_its_rule(node: Path, checked: Callable[..., dict[str, Any]]) -> None:
    want = expected(node)
    expect = node / "expect.json"
    report = checked(node, **({"expect": str(expect)} if expect.exists() else {}))
    found = [f for f in report["findings"] if f["rule"] == want["rule"]]
    assert found, [(f["rule"], f["answer"]) for f in report["findings"]]
    assert found[0]["answer"] == ("confirmed" if want["confirmed"] else "unknown")
    for key, value in want.get("subject", {}).items():
        assert key not in found[0]["subject"] or found[0]["subject"][key] == value
    causes = [f["rule"] for f in report["findings"] if f["kind"] == found[0]["kind"]]
    assert causes.index(want["rule"]) < 3, causes


def test_rules_that_only_want_a_job_s_log_do_not_make_a_node_unknown(checked: Callable[..., dict[str, Any]]) -> None:
    whole = checked(FOLDER / "mlx5-roce-8nic-h100")["summary"]
    assert whole["rules"]["unknown"] > 1.5 * whole["rules"]["fine"]  # most of them for want of a log
    assert whole["verdict"] == "fine"
    assert checked(FOLDER / "efa-p5")["summary"]["verdict"] == "unknown"  # what is missing here is the node's own
