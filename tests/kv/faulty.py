"""Faults made between a client and its transport: what a network, an adapter or an engine can do to work requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rdmadiag.kv.client import Connect, Granted, connect_tcp
from rdmadiag.kv.recovery import Route
from rdmadiag.kv.transport import Completion, Transport, Work


class Faulty:
    """A transport whose works go through `change`; None swallows one (no completion ever), a text fails it with that status."""

    def __init__(self, inner: Transport, change: Callable[[Work], Work | str | None]) -> None:
        self.inner, self._change = inner, change
        self.kind, self.qps, self.depth = inner.kind, inner.qps, inner.depth
        self._failed: list[Completion] = []
        self._swallowed: list[Work] = []

    def post(self, works: Sequence[Work]) -> int:
        for count, work in enumerate(works):
            changed = self._change(work)
            if isinstance(changed, str):
                self._failed.append(Completion(work.wr_id, changed, work.qp))
            elif changed is None:
                self._swallowed.append(work)
            elif not self.inner.post([changed]):
                return count
        return len(works)

    def poll(self, seconds: float) -> list[Completion]:
        failed, self._failed = self._failed, []
        return failed or self.inner.poll(seconds)

    def error(self, qp: int) -> None:
        self.inner.error(qp)
        self._failed += [Completion(work.wr_id, "WR_FLUSH_ERR", qp) for work in self._swallowed if work.qp == qp]
        self._swallowed = [work for work in self._swallowed if work.qp != qp]

    def close(self) -> None:
        self.inner.close()


def faulty(change: Callable[[Work], Work | str | None], first_only: bool = False) -> Connect:
    """Return a `connect` whose transports (or only the first of them) change works."""
    made = []

    def connect(to: Route, granted: Granted, arena: memoryview, qps: int, depth: int) -> Transport:
        inner = connect_tcp(to, granted, arena, qps, depth)
        made.append(inner)
        return inner if first_only and len(made) > 1 else Faulty(inner, change)

    return connect


class Once:
    """Returns `what` for the nth work and those after it until it has done so `times` times, the work itself for others."""

    def __init__(self, what: Callable[[Work], Work | str | None], after: int = 0, times: int = 1) -> None:
        self.what, self.after, self.times, self.seen = what, after, times, 0

    def __call__(self, work: Work) -> Work | str | None:
        self.seen += 1
        if self.seen <= self.after or not self.times:
            return work
        self.times -= 1
        return self.what(work)
