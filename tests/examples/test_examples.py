"""The example suite of docs/pytest.md, run as a team would run it; in a lab, on real SoftRoCE."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.softroce.conftest import environment

SUITE = Path(__file__).parent / "own_engine"


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the suite of the team that has its own engine."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null"]
    command += ["--rootdir", str(SUITE), "--rdma-require", "--rdma-report", str(folder), *args, str(SUITE)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=1500, check=False, cwd=folder, env=environment()
    )


@pytest.mark.slow
def test_blocks_of_an_own_engine_arrive_whole(tmp_path: Path) -> None:
    result = run(tmp_path, "-k", "whole or lab_is")
    assert result.returncode == 0 and "2 passed" in result.stdout, result.stdout + result.stderr


@pytest.mark.long
def test_the_whole_example_suite_passes(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.returncode == 0 and "4 passed" in result.stdout, result.stdout + result.stderr
    assert list(tmp_path.glob("*/own-engine-loss*/report.html"))
