"""The figures: what was named first, by fault; recall, precision, intervals, false alarms, and the bar."""

from __future__ import annotations

import html.parser
import json
from collections.abc import Sequence
from typing import Any

import pytest

from rdmadiag import registry
from rdmadiag.prove import report, trials
from rdmadiag.render import prove as formats
from tests.prove.trials import told

KNOWN = trials.classes()
LOSS, CUT = "wire-tap-loss", "wire-path-cut"


def built(*many: dict[str, Any], known: Sequence[trials.FaultClass] = KNOWN) -> dict[str, Any]:
    return report.build(many, known) | {"folder": "x"}


def row(found: dict[str, Any], fault: str) -> dict[str, Any]:
    return next(one for one in found["faults"] if one["fault"] == fault)


def test_the_first_cause_decides_and_a_later_one_does_not() -> None:
    found = built(told("loss", 1, LOSS, CUT), told("loss", 2, CUT, LOSS), told("loss", 3))
    assert (row(found, "loss")["right"], row(found, "loss")["runs"]) == (1, 3)
    assert row(found, "loss")["first"] == {LOSS: 1, CUT: 1, report.NOTHING: 1}
    assert found["figures"]["share"] == pytest.approx(1 / 3, abs=1e-4) and not found["bar"]["named"]


def test_faults_of_one_class_are_named_by_each_others_rules() -> None:
    found = built(told("first-transmission-lost", 1, LOSS), told("partition", 1, CUT), told("blackout", 1, LOSS))
    assert [row(found, name)["right"] for name in ("first-transmission-lost", "partition", "blackout")] == [1, 1, 0]


def test_precision_counts_the_runs_of_others_that_were_called_by_a_class() -> None:
    found = built(told("loss", 1, LOSS), told("blackout", 1, LOSS), told("blackout", 2, CUT))
    by_class = {one["class"]: one for one in found["precision"]}
    assert (by_class["packets-lost"]["right"], by_class["packets-lost"]["named"]) == (1, 2)
    assert by_class["path-cut"]["precision"] == 1.0


def test_the_matrix_has_a_row_a_fault_and_a_column_for_what_was_named() -> None:
    matrix = built(told("loss", 1, LOSS), told("loss", 2, CUT), told("blackout", 1, CUT), told("", 1))["matrix"]
    assert matrix["rows"] == ["blackout", "loss", "healthy"]
    counts = {
        (r, c): n
        for r, cells in zip(matrix["rows"], matrix["cells"], strict=True)
        for c, n in zip(matrix["columns"], cells, strict=True)
    }
    assert (
        counts[("loss", CUT)]
        == counts[("loss", LOSS)]
        == counts[("blackout", CUT)]
        == counts[("healthy", report.NOTHING)]
        == 1
    )
    assert sum(counts.values()) == 4


def test_a_finding_at_warning_in_a_healthy_run_is_a_false_alarm_and_one_at_info_is_none() -> None:
    quiet = told("", 1, LOSS)
    quiet["findings"][0]["severity"] = "info"
    found = built(quiet, told("", 2, LOSS), told("", 3))
    assert (found["healthy"]["runs"], found["healthy"]["alarmed"]) == (3, 1)
    assert found["healthy"]["alarms"][0]["trial"] == "healthy-02" and report.exit_code(found) == 1


def test_a_run_whose_fault_is_not_proven_to_have_acted_is_no_run() -> None:
    found = built(told("loss", 1, LOSS), told("loss", 2, acted="no"), told("loss", 3, problem="no evidence"))
    assert row(found, "loss")["runs"] == 1 and row(found, "loss")["left_out"] == 2
    assert [one["trial"] for one in found["left_out"]] == ["loss-02", "loss-03"]


def test_what_no_trial_can_put_on_is_told_with_its_reason() -> None:
    left = {one["fault"]: one["why"] for one in built(told("loss", 1, LOSS))["not_proven"]}
    assert left == trials.not_proven()


def everything(healthy: int, wrong: int = 0) -> dict[str, Any]:
    many = [
        told(name, n, min(trials.right_rules(name, KNOWN), default="?"))
        for name in trials.to_prove()
        for n in range(1, 11)
    ]
    for one in many[:wrong]:
        one["causes"] = [["something-else", "confirmed"]]
    return built(*many, *(told("", n) for n in range(1, healthy + 1)))


def test_the_bar_wants_all_faults_fifty_healthy_runs_and_95_in_100() -> None:
    unnamed = 10 * sum(trials.diagnosis(name) is None for name in trials.to_prove())
    total = 10 * len(trials.to_prove())
    assert everything(50)["bar"]["met"] == (unnamed / total <= 0.05)
    assert not everything(49)["bar"]["met"]
    assert not everything(50, wrong=total // 15)["bar"]["met"]
    assert not built(told("loss", 1, LOSS), *(told("", n) for n in range(50)))["bar"]["met"]


def test_a_class_is_shown_column_by_column_and_a_sign_that_differs_is_marked() -> None:
    same = [told(name, n, LOSS) for name in ("loss", "first-transmission-lost") for n in range(10)]
    (shown,) = built(*same)["classes"]
    assert shown["identical"] and shown["runs"] == {"loss": 10, "first-transmission-lost": 10}
    assert built(*same[:10])["classes"][0]["identical"] is None
    for one in same[:10]:
        one["signs"] = [*one["signs"], "counter of_loss_alone"]
    (shown,) = built(*same)["classes"]
    assert [column["sign"] for column in shown["columns"] if not column["same"]] == ["counter of_loss_alone"]
    assert not shown["identical"]


def test_faults_that_one_rule_would_name_without_being_a_class_are_told() -> None:
    assert built(told("loss", 1, LOSS), told("blackout", 1, CUT))["shared"] == []
    found = built(told("loss", 1, LOSS), told("first-transmission-lost", 1, LOSS), known=())
    assert {"rule": LOSS, "faults": ["first-transmission-lost", "loss"]} in found["shared"] and report.exit_code(
        found
    ) == 1


def test_nothing_judged_is_not_passed() -> None:
    assert report.exit_code(built(told("loss", 1, problem="no evidence"))) == 5
    assert report.exit_code(built(told("loss", 1, LOSS))) == 0


@pytest.mark.parametrize("form", registry.names(formats))
def test_every_format_shows_figures_and_never_lets_evidence_be_markup(form: str) -> None:
    evil = told("loss", 2, "<script>alert(1)</script>\x1b[31m")
    alarm = told("", 1, LOSS)
    alarm["findings"][0]["message"] = "<b>bold</b>\x1b]0;x\x07"
    found = built(
        told("loss", 1, LOSS), evil, alarm, told("delay", 1, acted="no"), told("first-transmission-lost", 1, LOSS)
    )
    text = registry.load(formats, form).render(found, False, 100)
    assert "\x1b" not in text and "wire-tap-loss" in text
    if form == "html":
        assert "<script" not in text and "<b>bold" not in text and "http" not in text.replace("http-equiv", "")
        html.parser.HTMLParser().feed(text)
    if form == "json":
        assert json.loads(text)["figures"] == found["figures"]
