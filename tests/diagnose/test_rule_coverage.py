"""`rules test --coverage`: which rules fire on the evidence of a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.diagnose import coverage

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a data folder with one text and a plan for a rule that it does not show."""
    shutil.copytree(DATA / "texts/flint-not-activated", tmp_path / "texts/flint-not-activated")
    (tmp_path / "planned.json").write_text(json.dumps({"link-downed": "a lab run"}))
    return tmp_path


def test_a_rule_fires_where_the_evidence_shows_it(folder: Path) -> None:
    assert coverage.fired(str(folder)) == {"firmware-not-activated": ["flint-not-activated"]}
    assert coverage.planned(str(folder)) == {"link-downed": "a lab run"}


def test_a_report_is_known_by_the_expectation_beside_it(tmp_path: Path) -> None:
    (tmp_path / "reports/more/a-1").mkdir(parents=True)
    (tmp_path / "reports/more/a-1.expected.json").write_text("{}")
    (tmp_path / "reports/more/no-report").mkdir()
    assert [Path(piece).name for piece in coverage.pieces(str(tmp_path))] == ["a-1"]


def test_fewer_rules_than_wanted_are_a_failure_that_names_each_rule(folder: Path, rdmadiag: Callable[..., Any]) -> None:
    result = rdmadiag(
        "rules",
        "test",
        "--coverage",
        "--data",
        str(folder),
        "--format",
        "json",
        "firmware-not-activated",
        "link-downed",
    )
    assert result.returncode == 1
    assert json.loads(result.stdout)["rules"] == [
        {"rule": "firmware-not-activated", "fires_on": ["flint-not-activated"], "planned": None},
        {"rule": "link-downed", "fires_on": [], "planned": "a lab run"},
    ]
    assert rdmadiag("rules", "test", "--coverage", "--data", str(folder / "nowhere")).returncode == 2
