"""What each capture of tests/data/captures was recorded of happens again, and the rule that it shows fires again."""

from __future__ import annotations

from pathlib import Path

import pytest

from rdmadiag.lab import Lab
from tests.softroce import wire_lab
from tests.softroce.conftest import Worker


@pytest.mark.long
@pytest.mark.parametrize("name", wire_lab.CASES)
def test_a_rule_about_the_wire_fires_on_what_is_recorded_now(
    lab: Lab, verbs: Worker, name: str, tmp_path: Path
) -> None:
    case = wire_lab.CASES[name]
    wire_lab.capture(lab, verbs, case, tmp_path)
    assert set(case.rules) <= set(wire_lab.confirmed(tmp_path))
