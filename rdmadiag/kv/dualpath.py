"""Blocks of a peer's store by two paths at once, RDMA and TCP: each transfer takes the path that the scheduler chooses for it.

The control channel locates a block and lends it; READs (or WRITEs, of a block that goes there) move it in chunks by the chosen
path, straight from the peer's registered memory. A path that fails is demoted and tried again later; its transfers go on by the
other where they stopped. Content and version are verified at the end whatever the path was.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from rdmadiag.errors import RdmadiagError
from rdmadiag.kv import frames
from rdmadiag.kv.blocks import crc
from rdmadiag.kv.client import Client
from rdmadiag.kv.pool import NoRoom, Owner
from rdmadiag.kv.scheduler import DATA, Job, Path, Policy, Scheduler
from rdmadiag.kv.transport import READ, WRITE, Pump, Transport, Work

_LOCAL = 1 << 61
"""Owners of this side's slots: sessions of their own."""


class NotMoved(RdmadiagError):
    """A block could not be read or written: names the block and why."""


class _Task:
    def __init__(self, block: int, version: int, data: bytes | None, tries: int) -> None:
        self.block, self.version, self.data, self.tries = block, version, data, tries
        self.future: Future[bytes] = Future()
        self.place: dict[str, Any] = {}
        self.slot = self.owner = -1
        self.paths: list[str] = []


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
        self._scheduler = Scheduler(paths, policy, self._event)
        self._tasks: dict[int, _Task] = {}
        self._numbers = itertools.count(1)
        self._closing = False
        routes = {route.name: route for route in client.routes}
        self._threads = [threading.Thread(target=self._serve, args=(routes[path.name],), daemon=True) for path in paths]
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
        return self._submit(_Task(block, at_least, None, 4), kind, priority, size)

    def write(self, block: int, version: int, data: bytes, kind: str = DATA, priority: int = 0) -> Future[bytes]:
        """Write a block; its content once the peer has stored it. The future fails with NotMoved where the peer has a newer version."""
        return self._submit(_Task(block, version, data, 4), kind, priority, None)

    def health(self, path: str) -> str:
        """Return the state of a path: healthy, demoted, probation."""
        with self._turn:
            return self._scheduler.health(path, time.monotonic())

    def paths_of(self, future: Future[bytes]) -> list[str]:
        """Return the paths that a transfer took, in order."""
        return next((task.paths for task in self._tasks.values() if task.future is future), [])

    def _event(self, change: str, path: str) -> None:
        self._client.recorder.event(change, path=path)

    def _submit(self, task: _Task, kind: str, priority: int, size: int | None) -> Future[bytes]:
        whole = self._client.arena.geometry.shape.piece_bytes
        if task.data is not None and len(task.data) != whole:
            raise ValueError(f"{len(task.data)} bytes; blocks have {whole}")
        with self._turn:
            number = next(self._numbers)
            self._tasks[number] = task
            self._scheduler.submit(Job(number, kind, min(size or whole, whole), priority), time.monotonic())
            self._turn.notify_all()
        return task.future

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        with self._control:
            return self._client._ask(message)

    # --- one thread a path ---

    def _serve(self, route: Any) -> None:
        transport: Transport | None = None
        while True:
            with self._turn:
                while not self._closing and (job := self._scheduler.next(route.name, time.monotonic())) is None:
                    self._turn.wait(0.02)  # a demotion ends by time, and nobody tells
                if self._closing:
                    break
            assert job is not None
            task = self._tasks[job.number]
            status = "SUCCESS"
            try:
                self._place(task)
                if transport is None:
                    transport = self._connect(route)
                status = self._move(route.name, transport, task, job)
            except OSError:
                status = "RETRY_EXC_ERR"
            except RdmadiagError as error:
                self._fail(task, str(error))
            if status not in ("SUCCESS", "PREEMPTED") and transport is not None:
                transport.close()
                transport = None
            self._end(route.name, task, status)
        if transport is not None:
            transport.close()

    def _end(self, path: str, task: _Task, status: str) -> None:
        with self._turn:
            if status != "PREEMPTED":
                task.tries -= status != "SUCCESS"
                if not task.tries:
                    self._fail(task, f"every try failed, last with {status} on {path}")
                self._scheduler.ended(path, status, time.monotonic())
            self._turn.notify_all()

    def _connect(self, route: Any) -> Transport:
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
            raise NotMoved(f"block {task.block}: {place['error']}. {place.get('why', '')}".strip())
        for name, most in (("ticket", 1 << 63), ("offset", client.remote.size_bytes), ("length", 1 << 40)):
            frames.number(place, name, 0, most)
        if task.data is not None:
            client.arena.piece(0, task.slot)[:] = task.data
        task.place = place

    def _move(self, path: str, transport: Transport, task: _Task, job: Job) -> str:
        """Move what is left of a job, chunk by chunk; its status, or PREEMPTED."""
        if task.future.done():
            return "SUCCESS"
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
            stalled = pump.run(works)
            if stalled is not None:
                return stalled.status
            with self._turn:
                if not self._scheduler.chunk(path, end - at, time.monotonic()):
                    return "PREEMPTED"
            at = end
        self._finish(task, job)
        return "SUCCESS"

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

    def _fail(self, task: _Task, why: str) -> None:
        if not task.future.done():
            try:
                self._give_back(task)
            except (frames.PeerGone, frames.ProtocolError) as error:
                why = f"{why}; {error}"
            task.future.set_exception(NotMoved(why if why.startswith("block") else f"block {task.block}: {why}"))

    def _give_back(self, task: _Task) -> None:
        client = self._client
        if task.place:
            self._ask({"type": "free", "ticket": task.place["ticket"]})
        if task.slot >= 0:
            with self._control:
                client.arena.paint(client.pool.drained(Owner(_LOCAL, task.owner)))
            task.slot = -1
