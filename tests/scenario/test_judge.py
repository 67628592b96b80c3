"""The verdict is a pure function of what was measured; what was not seen never passes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdmadiag.scenario import condition, judge
from rdmadiag.scenario.judge import EXIT_CODES, Held
from rdmadiag.scenario.judge import judge as verdict_of
from tests.scenario.examples import HELD, bound, measured


def verdict(**values: Any) -> str:
    return verdict_of(bound(), measured(**values)).verdict


def test_a_run_in_which_all_is_as_expected_passes() -> None:
    assert verdict() == "PASS"


@pytest.mark.parametrize(
    "name", ["corrupt", "goodput_after_share", "fault.loss.dropped", "signal.out_of_sequence", "errors"]
)
def test_a_quantity_that_was_not_measured_never_passes(name: str) -> None:
    found = verdict_of(bound(), measured(**{name: None}))
    assert found.verdict == "INVALID" and name in found.reason


def test_an_expectation_that_does_not_hold_fails() -> None:
    found = verdict_of(bound(), measured(corrupt=3))
    assert found.verdict == "FAIL" and "corrupt is 3, wanted 0" in found.reason


def test_an_expectation_that_fails_outranks_one_that_is_not_known() -> None:
    assert verdict(corrupt=3, goodput_after_share=None) == "FAIL"


@pytest.mark.parametrize("name", ["fault.loss.dropped", "signal.out_of_sequence"])
def test_one_proof_that_stayed_away_is_not_fired(name: str) -> None:
    assert verdict(**{name: 0}) == "NOT_FIRED"


def test_not_fired_outranks_a_failed_expectation() -> None:
    assert verdict(corrupt=3, **{"fault.loss.dropped": 0}) == "NOT_FIRED"


def test_a_fault_that_was_never_begun_is_not_fired() -> None:
    found = verdict_of(
        bound(), measured()._replace(faults=[HELD._replace(begin_seconds=None, waited_for="event layer_sent")])
    )
    assert found.verdict == "NOT_FIRED" and "layer_sent" in found.reason


def test_a_workload_that_was_not_steady_before_the_fault_is_invalid() -> None:
    found = verdict_of(bound(), measured(errors=1, corrupt=3))
    assert found.verdict == "INVALID" and "before the fault" in found.reason


def test_missing_evidence_is_invalid() -> None:
    assert verdict_of(bound(), measured()._replace(problems=["no result of the workload"])).verdict == "INVALID"


def test_an_aborted_run_is_aborted_whatever_it_measured() -> None:
    found = verdict_of(bound(), measured(corrupt=1)._replace(aborted="the kernel printed a warning", problems=["x"]))
    assert (found.verdict, found.reason) == ("ABORTED", "the kernel printed a warning")


def test_what_cannot_be_run_is_unsupported_with_its_proof() -> None:
    found = verdict_of(bound(), measured()._replace(unsupported="rxe1 QP 17 has rnr_retry 7"))
    assert (found.verdict, found.reason) == ("UNSUPPORTED", "rxe1 QP 17 has rnr_retry 7")


def test_an_attribute_that_makes_the_fault_impossible_is_unsupported() -> None:
    asks = bound(requires={"measured": {"fact.rnr_retry": {"max": 6}}})
    assert verdict_of(asks, measured(**{"fact.rnr_retry": 7, "fault.loss.dropped": 0})).verdict == "UNSUPPORTED"
    assert verdict_of(asks, measured(**{"fact.rnr_retry": 6})).verdict == "PASS"
    assert verdict_of(asks, measured(**{"fact.rnr_retry": None})).verdict == "INVALID"


@pytest.mark.parametrize("reverted", ["no", "unknown"])
@pytest.mark.parametrize("worse", [{}, {"aborted": "stopped"}, {"unsupported": "no"}, {"problems": ["x"]}])
def test_a_fault_not_proven_to_be_taken_back_outranks_all(reverted: str, worse: dict[str, Any]) -> None:
    held = HELD._replace(reverted=reverted, proof="qdisc netem 10: is still on p1")
    found = verdict_of(bound(), measured()._replace(faults=[held], **worse))
    assert found.verdict == "REVERT_FAILED" and "netem" in found.reason


def test_a_finding_that_must_appear_and_did_not_fails() -> None:
    assert verdict_of(bound(), measured()._replace(confirmed=[])).verdict == "FAIL"


def test_a_finding_that_did_not_appear_is_told_with_how_late_the_look_was() -> None:
    late = measured()._replace(confirmed=[], looked_late_seconds=4.2)
    assert "not confirmed (the evidence during the fault came 4.2 s after its end" in verdict_of(bound(), late).reason
    in_time = late._replace(looked_late_seconds=-4.2)
    assert "came" not in verdict_of(bound(), in_time).reason


def test_a_finding_that_could_not_be_judged_is_not_taken_for_absent() -> None:
    blind = measured()._replace(confirmed=[], could_not_judge=["packet-loss-on-path"])
    assert verdict_of(bound(), blind).verdict == "INVALID"


def test_a_finding_that_must_not_appear_fails_by_its_pattern() -> None:
    found = verdict_of(bound(), measured()._replace(confirmed=["packet-loss-on-path", "rnr-retries-exhausted"]))
    assert found.verdict == "FAIL" and "rnr-retries-exhausted" in found.reason


def test_every_question_is_answered_and_shown() -> None:
    answers = verdict_of(bound(), measured()).answers
    assert [(a.part, a.answer) for a in answers] == [
        ("revert", "yes"), ("steady", "yes"), ("steady", "yes"), ("fired", "yes"), ("fired", "yes"),
        ("expect", "yes"), ("expect", "yes"), ("findings", "yes"), ("findings", "yes"),
    ]  # fmt: skip


def test_exit_codes_are_those_of_the_house() -> None:
    assert EXIT_CODES == {
        "PASS": 0, "FAIL": 1, "NOT_FIRED": 4, "INVALID": 5, "ABORTED": 6, "UNSUPPORTED": 7, "REVERT_FAILED": 8,
    }  # fmt: skip


def test_the_worst_verdict_speaks_for_several_runs() -> None:
    assert judge.worst(["PASS", "FAIL", "REVERT_FAILED", "ABORTED"]) == "REVERT_FAILED"
    assert judge.worst(["PASS", "UNSUPPORTED"]) == "UNSUPPORTED"
    assert judge.worst(["UNSUPPORTED", "FAIL"]) == "FAIL"
    assert judge.worst([]) == "PASS"


VALUES = st.one_of(st.none(), st.integers(-5, 20), st.floats(0, 2), st.text(max_size=3), st.booleans())


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(values=st.dictionaries(st.sampled_from(sorted(measured().quantities)), VALUES, max_size=6), reverted=st.sampled_from(["yes", "no", "unknown"]))  # fmt: skip
def test_whatever_was_measured_only_a_run_without_no_and_unknown_passes(values: dict[str, Any], reverted: str) -> None:
    found = verdict_of(bound(), measured(**values)._replace(faults=[HELD._replace(reverted=reverted)]))
    assert (found.verdict == "PASS") == all(answer.answer == "yes" for answer in found.answers)
    assert found.exit_code == EXIT_CODES[found.verdict] and found.reason


@pytest.mark.parametrize(
    ("wanted", "value", "answer"),
    [
        (0, 0, True), (0, 0.0, True), (0, 1, False), (0, None, None), ("rdma", "rdma", True), ("rdma", "tcp", False),
        ("never", math.inf, True), ("never", 3.0, False), ("never", None, None), ({"max": 3}, math.inf, False),
        (True, 1, False), (1, True, False), (0, False, False), ({"min": 1}, 1, True), ({"min": 1}, 0.9, False),
        ({"min": 1, "max": 2}, 3, False), ({"max": 2}, None, None), ({"not": "tcp"}, "tcp", False),
        ({"not": "tcp"}, "rdma", True), ({"min": 1}, "many", None), ({"max": 1}, True, None),
    ],
)  # fmt: skip
def test_a_condition_has_three_answers(wanted: Any, value: Any, answer: bool | None) -> None:
    assert condition.holds(wanted, value) is answer


def test_a_fault_that_was_not_begun_needs_no_revert() -> None:
    held = Held("loss", "loss", None, None, "yes", "", "the second fault")
    assert verdict_of(bound(), measured()._replace(faults=[held])).verdict == "NOT_FIRED"
