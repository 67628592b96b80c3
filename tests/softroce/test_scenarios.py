"""Scenarios run for real: a workload on SoftRoCE, faults, evidence, verdict. The whole set takes hours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rdmadiag import lab as labs
from rdmadiag.scenario import scenario
from tests.softroce.conftest import ROOT, environment, our_words, ours

QUICK = "kv-peer-frozen"
SAMPLE = (
    "late-write-fenced",
    "mooncake-rnr-exhausted",
    "nixl-loss",
    "rdma-ecn-incast",
    "rdma-false-completion",
    "rnr-exhausted",
)
"""What `make test-all` runs of the shipped ones: each workload, faults of each kind, late writes, an engine that cannot meet a fault."""


def test_a_run_passes_leaves_its_reports_and_is_judged_the_same_again(tmp_path: Path) -> None:
    result = ours("run", QUICK, "--report", str(tmp_path), timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    folder = tmp_path / QUICK
    assert {path.name for path in folder.iterdir()} >= {
        "report.html",
        "report.json",
        "report.md",
        "junit.xml",
        "journal.json",
    }
    again = ours("judge", "--format", "json", str(folder))
    assert json.loads(again.stdout) == json.loads((folder / "report.json").read_text())
    assert f"run-{os.getpid()}" not in [state.name for state in labs.labs()]


def test_an_interrupted_run_is_aborted_and_leaves_no_lab(tmp_path: Path) -> None:
    running = subprocess.Popen(
        our_words("run", QUICK, "--report", str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    assert running.stderr
    for line in running.stderr:
        if "fault freeze" in line:
            break
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=600)
    assert running.returncode == 6 and "ABORTED" in out and "SIGINT" in out, out
    assert "the server runs again" in out
    deadline = time.monotonic() + 30
    while any(state.name == f"run-{running.pid}" for state in labs.labs()):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_lab_that_does_not_fit_is_unsupported(tmp_path: Path, lab: labs.Lab) -> None:
    result = ours("run", "loss", "--report", str(tmp_path), "--lab", lab.name, timeout=900)
    assert result.returncode == 7 and f"lab {lab.name} has --rate 200mbit; loss wants 40mbit" in result.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SAMPLE else (pytest.mark.hours,)) for name in scenario.names()]
)
def test_a_shipped_scenario_gets_the_verdict_that_it_says(name: str, tmp_path: Path) -> None:
    result = ours("run", name, "--report", str(tmp_path), timeout=900)
    wanted = scenario.load(name).verdict
    assert result.stdout.startswith(wanted), result.stdout + result.stderr
