"""Carries a plan out: intent on disk, watchdog, apply, confirm, hold, undo in reverse, verify against the state before."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rdmadiag import faults
from rdmadiag.errors import BadInput, RdmadiagError
from rdmadiag.faults import Plan, Refused, Restore
from rdmadiag.faults._steps import LEASE_SECONDS
from rdmadiag.inject import _shell, guard, journal, proof, revert
from rdmadiag.inject.node import Node, NodeGone
from rdmadiag.inject.proof import Fired, Proof
from rdmadiag.inject.target import Aim
from rdmadiag.lab import LabError

BEAT_SECONDS = 1.0
HEALTH_SECONDS = 5.0
MOST_SECONDS = 3600.0


class NotApplied(RdmadiagError):
    """A step could not be done; what had been done was undone."""


class RevertFailed(RdmadiagError):
    """The node is not as it was before; says what is left and how to take it off."""


@dataclass
class Outcome:
    """How an injection ended. `how` is held (its time or its block was over) or aborted, with `why`."""

    tag: str
    fault: str
    values: Mapping[str, Any]
    target: str
    for_seconds: float
    held_seconds: float = 0.0
    how: str = "held"
    why: str = ""
    fired: Fired = field(default_factory=lambda: Fired(Proof("unknown", "not looked"), Proof("unknown", "not looked")))
    clean: bool = False
    problems: list[str] = field(default_factory=list)
    log: str = ""  # what the fault's own program logged, where it is one

    @property
    def verdict(self) -> str:
        """Return REVERT_FAILED, ABORTED, NOT_FIRED (when that is not proven by both proofs), or FIRED."""
        if not self.clean:
            return "REVERT_FAILED"
        if self.how == "aborted":
            return "ABORTED"
        return "FIRED" if self.fired.answer == "yes" else "NOT_FIRED"

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        proofs = {
            name: {"answer": p.answer, "text": p.text, "values": dict(p.values)}
            for name, p in zip(("own", "other"), self.fired, strict=True)
        }
        return {
            "tag": self.tag,
            "fault": self.fault,
            "values": dict(self.values),
            "target": self.target,
            "for_seconds": self.for_seconds,
            "held_seconds": round(self.held_seconds, 3),
            "how": self.how,
            "why": self.why,
            "verdict": self.verdict,
            "fired": {"answer": self.fired.answer, **proofs},
            "clean": self.clean,
            "problems": list(self.problems),
            "log": self.log,
        }


class Injection:
    """One fault on one target, as a context manager: on at the start of the block, off at its end whatever happens in it.

    `abort_when` is asked every `beat_seconds`, with each sign of life; a text that it returns ends the injection with that reason.
    """

    def __init__(
        self,
        fault: str,
        values: Mapping[str, Any],
        aim: Aim,
        for_seconds: float,
        *,
        lease_seconds: float = LEASE_SECONDS,
        beat_seconds: float = BEAT_SECONDS,
        abort_when: Callable[[], str | None] | None = None,
    ) -> None:
        if not 0 < for_seconds <= MOST_SECONDS:
            raise BadInput(f"{for_seconds:g} s; wanted a time from above 0 to {MOST_SECONDS:g} s")
        if not 3 <= lease_seconds <= 60:
            raise BadInput(f"a lease of {lease_seconds:g} s; wanted 3 to 60 s")
        if not 0 < beat_seconds <= lease_seconds / 3:
            raise BadInput(
                f"a sign of life each {beat_seconds:g} s; wanted at most a third of the lease, {lease_seconds / 3:g} s"
            )
        self.fault, self.aim, self.for_seconds, self.lease_seconds = fault, aim, for_seconds, lease_seconds
        module = faults.find(fault)
        self.plan: Plan = faults.make_plan(fault, values, aim.target)
        self.values = {p.name: p.check(values.get(p.name, p.default)) for p in module.PARAMETERS}
        guard.check(aim, fault, module.PARAMETERS, self.values, self.plan, for_seconds)
        self.abort_when, self.beat_seconds = abort_when, beat_seconds
        self.tag = aim.target.tag
        self.node: Node = aim.node(self.plan.place)
        self.outcome = Outcome(self.tag, fault, self.values, aim.target.title, for_seconds)
        self.entry: journal.Entry | None = None
        self._lock, self._over = threading.Lock(), threading.Event()
        self._beats: threading.Thread | None = None
        self._kernel: list[str] = []
        self._hurt: set[str] = set()
        self.on_from = 0.0
        """time.monotonic() right before the first step: up to then nothing of it was on."""
        self._began = 0.0
        self._seen = proof.Seen()
        self.healed: list[revert.Reverted] = []  # what injectors that are gone had left here

    @property
    def title(self) -> str:
        """Return one line that says what it is."""
        told = " ".join(f"{name}={value}" for name, value in self.values.items())
        return f"{self.tag} {self.fault} {told}".strip()

    def texts(self) -> list[tuple[str, str, str]]:
        """Return what would be done: of each step what it is, the text that does it, and the text that undoes it."""
        return [(step.what, step.do(), step.undo()) for step in self.plan.steps]

    # --- on ---

    def __enter__(self) -> Injection:
        self.start()
        return self

    def start(self) -> None:
        """Put the fault on. Raises Refused, JournalError (nothing was changed), NotApplied (undone), RevertFailed."""
        self.healed = revert.heal()
        netdevs = self.plan.netdevs
        state = self.node.run(f"{_shell.sweep_text(netdevs)}\n{_shell.state_text(self.tag, netdevs)}").text
        self._kernel = self.node.run(_shell.KERNEL).text.splitlines()
        self._hurt = self._in_error("")
        self._seen = proof.Seen(earlier=(first := self._observe()), before=first)
        if self._only_health_counters():
            time.sleep(min(self.for_seconds, HEALTH_SECONDS))  # how fast they move in health is to be seen first
            self._seen = self._seen._replace(before=self._observe())
        self.entry = journal.begin(
            {
                "tag": self.tag,
                "fault": self.fault,
                "values": self.values,
                "target": self.aim.target.title,
                "key": self.aim.key,
                "instance": self.node.instance,
                "place": self.plan.place,
                "netdevs": list(self.plan.netdevs),
                "for_seconds": self.for_seconds,
                "lease_seconds": self.lease_seconds,
                "undo": _shell.undo_text(self.plan.steps, self.plan.netdevs, self.plan.drain_seconds),
                "holds": [step.holds() for step in self.plan.steps if not isinstance(step, Restore)],
                "state": state,
            }
        )
        journal.audit(f"{self.aim.target.title}: {self.title} for {self.for_seconds:g} s: begins")
        with contextlib.ExitStack() as unless_on:
            unless_on.callback(self._stop, "aborted", "it could not be put on")
            self._arm()
            self.on_from = time.monotonic()
            self._apply()
            if self.plan.moves.silent:
                self._seen = self._seen._replace(on=self._observe())
            elif self.plan.moves.kind in proof.STATES:
                self._observe()
            unless_on.pop_all()
        self._began = time.monotonic()
        self._beats = threading.Thread(target=self._beat_on, name=f"inject-{self.tag}", daemon=True)
        self._beats.start()

    def _observe(self) -> dict[str, float]:
        moves = self.plan.moves
        now = proof.observe(self.aim, moves, self.plan.place)
        # A state that differs from before is kept: the last look may find it as it was.
        if moves.kind in proof.STATES and proof.changed(moves, self._seen.before, now):
            self._seen = self._seen._replace(on=now)
        return now

    def _only_health_counters(self) -> bool:
        moves = self.plan.moves
        return moves.kind == "counter" and not moves.silent and not set(moves.names) - set(proof.MOVE_IN_HEALTH)

    def _arm(self) -> None:
        text = _shell.arm_text(self.tag, self.title, self.plan, self.lease_seconds, self.for_seconds)
        ran = self.node.run(text)
        words = ran.text.split()
        if words[:1] == ["busy"]:
            self._note(state="clean", how="refused")
            raise Refused(
                f"netdev {words[1]} of {self.aim.target.title} already carries injection {words[-1]}; "
                f"`rdmadiag inject status` shows it, `rdmadiag inject revert` takes it off"
            )
        if "armed" not in words:
            said = ran.err.decode(errors="replace").strip()[-300:]
            raise NotApplied(
                f"the watchdog could not be started on {self.aim.target.title}: {said or f'exit code {ran.code}'}"
            )

    def _apply(self) -> None:
        ran = self.node.run(
            _shell.do_text(self.tag, f"{self.title} for {self.for_seconds:g} s", self.plan.steps, self.for_seconds)
        )
        done = len([line for line in ran.text.splitlines() if line.startswith("did ")])
        if done < len(self.plan.steps):
            said = ran.err.decode(errors="replace").strip()[-500:]
            raise NotApplied(
                f"{self.plan.steps[done].what}: could not be done on {self.aim.target.title}: {said or f'exit code {ran.code}'}"
            )
        self._note(state="applied")

    # --- while it holds ---

    def fired(self) -> Fired:
        """Return both proofs as they are now; after the end, as they were then."""
        if self._over.is_set():
            return self.outcome.fired
        return self._proofs()

    def _proofs(self, last: bool = False) -> Fired:
        now = proof.counts(self.node, self.plan, self.tag, last)
        other = proof.other_proof(self.plan.moves, self._seen, self._observe(), self.aim.target.kind == "lab")
        return Fired(proof.own_proof(self.plan, {}, now), other)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the injection is over (its time, or an abort); return whether it is."""
        return self._over.wait(seconds)

    @property
    def over(self) -> bool:
        """Tell whether it is off."""
        return self._over.is_set()

    def _beat_on(self) -> None:
        while not self._over.wait(self.beat_seconds):
            if time.monotonic() - self._began >= self.for_seconds:
                self._stop("held", "its time was over")
                return
            try:
                reason = self._beat() or (self.abort_when() if self.abort_when else None)
                if self.plan.moves.kind in proof.STATES and not self._seen.on:
                    self._observe()  # a queue pair in ERR is closed and made anew by whom it belongs to
            except (NodeGone, LabError) as error:
                reason = f"the node does not answer: {error}"
            except Exception as error:  # noqa: BLE001 - whatever goes wrong while a fault is on, it must come off
                reason = f"watching it failed: {type(error).__name__}: {error}"
            if reason:
                self._stop("aborted", reason)
                return

    def _beat(self) -> str | None:
        lines = self.node.run(_shell.beat_text(self.tag, self.plan.steps), 60.0).text.splitlines()
        for line in lines:
            if line.startswith("over "):
                return f"the watchdog took it off: {line[5:]}"
        if "watchdog yes" not in lines:
            return "its watchdog is gone"
        for line in lines:
            if line.startswith("lost "):
                return f"{self.plan.steps[int(line[5:])].what}: no longer in force, and not by us"
        kernel = [line for line in lines if line.startswith("kernel ")]
        if kernel != self._kernel:
            return "the kernel warned (tainted, warn_count or oops_count changed); `dmesg` says of what"
        own = next((line[4:] for line in lines if line.startswith("own ")), "")
        new = (hurt := self._in_error(own)) - self._hurt
        self._hurt = hurt
        return f"queue pairs that it was not aimed at went to ERR: {', '.join(sorted(new))}" if new else None

    def _in_error(self, own: str) -> set[str]:
        """Return queue pairs in ERR that it is not aimed at; those of process `own` are its own."""
        if not self.plan.devices:
            return set()
        hurt = set()
        for place in self.aim.places():
            for line in self.aim.node(place).run("rdma res show qp 2>/dev/null", 60.0).text.splitlines():
                words = line.split()
                if words[:1] != ["link"] or not {"ERR", "SQE"} & set(words):
                    continue
                told = dict(zip(words[2::2], words[3::2], strict=False))
                device = words[1].partition("/")[0]
                its_own = (
                    told.get("pid") == own and place == self.plan.place
                    if self.plan.own
                    else device in self.plan.devices
                )
                if not its_own:
                    hurt.add(f"{place} {device} QP {told.get('lqpn', '?')}".strip())
        return hurt

    # --- off ---

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop("its block was left" if kind is None else f"its block was left by {kind.__name__}")
        if not self.outcome.clean:
            raise RevertFailed(self.left_text())

    def stop(self, why: str = "it was told to stop") -> Outcome:
        """Take the fault off, when it is on; return how it ended."""
        self._stop("held", why)
        if self._beats and self._beats is not threading.current_thread():
            self._beats.join()
        return self.outcome

    def left_text(self) -> str:
        """Say what is left on the node and what to do."""
        left = "; ".join(self.outcome.problems)
        return f"{self.title} on {self.aim.target.title} is not off: {left}; `rdmadiag inject revert {self.tag}` tries again"

    def _stop(self, how: str, why: str) -> None:
        with self._lock:
            if self._over.is_set():
                return
            self.outcome.how, self.outcome.why = how if self._began else "aborted", why
            if self.entry is None:  # nothing was changed
                self.outcome.clean = True
                self._over.set()
                return
            if self._began:
                self.outcome.held_seconds = time.monotonic() - self._began
                try:
                    self.outcome.fired = self._proofs(last=True)
                    self.outcome.log = proof.logged(self.node, self.plan, self.tag)
                except (NodeGone, LabError, ValueError) as error:
                    self.outcome.problems.append(f"the proofs could not be read: {error}")
            if self.entry.open:
                result = revert.one(self.entry, why)
                self.outcome.clean = result.clean
                self.outcome.problems += result.problems
            else:
                self.outcome.clean = True
            self._over.set()
            journal.audit(
                f"{self.aim.target.title}: {self.title}: {self.outcome.verdict} after {self.outcome.held_seconds:.1f} s ({why})"
            )

    def _note(self, **values: Any) -> None:
        assert self.entry
        self.entry.add(**values)
