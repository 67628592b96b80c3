"""Which of two paths a job takes: by kind, size, load, priority and the path's health. No I/O, no clock of its own.

Control messages and small jobs go where the round trip is short, bulk where it will be done first (what waits there, and the path's
rate). Round trips and rates are what was measured lately, else what was expected. A path that fails is demoted and comes back
(rdmadiag.kv.health). Jobs of a higher priority go first and preempt: the one under way gives way at its next chunk, and goes on later
where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rdmadiag.kv.health import DEMOTED, HEALTHY, PROBATION, Health, Policy

CONTROL, DATA = "control", "data"
SMALL_BYTES = 16 << 10
"""Of a job up to so many bytes the round trip counts, not the rate."""
FRESH_SECONDS = 5.0
"""A measurement older than that is none: a path that was slow once must get a chance to be fast again."""
WEIGHT = 0.25
"""Of the newest measurement in the mean."""


class Path(NamedTuple):
    """One path: its kind (rdma, tcp), the most that it is expected to bring [bytes/s] and its expected round trip [s]."""

    name: str
    kind: str
    bytes_per_second: float
    latency_seconds: float


class Job(NamedTuple):
    """A transfer to be done: higher `priority` first; `done_bytes` is where it goes on after it gave way."""

    number: int
    kind: str
    size_bytes: int
    priority: int = 0
    done_bytes: int = 0

    @property
    def left_bytes(self) -> int:
        """What is still to be moved."""
        return self.size_bytes - self.done_bytes


class _Mean:
    """What was measured lately: a mean in which the newest counts most; None when nothing was measured for long."""

    def __init__(self) -> None:
        self._value, self._at = 0.0, -math.inf

    def add(self, value: float, now: float) -> None:
        old = self.value(now)
        self._value, self._at = value if old is None else old + WEIGHT * (value - old), now

    def value(self, now: float) -> float | None:
        return self._value if now - self._at <= FRESH_SECONDS else None


class _Lane:
    def __init__(self, path: Path, health: Health) -> None:
        self.path, self.health = path, health
        self.waiting: list[Job] = []
        self.running: Job | None = None
        self.rtt, self.rate = _Mean(), _Mean()

    def rtt_seconds(self, now: float) -> float:
        """The round trip as it was measured lately, else as expected."""
        measured = self.rtt.value(now)
        return self.path.latency_seconds if measured is None else measured

    def bytes_per_second(self, now: float) -> float:
        """The rate as it was measured lately, at most as expected: what was moved while little waited is no proof of more."""
        measured = self.rate.value(now)
        return self.path.bytes_per_second if measured is None else min(measured, self.path.bytes_per_second)

    def load(self, priority: int) -> int:
        """Bytes that go before a job of a priority."""
        ahead = [job for job in self.waiting if job.priority >= priority]
        if self.running and self.running.priority >= priority:
            ahead.append(self.running)
        return sum(job.left_bytes for job in ahead)


class Scheduler:
    """Jobs on paths. The caller runs them: `next`, then `chunk` after each part of a job, then `ended`."""

    def __init__(
        self,
        paths: Sequence[Path],
        policy: Policy | None = None,
        event: Callable[[str, str], None] = lambda change, path: None,
    ) -> None:
        def told(path: Path) -> Callable[[str], None]:
            return lambda change: event(change, path.name)

        self._lanes = {path.name: _Lane(path, Health(policy or Policy(), told(path))) for path in paths}
        self._event = event

    def health(self, path: str, now: float) -> str:
        """Return the state of a path."""
        return self._lanes[path].health.state(now)

    def submit(self, job: Job, now: float) -> str:
        """Queue a job on the path that suits it best now; the path's name."""
        lane = min(self._fit(now), key=lambda lane: (self._cost(lane, job, now), lane.path.name))
        lane.waiting.append(job)
        return lane.path.name

    def _fit(self, now: float) -> list[_Lane]:
        """Paths that may get a job: healthy ones, one on probation with nothing to do; where there is none, all: a job is never lost."""
        lanes = list(self._lanes.values())
        states = {lane.path.name: lane.health.state(now) for lane in lanes}
        trial = [
            lane for lane in lanes if states[lane.path.name] == PROBATION and not lane.waiting and not lane.running
        ]
        return trial + [lane for lane in lanes if states[lane.path.name] == HEALTHY] or lanes

    def _cost(self, lane: _Lane, job: Job, now: float) -> float:
        rate, rtt = lane.bytes_per_second(now), lane.rtt_seconds(now)
        waits = lane.load(job.priority) / rate
        if job.kind == CONTROL:
            # The control path is TCP as long as it is healthy: control must not wait behind data, or for a QP to be rebuilt.
            return (lane.path.kind != "tcp") * 1e6 + waits + rtt
        if job.left_bytes <= SMALL_BYTES:
            return waits + rtt
        return waits + rtt + job.left_bytes / rate

    def measured(self, path: str, now: float, rtt_seconds: float | None = None, rate: float | None = None) -> None:
        """Note a round trip [s] or a rate [bytes/s] of a path."""
        lane = self._lanes[path]
        if rtt_seconds is not None:
            lane.rtt.add(rtt_seconds, now)
        if rate is not None and rate > 0:
            lane.rate.add(rate, now)

    def left(self, path: str, now: float) -> None:
        """Demote a path that did not answer although nothing ran on it."""
        self._lanes[path].health.leave(now)

    def waiting(self, path: str) -> int:
        """Return how many jobs wait on a path."""
        return len(self._lanes[path].waiting)

    def next(self, path: str, now: float) -> Job | None:
        """Take the next job of an idle path: the highest priority, the oldest of those. What waits on a demoted path moves away first."""
        lane = self._lanes[path]
        if lane.health.state(now) == DEMOTED:
            self._move_away(lane, now)
        if lane.running or not lane.waiting:
            return lane.running and None
        best = max(lane.waiting, key=lambda job: job.priority)  # the first of equals
        lane.waiting.remove(best)
        lane.running = best
        return best

    def _move_away(self, lane: _Lane, now: float) -> None:
        if lane in self._fit(now):
            return  # there is nothing better
        waiting, lane.waiting = lane.waiting, []
        for job in waiting:
            self.submit(job, now)

    def chunk(self, path: str, moved_bytes: int, now: float) -> bool:
        """Note a part of the running job; False: it gives way to a job of a higher priority, and waits where it was."""
        lane = self._lanes[path]
        job = lane.running
        if job is None:
            raise ValueError(f"nothing runs on {path}")
        lane.running = job._replace(done_bytes=min(job.size_bytes, job.done_bytes + moved_bytes))
        if lane.running.left_bytes and any(other.priority > job.priority for other in lane.waiting):
            lane.waiting.insert(0, lane.running)
            lane.running = None
            self._event("preempted", path)
            return False
        return True

    def ended(self, path: str, status: str, now: float) -> Job | None:
        """End the running job: None when it succeeded; else it goes on elsewhere (queued again), and is returned."""
        lane = self._lanes[path]
        job, lane.running = lane.running, None
        if job is None:
            raise ValueError(f"nothing runs on {path}")
        if status == "SUCCESS":
            lane.health.succeeded(now)
            return None
        lane.health.failed(status, now)
        self.submit(job, now)
        return job
