"""Field reports: the root cause that was established in the thread is among the first three causes.

`tests/data/reports/NN-slug` are the 22 given ones, `more/` those gathered since, `blind*/` those that were gathered before
the rules were read (docs/accuracy.md has the figures of their first runs). Each has a `SLUG.expected.json`
(the diagnosis of the thread), and `roots.json` names the rules that state that diagnosis.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

DATA = Path(__file__).parent / "data/reports"
GIVEN = sorted(path for path in DATA.iterdir() if path.is_dir() and path.name[:2].isdigit())
MORE = sorted(path for path in (DATA / "more").iterdir() if path.is_dir())
BLIND = sorted(path for path in (DATA / "blind").iterdir() if path.is_dir())
SECOND = sorted(path for name in ("blind2a", "blind2b") for path in (DATA / name).glob("*") if path.is_dir())
THIRD = sorted(path for path in (DATA / "blind3").iterdir() if path.is_dir())
FOURTH = sorted(path for path in (DATA / "blind4").iterdir() if path.is_dir())
FIFTH = sorted(path for path in (DATA / "blind5").iterdir() if path.is_dir())
ROOTS: dict[str, dict[str, Any]] = json.loads((DATA / "roots.json").read_text())
LOUD = {"warning", "error", "critical"}


class Outcome(NamedTuple):
    """How one report went: place of the root among the causes (0 when absent), its answer, confirmed causes that are wrong."""

    name: str
    place: int
    answer: str
    wrong: list[str]
    first: list[str]


def outcome(folder: Path, report: dict[str, Any]) -> Outcome:
    """Compare a report's first three causes with the rules that state the established diagnosis."""
    roots = ROOTS[folder.name]
    causes = [f for f in report["findings"] if f["kind"] == "cause"]
    first = [f"{f['rule']}{'' if f['answer'] == 'confirmed' else '?'}" for f in causes[:3]]
    places = [n for n, f in enumerate(causes[:3], 1) if f["rule"] in roots["rules"]]
    answer = causes[places[0] - 1]["answer"] if places else "missed"
    allowed = {*roots["rules"], *roots.get("also_true", [])}
    wrong = [
        f["rule"] for f in causes if f["answer"] == "confirmed" and f["severity"] in LOUD and f["rule"] not in allowed
    ]
    return Outcome(folder.name, places[0] if places else 0, answer, wrong, first)


def table(outcomes: list[Outcome]) -> str:
    """Return the outcomes as lines: place, answer, report, first three causes ('?' is unknown)."""
    return "\n".join(f"{o.place or '-'}  {o.answer:9}  {o.name:36}  {', '.join(o.first)}" for o in outcomes)


def test_every_report_has_its_roots_named(book: Any) -> None:
    assert {path.name for path in [*GIVEN, *MORE, *BLIND, *SECOND, *THIRD, *FOURTH, *FIFTH]} == set(ROOTS)
    named = {rule for roots in ROOTS.values() for rule in [*roots["rules"], *roots.get("also_true", [])]}
    assert sorted(named - set(book.rules)) == []


def test_the_22_given_reports(checked: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [outcome(folder, checked(folder)) for folder in GIVEN]
    with capsys.disabled():
        print(f"\n{table(outcomes)}")
    found = [o for o in outcomes if o.place]
    assert len(outcomes) == 22
    assert [o for o in outcomes if o.wrong] == []
    assert len(found) >= 21
    assert len([o for o in found if o.answer == "confirmed"]) >= 15


def test_the_reports_gathered_since(checked: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [outcome(folder, checked(folder)) for folder in MORE]
    with capsys.disabled():
        print(f"\n{table(outcomes)}")
    assert [o for o in outcomes if o.wrong] == []
    assert len([o for o in outcomes if o.place]) >= 0.85 * len(outcomes)


def test_the_reports_of_the_second_blind_run(
    checked: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = [outcome(folder, checked(folder)) for folder in SECOND]
    with capsys.disabled():
        print(f"\n{table(outcomes)}")
    assert [o for o in outcomes if o.wrong] == []
    assert len([o for o in outcomes if o.place]) >= 0.9 * len(outcomes)


def test_the_reports_of_the_third_blind_run(
    checked: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = [outcome(folder, checked(folder)) for folder in THIRD]
    with capsys.disabled():
        print(f"\n{table(outcomes)}")
    found = [o for o in outcomes if o.place]
    assert len(outcomes) == 40
    assert [o for o in outcomes if o.wrong] == []
    assert len(found) == 40
    assert len([o for o in found if o.answer == "confirmed"]) >= 28


def test_the_reports_of_the_fourth_blind_run(
    checked: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = [outcome(folder, checked(folder)) for folder in FOURTH]
    with capsys.disabled():
        print(f"\n{table(outcomes)}")
    found = [o for o in outcomes if o.place]
    assert len(outcomes) == 40
    assert [o for o in outcomes if o.wrong] == []
    assert len(found) >= 36
    assert len([o for o in found if o.answer == "confirmed"]) >= 21


def test_the_reports_of_the_fifth_blind_run(
    checked: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = [outcome(folder, checked(folder)) for folder in FIFTH]
    with capsys.disabled():
        print(f"\n{table(outcomes)}")
    found = [o for o in outcomes if o.place]
    assert len(outcomes) == 40
    assert [o for o in outcomes if o.wrong] == []
    assert len(found) >= 39
    assert len([o for o in found if o.answer == "confirmed"]) >= 20


def test_the_reports_of_the_blind_run(
    checked: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = [outcome(folder, checked(folder)) for folder in BLIND]
    with capsys.disabled():
        print(f"\n{table(outcomes)}")
    found = [o for o in outcomes if o.place]
    assert len(outcomes) == 30
    assert [o for o in outcomes if o.wrong] == []
    assert len(found) >= 28
    assert len([o for o in found if o.answer == "confirmed"]) >= 16


@pytest.mark.parametrize("name", ["11-nccl-1676-gdr-disabled-peermem", "13-charm-2532-retrycnt"])
def test_a_fault_in_a_library_or_job_is_said_to_lie_there(name: str, checked: Callable[..., dict[str, Any]]) -> None:
    report = checked(DATA / name)
    places = {f["lies_in"] for f in report["findings"] if f["rule"] in ROOTS[name]["rules"]}
    assert places & {"library", "job"}


def test_a_report_does_not_need_its_most_telling_file(checked: Callable[..., dict[str, Any]]) -> None:
    report = checked(DATA / "19-sglang-6193-expandable-segments/sglang.log")
    causes = [f for f in report["findings"] if f["kind"] == "cause"]
    assert [f for f in causes if f["answer"] == "confirmed"] == []
    assert set(ROOTS["19-sglang-6193-expandable-segments"]["rules"]) & {f["rule"] for f in causes[:3]}
