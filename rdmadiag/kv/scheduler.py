"""Which of two paths a job takes: by kind, size, load, priority and the path's health. No I/O, no clock of its own.

Control messages and small jobs go where the latency is low, bulk where it will be done first (what waits there, and the path's
rate). A path that fails is demoted, comes back on probation after a time that doubles, and is healthy again after some successes.
Jobs of a higher priority go first and preempt: the one under way gives way at its next chunk, and goes on later where it stopped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rdmadiag.kv.recovery import blames_path

CONTROL, DATA = "control", "data"
HEALTHY, DEMOTED, PROBATION = "healthy", "demoted", "probation"


class Path(NamedTuple):
    """One path: its kind (rdma, tcp), expected rate [bytes/s] and latency [s]."""

    name: str
    kind: str
    bytes_per_second: float
    latency_seconds: float


class Policy(NamedTuple):
    """When a path is demoted (failures within seconds), how long, and what brings it back; `small_bytes`: latency counts more."""

    failures: int = 3
    within_seconds: float = 10.0
    demoted_seconds: float = 1.0
    most_seconds: float = 60.0
    successes: int = 3
    small_bytes: int = 16 << 10


class Health:
    """The health of one path. `event` is told of each change: demoted, probation, returned."""

    def __init__(self, policy: Policy, event: Callable[[str], None] = lambda change: None) -> None:
        self._policy, self._event = policy, event
        self._failed: deque[float] = deque()
        self._until = 0.0
        self._seconds = policy.demoted_seconds
        self._good = 0
        self._state = HEALTHY

    def state(self, now: float) -> str:
        """Return healthy, demoted or probation; a demotion that has run out becomes probation."""
        if self._state == DEMOTED and now >= self._until:
            self._state, self._good = PROBATION, 0
            self._event(PROBATION)
        return self._state

    def succeeded(self, now: float) -> None:
        """A job was done. On probation so many in a row make the path healthy; late news of a demoted path changes nothing."""
        if self.state(now) == PROBATION:
            self._good += 1
            if self._good >= self._policy.successes:
                self._state, self._seconds = HEALTHY, self._policy.demoted_seconds
                self._failed.clear()
                self._event("returned")

    def failed(self, status: str, now: float) -> None:
        """A job failed with a status: counted when it speaks against the path."""
        state = self.state(now)
        if not blames_path(status) or state == DEMOTED:
            return
        self._failed.append(now)
        while self._failed and self._failed[0] < now - self._policy.within_seconds:
            self._failed.popleft()
        if state == PROBATION or len(self._failed) >= self._policy.failures:
            if state == PROBATION:
                self._seconds = min(self._policy.most_seconds, 2 * self._seconds)
            self._state, self._until = DEMOTED, now + self._seconds
            self._failed.clear()
            self._event(DEMOTED)


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


class _Lane:
    def __init__(self, path: Path, health: Health) -> None:
        self.path, self.health = path, health
        self.waiting: list[Job] = []
        self.running: Job | None = None

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
        self._policy = policy or Policy()

        def told(path: Path) -> Callable[[str], None]:
            return lambda change: event(change, path.name)

        self._lanes = {path.name: _Lane(path, Health(self._policy, told(path))) for path in paths}
        self._event = event

    def health(self, path: str, now: float) -> str:
        """Return the state of a path."""
        return self._lanes[path].health.state(now)

    def submit(self, job: Job, now: float) -> str:
        """Queue a job on the path that suits it best now; the path's name."""
        lane = min(self._fit(now), key=lambda lane: (self._cost(lane, job), lane.path.name))
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

    def _cost(self, lane: _Lane, job: Job) -> float:
        path = lane.path
        waits = lane.load(job.priority) / path.bytes_per_second
        if job.kind == CONTROL:
            # The control path is TCP as long as it is healthy: control must not wait behind data, or for a QP to be rebuilt.
            return (path.kind != "tcp") * 1e6 + waits + path.latency_seconds
        if job.left_bytes <= self._policy.small_bytes:
            return waits + path.latency_seconds
        return waits + path.latency_seconds + job.left_bytes / path.bytes_per_second

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
