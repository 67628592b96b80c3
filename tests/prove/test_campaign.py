"""Trials one after another, on recorded evidence: what is kept, what goes on, and what the command says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.errors import BadFile, BadInput
from rdmadiag.prove import campaign, judge, report, trials
from tests.prove.trials import DATA, Recorded

PLAN = trials.plan(["blackout"], runs=2, healthy=0)


def test_recorded_trials_are_named_rightly(tmp_path: Path) -> None:
    said: list[campaign.At] = []
    assert campaign.go(PLAN, str(tmp_path), Recorded(), progress=said.append)
    found = campaign.judged(str(tmp_path))
    assert found["figures"] == {"runs": 2, "right": 2, "share": 1.0, "interval": [0.3424, 1.0]}
    assert said[0].left_seconds is None and said[-1].left_seconds is not None and said[-1].total == 2


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.iterdir() if path.is_dir()))
def test_a_recorded_trial_is_named_rightly_or_silent(name: str) -> None:
    found = judge.judged(str(DATA / name))
    assert not found["problem"]
    if found["fault"]:
        assert found["causes"][0][0] in trials.right_rules(found["fault"], trials.classes())
    else:
        assert [f for f in found["findings"] if f["answer"] == "confirmed" and f["severity"] in report.ALARMS] == []


def test_healthy_trials_are_run_between_and_counted(tmp_path: Path) -> None:
    assert campaign.go(trials.plan(["blackout"], runs=1, healthy=1), str(tmp_path), Recorded())
    found = campaign.judged(str(tmp_path))
    assert found["healthy"]["runs"] == 1 and found["healthy"]["alarms"] == [] and found["figures"]["right"] == 1


def test_a_campaign_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    first = Recorded(stop_at=1)
    assert not campaign.go(PLAN, str(tmp_path), first)
    with pytest.raises(BadInput, match="--resume"):
        campaign.go(PLAN, str(tmp_path), Recorded())
    second = Recorded()
    assert campaign.go(PLAN, str(tmp_path), second, resume=True)
    assert (first.made, second.made) == (["blackout-01"], ["blackout-01", "blackout-02"])
    facts = json.loads((tmp_path / "blackout-02" / "run.json").read_text())
    (tmp_path / "blackout-02" / "run.json").write_text(json.dumps(facts | {"problems": ["the lab did not answer"]}))
    again = Recorded()
    assert campaign.go(PLAN, str(tmp_path), again, resume=True) and again.made == ["blackout-02"]
    third = Recorded()
    assert campaign.go(PLAN, str(tmp_path), third, resume=True) and third.made == []


def test_a_diagnosis_is_kept_until_rules_or_program_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign.go(PLAN[:1], str(tmp_path), Recorded())
    path, calls = str(tmp_path / "blackout-01"), []
    real = judge.judged
    monkeypatch.setattr(judge, "judged", lambda where: calls.append(where) or real(where))
    campaign.diagnosed(path, campaign.digest())
    assert calls == []
    campaign.diagnosed(path, "other rules")
    assert calls == [path]


def test_a_trial_without_evidence_is_a_problem_and_no_answer(tmp_path: Path) -> None:
    campaign.go(PLAN[:1], str(tmp_path), Recorded())
    for bundle in (tmp_path / "blackout-01" / "evidence" / "during").iterdir():
        bundle.unlink()
    assert judge.judged(str(tmp_path / "blackout-01"))["problem"] == "no evidence from before or during"


def test_a_folder_that_holds_no_trials_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="no trials"):
        campaign.judged(str(tmp_path))
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "run.json").write_text('{"schema": "rdmadiag.run/1", "scenario": "loss"}')
    with pytest.raises(BadFile, match="name of a trial"):
        campaign.judged(str(tmp_path))


def test_prove_judges_again_without_a_lab_and_leaves_its_report(tmp_path: Path, rdmadiag: Callable[..., Any]) -> None:
    campaign.go(PLAN, str(tmp_path), Recorded())
    ran = rdmadiag("prove", "--judge", str(tmp_path), "--format", "json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["schema"] == "rdmadiag.prove/1"
    assert json.loads((tmp_path / "prove.json").read_text())["figures"]["right"] == 2
    assert "<title>Diagnosis proven by faults</title>" in (tmp_path / "prove.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--judge", "no-such-folder"], "no trials"),
        (["--fault", "losses"], "no faults named"),
        (["--classes", "no-such-file"], "no-such-file"),
        (["--report", str(DATA)], "--resume"),
    ],
)
def test_wrong_use_is_refused_before_any_lab(words: list[str], said: str, rdmadiag: Callable[..., Any]) -> None:
    ran = rdmadiag("prove", *words)
    assert ran.returncode == 2 and said in ran.stderr + ran.stdout
