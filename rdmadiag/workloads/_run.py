"""A workload that runs: its two ends as programs, what they say as events, and what came of it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType, TracebackType
from typing import Any

from rdmadiag.workloads import _carried
from rdmadiag.workloads._contract import CLIENT, SERVER, UNKNOWN, Event, Note, Setting, WorkloadError
from rdmadiag.workloads._place import Place, Process, Take

READY_SECONDS = 240.0
STOP_SECONDS = 5.0
LAST_LINES = 40
STALL_SECONDS = 5.0
"""A client whose claims did not grow for so long when it was stopped had stalled."""
SAME_ERRORS_MOST = 20
"""Errors of the same words that become events; more are counted."""


class _EndState:
    """One end: its program, and what its starts claimed."""

    def __init__(self) -> None:
        self.process: Process | None = None
        self.starts = 0
        self.claimed = [0]
        self.code: int | None = None
        self.by = ""
        self.ends_with_input = False
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        self.errors: Counter[str] = Counter()


class Run:
    """A workload that was started; used as a context, at whose end nothing of it is left.

    Events come by threads of their own, so nothing is lost while the caller does other things.
    """

    def __init__(self, name: str, adapter: ModuleType, place: Place, setting: Setting) -> None:
        self.name, self.adapter, self.place, self.setting = name, adapter, place, setting
        self.events: list[Event] = []
        self._changed = threading.Condition()
        self._ends = {SERVER: _EndState(), CLIENT: _EndState()}
        self._timers: list[threading.Timer] = []
        self._start = time.monotonic()
        self._before = self._counters()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _hosts(self) -> Any:
        return self.setting.client, self.setting.server

    def _counters(self) -> tuple[dict[str, int], dict[str, int]]:
        client, server = self._hosts()
        return _carried.read(self.place, client), _carried.read(self.place, server)

    def now(self) -> float:
        """Return the time since the run began [s]."""
        return time.monotonic() - self._start

    # --- what the ends say ---

    def _note(self, end: str, kind: str, values: dict[str, Any]) -> None:
        with self._changed:
            state = self._ends[end]
            if kind == "progress":
                state.claimed[-1] = max(state.claimed[-1], int(values["bytes"]))
            elif kind == "error":
                words = str(values.get("words"))
                state.errors[words] += 1
                if state.errors[words] > SAME_ERRORS_MOST:
                    return
            self.events.append(Event(round(self.now(), 6), end, kind, values))
            self._changed.notify_all()

    def start_end(self, role: str) -> None:
        """Start one end; its READY comes as an event. Raises LabError."""
        end, state = self.adapter.ends(self.setting)[role], self._ends[role]
        host = self.setting.server if role == SERVER else self.setting.client
        state.starts, state.code, state.by = state.starts + 1, None, ""
        state.claimed.append(0)
        state.ends_with_input = end.ends_with_input

        def line(stream: int, text: str) -> None:
            state.lines.append(text)
            for note in end.reader(stream, text):
                self._note(role, *note)
                if note.kind == "ready" and end.seconds:
                    self._stop_later(role, state.starts, end.seconds)

        def ended(code: int | None, problem: str) -> None:
            state.code = code
            self._note(role, "ended", {"code": code, "problem": problem})

        def start(take: Take) -> Any:
            return self.place.start(host.name, end.argv, end.environment, take)

        state.process = Process(start, line, ended)

    def _stop_later(self, role: str, starts: int, seconds: float) -> None:
        def stop() -> None:
            if self._ends[role].starts == starts:
                self.stop(role)

        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def follow(self, seconds: float, since: int = 0, while_runs: str = CLIENT) -> Iterator[Event]:
        """Yield the events from number `since` on, as they come, for so long, and no longer than one end runs."""
        deadline = time.monotonic() + seconds
        while True:
            with self._changed:
                if since >= len(self.events):
                    left = deadline - time.monotonic()
                    if left <= 0 or not self.is_running(while_runs):
                        return
                    self._changed.wait(min(left, 0.5))
                new = self.events[since:]
            since += len(new)
            yield from new

    def wait(self, role: str, kind: str, seconds: float, since: int = 0) -> Event:
        """Wait for an event of one end. Raises WorkloadError when it does not come, or the end has ended before."""
        for event in self.follow(seconds, since, role):
            if event.end == role and event.kind == kind:
                return event
            if event.end == role and event.kind == "ended":
                raise WorkloadError(self._account(role, f"ended with exit code {event.values['code']}", kind))
        raise WorkloadError(self._account(role, f"said nothing of the kind within {seconds:g} s", kind))

    def wait_ready(self, roles: list[str], ready: Callable[[str], None]) -> None:
        """Wait until each of some ends has said READY; the list is empty then. Raises WorkloadError."""
        while roles:
            self.wait(roles[0], "ready", READY_SECONDS)
            ready(roles.pop(0))

    def _account(self, role: str, what: str, kind: str) -> str:
        lines = [line for line in self._ends[role].lines if line.strip()][-8:]
        text = "".join(f"\n  | {line[:300]}" for line in lines)
        return f"{self.name}: the {role} on {self._host(role)} {what} (waited for: {kind}){text}"

    def _host(self, role: str) -> str:
        return (self.setting.server if role == SERVER else self.setting.client).name

    # --- what is done to the ends ---

    def _process(self, role: str) -> Process:
        process = self._ends[role].process
        if process is None:
            raise WorkloadError(f"{self.name} has no {role} that was started")
        return process

    def _act(self, role: str, by: str, number: int) -> None:
        if self._process(role).ended.is_set():
            return
        self._process(role).signal(number)
        self._ends[role].by = by
        self._note(role, "stopped", {"by": by})

    def stop(self, role: str) -> None:
        """Ask one end to end; it is killed when it does not within some seconds."""
        process, gentle = self._process(role), self._ends[role].ends_with_input
        self._act(role, "stop", signal.SIGCONT)
        process.end_input()
        if not gentle or not process.wait(STOP_SECONDS):
            process.signal(signal.SIGTERM)
        if not process.wait(STOP_SECONDS):
            self.kill(role)

    def kill(self, role: str) -> None:
        """Kill one end (SIGKILL) and wait until it is gone."""
        self._act(role, "kill", signal.SIGKILL)
        self._process(role).wait(STOP_SECONDS)

    def freeze(self, role: str) -> None:
        """Stop one end's processes (SIGSTOP): it is there and does nothing."""
        self._act(role, "freeze", signal.SIGSTOP)

    def thaw(self, role: str) -> None:
        """Let one end go on (SIGCONT)."""
        self._act(role, "thaw", signal.SIGCONT)

    def restart(self, role: str, seconds: float = READY_SECONDS) -> None:
        """Start one end again, under the same name and address, and wait for its READY. Raises WorkloadError, LabError."""
        if not self._process(role).ended.is_set():
            self.kill(role)
        self._process(role).close()
        since = len(self.events)
        self._note(role, "stopped", {"by": "restart"})
        self.start_end(role)
        self.wait(role, "ready", seconds, since)

    def is_running(self, role: str = "") -> bool:
        """Tell whether an end runs; of no role named, any."""
        states = [self._ends[role]] if role else list(self._ends.values())
        return any(state.process is not None and not state.process.ended.is_set() for state in states)

    def finish(self, seconds: float) -> dict[str, Any]:
        """Wait until the client has ended (it is stopped when time runs out), end the server, and return the result."""
        state = self._ends[CLIENT]
        out_of_time = not self._process(CLIENT).wait(seconds)
        if out_of_time:
            self.stop(CLIENT)
            state.by = "time"
        if self._ends[SERVER].process is not None and not self._process(SERVER).wait(1.0):
            self.stop(SERVER)
        return self.result()

    def close(self) -> None:
        """Kill what still runs."""
        for timer in self._timers:
            timer.cancel()
        for state in self._ends.values():
            if state.process is not None:
                state.process.close()
                state.process = None

    # --- what came of it ---

    def result(self) -> dict[str, Any]:
        """Return what came of the run, judged now; `ok` is yes, no or unknown with the reasons (rdmadiag.workload/1)."""
        with self._changed:
            events = list(self.events)
        claimed = sum(self._ends[CLIENT].claimed)
        found = _Found(events)
        moving = found.moving_seconds()
        carrier = next((e.values["carrier"] for e in events if "carrier" in e.values), UNKNOWN)
        carried = _carried.judge(claimed, self._hosts(), self._before, self._counters())
        problems = [*found.problems(self._ends), *_wrong_carrier(carrier, carried)]
        doubts = found.doubts(carrier, carried, bool(claimed))
        errors = found.errors()
        return {
            "schema": "rdmadiag.workload/1",
            "workload": self.name,
            "place": self.place.name,
            "client": self.setting.client._asdict(),
            "server": self.setting.server._asdict(),
            "parameters": dict(self.setting.parameters),
            "ok": _carried.NO if problems else _carried.UNKNOWN if doubts else _carried.YES,
            "problems": problems,
            "doubts": doubts,
            "seconds": round(self.now(), 3),
            "claimed_bytes": claimed,
            "moving_seconds": moving,
            "claimed_bytes_per_second": round(claimed / moving, 1) if moving else None,
            "carrier": carrier,
            "carried": carried._asdict(),
            "content": found.content(),
            "first_error_seconds": errors[0].seconds if errors else None,
            "errors": [{"seconds": e.seconds, "end": e.end, **e.values} for e in errors],
            "reconnects": len(found.of("reconnect")),
            "recovered_seconds": [e.values.get("seconds") for e in found.of("recovered")],
            "metrics": {e.values["name"]: e.values["value"] for e in found.of("metric")},
            "results": {e.end: e.values for e in found.of("result")},
            "exit_codes": {role: state.code for role, state in self._ends.items() if state.starts},
            "last_lines": {role: list(state.lines) for role, state in self._ends.items() if state.starts},
        }


def _wrong_carrier(carrier: str, carried: _carried.Carried) -> list[str]:
    if carrier == "rdma" and carried.answer == _carried.NO:
        return [f"not carried by RDMA, as was claimed: {carried.why}"]
    return []


class _Found:
    """The events of a run, as its result needs them."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    def of(self, kind: str) -> list[Event]:
        """Return the events of a kind."""
        return [event for event in self.events if event.kind == kind]

    def errors(self) -> list[Event]:
        """Return the errors, without those of a server whose client had ended: it complains of that."""
        begun = max((e.seconds for e in self.of("ready") if e.end == CLIENT), default=0.0)
        over = [e.seconds for e in self.events if e.end == CLIENT and e.kind in ("ended", "stopped")]
        last = min((seconds for seconds in over if seconds >= begun), default=float("inf"))
        return [e for e in self.of("error") if e.end == CLIENT or e.seconds < last]

    def moving_seconds(self) -> float | None:
        """Return the time from the client's first READY to its last claim; None when it claimed nothing."""
        ready = [e.seconds for e in self.of("ready") if e.end == CLIENT]
        claims = [e.seconds for e in self.of("progress") if e.end == CLIENT]
        return round(claims[-1] - ready[0], 6) if ready and claims and claims[-1] > ready[0] else None

    def stalled_seconds(self) -> float:
        """Return the time in which the claims did not grow, up to the moment at which the client was stopped; 0 otherwise."""
        client: list[Event] = []
        for event in self.events:  # of its last start, up to its end
            if event.end == CLIENT:
                client = [] if event.values.get("by") == "restart" else [*client, event]
        ended = next((nth for nth, e in enumerate(client) if e.kind == "ended"), len(client))
        client = client[:ended]
        stops = [e.seconds for e in client if e.kind == "stopped" and e.values["by"] == "stop"]
        grown, at = -1, 0.0
        for event in client:
            if event.kind == "ready" or (event.kind == "progress" and event.values["bytes"] > grown):
                grown, at = event.values.get("bytes", -1), event.seconds
        return round(stops[0] - at, 3) if stops and at else 0.0

    def content(self) -> dict[str, Any]:
        """Return what was verified: an answer, blocks, bytes, and blocks that were wrong."""
        sums = {name: sum(e.values.get(name, 0) for e in self.of("verified")) for name in ("blocks", "bytes", "wrong")}
        answer = _carried.NO if sums["wrong"] else _carried.YES if sums["bytes"] else _carried.UNKNOWN
        return {"answer": answer, **sums}

    def problems(self, ends: Mapping[str, _EndState]) -> list[str]:
        """Return what went wrong."""
        found = []
        state = ends[CLIENT]
        if state.by == "time":
            found.append("the client did not end in time and was stopped")
        elif state.by in ("", "thaw") and state.code not in (0, None):
            found.append(f"the client ended with exit code {state.code}")
        if (stalled := self.stalled_seconds()) > STALL_SECONDS:
            found.append(f"the client had claimed no more bytes for {stalled:.1f} s when it was stopped")
        for event in self.of("ended"):
            if event.values["problem"]:
                found.append(f"the {event.end}: {event.values['problem']}")
        errors = [e for e in self.of("error") if e.end == CLIENT]
        recovered = self.of("recovered")
        if errors and not (recovered and recovered[-1].seconds >= errors[-1].seconds):
            found.append(f"the client: {errors[-1].values.get('words')}")
        if wrong := self.content()["wrong"]:
            found.append(f"{wrong} blocks arrived with wrong content")
        return found

    def doubts(self, carrier: str, carried: _carried.Carried, claimed: bool) -> list[str]:
        """Return what keeps the run from being called good."""
        found = []
        if carrier == "rdma" and carried.answer == _carried.UNKNOWN:
            found.append(f"whether RDMA carried it is unknown: {carried.why}")
        if not claimed:
            found.append("nothing was claimed as transferred")
        return found


def start(
    name: str, adapter: ModuleType, place: Place, setting: Setting, ready: Callable[[str], None] = lambda role: None
) -> Run:
    """Start both ends, the server first, each until it says READY. Raises WorkloadError, LabError; nothing is left then."""
    run = Run(name, adapter, place, setting)
    with contextlib.ExitStack() as unless_ready:
        unless_ready.callback(run.close)
        waiting: list[str] = []
        for role, end in adapter.ends(setting).items():
            if not end.at_once:
                run.wait_ready(waiting, ready)
            run.start_end(role)
            waiting.append(role)
        run.wait_ready(waiting, ready)
        unless_ready.pop_all()
    return run


__all__ = ["Note", "Run", "start"]
