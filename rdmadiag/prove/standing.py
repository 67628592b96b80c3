"""One lab in which work goes on while trial after trial is made: what every trial would start anew stands already.

A trial: evidence from before, captures, the fault (by the injector's door), evidence while it holds, the fault off; then the work
must go on as before, or its ends are started again. What was seen is kept as a run's folder (rdmadiag/scenario/record.py).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from rdmadiag import __version__, faults, workloads
from rdmadiag import inject as injector
from rdmadiag.errors import BadInput, RdmadiagError
from rdmadiag.lab import Lab, Options, find, take_down, up
from rdmadiag.lab import status as lab_status
from rdmadiag.lab.lab import look
from rdmadiag.prove import trials
from rdmadiag.prove.trials import Trial
from rdmadiag.scenario import run, stop
from rdmadiag.scenario.hold import Holder
from rdmadiag.scenario.record import BEFORE, CAPTURES, DURING, SCHEMA, Folder
from rdmadiag.scenario.watch import Watch

STEADY_SECONDS = 60.0
"""In this time after a fault the work must go on; else it is started again."""
SAMPLE_SECONDS = 2.0
"""A sample takes a sixth of a second of an emulated processor."""
BEAT_SECONDS = 4.0
"""A sign of life of the injection takes a third of a second of an emulated processor, while the evidence is collected."""
WORKLOAD = "paced"


class Standing:
    """A lab with its witness and its work; call it with a trial. A context manager. Raises LabError when it cannot be made."""

    def __init__(self, lab: str = "", backend: str = "auto") -> None:
        self._wanted, self._backend = lab, backend
        self._stack = contextlib.ExitStack()
        self._lab: Lab | None = None
        self._running: workloads.Run | None = None
        self._work: Mapping[str, Any] = {}
        self._watch: Watch | None = None
        self._used = 0
        self.stop = ""

    def __enter__(self) -> Standing:
        self._stack.enter_context(stop.signals(self._interrupt))
        return self

    def __exit__(self, *_: object) -> None:
        self._down()
        self._stack.close()

    def _interrupt(self, why: str) -> None:
        self.stop = self.stop or why

    # --- what stands ---

    def _up(self, progress: run.Progress) -> Lab:
        if self._lab is None:
            progress(run.Step("lab comes up", 0.0, 0.0))
            name = self._wanted or f"prove-{os.getpid()}"
            self._lab = find(name) if self._wanted else up(Options(backend=self._backend, folder="/"), name)
            if self._lab.options.apart:
                raise BadInput(f"lab {name} has its hosts apart; trials want one place for all")
            self._watch = Watch(self._lab, "", SAMPLE_SECONDS)
            if not self._watch.started():
                raise BadInput(f"what watches lab {name} did not start: {self._watch.why_not()}")
            self._watch.ask("warm")
        return self._lab

    def _down(self) -> None:
        if self._running is not None:
            self._running.close()
        if self._watch is not None:
            self._watch.close()
        if self._lab is not None and not self._wanted:
            take_down(self._lab.name)
        self._running = self._watch = self._lab = None

    def _steady(self, lab: Lab, work: Mapping[str, Any], progress: run.Progress) -> workloads.Run:
        """Return work that makes progress, started again when it does not. Raises WorkloadError."""
        running = self._running
        if running is not None and self._work == work and running.is_running(workloads.CLIENT):
            progress(run.Step("work goes on", 0.0, 0.0))
            if not running.is_running(workloads.SERVER):
                running.restart(workloads.SERVER)
            if self._moves(running):
                return running
        if running is not None:
            running.close()
        progress(run.Step("work starts", 0.0, 0.0))
        self._running, self._work = workloads.start(WORKLOAD, run.Behind(lab), work), work
        if not self._moves(self._running):
            raise workloads.WorkloadError(f"{WORKLOAD} in lab {lab.name} makes no progress")
        return self._running

    def _moves(self, running: workloads.Run) -> bool:
        since, deadline = len(running.events), time.monotonic() + STEADY_SECONDS
        while time.monotonic() < deadline and not self.stop:
            told = [event for event in running.events[since:] if event.kind == "progress"]
            if len(told) >= 3:
                return True
            if not running.is_running(workloads.CLIENT):
                return False
            time.sleep(0.1)
        return False

    # --- a trial ---

    def __call__(self, trial: Trial, parent: str, progress: run.Progress) -> Folder:
        """Make a trial and return its folder. A lab that has gone is made anew, once. Raises RdmadiagError."""
        folder = Folder.make(parent, trial.id)
        made = _Trial(trial, folder)
        try:
            for attempt in (1, 2):
                try:
                    lab = self._up(progress)
                    running = self._steady(lab, made.work, progress)
                    break
                except RdmadiagError:
                    self._down()
                    if attempt == 2 or self.stop:
                        raise
            assert self._watch is not None
            made.go(lab, self._watch, running, progress, lambda: self.stop)
        except RdmadiagError as error:
            made.facts["problems"].append(str(error))
        made.write(self.stop)
        if made.dirty:
            self._down()
        return folder


class _Trial:
    """One trial; it is the stage of its fault's holder."""

    def __init__(self, trial: Trial, folder: Folder) -> None:
        self.trial, self.folder = trial, folder
        self.scenario = trials.scenario_of(trial)
        self.work = dict(self.scenario.workload_parameters)
        self.events: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._zero = time.monotonic()
        self._lab: Lab | None = None
        self._running: Any = None
        self._stopping: Callable[[], str] = str
        self._samples: list[dict[str, Any]] = []
        self.holder = Holder(self.scenario.timeline[0], self) if trial.fault else None
        self.facts: dict[str, Any] = {
            "schema": SCHEMA,
            "scenario": trial.id,
            "seed": trial.seed,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "rdmadiag": __version__,
            "workload": {"name": WORKLOAD, "parameters": self.work},
            "problems": [],
            "faults": [],
        }

    # What the holder needs.

    def now(self) -> float:
        """Return the time since the evidence from before [s]."""
        return time.monotonic() - self._zero

    def note(self, who: str, kind: str, **values: Any) -> None:
        """Note an event."""
        with self._lock:
            self.events.append({"seconds": round(self.now(), 3), "from": who, "kind": kind, "values": values})

    def stopping(self) -> str:
        """Return why it is to stop."""
        return self._stopping()

    def inject(self, fault: str, parameters: Mapping[str, Any], for_seconds: float) -> Any:
        """Return an injection that is not on yet."""
        assert self._lab is not None
        values = dict(parameters)
        if "seed" not in values and any(one.name == "seed" for one in faults.find(fault).PARAMETERS):
            values["seed"] = self.trial.seed
        return injector.inject(fault, values, injector.in_lab(self._lab), for_seconds, beat_seconds=BEAT_SECONDS)

    def workload(self) -> Any:
        """Return the work."""
        return self._running

    # The trial.

    def go(self, lab: Lab, watch: Watch, running: Any, progress: run.Progress, stopping: Callable[[], str]) -> None:
        """Make it. Raises RdmadiagError."""
        self._lab, self._running, self._stopping = lab, running, stopping
        state = look(lab.name)
        self.facts["lab"] = lab_status.full(lab, state) if state else {"name": lab.name}
        netdevs = [link["netdev"] for link in self.facts["lab"].get("links", []) if link.get("device")]
        problems, before, samples = len(watch.problems), len(running.events), len(watch.samples)
        progress(run.Step("evidence before", 0.0, 0.0))
        self._order(watch, f"collect {BEFORE}")
        self._take(watch, BEFORE)
        watch.ask(*(f"record {netdev}" for netdev in netdevs))
        self._zero, began = time.monotonic(), running.now()
        self._sleep(trials.BEGIN_SECONDS)
        if self.holder is not None:
            progress(run.Step(f"fault {self.trial.fault}", 0.0, 0.0))
            self.holder.due = 0.0
            self.holder.begin_if_due()
            while not self.holder.over and self.holder.record["begin_seconds"] is None:
                time.sleep(0.05)
        told = trials.diagnosis(self.trial.fault) if self.trial.fault else None
        self._sleep(told.look_seconds if told else trials.HEALTHY_SECONDS / 2)
        self._order(watch, f"collect {DURING}")
        self._take(watch, DURING)
        watch.ask(*(f"recorded {netdev}" for netdev in netdevs))
        if self.holder is not None:
            self.holder.let_go()
            self.holder.join()
        progress(run.Step("captures", 0.0, 0.0))
        for netdev in netdevs:
            watch.take(netdev, self.folder.file("evidence", CAPTURES, f"{netdev}.pcapng.gz"))
            watch.forget(netdev)
        self.facts["problems"] += watch.problems[problems:]
        self._samples = watch.samples[samples:]
        self._hear(running, before, began)
        if self.holder is not None and self.holder.log:
            self.folder.file("workload", "job.log").write_text(self.holder.log, encoding="utf-8")

    def _order(self, watch: Watch, order: str) -> None:
        watch.forget(order.split()[1])
        watch.ask(order)

    def _take(self, watch: Watch, phase: str) -> None:
        watch.take(phase, self.folder.file("evidence", phase, f"{watch.node}.tar.gz"))

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.stopping():
            time.sleep(0.05)

    def _hear(self, running: Any, before: int, began: float) -> None:
        words: dict[str, list[str]] = {workloads.CLIENT: [], workloads.SERVER: []}
        for event in list(running.events[before:]):
            at = round(event.seconds - began, 3)
            self.events.append({"seconds": at, "from": event.end, "kind": event.kind, "values": event.values})
            if event.kind == "error":
                words[event.end].append(str(event.values.get("words")))
        for end, lines in words.items():
            self.folder.file("workload", f"{end}.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")

    @property
    def dirty(self) -> bool:
        """Whether the lab is not as it was: the fault is not proven to be off."""
        return bool(self.holder and self.holder.record.get("reverted") != "yes") or bool(self.facts["problems"])

    def write(self, stop: str) -> None:
        """Write the folder."""
        end = {"how": "aborted", "reason": stop} if stop else {"how": "done", "reason": ""}
        if self.holder is not None and self.holder.refused:
            end = {"how": "unsupported", "reason": self.holder.refused}
        self.facts["end"] = end
        self.facts["faults"] = [self.holder.record] if self.holder else []
        self.facts["seconds"] = round(self.now(), 3)
        chosen: dict[str, Any] = {}
        data = {"schema": "rdmadiag.run-scenario/1", "scenario": self.scenario.data, "chosen": chosen}
        self.folder.write("scenario.json", data)
        timed = [
            {"seconds": round(one["at"] - self._zero, 3), **{k: v for k, v in one.items() if k != "at"}}
            for one in self._samples
        ]
        self.folder.write_lines("events.jsonl", sorted(self.events, key=lambda event: float(event["seconds"])))
        self.folder.write_lines("samples.jsonl", timed)
        self.folder.write("run.json", self.facts)
