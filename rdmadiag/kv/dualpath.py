"""Blocks of a peer's store by two paths at once, RDMA and TCP: each transfer takes the path that the scheduler chooses for it.

The control channel locates a block and lends it; READs (or WRITEs, of a block that goes there) move it in chunks by the chosen
path, straight from the peer's registered memory. A path that fails is fenced, demoted and tried again later; its transfers go on by
the other where they stopped. Content and version are verified at the end whatever the path was. Now and then a path is asked how it
is, between two jobs: an empty WRITE, whose acknowledgement is the round trip that the scheduler counts with.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any
from weakref import WeakKeyDictionary

from rdmadiag.errors import RdmadiagError
from rdmadiag.kv import frames
from rdmadiag.kv.blocks import crc
from rdmadiag.kv.client import Client
from rdmadiag.kv.health import DEMOTED, Policy
from rdmadiag.kv.pathrows import Told
from rdmadiag.kv.pool import NoRoom, Owner
from rdmadiag.kv.recovery import Route, blames_path
from rdmadiag.kv.scheduler import DATA, SMALL_BYTES, Job, Path, Scheduler
from rdmadiag.kv.transport import READ, SUCCESS, WRITE, Pump, Transport, Work, round_trip

PREEMPTED = "PREEMPTED"
_LOCAL = 1 << 61
"""Owners of this side's slots: sessions of their own."""


PROBE_SECONDS = 0.25
"""A path is asked so often."""
PROBES = 3
"""Round trips of which the shortest counts: the others waited for this program's own threads."""
TRIES = 4


class NotMoved(RdmadiagError):
    """A block could not be read or written: names the block and why."""


class Missed(NotMoved):
    """The peer does not have the block, or not in the version that was asked for."""


class _Task:
    def __init__(self, block: int, version: int, data: bytes | None) -> None:
        self.block, self.version, self.data, self.tries = block, version, data, TRIES
        self.future: Future[bytes] = Future()
        self.place: dict[str, Any] = {}
        self.slot = self.owner = -1
        self.paths: list[str] = []
        self.queued, self.begun = time.monotonic(), 0.0


class DualPath:
    """Reads and writes blocks of a store. A context manager. `paths` are named as the client's routes are; one thread each."""

    def __init__(
        self,
        client: Client,
        paths: Sequence[Path],
        policy: Policy | None = None,
        chunk_bytes: int = 64 << 10,
        window: int = 8,
        piece_bytes: int = 16 << 10,
        deadline_seconds: float = 3.0,
    ) -> None:
        self._client, self._window, self._deadline = client, window, deadline_seconds
        self._chunk_bytes, self._piece_bytes = chunk_bytes, piece_bytes
        self._turn = threading.Condition()
        self._control = threading.Lock()
        self._told = Told(paths)
        self._scheduler = Scheduler(paths, policy, self._event)
        self._tasks: dict[int, _Task] = {}  # not done yet
        self._paths: WeakKeyDictionary[Future[bytes], list[str]] = WeakKeyDictionary()
        self._numbers = itertools.count(1)
        self._closing = False
        routes = {route.name: route for route in client.routes}
        self._threads = [threading.Thread(target=self._path, args=(routes[path.name],), daemon=True) for path in paths]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> DualPath:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the paths' threads; what was not done ends with NotMoved. May be called twice."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        for thread in self._threads:
            thread.join()
        for task in self._tasks.values():
            if not task.future.done():
                task.future.set_exception(NotMoved(f"block {task.block}: the paths were closed"))

    def read(
        self, block: int, at_least: int = 0, kind: str = DATA, priority: int = 0, size: int | None = None
    ) -> Future[bytes]:
        """Read a block of a version or newer; its content. `size`: only so many bytes of it, not verified by the block's CRC."""
        return self._submit(_Task(block, at_least, None), kind, priority, size)

    def write(self, block: int, version: int, data: bytes, kind: str = DATA, priority: int = 0) -> Future[bytes]:
        """Write a block; its content once the peer has stored it. The future fails with NotMoved where the peer has a newer version."""
        return self._submit(_Task(block, version, data), kind, priority, None)

    def prefetch(self, some: Sequence[int]) -> None:
        """Tell the peer which blocks will be asked for soon. Raises PeerGone, ProtocolError."""
        self._ask({"type": "prefetch", "blocks": list(some)})

    def health(self, path: str) -> str:
        """Return the state of a path: healthy, demoted, probation."""
        with self._turn:
            return self._scheduler.health(path, time.monotonic())

    def paths_of(self, future: Future[bytes]) -> list[str]:
        """Return the paths that a transfer took, in order."""
        return self._paths.get(future, [])

    def rows(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the rows of kv_path and of kv_job."""
        with self._turn:
            now = time.monotonic()
            return self._told.path_rows(lambda path: self._scheduler.health(path, now), now), self._told.job_rows()

    def _event(self, change: str, path: str) -> None:
        self._client.recorder.event(change, path=path)
        self._told.changed(path, change, time.monotonic())

    def _submit(self, task: _Task, kind: str, priority: int, size: int | None) -> Future[bytes]:
        whole = self._client.arena.geometry.shape.piece_bytes
        if task.data is not None and len(task.data) != whole:
            raise ValueError(f"{len(task.data)} bytes; blocks have {whole}")
        with self._turn:
            if self._closing:
                raise NotMoved(f"block {task.block}: the paths were closed")
            number = next(self._numbers)
            self._tasks[number] = task
            self._paths[task.future] = task.paths
            path = self._scheduler.submit(Job(number, kind, min(size or whole, whole), priority), time.monotonic())
            self._told.queued(path, self._scheduler.waiting(path))
            self._turn.notify_all()
        return task.future

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        with self._control:
            return self._client._ask(message)

    # --- one thread a path ---

    def _path(self, route: Route) -> None:
        try:
            self._serve(route)
        except BaseException as error:  # a bug here: nobody may wait for ever for what this thread had
            with self._turn:
                self._closing = True
                self._turn.notify_all()
                for task in self._tasks.values():
                    if not task.future.done():
                        task.future.set_exception(error)
            raise

    def _serve(self, route: Route) -> None:
        transport: Transport | None = None
        asked = 0.0
        while True:
            job = None
            with self._turn:
                while not self._closing:
                    now = time.monotonic()
                    if now - asked >= PROBE_SECONDS and self._scheduler.health(route.name, now) != DEMOTED:
                        break
                    if (job := self._scheduler.next(route.name, now)) is not None:
                        break
                    self._turn.wait(0.02)  # a demotion ends by time, and nobody tells
                if self._closing:
                    break
            if job is None:
                transport, asked = self._look(route, transport), time.monotonic()
            else:
                transport = self._run(route, transport, job)
        if transport is not None:
            transport.close()

    def _look(self, route: Route, transport: Transport | None) -> Transport | None:
        """Measure the round trip of a path; one that does not answer is left. The transport, None when it is gone."""
        status, seconds = "RETRY_EXC_ERR", 0.0
        try:
            transport = transport or self._connect(route)
            for nth in range(PROBES):
                took, status = round_trip(transport, self._deadline)
                seconds = min(seconds, took) if nth else took
                if status != SUCCESS:
                    break
        except (OSError, RdmadiagError):
            pass  # it cannot be connected: no answer, as if it were dead
        with self._turn:
            now = time.monotonic()
            self._told.probed(route.name, seconds if status == SUCCESS else None)
            if status == SUCCESS:
                self._scheduler.measured(route.name, now, rtt_seconds=seconds)
            else:
                self._scheduler.left(route.name, now)
        if status != SUCCESS and transport is not None:
            self._drop(route, transport)
            transport = None
        return transport

    def _run(self, route: Route, transport: Transport | None, job: Job) -> Transport | None:
        """Do one job, or a part of it; the transport, None when it is gone."""
        task, status = self._tasks[job.number], SUCCESS
        task.begun = task.begun or time.monotonic()
        try:
            self._place(task)
            transport = transport or self._connect(route)
            status = self._move(route.name, transport, task, job)
        except OSError:
            status = "RETRY_EXC_ERR"
        except RdmadiagError as error:
            self._fail(task, error)
        if status not in (SUCCESS, PREEMPTED):
            reason = f"block {task.block} goes on elsewhere"
            blame = int(blames_path(status))
            self._client.recorder.event("detected", status=status, path=route.name, blames_path=blame, reason=reason)
            if transport is not None:
                self._drop(route, transport)
                transport = None
        self._end(route.name, task, job, status)
        return transport

    def _drop(self, route: Route, transport: Transport) -> None:
        """End a failed connection at both sides: before anything goes on by the other path, nothing of this one can land any more."""
        transport.close()
        with contextlib.suppress(RdmadiagError), self._control:  # without a control channel nothing goes on at all
            self._client.fence(route.kind)

    def _end(self, path: str, task: _Task, job: Job, status: str) -> None:
        with self._turn:
            if status == PREEMPTED:
                self._told.preempted(path)
            else:
                task.tries -= status != SUCCESS
                if not task.tries:
                    self._fail(task, NotMoved(f"every try failed, last with {status} on {path}"))
                now = time.monotonic()
                if status != SUCCESS or task.future.exception() is None:
                    self._told.ended(path, job, status == SUCCESS, task.begun - task.queued, now - task.begun)
                if self._scheduler.ended(path, status, now) is None:
                    del self._tasks[job.number]
            self._turn.notify_all()

    def _connect(self, route: Route) -> Transport:
        client = self._client
        with self._control:  # an RDMA path exchanges its QPs over the control channel
            return client._connect(route, client._granted, client.arena.view, 1, max(64, self._window))

    def _place(self, task: _Task) -> None:
        """Locate or announce the block at the peer, and take a slot here, unless that was done before. Raises NotMoved."""
        if task.place or task.future.done():
            return
        client = self._client
        with self._control:
            task.owner = next(self._numbers)
            try:
                task.slot = client.pool.take(Owner(_LOCAL, task.owner), 1, float("inf"))[0]
            except NoRoom as error:
                raise NotMoved(f"block {task.block}: {error}") from error
        kind = "locate" if task.data is None else "accept"
        place = self._ask({"type": kind, "block": task.block, "version": task.version})
        if "error" in place:
            raise (Missed if place["error"] == "miss" else NotMoved)(
                f"block {task.block}: {place['error']}. {place.get('why', '')}".strip()
            )
        for name, most in (("ticket", 1 << 63), ("offset", client.remote.size_bytes), ("length", 1 << 40)):
            frames.number(place, name, 0, most)
        if task.data is not None:
            client.arena.piece(0, task.slot)[:] = task.data
        task.place = place

    def _move(self, path: str, transport: Transport, task: _Task, job: Job) -> str:
        """Move what is left of a job, chunk by chunk; its status, or PREEMPTED."""
        if task.future.done():
            return SUCCESS
        if not task.paths or task.paths[-1] != path:
            task.paths.append(path)
        client, here = self._client, self._client.arena.geometry.offset(0, task.slot)
        op = READ if task.data is None else WRITE
        pump = Pump(transport, self._window, self._deadline, 1, lambda timed: client.recorder.ended(path, timed))
        at = job.done_bytes
        while at < job.size_bytes:
            end = min(job.size_bytes, at + self._chunk_bytes)
            works = [
                Work(n, op, 0, here + start, task.place["offset"] + start, min(self._piece_bytes, end - start))
                for n, start in enumerate(range(at, end, self._piece_bytes))
            ]
            begun = time.monotonic()
            stalled = pump.run(works)
            if stalled is not None:
                return stalled.status
            with self._turn:
                now = time.monotonic()
                self._told.moved(path, end - at, now - begun)
                if end - at > SMALL_BYTES:
                    self._scheduler.measured(path, now, rate=(end - at) / max(now - begun, 1e-9))
                if not self._scheduler.chunk(path, end - at, now):
                    return PREEMPTED
            at = end
        self._finish(task, job)
        return SUCCESS

    def _finish(self, task: _Task, job: Job) -> None:
        client, place = self._client, task.place
        data = bytes(client.arena.piece(0, task.slot)[: job.size_bytes])
        whole = job.size_bytes == place["length"]
        if task.data is None and whole and crc(data) != place.get("crc"):
            raise NotMoved(f"block {task.block}: what was read is not what the peer has (CRC)")
        if task.data is not None:
            answer = self._ask({"type": "commit", "ticket": place["ticket"], "crc": crc(data)})
            if not answer.get("stored"):
                raise NotMoved(f"block {task.block}: not stored, {answer.get('error', 'the peer has a newer version')}")
        self._give_back(task)
        task.future.set_result(data)

    def _fail(self, task: _Task, error: RdmadiagError) -> None:
        if not task.future.done():
            why = str(error)
            try:
                self._give_back(task)
            except (frames.PeerGone, frames.ProtocolError) as gone:
                why = f"{why}; {gone}"
            kind = Missed if isinstance(error, Missed) else NotMoved
            task.future.set_exception(kind(why if why.startswith("block") else f"block {task.block}: {why}"))

    def _give_back(self, task: _Task) -> None:
        client = self._client
        if task.place:
            self._ask({"type": "free", "ticket": task.place["ticket"]})
        if task.slot >= 0:
            with self._control:
                client.arena.paint(client.pool.drained(Owner(_LOCAL, task.owner)))
            task.slot = -1
