"""rdmadiag scenario, judge and run, from the command line; real runs are in tests/softroce."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.examples import written

RUN = Path(__file__).parent.parent / "data/runs/kv-peer-frozen"
Command = Callable[..., Any]


def test_the_list_names_every_scenario_with_its_faults(rdmadiag: Command) -> None:
    told = json.loads(rdmadiag("scenario", "list", "--format", "json").stdout)
    assert told["schema"] == "rdmadiag.scenarios/1"
    loss = next(entry for entry in told["scenarios"] if entry["id"] == "loss")
    assert loss["faults"] == ["loss"] and loss["parameters"]["percent"]["values"] == [0.1, 1, 5]
    assert "kv-peer-frozen" in rdmadiag("scenario", "list", "--workload", "kv").stdout
    assert "kv-peer-frozen" not in rdmadiag("scenario", "list", "--fault", "loss").stdout


def test_showing_one_says_when_what_and_what_is_expected(rdmadiag: Command) -> None:
    text = rdmadiag("scenario", "show", "loss").stdout
    assert "at 3 s: loss percent=1 for 8 s" in text and "expected: errors 0" in text
    assert (
        json.loads(rdmadiag("scenario", "show", "loss", "--format", "json").stdout)["schema"] == "rdmadiag.scenario/1"
    )


def test_lint_takes_files_and_folders_and_names_the_place(rdmadiag: Command, tmp_path: Path) -> None:
    written(tmp_path)
    assert "1 scenarios are well formed" in rdmadiag("scenario", "lint", str(tmp_path)).stdout
    path = written(tmp_path, expect={"corupt": 0})
    result = rdmadiag("scenario", "lint", path)
    assert result.returncode == 2 and f"{path}: /expect/corupt: no such quantity; near: corrupt" in result.stderr


def test_judging_a_kept_run_has_the_exit_code_of_its_verdict(rdmadiag: Command, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(RUN, tmp_path / "run"))
    result = rdmadiag("judge", str(folder))
    assert result.returncode == 0 and result.stdout.startswith("PASS  kv-peer-frozen")
    facts = json.loads((folder / "run.json").read_text())
    facts["faults"][0] |= {"reverted": "no", "proof": "it is still stopped"}
    (folder / "run.json").write_text(json.dumps(facts))
    result = rdmadiag("judge", str(folder), str(RUN), "--format", "json")
    told = json.loads(result.stdout)
    assert result.returncode == 8 and [run["verdict"] for run in told["runs"]] == ["REVERT_FAILED", "PASS"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("run", "nosuch"), "no scenario 'nosuch'"),
        (("run", "loss", "--set", "percent"), "wanted NAME=VALUE"),
        (("run", "loss", "--set", "percent=lots"), "wanted a number"),
        (("run", "kv-peer-frozen", "--matrix"), "no parameter with values"),
        (("run", "loss", "--set", "percent=500"), "/timeline/0/parameters/percent"),
        (("judge", "/nosuch"), "/nosuch/scenario.json"),
        (("scenario", "show", "nosuch"), "no scenario 'nosuch'"),
        (("run",), "Missing argument"),
    ],
)
def test_wrong_use_is_exit_2_with_what_was_wanted(rdmadiag: Command, args: tuple[str, ...], said: str) -> None:
    result = rdmadiag(*args)
    assert result.returncode == 2 and said in result.stderr
