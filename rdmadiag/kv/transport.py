"""What a transport does for a transfer: post work requests, give their completions, go to error. And the pump that drives one.

The words are those of verbs: a work request on a QP, completions in order on each QP, unsignalled requests that a later
signalled one retires, a QP in ERR that flushes what is outstanding. The TCP transport keeps to them, and RDMA fits without a change.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from rdmadiag.kv.recovery import DEADLINE

WRITE, WRITE_WITH_IMM, READ = "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ"
OPS = (WRITE, WRITE_WITH_IMM, READ)
BATCH = 16
"""Most works that a pump posts at once."""
SUCCESS, FLUSHED = "SUCCESS", "WR_FLUSH_ERR"


class Work(NamedTuple):
    """One work request: `local` and `remote` are offsets in the arenas, `qp` is the index of the queue pair."""

    wr_id: int
    op: str
    qp: int
    local: int
    remote: int
    length: int
    imm: int | None = None
    signaled: bool = True


class Completion(NamedTuple):
    """The end of a signalled or failed work request; `status` is an ibv_wc_status without IBV_WC_."""

    wr_id: int
    status: str
    qp: int
    vendor_err: int = 0


class Granted(NamedTuple):
    """What a transport needs of the peer: a token and the key of its memory (TCP), the control channel to ask by (RDMA), and whether
    it is on this machine (None: it did not say)."""

    token: int
    rkey: int
    ask: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    here: bool | None = None


class Transport(Protocol):
    """A set of connected QPs to one peer's arena."""

    kind: str
    qps: int
    depth: int

    def post(self, works: Sequence[Work]) -> int:
        """Post works in order; return how many were taken. Never blocks. A QP in ERR takes them and flushes them."""

    def poll(self, seconds: float) -> list[Completion]:
        """Return completions, after waiting for the first of them at most so long [s]."""

    def error(self, qp: int) -> None:
        """Move a QP to ERR: what is outstanding completes with WR_FLUSH_ERR, and the peer gets nothing more from it."""

    def close(self) -> None:
        """Destroy the QPs; may be called twice."""


PROBE = -2
SPIN_SECONDS = 0.002


def round_trip(transport: Transport, seconds: float) -> tuple[float, str]:
    """Write nothing to the peer and wait for its acknowledgement, at most so long [s]: how long it took [s], and the status.

    A QP on which that fails is in ERR. Nothing else may be outstanding.
    """
    start = time.monotonic()
    transport.post([Work(PROBE, WRITE, 0, 0, 0, 0)])
    while (took := time.monotonic() - start) <= seconds:
        # First without sleeping: a sleep is longer than the round trip of an adapter.
        for one in transport.poll(0.0 if took < SPIN_SECONDS else min(0.01, seconds)):
            if one.wr_id == PROBE:
                return time.monotonic() - start, one.status
    transport.error(0)
    return took, DEADLINE


class Timed(NamedTuple):
    """A work request that ended: when it was posted [s], how long it took [s], its status, and how many were outstanding then."""

    work: Work
    posted: float
    seconds: float
    status: str
    depth: int


class Stalled(NamedTuple):
    """Why a pump stopped: the first status that was no success, on which QP, and how many requests were not acknowledged."""

    status: str
    qp: int
    unacknowledged: int
    drained: bool


class Pump:
    """Drives works through a transport with a window: at most `window` outstanding a QP, every one with a deadline [s]."""

    def __init__(
        self,
        transport: Transport,
        window: int,
        deadline_seconds: float = 5.0,
        signal_every: int = 1,
        ended: Callable[[Timed], None] | None = None,
    ) -> None:
        if not 1 <= signal_every <= window:
            raise ValueError(
                f"signal_every {signal_every}: wanted 1 to the window, {window}; else nothing would complete"
            )
        self.transport, self.window = transport, min(window, transport.depth)
        self.deadline_seconds, self.signal_every = deadline_seconds, min(signal_every, self.window)
        self._ended = ended
        self._queues: list[deque[tuple[Work, float]]] = [deque() for _ in range(transport.qps)]
        self._unsignaled = [0] * transport.qps
        self._batch: list[Work] = []

    @property
    def outstanding(self) -> int:
        """Requests posted and not known to have ended."""
        return sum(map(len, self._queues))

    def run(self, works: Iterable[Work], done: Callable[[Work], None] | None = None) -> Stalled | None:
        """Post all works as the window allows, and wait for them. None when all succeeded; else the QPs are in ERR and drained.

        `works` is drawn one by one, so a producer makes a layer while the one before is under way; `done` gets each that succeeded.
        """
        stalled = None
        source, held = iter(works), None
        more = True
        while stalled is None and (more or held or self._batch or self.outstanding):
            while more or held:
                work = held or next(source, None)
                held = None
                if work is None:
                    more = False
                    break
                if len(self._queues[work.qp]) >= self.window:
                    held = work
                    break
                self._take(work)
                if len(self._batch) >= BATCH:
                    self._post()
                    if self._batch or (stalled := self._reap(0.0, done)):
                        break  # the transport is full, or something failed
            if stalled is None:
                if not more and not held:
                    self._flush_signal()
                self._post()
                waiting = bool(held or self._batch) or not more
                stalled = self._reap(0.05 if waiting and self.outstanding else 0.0, done)
        return stalled

    def _take(self, work: Work, last: bool = False) -> None:
        count = self._unsignaled[work.qp] + 1
        # The last that the window holds is signalled, or nothing would ever retire it.
        full = len(self._queues[work.qp]) + 1 >= self.window
        signaled = last or full or work.imm is not None or count >= self.signal_every
        self._unsignaled[work.qp] = 0 if signaled else count
        self._batch.append(work if signaled == work.signaled else work._replace(signaled=signaled))
        self._queues[work.qp].append((work, time.monotonic()))

    def _post(self) -> None:
        if self._batch:
            del self._batch[: self.transport.post(self._batch)]

    def _flush_signal(self) -> None:
        # A tail of unsignalled requests is retired by an empty signalled one behind it.
        for qp, queue in enumerate(self._queues):
            if queue and self._unsignaled[qp]:
                last = queue[-1][0]
                self._take(Work(-1, last.op, qp, last.local, last.remote, 0), last=True)

    def _reap(self, seconds: float, done: Callable[[Work], None] | None) -> Stalled | None:
        found = self.transport.poll(seconds)
        for nth, completion in enumerate(found):
            if completion.status != SUCCESS:
                return self._stop(completion.status, completion.qp, completion.wr_id, found[nth + 1 :])
            self._retire(completion, done)
        oldest = min((queue[0][1] for queue in self._queues if queue), default=None)
        if oldest is not None and time.monotonic() - oldest > self.deadline_seconds:
            late = next(qp for qp, queue in enumerate(self._queues) if queue and queue[0][1] == oldest)
            return self._stop(DEADLINE, late, self._queues[late][0][0].wr_id)
        return None

    def _retire(self, completion: Completion, done: Callable[[Work], None] | None) -> None:
        queue, now = self._queues[completion.qp], time.monotonic()
        if not any(work.wr_id == completion.wr_id for work, _ in queue):
            return  # of a request that was given up
        depth = self.outstanding
        while queue:
            work, posted = queue.popleft()
            if work.wr_id >= 0:
                if self._ended:
                    self._ended(Timed(work, posted, now - posted, SUCCESS, depth))
                if done:
                    done(work)
            if work.wr_id == completion.wr_id:
                return

    def _stop(self, status: str, qp: int, wr_id: int, more: Sequence[Completion] = ()) -> Stalled:
        """Move every QP to ERR and wait for all flushes: a request whose end is not known may still be written."""
        count = self.outstanding
        now = time.monotonic()
        for queue in self._queues:
            for work, posted in queue:
                if self._ended and work.wr_id >= 0:
                    bad = status if work.wr_id == wr_id and work.qp == qp else FLUSHED
                    self._ended(Timed(work, posted, now - posted, bad, count))
        left = [[work.wr_id for work, _ in queue] for queue in self._queues]
        for unposted in self._batch:
            left[unposted.qp].remove(unposted.wr_id)
        self._batch = []
        for each in range(self.transport.qps):
            self.transport.error(each)
        if status != DEADLINE:
            self._flushed(left, [Completion(wr_id, status, qp)])
        self._flushed(left, more)
        end = now + self.deadline_seconds
        while any(left) and time.monotonic() < end:
            self._flushed(left, self.transport.poll(0.05))
        for queue in self._queues:
            queue.clear()
        self._unsignaled = [0] * self.transport.qps
        return Stalled(status, qp, count, not any(left))

    @staticmethod
    def _flushed(left: list[list[int]], found: Sequence[Completion]) -> None:
        # In order on each QP: what was unsignalled before a completion has ended too, and says nothing itself.
        for one in found:
            if one.wr_id in left[one.qp]:
                del left[one.qp][: left[one.qp].index(one.wr_id) + 1]
