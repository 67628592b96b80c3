"""Run a scenario in a lab and keep all that was seen of it in a folder; nothing is judged here."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rdmadiag import __version__, workloads
from rdmadiag import inject as injector
from rdmadiag.errors import RdmadiagError
from rdmadiag.faults import Refused
from rdmadiag.lab import Lab, LabError, Options, find, take_down, topology, up
from rdmadiag.lab import status as lab_status
from rdmadiag.lab.lab import look
from rdmadiag.scenario import needs
from rdmadiag.scenario.hold import Holder
from rdmadiag.scenario.record import AFTER, BEFORE, CAPTURES, DURING, LOOKED, SCHEMA, Folder
from rdmadiag.scenario.scenario import Scenario
from rdmadiag.scenario.stop import signals
from rdmadiag.scenario.watch import BUNDLE_SECONDS, Watch

TICK_SECONDS = 0.05
FINISH_SECONDS = 20.0


class Step(NamedTuple):
    """Where a run is: what it does, and how much of its time is over [s]."""

    text: str
    done: float
    total: float


Progress = Callable[[Step], None]


class _Unsupported(Exception):
    """The run cannot be made here: says why."""


def run(
    found: Scenario,
    parent: str,
    *,
    lab: str = "",
    backend: str = "auto",
    progress: Progress = lambda step: None,
) -> Folder:
    """Run one scenario, in the lab of a name or in one of its own, and return its folder. Raises BadInput, LabError."""
    folder = Folder.make(parent, found.label)
    folder.write("scenario.json", {"schema": "rdmadiag.run-scenario/1", "scenario": found.data, "chosen": found.chosen})
    _Running(found, folder, progress).run(lab, backend)
    return folder


@contextlib.contextmanager
def a_lab(found: Scenario, name: str, backend: str, progress: Progress) -> Iterator[Lab]:
    """Yield the lab of a name, which must fit the scenario's topology, or a fresh one that is taken down afterwards. Raises LabError."""
    wanted = Options(backend=backend, folder="/", **found.topology)
    if name:
        yield _joined(name, wanted, found)
        return
    own = f"run-{os.getpid()}"
    progress(Step("lab comes up", 0.0, 0.0))
    try:
        yield up(wanted, own)
    finally:
        take_down(own)


def _joined(name: str, wanted: Options, found: Scenario) -> Lab:
    lab = find(name)
    for key in found.topology:
        has, want = getattr(lab.options, key), getattr(wanted, key)
        if has != want:
            raise _Unsupported(f"lab {name} has --{key.replace('_', '-')} {has}; {found.id} wants {want}")
    return lab


class Behind(workloads.InLab):
    """The hosts of a lab, where a workload's programs stand back behind those that inject and watch.

    Programs that poll take all of an emulated processor; a step of an injection then took a minute.
    """

    def start(self, host: str, argv: list[str], environment: Mapping[str, str], take: Any) -> Any:
        """Start a program at a lower priority."""
        return super().start(host, ["nice", "-n", "10", *argv], environment, take)


class _Running:
    """One run; the main thread goes through it, holders and watchers have threads of their own."""

    def __init__(self, found: Scenario, folder: Folder, progress: Progress) -> None:
        self.scenario, self.folder, self._progress = found, folder, progress
        self.events: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._zero = time.monotonic()
        self._stop = ""
        self._lab: Lab | None = None
        self._watches: list[Watch] = []
        self._holders = [Holder(entry, self) for entry in found.timeline]
        self._used = 0
        self._bytes, self._last_byte = 0.0, 0.0
        self._total = 0.0
        self.facts: dict[str, Any] = {
            "schema": SCHEMA,
            "scenario": found.id,
            "label": found.label,
            "chosen": found.chosen,
            "seed": found.seed,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "rdmadiag": __version__,
            "machine": {"system": platform.platform(), "python": platform.python_version(), "cpus": os.cpu_count()},
            "workload": {"name": found.workload, "parameters": dict(found.workload_parameters)},
            "problems": [],
            "kernel_warnings": [],
            "faults": [],
            "end": {"how": "running", "reason": ""},
        }

    # --- what holders need ---

    def now(self) -> float:
        """Return the time since the workload began [s]."""
        return time.monotonic() - self._zero

    def note(self, who: str, kind: str, **values: Any) -> None:
        """Note an event."""
        with self._lock:
            self.events.append({"seconds": round(self.now(), 4), "from": who, "kind": kind, "values": values})
        name = who.partition(" ")[2]
        if name:
            for holder in self._holders:
                holder.hear(f"{name}.{kind}", self.now())

    def stopping(self) -> str:
        """Return why the run is to stop."""
        return self._stop

    def inject(self, fault: str, parameters: Mapping[str, Any], for_seconds: float) -> Any:
        """Return an injection that is not on yet."""
        from rdmadiag import faults

        assert self._lab is not None
        values = dict(parameters)
        if "seed" not in values and any(one.name == "seed" for one in faults.find(fault).PARAMETERS):
            values["seed"] = self.scenario.seed
        return injector.inject(
            fault, values, injector.in_lab(self._lab), for_seconds, abort_when=lambda: self._stop or None
        )

    def workload(self) -> Any:
        """Return the workload that runs."""
        return self._workload

    # --- the run ---

    def run(self, lab: str, backend: str) -> None:
        """Go through it; whatever happens, the faults come off and the folder is whole."""
        end = {"how": "done", "reason": ""}
        try:
            with signals(self._interrupt), a_lab(self.scenario, lab, backend, self._progress) as found:
                self._in_lab(found)
        except _Unsupported as error:
            end = {"how": "unsupported", "reason": str(error)}
        except Refused as error:
            end = {"how": "unsupported", "reason": str(error)}
        except (RdmadiagError, OSError) as error:
            self.facts["problems"].append(str(error))
        if self._stop:
            end = {"how": "aborted", "reason": self._stop}
        refused = next((holder.refused for holder in self._holders if holder.refused), "")
        if refused and end["how"] != "aborted":
            end = {"how": "unsupported", "reason": refused}
        self._write(end)

    def _interrupt(self, why: str) -> None:
        self._stop = self._stop or why

    def _in_lab(self, lab: Lab) -> None:
        self._lab = lab
        adapter = workloads.load(self.scenario.workload)
        name = self.scenario.workload
        if adapter.ENGINE is not None and not workloads.installed(name):
            raise _Unsupported(f"{name} is not installed here; `rdmadiag workload install {name}` does it")
        if reason := needs.missing(self.scenario.requires, adapter.PROGRAMS, lab):
            raise _Unsupported(reason)
        self._describe(lab)
        places = topology.host_names(lab.options) if lab.options.apart else [""]
        try:
            self._step("evidence before")
            for place in places:
                self._watches.append(Watch(lab, place))
            for watch in self._watches:
                if not watch.started():
                    raise LabError(f"what watches the lab did not start: {watch.why_not()}")
            self._collect(BEFORE)
            self._take(BEFORE)
            if self.scenario.captures:
                self._record("record")
            self._with_workload(lab, adapter)
            self._step("evidence after")
            self._collect(AFTER)
            for phase in (DURING, AFTER):
                if phase in self._asked:
                    self._take(phase)
            self._take_captures()
        finally:
            for watch in self._watches:
                watch.close()

    def _describe(self, lab: Lab) -> None:
        state = look(lab.name)
        if state is not None:
            self.facts["lab"] = lab_status.full(lab, state)

    _asked, _recorded = tuple[str, ...](), True
    _workload: workloads.Run | None = None

    def _collect(self, phase: str) -> None:
        self._asked = (*self._asked, phase)
        for watch in self._watches:
            watch.ask(f"collect {phase}")

    def _take(self, phase: str) -> None:
        for watch in self._watches:
            watch.take(phase, self.folder.file("evidence", phase, f"{watch.node}.tar.gz"))

    def _record(self, word: str) -> None:
        """Let captures of the hosts' RDMA netdevs begin (`record`) or end (`recorded`)."""
        self._recorded = word == "recorded"
        for watch in self._watches:
            watch.ask(*(f"{word} {netdev}" for netdev in self._netdevs(watch.place)))

    def _take_captures(self) -> None:
        if not self._recorded:
            self._record("recorded")
        for watch in self._watches if self.scenario.captures else ():
            for netdev in self._netdevs(watch.place):
                watch.take(netdev, self.folder.file("evidence", CAPTURES, f"{netdev}.pcapng.gz"))

    def _netdevs(self, place: str) -> list[str]:
        return [link["netdev"] for link in self.facts["lab"]["links"] if link["device"] and place in ("", link["host"])]

    def _step(self, text: str) -> None:
        self._progress(Step(text, max(0.0, self.now()) if self._total else 0.0, self._total))

    def _with_workload(self, lab: Lab, adapter: Any) -> None:
        self._step(f"workload {self.scenario.workload} starts")
        values = dict(self.scenario.workload_parameters)
        if "seed" not in values and any(one.name == "seed" for one in adapter.PARAMETERS):
            values["seed"] = self.scenario.seed
        with (
            workloads.start(self.scenario.workload, Behind(lab), values) as running,
            contextlib.ExitStack() as surroundings,
        ):
            self._workload = running
            begun = next(e.seconds for e in running.events if e.end == workloads.CLIENT and e.kind == "ready")
            self._zero = time.monotonic() - running.now() + begun
            self._total = self._estimate()
            for holder in self._holders:  # of the background: until the workload has ended
                surroundings.callback(holder.join)
            try:
                self._go_on(running, begun)
            finally:
                for holder in self._tried():
                    holder.join()
            self._step("workload ends")
            self.facts["workload"]["end_seconds"] = round(self.now(), 4)
            if running.is_running(workloads.CLIENT):
                running.stop(workloads.CLIENT)
            result = running.finish(FINISH_SECONDS)
            self._hear(running, begun)
            self.folder.file("workload").mkdir(exist_ok=True)
            self.folder.write("workload/result.json", result)
            self._fetch(lab, running.setting.client.name)
            for role, lines in result["last_lines"].items():
                self.folder.file("workload", f"{role}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _fetch(self, lab: Lab, host: str) -> None:
        for path in self.scenario.results:
            try:
                ran = lab.run(["cat", path], host=host, timeout_seconds=60)
            except LabError as error:
                self.facts["problems"].append(f"{path} on {host}: {error}")
                continue
            if ran.code:
                self.facts["problems"].append(f"the workload left no {path} on {host}")
            else:
                self.folder.file("workload", os.path.basename(path)).write_bytes(ran.out)

    def _estimate(self) -> float:
        tried = (e for e in self.scenario.timeline if not e.background)
        ends = [(e.at_seconds or 0.0) + e.then_seconds + e.for_seconds for e in tried]
        return max(ends, default=0.0) + self.scenario.settle_seconds

    def _tried(self) -> list[Holder]:
        return [holder for holder in self._holders if not holder.entry.background]

    def _go_on(self, running: Any, begun: float) -> None:
        tried = self._tried()
        settle_from: float | None = None if tried else 0.0
        during: float | None = None if tried else self.scenario.settle_seconds / 2
        looked, over = False, 0.0
        while True:
            self._hear(running, begun)
            now = self.now()
            for holder in self._holders:
                holder.begin_if_due()
            for holder in tried:
                if during is None and holder.record["begin_seconds"] is not None:
                    during = holder.record["begin_seconds"] + min(holder.entry.for_seconds / 2, 3.0)
            if during is not None and now >= during and DURING not in self._asked:
                self._collect(DURING)
            if not self._recorded and any(holder.nearly_over(now) for holder in tried):
                self._record("recorded")  # what follows the fault would be taken for its signs
            if not looked and DURING in self._asked and all(watch.came(DURING) for watch in self._watches):
                looked = True
                self.note("witness", LOOKED, phase=DURING)
            if settle_from is None and tried and all(holder.over for holder in tried):
                over = over or now
                if looked or DURING not in self._asked or now >= over + BUNDLE_SECONDS:
                    settle_from = now
            begun_one = any(holder.begun for holder in tried)
            self._abort_if(now, settle_from if settle_from is not None else None if begun_one else 0.0)
            if self._stop or not running.is_running(workloads.CLIENT):
                return
            if settle_from is not None and now >= settle_from + self.scenario.settle_seconds:
                return
            active = [holder.entry.name for holder in tried if holder.begun and not holder.over]
            what = f"fault {', '.join(active)}" if active else "settling" if settle_from is not None else "steady state"
            self._progress(Step(what, now, max(self._total, now)))
            time.sleep(TICK_SECONDS)

    def _hear(self, running: Any, begun: float) -> None:
        new = running.events[self._used :]
        self._used += len(new)
        for event in new:
            at = event.seconds - begun
            with self._lock:
                self.events.append(
                    {"seconds": round(at, 4), "from": event.end, "kind": event.kind, "values": event.values}
                )
            for holder in self._holders:
                holder.hear(event.kind, at, event.values)
            nbytes = event.values.get("bytes")
            if event.kind in ("progress", "layer") and isinstance(nbytes, (int, float)) and nbytes != self._bytes:
                self._bytes, self._last_byte = nbytes, at

    def _abort_if(self, now: float, quiet_since: float | None) -> None:
        found = self.scenario
        if now > found.run_seconds:
            self._stop = f"the workload ran longer than {found.run_seconds:g} s"
        elif quiet_since is not None and now - max(self._last_byte, quiet_since) > found.silent_seconds:
            self._stop = f"no payload arrived for {found.silent_seconds:g} s while no fault was held"
        elif found.abort_on_kernel_warnings and (warned := [w for watch in self._watches for w in watch.warnings]):
            self._stop = f"the kernel printed: {warned[0]['text'][:200]}"

    def _timed(self, seen: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {"seconds": round(one["at"] - self._zero, 3), **{k: v for k, v in one.items() if k != "at"}} for one in seen
        ]

    def _write(self, end: Mapping[str, str]) -> None:
        self.facts["end"] = end
        self.facts["faults"] = [holder.record for holder in self._holders]
        for holder in self._holders:
            if holder.log:
                self.folder.file("workload", f"{holder.entry.name}.log").write_text(holder.log, encoding="utf-8")
        for watch in self._watches:
            self.facts["problems"] += watch.problems
            self.facts["kernel_warnings"] += self._timed(watch.warnings)
        self.facts["seconds"] = round(self.now(), 3)
        self.folder.write_lines("events.jsonl", sorted(self.events, key=lambda event: float(event["seconds"])))
        self.folder.write_lines("samples.jsonl", self._timed([s for watch in self._watches for s in watch.samples]))
        self.folder.write("run.json", self.facts)
