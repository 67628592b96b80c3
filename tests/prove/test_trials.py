"""What is run, and what is written down before it: seeds, classes, and which rules name a fault rightly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rdmadiag import faults
from rdmadiag.diagnose import rulebook
from rdmadiag.errors import BadFile, BadInput
from rdmadiag.prove import trials
from rdmadiag.scenario import lint

WRITTEN = [name for name in faults.names() if trials.diagnosis(name)]


@pytest.mark.parametrize("name", WRITTEN)
def test_what_names_a_fault_rightly_exists_and_is_a_cause(name: str, book: rulebook.Rulebook) -> None:
    told = trials.diagnosis(name)
    assert told and told.rules and len(told.why) > 20
    assert [rule for rule in told.rules if rule not in book or book[rule].kind != "cause"] == []


@pytest.mark.parametrize("name", WRITTEN)
def test_a_trial_of_a_fault_is_a_scenario_that_can_be_run(name: str, book: rulebook.Rulebook) -> None:
    found = trials.scenario_of(trials.Trial(name, 3))
    lint.check(found, book)
    assert found.seed == 3 and found.captures and found.timeline[0].fault == name


def test_a_healthy_trial_has_no_fault(book: rulebook.Rulebook) -> None:
    found = trials.scenario_of(trials.Trial("", 1))
    lint.check(found, book)
    assert found.timeline == [] and found.id == "healthy-01"


def test_faults_of_different_classes_are_named_by_different_rules() -> None:
    known, owner = trials.classes(), dict[str, str]()
    for name in WRITTEN:
        told = trials.diagnosis(name)
        assert told
        for rule in told.rules:
            assert owner.setdefault(rule, trials.class_of(name, known)) == trials.class_of(name, known), rule


def test_each_round_has_every_fault_once_and_its_share_of_healthy_runs() -> None:
    planned = trials.plan(["loss", "delay"], runs=2, healthy=3)
    assert [one.id for one in planned] == [
        "loss-01", "delay-01", "healthy-01", "loss-02", "delay-02", "healthy-02", "healthy-03",
    ]  # fmt: skip
    assert [one.id for one in trials.plan(["loss"], runs=0, healthy=2)] == ["healthy-01", "healthy-02"]
    assert {one.fault for one in trials.plan([], runs=1, healthy=0)} == set(trials.to_prove())
    with pytest.raises(BadInput, match="no faults named"):
        trials.plan(["losses"], 1, 1)


def test_a_fault_that_no_trial_can_put_on_says_why_and_is_not_planned() -> None:
    left = trials.not_proven()
    assert set(left) == {"device-removed", "incast", "module-gone", "slow-storage"}
    assert all(len(why) > 40 for why in left.values()) and not set(left) & set(trials.to_prove())
    assert all(trials.diagnosis(name) for name in trials.to_prove()), "each other fault says what names it rightly"


def classes(*members: Any, **more: Any) -> dict[str, Any]:
    return {"schema": trials.SCHEMA, "classes": [{"name": "c", "why": "w", "faults": list(m)} for m in members], **more}


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({}, "/schema"),
        ([], "/schema"),
        (classes(*[["loss", "delay"]] * 6), "/classes"),
        (classes(["loss"]), "/classes/0/faults"),
        (classes(["loss", "delay", "jitter", "pause"]), "/classes/0/faults"),
        (classes(["loss", "no-such"]), "/classes/0/faults"),
        (classes(["loss", "delay"], ["delay", "jitter"]), "/classes/1/faults"),
        (classes(["loss", "loss"]), "/classes/0/faults"),
        ({"schema": trials.SCHEMA, "classes": [3]}, "/classes/0"),
        ({"schema": trials.SCHEMA, "classes": [{"name": "", "why": "w", "faults": ["loss", "delay"]}]}, "/classes/0"),
    ],
)
def test_classes_that_bend_the_rules_are_refused_with_the_place(tmp_path: Path, data: Any, place: str) -> None:
    path = tmp_path / "classes.json"
    path.write_text(json.dumps(data))
    with pytest.raises(BadFile) as refused:
        trials.classes(str(path))
    assert refused.value.place == place and refused.value.wanted
