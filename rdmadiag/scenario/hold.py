"""Holds the faults of a timeline, each in a thread of its own: waits for its time or event, injects, takes it off, notes how."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from rdmadiag.errors import RdmadiagError
from rdmadiag.faults import Refused
from rdmadiag.scenario.judge import NO, UNKNOWN, YES
from rdmadiag.scenario.scenario import Injection

POLL_SECONDS = 0.2
SOON_SECONDS = 1.0
_SIGNALS = {"freeze": "SIGSTOP", "kill": "SIGKILL", "leave": "SIGKILL"}


class Stage(Protocol):
    """What a holder needs of the run."""

    def now(self) -> float:
        """Return the time of the run [s]."""

    def note(self, who: str, kind: str, **values: Any) -> None:
        """Note an event."""

    def stopping(self) -> str:
        """Return why the run is to stop; empty while it is not."""

    def inject(self, fault: str, parameters: Mapping[str, Any], for_seconds: float) -> Any:
        """Return an injection that is not on yet. Raises RdmadiagError."""

    def workload(self) -> Any:
        """Return the workload that runs."""


class Holder:
    """One entry of the timeline; `record` is what run.json says of it."""

    def __init__(self, entry: Injection, stage: Stage) -> None:
        self.entry, self.stage = entry, stage
        self.due: float | None = entry.at_seconds
        self.seen = 0
        self._counts = not entry.after
        self.refused = ""
        self.log = ""  # of the fault's own program, where it is one
        self.record: dict[str, Any] = {
            "name": entry.name,
            "fault": entry.fault,
            "on": entry.on,
            "parameters": dict(entry.parameters),
            "for_seconds": entry.for_seconds,
            "background": entry.background,
            "begin_seconds": None,
            "end_seconds": None,
            "reverted": YES,
            "proof": "it was never put on",
            "waited_for": self.waits_for(),
        }
        self._thread: threading.Thread | None = None
        self._let_go = threading.Event()

    def waits_for(self) -> str:
        """Say what it waits for."""
        entry = self.entry
        if entry.at_seconds is not None:
            return f"{entry.at_seconds:g} s"
        after = f", {entry.then_seconds:g} s after it" if entry.then_seconds else ""
        where = "".join(f" with {name} {value}" for name, value in entry.where.items())
        return f"event {entry.event}{where} number {entry.nth}{' after ' + entry.after if entry.after else ''}{after}"

    def hear(self, event: str, seconds: float, values: Mapping[str, Any] | None = None) -> None:
        """Take note of an event and of what it says; the one that it waits for makes it due."""
        entry = self.entry
        self._counts = self._counts or event == entry.after
        said = values or {}
        if self.due is None and self._counts and event == entry.event and entry.where.items() <= said.items():
            self.seen += 1
            if self.seen == self.entry.nth:
                self.due = seconds + self.entry.then_seconds

    @property
    def begun(self) -> bool:
        """Tell whether its time has come."""
        return self._thread is not None

    @property
    def over(self) -> bool:
        """Tell whether it is off again."""
        return self._thread is not None and not self._thread.is_alive()

    def nearly_over(self, now: float) -> bool:
        """Tell whether it will soon be taken off."""
        begin = self.record["begin_seconds"]
        return begin is not None and bool(now >= begin + self.entry.for_seconds - SOON_SECONDS)

    def begin_if_due(self) -> None:
        """Put the fault on, when its time has come."""
        if self._thread is None and self.due is not None and self.stage.now() >= self.due:
            todo = self._act if self.entry.on else self._hold
            self._thread = threading.Thread(target=todo, name=f"hold-{self.entry.name}", daemon=True)
            self._thread.start()

    def let_go(self) -> None:
        """Take the fault off now, before its time."""
        self._let_go.set()

    def join(self) -> None:
        """Wait until it is off; what is of the background is taken off now."""
        if self.entry.background:
            self._let_go.set()
        if self._thread is not None:
            self._thread.join()

    def _hold(self) -> None:
        name, record, injection = f"fault {self.entry.name}", self.record, None
        try:
            injection = self.stage.inject(self.entry.fault, self.entry.parameters, self.entry.for_seconds)
            record["plan"] = [what for what, _, _ in injection.texts()]
            record["do"] = [do for _, do, _ in injection.texts()]
            record |= {"reverted": UNKNOWN, "proof": "whether it was taken off was not seen"}
            injection.start()
            record["begin_seconds"] = begin = self.stage.now()
            record["start_seconds"] = begin - (time.monotonic() - injection.on_from)
            self.stage.note(name, "begin", parameters=injection.values)
            self._watch(injection)
            outcome = injection.stop("its part of the scenario is over")
            record["end_seconds"] = begin + outcome.held_seconds
            record["off_seconds"] = self.stage.now()
        except Refused as error:
            self.refused = str(error)
            record |= {"reverted": YES, "proof": "it was refused, nothing was changed", "waited_for": str(error)}
        except RdmadiagError as error:
            record["waited_for"] = str(error)
            self.stage.note(name, "problem", text=str(error))
        if injection is not None and not self.refused:
            self._close(injection)
        self.stage.note(name, "end")

    def _act(self) -> None:
        """Do to an end of the workload what the entry says, and undo it."""
        what, role, running, record = self.entry.fault, self.entry.on, self.stage.workload(), self.record
        name = f"fault {self.entry.name}"
        record |= {
            "start_seconds": self.stage.now(),
            "plan": [f"{what} the {role}"],
            "do": [_SIGNALS[what]],
            "reverted": UNKNOWN,
        }
        try:
            running.freeze(role) if what == "freeze" else running.kill(role)
            record["begin_seconds"] = begin = self.stage.now()
            self.stage.note(name, "begin")
            gone = not running.is_running(role)
            acted = gone if what != "freeze" else not gone
            state = "is gone" if gone else "is stopped" if what == "freeze" else "still runs"
            record["own"] = {
                "answer": YES if acted else NO,
                "text": f"{_SIGNALS[what]} to the {role}, which {state}",
                "values": {},
            }
            while self.stage.now() < begin + self.entry.for_seconds and not self.stage.stopping():
                time.sleep(POLL_SECONDS)
            record["end_seconds"] = self.stage.now()
            if what == "freeze":
                running.thaw(role)
            elif what == "kill":
                running.restart(role)
            record["off_seconds"] = self.stage.now()
            back = running.is_running(role)
            told = "stays dead, as was wanted" if what == "leave" else "runs again" if back else "does not run again"
            record |= {"reverted": YES if back or what == "leave" else NO, "proof": f"the {role} {told}"}
        except RdmadiagError as error:
            record |= {"reverted": NO, "proof": str(error)}
        self.stage.note(name, "end")

    def _watch(self, injection: Any) -> None:
        from rdmadiag.inject import proof

        while not injection.wait(POLL_SECONDS):
            if self.stage.stopping() or self._let_go.is_set():
                return
            if self.entry.budget:
                now = proof.counts(injection.node, injection.plan, injection.tag)
                for key, most in self.entry.budget.items():
                    if now.get(key, 0) >= most:
                        self.stage.note(f"fault {self.entry.name}", "budget", used={key: now[key]})
                        return

    def _close(self, injection: Any) -> None:
        outcome = injection.outcome
        told = outcome.as_json()
        self.record |= {
            "own": told["fired"]["own"],
            "other": told["fired"]["other"],
            "how": outcome.how,
            "why": outcome.why,
            "values": told["values"],
            "tag": outcome.tag,
        }
        self.log = outcome.log
        if injection.entry is None:  # nothing was begun
            self.record |= {"reverted": YES, "proof": "nothing was changed"}
        elif outcome.clean:
            proof = "the node's qdiscs, rules, links, addresses and routes are as they were before"
            self.record |= {"reverted": YES, "proof": proof}
        else:
            self.record |= {"reverted": NO, "proof": "; ".join(outcome.problems) or "the node was not seen clean"}
