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
SETS: dict[str, tuple[tuple[str, ...], int, int, int]] = {
    # name: folders, reports, found, confirmed
    "given": (("",), 22, 22, 15),
    "gathered since": (("more",), 58, 58, 34),
    "first blind": (("blind",), 30, 28, 16),
    "second blind": (("blind2a", "blind2b"), 42, 41, 25),
    "third blind": (("blind3",), 40, 40, 28),
    "fourth blind": (("blind4",), 40, 36, 21),
    "fifth blind": (("blind5",), 40, 39, 20),
}
"""As docs/accuracy.md says."""
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


def reports_of(*folders: str) -> list[Path]:
    """Return the folders of a set's reports."""
    return sorted(
        found.with_name(found.name.removesuffix(".expected.json"))
        for folder in folders
        for found in (DATA / folder).glob("*.expected.json")
    )


def test_every_report_has_its_roots_named(book: Any) -> None:
    assert {path.name for folders, *_ in SETS.values() for path in reports_of(*folders)} == set(ROOTS)
    named = {rule for roots in ROOTS.values() for rule in [*roots["rules"], *roots.get("also_true", [])]}
    assert sorted(named - set(book.rules)) == []


@pytest.mark.parametrize("name", SETS)
def test_the_roots_of_reports_are_found_and_no_confirmed_cause_is_wrong(
    name: str, checked: Callable[..., dict[str, Any]], tell: Callable[[str, str], None]
) -> None:
    folders, count, found, confirmed = SETS[name]
    outcomes = [outcome(folder, checked(folder)) for folder in reports_of(*folders)]
    tell(f"{count} reports ({name}), place and answer of the root", f"\n{table(outcomes)}")
    assert len(outcomes) == count
    assert [one for one in outcomes if one.wrong] == []
    assert len([one for one in outcomes if one.place]) >= found
    assert len([one for one in outcomes if one.place and one.answer == "confirmed"]) >= confirmed


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
