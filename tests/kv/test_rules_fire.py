"""A fault is the proof of a rule: each rule of the KV transfer fires on a run in which its fault was made, and not on a healthy one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import coverage
from tests.kv.scenarios import SCENARIOS

ON_RECORDS = {"kv-claim-not-on-wire"}
"""Needs a device with counters: tests/data/nodes/mooncake-silent-tcp, and tests/softroce/test_kv."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_rule_fires_on_the_run_with_its_fault(
    name: str, checked: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run, rule = SCENARIOS[name]
    path = tmp_path / "result.jsonl"
    path.write_text("".join(f"{line}\n" for line in run().lines()))
    report = checked(path)
    confirmed = [finding["rule"] for finding in report["findings"] if finding["answer"] == "confirmed"]
    assert confirmed == [] if rule is None else rule in confirmed


def test_every_rule_about_a_run_has_its_fault(book: Any) -> None:
    named = {rule.id for rule in book if re.search(r"FROM kv_", rule.query)} - set(coverage.planned())
    assert named == {rule for _, rule in SCENARIOS.values() if rule} | ON_RECORDS
