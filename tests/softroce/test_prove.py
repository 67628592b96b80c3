"""Faults on a lab, named by the rules: a small campaign for real. The whole takes hours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.softroce.conftest import ours


@pytest.mark.long
def test_a_cut_path_is_named_and_a_healthy_lab_is_silent(tmp_path: Path) -> None:
    words = [
        "prove",
        "--fault",
        "blackout",
        "--runs",
        "1",
        "--healthy",
        "1",
        "--report",
        str(tmp_path),
        "--format",
        "json",
    ]
    ran = ours(*words, timeout=1200)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(ran.stdout)
    assert found["figures"]["right"] == 1 and found["healthy"]["runs"] == 1
    assert found["matrix"]["columns"][0] == "wire-path-cut" or "wire-path-cut" in found["matrix"]["columns"]
    assert (tmp_path / "prove.html").is_file()
