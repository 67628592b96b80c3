"""One request on its way from one side to the other, through failures, to its publication or its clean end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rdmadiag.errors import RdmadiagError
from rdmadiag.kv import blocks, frames, manifest
from rdmadiag.kv.blocks import Key
from rdmadiag.kv.health import DEMOTED
from rdmadiag.kv.layout import Geometry, Run, runs
from rdmadiag.kv.manifest import RequestKey
from rdmadiag.kv.pool import Owner
from rdmadiag.kv.recovery import Recovery, Route, action, blames_path
from rdmadiag.kv.transport import READ, WRITE, WRITE_WITH_IMM, Pump, Stalled, Work

if TYPE_CHECKING:
    from rdmadiag.kv.client import Client

PUSH, PUSH_IMM, PULL = "push", "push_imm", "pull"
MODES = (PUSH, PUSH_IMM, PULL)
_STATES = (blocks.CORRUPT, blocks.STALE, blocks.MISSING, blocks.TORN, blocks.MISPLACED)


class RequestFailed(RdmadiagError):
    """A request ended without being published; the others are not touched."""


class Transfer:
    """One request on its way."""

    def __init__(self, client: Client, request: int, version: int, count: int) -> None:
        self.client, self.count = client, count
        self.request, self.version = request, version
        self.pull = client.settings.mode == PULL
        self.head: dict[str, Any] = {"request": request, "version": version}
        self.owner = Owner(0, request)
        self.slots: list[int] = []
        self.theirs: list[int] = []
        self.crcs: dict[int, list[int]] = {}
        self.left: Counter[int] = Counter()  # works that a plane still waits for
        self.found = self.acknowledged = 0
        self.told: set[int] = set()
        self.sent: set[tuple[int, int]] = set()
        self.retries = self.reconnects = self.posted = self.resent = self.publications = 0
        self.moving = 0.0
        self.bitmap: manifest.Bitmap | None = None
        self.key = RequestKey(client.arena.incarnation if self.pull else client.peer, request, version)
        self.answer = ""
        self.beat_seconds, self.beaten = float("inf"), 0.0

    def run(self, audit: bool) -> dict[str, Any]:
        """Move the request; the row of kv_request."""
        client, recorder = self.client, self.client.recorder
        start, why, states = recorder.now(), "", Counter[str]()
        early = 0
        try:
            client.go_back()
            self._begin()
            self._move()
        except (RequestFailed, frames.PeerGone, frames.ProtocolError, OSError) as error:
            why = str(error) or type(error).__name__
        seconds = recorder.now() - start
        recorder.busy(start, start + seconds)
        try:
            if audit and not why:
                states, early = self._audit()
            self._release()
        except (frames.PeerGone, frames.ProtocolError) as error:
            why = why or str(error)
        size = self.count * client.arena.geometry.shape.block_bytes
        row = {
            **self.head,
            "path": client.route.name,
            "state": "failed" if why else manifest.PUBLISHED,
            "why": why or None,
            "seconds": round(seconds, 6),
            "moving_seconds": round(self.moving, 6),
            "bytes": size,
            "blocks": self.count,
            "posted_bytes": self.posted,
            "resent_bytes": self.resent,
            "retries": self.retries,
            "reconnects": self.reconnects,
            "publications": self.publications,
            "early_pieces": early,
            "audited": int(audit and not why),
            **{name.replace(" ", "_"): states[name] if not why and audit else None for name in _STATES},
            "damaged_on_arrival": self.found,
        }
        recorder.requests.append(row)
        recorder.show("request", **row)
        recorder.totals.update(
            requests=1,
            failed=bool(why),
            retries=self.retries,
            reconnects=self.reconnects,
            posted_bytes=self.posted,
            resent_bytes=self.resent,
            useful_bytes=0 if why else size,
        )
        return row

    def _begin(self) -> None:
        client, shape = self.client, self.client.arena.geometry.shape
        self.slots = client.pool.take(self.owner, self.count, float("inf"))
        kind = "want" if self.pull else "request"
        grant = client._ask({"type": kind, **self.head, "blocks": self.count, "incarnation": client.peer})
        if "error" in grant:
            raise RequestFailed(f"the peer does not take it: {grant['error']}. {grant.get('why', '')}".strip())
        lease = grant.get("lease_seconds")
        self.beat_seconds = lease / 3 if isinstance(lease, (int, float)) and lease > 0 else float("inf")
        self.beaten = time.monotonic()
        self.theirs = frames.numbers(grant, "slots", self.count, client.remote.slots - 1)
        if len(self.theirs) != self.count:
            raise frames.ProtocolError(f"{len(self.theirs)} slots for {self.count} blocks")
        if self.pull:
            self.bitmap = client.ledger.open(self.key, shape.planes, self.count)
            if self.bitmap is None:
                raise RequestFailed("this version was published or given up before")

    def _move(self) -> None:
        client, settings = self.client, self.client.settings
        if not settings.overlap:
            for plane in range(client.arena.geometry.shape.planes):
                self._make(plane)
        recovery = Recovery(client.routes, settings.limits, time.monotonic(), self.request)
        recovery.start_at(client.route)
        wanted: dict[int, list[int]] | None = None
        while True:
            status = self._attempt(wanted)
            if status is not None and self.acknowledged:
                recovery.progressed()  # something arrived before it failed: a fault of its own, with tries of its own
            health = client.health[client.route.name]
            if status is None:
                wanted = self._done()
                if not wanted:
                    health.succeeded(time.monotonic())
                    return
                status = "REM_OP_ERR"  # all was acknowledged, yet not all is there
                why = f"the peer lacks {sum(map(len, wanted.values()))} pieces after all were acknowledged"
                client.recorder.event("resend", request=self.request, reason=why, path=client.route.name)
            else:
                blame = int(blames_path(status))
                where = {"path": client.route.name, "blames_path": blame, "reason": action(status)}
                client.recorder.event("detected", request=self.request, status=status, **where)
                health.failed(status, time.monotonic())
            now = time.monotonic()
            step = recovery.after(status, now, leave=health.state(now) == DEMOTED)
            if step.moved:
                health.leave(now)
            if step.route is None:
                raise RequestFailed(step.why)
            self.retries += 1
            self._recover(status, step.route, step.seconds, step.moved)
            wanted = self._missing()

    def _recover(self, status: str, route: Route, seconds: float, moved: bool) -> None:
        client, old = self.client, self.client.route
        time.sleep(seconds)
        client.reconnect(route)
        self.reconnects += 1
        event = "fallback" if moved and route.kind != old.kind else "moved" if moved else "reconnect"
        client.recorder.event(event, request=self.request, status=status, path=old.name, to_path=route.name)

    def _attempt(self, wanted: dict[int, list[int]] | None) -> str | None:
        """Post what is wanted (all when None); None when all completed, else the first bad status."""
        client, settings = self.client, self.client.settings
        try:
            transport = client.transport()
        except OSError as error:
            client.recorder.event("not_connected", request=self.request, path=client.route.name, reason=str(error))
            return "RETRY_EXC_ERR"
        name = client.route.name
        pump = Pump(
            transport, settings.window, settings.deadline_seconds, settings.signal_every,
            lambda timed: client.recorder.ended(name, timed),
        )  # fmt: skip
        self.acknowledged = 0
        begun = time.monotonic()

        def done(work: Work) -> None:
            self.acknowledged += 1
            plane = self._plane_of[work.wr_id]
            self.left[plane] -= 1
            if not self.left[plane] and plane in self._posted:
                self._written(plane)

        stalled: Stalled | None = pump.run(self._works(wanted), done)
        self.moving += time.monotonic() - begun
        return stalled.status if stalled else None

    def _works(self, wanted: dict[int, list[int]] | None) -> Iterator[Work]:
        """Yield the works, plane after plane; a plane is made when its turn comes."""
        client, settings = self.client, self.client.settings
        shape = client.arena.geometry.shape
        self._plane_of: dict[int, int] = {}
        self._posted: set[int] = set()
        self.left.clear()
        wr_id = 0
        for plane in range(shape.planes) if wanted is None else sorted(wanted):
            self._make(plane)
            parts = list(self._runs(plane, None if wanted is None else wanted[plane]))
            self.left[plane] = len(parts)
            self._posted.add(plane)
            for last, part in enumerate(parts, 1):
                self._plane_of[wr_id] = plane
                self.posted += part.length
                pieces = {(plane, part.first + nth) for nth in range(part.blocks)}
                self.resent += len(self.sent & pieces) * shape.piece_bytes
                self.sent |= pieces
                local, remote = (part.target, part.source) if self.pull else (part.source, part.target)
                op, imm = (READ if self.pull else WRITE), None
                if settings.mode == PUSH_IMM and last == len(parts):
                    op, imm = WRITE_WITH_IMM, (self.request & 0xFFFFF) << 12 | plane
                yield Work(wr_id, op, plane % settings.qps, local, remote, part.length, imm)
                wr_id += 1

    def _runs(self, plane: int, wanted: list[int] | None) -> Iterator[Run]:
        client, most = self.client, self.client.settings.merge_bytes
        here: tuple[Geometry, list[int]] = (client.arena.geometry, self.slots)
        there: tuple[Geometry, list[int]] = (client.remote, self.theirs)
        source, target = (there, here) if self.pull else (here, there)
        return runs(*source, *target, plane, wanted, most)

    def _make(self, plane: int) -> None:
        client = self.client
        if time.monotonic() - self.beaten > self.beat_seconds:
            client.heartbeat(self.request)  # a lease that ran out all the same is told by what is asked next
            self.beaten = time.monotonic()
        if plane in self.crcs:
            return
        if self.pull:
            answer = client._ask({"type": "plane", **self.head, "plane": plane})
            if "error" in answer:
                raise RequestFailed("the peer's lease of this request ran out")
            self.crcs[plane] = frames.numbers(answer, "crcs", self.count)
            return
        own = client.arena.incarnation
        keys = [Key(own, self.request, self.version, plane, block) for block in range(self.count)]
        self.crcs[plane] = [client.make(key, slot) for key, slot in zip(keys, self.slots, strict=True)]
        if client.settings.mode == PUSH_IMM and client.settings.overlap:
            client._tell({"type": "plane", **self.head, "plane": plane, "crcs": self.crcs[plane]})

    def _written(self, plane: int) -> None:
        """All works of a plane completed: the consumer's side of it is verified while the next ones are under way."""
        client = self.client
        client.recorder.show("plane", request=self.request, plane=plane)
        if not client.settings.overlap:
            if not self.pull:  # the row of the manifest, for `done` to verify by
                client._tell({"type": "plane", **self.head, "plane": plane, "crcs": self.crcs[plane]})
        elif self.pull:
            self._verify(plane, acknowledged=True)
        elif client.settings.mode == PUSH:
            self._tell_written(plane, acknowledged=True)

    def _verify(self, plane: int, acknowledged: bool) -> None:
        if self.bitmap is None or self.bitmap.plane_complete(plane):
            return
        for block, want in enumerate(self.crcs[plane]):
            if self.client.arena.crc(plane, self.slots[block]) == want:
                self.bitmap.set(plane, block)
            else:
                self.found += acknowledged

    def _tell_written(self, plane: int, acknowledged: bool) -> None:
        self.told.add(plane)
        written = {"type": "plane", **self.head, "plane": plane, "crcs": self.crcs[plane], "written": True}
        self.client._tell({**written, "acknowledged": acknowledged})

    def _done(self) -> dict[int, list[int]]:
        """Ask for the publication; what is missing."""
        if self.pull:
            assert self.bitmap is not None
            if not self.client.settings.overlap:
                for plane in self.crcs:
                    self._verify(plane, acknowledged=True)
            self.answer = self.client.ledger.publish(self.key)
            lacks = self.bitmap.missing()
        else:
            answer = self.client._ask({"type": "done", **self.head})
            self.answer = str(answer.get("answer"))
            lacks = {}
            if self.answer == manifest.INCOMPLETE:
                lacks = self._lacks(answer)
            self.found = frames.number(answer, "found") if "found" in answer else self.found
        if self.answer in (manifest.LATE, manifest.UNKNOWN):
            raise RequestFailed("the peer's lease of this request ran out, or it began anew: nothing was published")
        self.publications += self.answer == manifest.PUBLISHED
        return lacks

    def _missing(self) -> dict[int, list[int]]:
        if self.bitmap is not None:
            for plane in self.crcs:
                self._verify(plane, acknowledged=False)
            return self.bitmap.missing()
        for plane in [plane for plane in self.crcs if plane not in self.told]:
            self._tell_written(plane, acknowledged=False)  # so that only what did not arrive is sent again
        answer = self.client._ask({"type": "status", **self.head})
        if "error" in answer:
            raise RequestFailed("the peer's lease of this request ran out")
        return self._lacks(answer)

    def _lacks(self, answer: dict[str, Any]) -> dict[int, list[int]]:
        planes = self.client.arena.geometry.shape.planes
        try:
            return manifest.missing_of(frames.words(answer, "have", planes), self.count)
        except ValueError as error:
            raise frames.ProtocolError(f"bitmap: {error}") from None

    def _audit(self) -> tuple[Counter[str], int]:
        client = self.client
        if not self.pull:
            answer = client._ask({"type": "audit", **self.head})
            states = answer.get("states")
            told = {str(k): int(v) for k, v in states.items()} if isinstance(states, dict) else {}
            return Counter(told), int(answer.get("early") or 0)
        states = Counter(
            client.arena.classify(Key(client.peer, self.request, self.version, plane, block), slot)
            for plane in range(client.arena.geometry.shape.planes)
            for block, slot in enumerate(self.slots)
        )
        return states, 0

    def _release(self) -> None:
        """Nothing of this request is under way any more: both sides' slots are free again."""
        client = self.client
        client.ledger.drop(self.key)
        if self.slots:
            client.arena.paint(client.pool.drained(self.owner))
        if self.theirs:
            client._ask({"type": "release" if self.pull else "drained", "request": self.request})
