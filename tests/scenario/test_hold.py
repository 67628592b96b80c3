"""The faults of a timeline begin at their times and events, end at their budget, and what the injector says of them is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from rdmadiag.errors import RdmadiagError
from rdmadiag.faults import Refused
from rdmadiag.inject import Fired, NotApplied, Outcome, Proof
from rdmadiag.inject import proof as injector_proof
from rdmadiag.scenario.hold import Holder
from rdmadiag.scenario.scenario import Injection

ENTRY = Injection("loss", "loss", "", {"percent": 1}, 5.0, 3.0, "", 1, 0.0, {})


class Held:
    """An injection that is told how it goes; it is over when its time, its budget or the run is."""

    def __init__(self, problem: RdmadiagError | None = None, clean: bool = True) -> None:
        self.outcome = Outcome("tag", "loss", {"percent": 1}, "lab x", 5.0, held_seconds=2.0, clean=clean)
        self.outcome.fired = Fired(Proof("yes", "counted 4", {"hit": 4}), Proof("no", "nothing moved"))
        self.outcome.problems = [] if clean else ["new: qdisc netem"]
        self.values, self.tag, self.node, self.plan = {"percent": 1}, "tag", None, None
        self.entry: Any = None
        self._problem, self.waited, self.over = problem, 0, threading.Event()
        self.on_from = 0.0

    def texts(self) -> list[tuple[str, str, str]]:
        return [("a table", "nft -f", "nft delete")]

    def start(self) -> None:
        self.entry = object()
        self.on_from = time.monotonic()
        if self._problem:
            raise self._problem

    def wait(self, seconds: float) -> bool:
        self.waited += 1
        return self.over.wait(0.001)

    def stop(self, why: str) -> Outcome:
        return self.outcome


class Stage:
    """A run whose time stands still unless it is set."""

    def __init__(self, injection: Held | RdmadiagError) -> None:
        self.injection, self.time, self.why = injection, 0.0, ""
        self.notes: list[tuple[str, str]] = []

    def now(self) -> float:
        return self.time

    def note(self, who: str, kind: str, **values: Any) -> None:
        self.notes.append((who, kind))

    def stopping(self) -> str:
        return self.why

    def inject(self, fault: str, parameters: Mapping[str, Any], for_seconds: float) -> Any:
        if isinstance(self.injection, RdmadiagError):
            raise self.injection
        return self.injection

    def workload(self) -> Any:
        return SimpleNamespace()


def test_a_fault_begins_at_its_time_and_not_before() -> None:
    injection = Held()
    injection.over.set()
    stage = Stage(injection)
    holder = Holder(ENTRY, stage)
    stage.time = 2.9
    holder.begin_if_due()
    assert not holder.begun
    stage.time = 3.0
    holder.begin_if_due()
    holder.join()
    assert (holder.record["begin_seconds"], holder.record["end_seconds"], holder.record["reverted"]) == (
        3.0,
        5.0,
        "yes",
    )
    assert stage.notes == [("fault loss", "begin"), ("fault loss", "end")]
    assert holder.record["own"] == {"answer": "yes", "text": "counted 4", "values": {"hit": 4}}


def test_what_comes_before_the_first_step_of_a_fault_is_not_counted_as_its_time() -> None:
    injection = Held()
    injection.over.set()
    injection.start = lambda: setattr(injection, "on_from", time.monotonic() - 0.5)  # type: ignore[method-assign]
    stage = Stage(injection)
    stage.time = 3.0
    holder = Holder(ENTRY, stage)
    holder.begin_if_due()
    holder.join()
    assert 0.5 <= holder.record["begin_seconds"] - holder.record["start_seconds"] < 60


def test_a_fault_begins_some_time_after_the_third_event() -> None:
    stage = Stage(Held())
    holder = Holder(ENTRY._replace(at_seconds=None, event="layer", nth=3, then_seconds=0.5), stage)
    for seconds in (1.0, 2.0):
        holder.hear("layer", seconds)
        holder.hear("progress", seconds)
    assert holder.due is None
    holder.hear("layer", 4.0)
    holder.hear("layer", 5.0)
    assert holder.due == 4.5
    assert holder.waits_for() == "event layer number 3, 0.5 s after it"


def test_a_fault_begins_at_an_event_that_says_something_behind_another_one() -> None:
    entry = ENTRY._replace(at_seconds=None, event="layer", nth=1, after="loss.end", where={"layer": 10})
    holder = Holder(entry, Stage(Held()))
    holder.hear("layer", 1.0, {"layer": 10})
    holder.hear("loss.end", 2.0)
    holder.hear("layer", 3.0, {"layer": 9, "request": 4})
    assert holder.due is None
    holder.hear("layer", 4.0, {"layer": 10, "request": 4})
    assert holder.due == 4.0
    assert holder.waits_for() == "event layer with layer 10 number 1 after loss.end"


def test_a_fault_ends_when_its_budget_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([{"hit": 10}, {"hit": 99}, {"hit": 100}, {"hit": 1000}])
    monkeypatch.setattr(injector_proof, "counts", lambda *_: next(counts))
    injection, stage = Held(), None
    stage = Stage(injection)
    stage.time = 3.0
    holder = Holder(ENTRY._replace(budget={"hit": 100}), stage)
    holder.begin_if_due()
    holder.join()
    assert injection.waited == 3 and ("fault loss", "budget") in stage.notes


def test_a_run_that_stops_takes_its_faults_off() -> None:
    injection = Held()
    stage = Stage(injection)
    stage.time, stage.why = 3.0, "interrupted"
    holder = Holder(ENTRY, stage)
    holder.begin_if_due()
    holder.join()
    assert holder.over and holder.record["reverted"] == "yes"


def test_a_node_that_was_not_seen_clean_is_not_reverted() -> None:
    injection = Held(clean=False)
    injection.over.set()
    stage = Stage(injection)
    stage.time = 3.0
    holder = Holder(ENTRY, stage)
    holder.begin_if_due()
    holder.join()
    assert (holder.record["reverted"], holder.record["proof"]) == ("no", "new: qdisc netem")


def test_a_refused_fault_changed_nothing_and_says_why() -> None:
    stage = Stage(Refused("loss cannot act there"))
    stage.time = 3.0
    holder = Holder(ENTRY, stage)
    holder.begin_if_due()
    holder.join()
    assert holder.refused == "loss cannot act there"
    assert (holder.record["reverted"], holder.record["begin_seconds"]) == ("yes", None)


def test_a_step_that_could_not_be_done_is_not_begun_and_its_undoing_is_judged() -> None:
    for clean, reverted in ((True, "yes"), (False, "no")):
        stage = Stage(Held(NotApplied("a table: could not be done"), clean))
        stage.time = 3.0
        holder = Holder(ENTRY, stage)
        holder.begin_if_due()
        holder.join()
        assert (holder.record["begin_seconds"], holder.record["reverted"]) == (None, reverted)
        assert "could not be done" in holder.record["waited_for"]


def test_what_is_of_the_background_is_held_until_it_is_let_go() -> None:
    injection = Held()
    stage = Stage(injection)
    stage.time = 3.0
    holder = Holder(ENTRY._replace(background=True), stage)
    holder.begin_if_due()
    while injection.waited < 3:
        assert not holder.over
    holder.join()
    assert holder.over and holder.record["reverted"] == "yes" and holder.record["background"] is True
