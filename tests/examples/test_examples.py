"""The example suite of docs/pytest.md, run as a team would run it; in a lab, on real SoftRoCE."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.softroce.conftest import environment, ours

SUITE = Path(__file__).parent / "own_engine"


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the suite of the team that has its own engine."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null"]
    command += ["--rootdir", str(SUITE), "--rdma-require", "--rdma-report", str(folder), *args, str(SUITE)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=1500, check=False, cwd=folder, env=environment()
    )


pytestmark = [pytest.mark.slow, pytest.mark.lab]


def test_blocks_of_an_own_engine_arrive_whole_and_workers_of_xdist_share_one_lab(tmp_path: Path) -> None:
    result = run(tmp_path, "-n", "2", "-v", "-k", "whole or lab_is")
    assert result.returncode == 0 and "2 passed" in result.stdout, result.stdout + result.stderr
    assert "[gw0]" in result.stdout and "[gw1]" in result.stdout
    assert "pytest-" not in ours("lab", "list").stdout


@pytest.mark.long
def test_the_whole_example_suite_passes(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.returncode == 0 and "4 passed" in result.stdout, result.stdout + result.stderr
    assert list(tmp_path.glob("*/own-engine-loss*/report.html"))
