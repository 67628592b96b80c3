"""The verdict of a run: a pure function of what was measured. What was not seen never passes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from rdmadiag.scenario import condition, quantities
from rdmadiag.scenario.scenario import Scenario

PASS, FAIL, NOT_FIRED, INVALID = "PASS", "FAIL", "NOT_FIRED", "INVALID"
ABORTED, UNSUPPORTED, REVERT_FAILED = "ABORTED", "UNSUPPORTED", "REVERT_FAILED"
EXIT_CODES = {PASS: 0, FAIL: 1, NOT_FIRED: 4, INVALID: 5, ABORTED: 6, UNSUPPORTED: 7, REVERT_FAILED: 8}
"""Exit codes by verdict; 2 is wrong use, as everywhere."""

WORST_FIRST = (REVERT_FAILED, ABORTED, INVALID, NOT_FIRED, FAIL, UNSUPPORTED, PASS)
"""Which verdict speaks for several runs."""

YES, NO, UNKNOWN = "yes", "no", "unknown"
_ANSWER = {True: YES, False: NO, None: UNKNOWN}


class Measure(NamedTuple):
    """A quantity: its value, None where it was not measured, and where it is from or why it is not known."""

    value: Any
    origin: str


class Held(NamedTuple):
    """One fault as it was held: times in seconds of the run, None where it did not come to it.

    `reverted`: yes, no, unknown (it was never begun: yes); `proof` says what the injector saw afterwards.
    """

    name: str
    fault: str
    begin_seconds: float | None
    end_seconds: float | None
    reverted: str
    proof: str
    waited_for: str = ""
    start_seconds: float | None = None
    """Up to when nothing of it was on; at `begin_seconds` all of it was, and it may have acted at any time between."""
    off_seconds: float | None = None
    """When it was seen to be off; at `end_seconds` it began to be taken off."""
    background: bool = False
    """It is of the surroundings: no time is counted from it."""


class Measured(NamedTuple):
    """All that a verdict is made of."""

    quantities: Mapping[str, Measure]
    """Of the whole run."""
    before: Mapping[str, Measure] = {}
    """Of the time before the first fault."""
    faults: Sequence[Held] = ()
    confirmed: Sequence[str] = ()
    """Rules that were confirmed from the evidence during and after."""
    could_not_judge: Sequence[str] = ()
    """Rules that answered unknown, and were not confirmed at another time."""
    looked_late_seconds: float = 0.0
    """How long after the end of the first fault the evidence during it was there; what only that fault shows may not be in it."""
    aborted: str = ""
    unsupported: str = ""
    problems: Sequence[str] = ()
    """What of the evidence is missing, so that nothing can be judged."""


class Answer(NamedTuple):
    """One question to the run: `part` is steady, fired, expect, findings, requires or revert."""

    part: str
    question: str
    wanted: str
    got: str
    answer: str
    origin: str


class Verdict(NamedTuple):
    """The verdict, the reason in one sentence, and every question that was asked."""

    verdict: str
    reason: str
    answers: list[Answer]

    @property
    def exit_code(self) -> int:
        """The exit code of a run that ends so."""
        return EXIT_CODES[self.verdict]


def judge(scenario: Scenario, measured: Measured) -> Verdict:
    """Return the verdict: REVERT_FAILED outranks all, then UNSUPPORTED, ABORTED, INVALID, NOT_FIRED, FAIL."""
    answers = [
        *_reverts(measured),
        *_conditions("requires", scenario.requires.get("measured", {}), measured.quantities),
        *_conditions("steady", scenario.steady, measured.before),
        *_begun(measured),
        *_conditions("fired", scenario.fired, measured.quantities),
        *_conditions("expect", scenario.expect, measured.quantities),
        *_findings(scenario, measured),
    ]
    verdict, reason = _verdict(measured, answers)
    return Verdict(verdict, reason, answers)


def _verdict(measured: Measured, answers: Sequence[Answer]) -> tuple[str, str]:
    def first(part: str, *wanted: str) -> Answer | None:
        return next((a for want in wanted for a in answers if a.part == part and a.answer == want), None)

    if bad := first("revert", NO, UNKNOWN):
        return REVERT_FAILED, f"{bad.question}: {bad.got}"
    if measured.unsupported:
        return UNSUPPORTED, measured.unsupported
    if bad := first("requires", NO):
        return UNSUPPORTED, _told(bad)
    if measured.aborted:
        return ABORTED, measured.aborted
    if measured.problems:
        return INVALID, measured.problems[0]
    if bad := first("requires", UNKNOWN) or first("steady", NO, UNKNOWN):
        return INVALID, f"not as it must be before the fault: {_told(bad)}"
    if bad := first("fired", NO):
        return NOT_FIRED, f"no proof that the fault acted: {_told(bad)}"
    if bad := first("fired", UNKNOWN):
        return INVALID, f"whether the fault acted cannot be told: {_told(bad)}"
    failed = [a for a in answers if a.part in ("expect", "findings") and a.answer == NO]
    if failed:
        return FAIL, "; ".join(_told(a) for a in failed[:3]) + (f"; and {len(failed) - 3} more" if failed[3:] else "")
    if bad := first("expect", UNKNOWN) or first("findings", UNKNOWN):
        return INVALID, f"cannot be told: {_told(bad)}"
    return (
        PASS,
        "the faults acted and were taken back, and all is as expected" if measured.faults else "all is as expected",
    )


def _told(answer: Answer) -> str:
    got = answer.got if answer.answer != UNKNOWN else f"not known ({answer.origin or 'not measured'})"
    return f"{answer.question} is {got}, wanted {answer.wanted}"


def _conditions(part: str, wanted: Mapping[str, Any], measures: Mapping[str, Measure]) -> Iterator[Answer]:
    for name, want in wanted.items():
        found = measures.get(name, Measure(None, "not measured"))
        answer = _ANSWER[condition.holds(want, found.value)]
        unit = quantities.unit(name)
        got = "unknown" if found.value is None else _short(found.value) + unit * (found.value != math.inf)
        yield Answer(part, name, condition.words(want) + unit * (want != condition.NEVER), got, answer, found.origin)


def _short(value: Any) -> str:
    if value == math.inf:
        return condition.NEVER
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return str(value)


def _reverts(measured: Measured) -> Iterator[Answer]:
    for held in measured.faults:
        got = {YES: "taken back", NO: "NOT taken back", UNKNOWN: "not known to be taken back"}[held.reverted]
        yield Answer(
            "revert", f"fault {held.name}", "taken back", f"{got}: {held.proof}" if held.proof else got, held.reverted, held.proof
        )  # fmt: skip


def _begun(measured: Measured) -> Iterator[Answer]:
    for held in measured.faults:
        if held.begin_seconds is None:
            why = f"not begun: {held.waited_for or 'the run ended before'}"
            yield Answer("fired", f"fault {held.name}", "begun", why, NO, "")


def _findings(scenario: Scenario, measured: Measured) -> Iterator[Answer]:
    for pattern in scenario.must:
        seen = [rule for rule in measured.confirmed if fnmatchcase(rule, pattern)]
        silent = any(fnmatchcase(rule, pattern) for rule in measured.could_not_judge)
        answer = YES if seen else UNKNOWN if silent else NO
        late = measured.looked_late_seconds
        got = "confirmed" if seen else "could not judge" if silent else "not confirmed"
        if late > 0 and not seen:
            got += f" (the evidence during the fault came {late:.1f} s after its end: does it hold long enough?)"
        yield Answer("findings", f"finding {pattern}", "confirmed", got, answer, "rdmadiag check")
    for pattern in scenario.must_not:
        seen = [rule for rule in measured.confirmed if fnmatchcase(rule, pattern)]
        got = f"confirmed: {', '.join(seen)}" if seen else "not confirmed"
        yield Answer("findings", f"finding {pattern}", "not confirmed", got, NO if seen else YES, "rdmadiag check")


def worst(verdicts: Sequence[str]) -> str:
    """Return the verdict that speaks for several runs. PASS for none."""
    return min(verdicts, key=WORST_FIRST.index, default=PASS)
