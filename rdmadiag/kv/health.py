"""The health of a path to a peer: demoted when it fails, on probation after a time that doubles, healthy after some successes.

One state machine for both that choose among paths: a transfer (rdmadiag.kv.client) and the dual path's scheduler. No I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rdmadiag.kv.recovery import blames_path

HEALTHY, DEMOTED, PROBATION = "healthy", "demoted", "probation"
RETURNED = "returned"


class Policy(NamedTuple):
    """When a path is demoted (failures within seconds), for how long, and how many successes make it healthy again."""

    failures: int = 3
    within_seconds: float = 10.0
    demoted_seconds: float = 1.0
    most_seconds: float = 60.0
    successes: int = 3


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
                self._event(RETURNED)

    def failed(self, status: str, now: float) -> None:
        """A job failed with a status: counted when it speaks against the path."""
        state = self.state(now)
        if not blames_path(status) or state == DEMOTED:
            return
        self._failed.append(now)
        while self._failed and self._failed[0] < now - self._policy.within_seconds:
            self._failed.popleft()
        if state == PROBATION or len(self._failed) >= self._policy.failures:
            self.leave(now)

    def leave(self, now: float) -> None:
        """Demote the path at once; on probation for twice as long as before."""
        state = self.state(now)
        if state == DEMOTED:
            return
        if state == PROBATION:
            self._seconds = min(self._policy.most_seconds, 2 * self._seconds)
        self._state, self._until = DEMOTED, now + self._seconds
        self._failed.clear()
        self._event(DEMOTED)
