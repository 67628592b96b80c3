"""One peer at the side that listens: its requests, what it may write or read, and the answers to its messages.

Push: `request` (slots), WRITEs, `plane` (CRCs of a plane that was written), `done`. Pull: `want` (slots), `plane` (the peer makes
it and tells CRCs), READs, `release`. Both: `rdma` (QPs of one of this side's devices), `reconnect` (the old QPs are fenced, a new
key), `fence` (the QPs of one kind), `heartbeat`, `drained`, `audit`; and those of a store (rdmadiag.kv.storage).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rdmadiag.errors import RdmadiagError
from rdmadiag.kv import blocks, frames, manifest
from rdmadiag.kv.arena import Arena
from rdmadiag.kv.blocks import Key
from rdmadiag.kv.manifest import Bitmap, Ledger, RequestKey
from rdmadiag.kv.pool import NoRoom, Owner, Pool
from rdmadiag.kv.rdma_responder import Devices, RdmaResponder
from rdmadiag.kv.storage import Shelf
from rdmadiag.kv.store import Store
from rdmadiag.kv.tcp import Access, Responder

MOST_BLOCKS = 1 << 16
U32, U64 = (1 << 32) - 1, (1 << 64) - 2
VERIFIED, DONE = "verified", "done"


class Options(NamedTuple):
    """How a listening side behaves. `publish_on` done and `unfenced` are mistakes that engines make, kept to show what comes of them."""

    slots: int = 256
    lease_seconds: float = 30.0
    publish_on: str = VERIFIED
    unfenced: bool = False
    canary_every: int = 16
    receives: int = 64
    seed: int = 1


class State:
    """What the sessions of a listening side share; every use holds `lock`."""

    def __init__(self, arena: Arena, options: Options, devices: Sequence[str] = ()) -> None:
        self.arena, self.options = arena, options
        self.devices = Devices(devices)
        self.store: Store | None = None
        self.lock = threading.RLock()
        self.pool = Pool(arena.geometry.slots, options.seed, options.canary_every, options.unfenced)
        self.ledger = Ledger(arena.incarnation)
        self.requests: dict[Owner, Served] = {}
        self.lost: set[tuple[int, int]] = set()  # (producer's incarnation, request) whose lease ran out
        self.late_written = self.fences = 0

    def tick(self) -> None:
        """End leases that have run out. Slots are painted, so that a write that comes after is seen."""
        with self.lock:
            for owner, slots in self.pool.expire(time.monotonic()):
                served = self.requests.pop(owner, None)
                if served is not None:
                    self.ledger.drop(served.key)
                    self.lost.add((served.producer, served.key.request))
                self.arena.paint(slots)

    def freed(self, slots: list[int]) -> None:
        """Paint slots that were freed."""
        self.arena.paint(slots)

    def free_slots_written(self) -> int:
        """Return the pieces of free and quarantined slots that somebody wrote to: late writes."""
        with self.lock:
            return len(self.arena.damaged([*self.pool.free, *self.pool.quarantined]))

    def canaries_damaged(self) -> int:
        """Return the pieces between requests that somebody wrote to."""
        with self.lock:
            return len(self.arena.damaged(self.pool.canaries))


class Served:
    """One request at the listening side."""

    def __init__(self, key: RequestKey, producer: int, slots: list[int], bitmap: Bitmap | None) -> None:
        self.key, self.producer, self.slots, self.bitmap = key, producer, slots, bitmap
        self.crcs: dict[int, list[int]] = {}
        self.found: dict[tuple[int, int], str] = {}  # pieces that were acknowledged and not as they should be
        self.late: set[tuple[int, int]] = set()  # pieces that a request wrote whose lease had run out
        self.early = 0


class Session:
    """Answers the messages of one peer. `answer` is called by one thread; data channels are served by others."""

    def __init__(self, state: State, number: int, peer_incarnation: int) -> None:
        self.state, self.number, self.peer = state, number, peer_incarnation
        self.token = self.rkey = 0
        self.responder = Responder(self._access, state.options.receives)
        self.rdma: RdmaResponder | None = None
        self._renew()
        self._handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "request": self._request,
            "want": self._want,
            "plane": self._plane,
            "done": self._done,
            "status": self._status,
            "heartbeat": self._heartbeat,
            "reconnect": self._reconnect,
            "fence": self._fence_kind,
            "rdma": self._rdma,
            "drained": self._drained,
            "release": self._drained,
            "audit": self._audit,
            "report": self._report,
            **Shelf(state, number).handlers,
        }

    def _renew(self) -> None:
        self.token, self.rkey = secrets.randbits(64), secrets.randbits(64)

    def _access(self, rkey: int) -> Access | None:
        return Access(self.state.arena.view) if rkey == self.rkey else None

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a message. Raises ProtocolError for one that the protocol does not have."""
        handler = self._handlers.get(message["type"])
        if handler is None:
            raise frames.ProtocolError(f"{message['type'][:40]!r}: wanted one of {', '.join(self._handlers)}")
        if handler in (
            self._reconnect,
            self._rdma,
            self._fence_kind,
        ):  # wait for threads: without the lock, so that other peers go on
            return {"type": "answer", **handler(message)}
        with self.state.lock:
            return {"type": "answer", **handler(message)}

    def end(self) -> bool:
        """Fence the session and free all its slots. False when a channel could not be stopped: then its slots stay in quarantine."""
        with self.state.lock:
            self.rkey = secrets.randbits(64)
        fenced = self._fence()
        with self.state.lock:
            for owner in [owner for owner in self.state.requests if owner.session == self.number]:
                self.state.ledger.drop(self.state.requests.pop(owner).key)
                if not fenced:
                    self.state.pool.revoke(owner)
            if fenced:
                self.state.fences += 1
                self.state.freed(self.state.pool.deregistered(self.number))
        return fenced

    def _fence(self) -> bool:
        rdma, self.rdma = self.rdma, None
        gone = rdma is None or rdma.fence()
        return self.responder.fence() and gone

    def _rdma(self, message: dict[str, Any]) -> dict[str, Any]:
        """Make this side's end of an RDMA connection; one that there was before is fenced."""
        old, self.rdma = self.rdma, None
        if old is not None and not old.fence():
            return {"error": "not fenced"}
        try:
            self.rdma = self.state.devices.respond(
                message, self.state.arena.view, self.state.options.receives, self.arrived
            )
        except frames.ProtocolError:
            raise
        except RdmadiagError as error:
            return {"error": str(error)}
        return {"offer": self.rdma.offer.as_json()}

    def _served(self, message: dict[str, Any]) -> Served | None:
        owner = Owner(self.number, frames.number(message, "request", 0, U64))
        served = self.state.requests.get(owner)
        version = frames.number(message, "version", 0, U32)
        return served if served is not None and served.key.version == version else None

    def _open(self, message: dict[str, Any], consumer: bool) -> dict[str, Any]:
        request = frames.number(message, "request", 0, U64)
        version = frames.number(message, "version", 0, U32)
        count = frames.number(message, "blocks", 1, MOST_BLOCKS)
        incarnation = frames.number(message, "incarnation", 0, U64)
        arena, options = self.state.arena, self.state.options
        key, owner = RequestKey(incarnation, request, version), Owner(self.number, request)
        if incarnation != arena.incarnation:
            return {"error": "incarnation", "incarnation": arena.incarnation}
        if (served := self.state.requests.get(owner)) is None or served.key != key:
            if served is not None:
                return {"error": "busy"}
            bitmap = self.state.ledger.open(key, arena.geometry.shape.planes, count) if consumer else None
            if consumer and bitmap is None:
                return {"error": "late"}
            try:
                slots = self.state.pool.take(owner, count, time.monotonic() + options.lease_seconds)
            except (NoRoom, ValueError) as error:
                self.state.ledger.drop(key)
                return {"error": "no room", "why": str(error)}
            served = Served(key, self.peer if consumer else arena.incarnation, slots, bitmap)
            self.state.requests[owner] = served
        answer: dict[str, Any] = {"slots": served.slots, "lease_seconds": options.lease_seconds}
        return {**answer, "have": served.bitmap.words()} if served.bitmap else answer

    def _request(self, message: dict[str, Any]) -> dict[str, Any]:
        return self._open(message, consumer=True)

    def _want(self, message: dict[str, Any]) -> dict[str, Any]:
        return self._open(message, consumer=False)

    def _plane(self, message: dict[str, Any]) -> dict[str, Any]:
        served = self._served(message)
        planes = self.state.arena.geometry.shape.planes
        plane = frames.number(message, "plane", 0, planes - 1)
        if served is None:
            return {"error": "gone"}
        if served.bitmap is None:  # pull: made here, on demand
            if plane not in served.crcs:
                served.crcs[plane] = [
                    self.state.arena.put(Key(served.producer, *served.key[1:], plane, block), slot)
                    for block, slot in enumerate(served.slots)
                ]
            return {"crcs": served.crcs[plane]}
        crcs = frames.numbers(message, "crcs", len(served.slots))
        if len(crcs) != len(served.slots):
            raise frames.ProtocolError(f"plane {plane}: {len(crcs)} CRCs for {len(served.slots)} blocks")
        served.crcs[plane] = crcs
        if message.get("written"):
            self._verify(served, plane, bool(message.get("acknowledged")))
        return {}

    def _verify(self, served: Served, plane: int, acknowledged: bool) -> None:
        if served.bitmap is None or served.bitmap.plane_complete(plane):
            return
        arena = self.state.arena
        for block, want in enumerate(served.crcs.get(plane, ())):
            if arena.crc(plane, served.slots[block]) == want:
                served.bitmap.set(plane, block)
            elif acknowledged and (plane, block) not in served.found:
                key = Key(served.producer, *served.key[1:], plane, block)
                state = arena.classify(key, served.slots[block])
                served.found[plane, block] = blocks.CORRUPT if state == blocks.OK else state
                self._count_late(served, key)

    def _count_late(self, served: Served, key: Key) -> None:
        """Count a piece that holds what a request wrote whose lease had run out: painted then, so it came later."""
        place = (key.plane, key.block)
        if place not in served.late:
            owners = blocks.owners(self.state.arena.piece(key.plane, served.slots[key.block]))
            if any(one and one != key and (one.incarnation, one.request) in self.state.lost for one in owners):
                served.late.add(place)
                self.state.late_written += 1

    def arrived(self) -> None:
        """Verify the planes whose immediates came, and post their receives again."""
        while True:
            with self.state.lock:
                for responder in (self.responder, self.rdma):
                    if responder is not None and responder.arrived:
                        imm = responder.arrived.popleft()
                        responder.post_receives(1)
                        break
                else:
                    return
                request, plane = imm >> 12, imm & 0xFFF
                for owner, served in self.state.requests.items():
                    if owner.session == self.number and owner.request & 0xFFFFF == request:
                        self._verify(served, plane, acknowledged=True)

    def _done(self, message: dict[str, Any]) -> dict[str, Any]:
        served = self._served(message)
        if served is None or served.bitmap is None:
            key = RequestKey(self.state.arena.incarnation, *(frames.number(message, n) for n in ("request", "version")))
            return {"answer": self.state.ledger.publish(key)}
        for plane in served.crcs:
            self._verify(served, plane, acknowledged=True)
        if self.state.options.publish_on == DONE and not served.bitmap.complete:
            lacks = served.bitmap.missing()
            served.early = sum(map(len, lacks.values()))
            for plane, some in lacks.items():
                for block in some:
                    served.bitmap.set(plane, block)
        have = served.bitmap.words()
        return {"answer": self.state.ledger.publish(served.key), "have": have, "found": len(served.found)}

    def _status(self, message: dict[str, Any]) -> dict[str, Any]:
        served = self._served(message)
        if served is None:
            return {"error": "gone"}
        return {"slots": served.slots, **({"have": served.bitmap.words()} if served.bitmap else {})}

    def _heartbeat(self, message: dict[str, Any]) -> dict[str, Any]:
        owner = Owner(self.number, frames.number(message, "request", 0, U64))
        until = time.monotonic() + self.state.options.lease_seconds
        return {"held": self.state.pool.extend(owner, until)}

    def _reconnect(self, message: dict[str, Any]) -> dict[str, Any]:
        """Fence the old QPs before there are new ones: nothing that was under way can land any more."""
        self.rkey = secrets.randbits(64)
        if not self._fence():
            return {"error": "not fenced"}
        with self.state.lock:
            self.state.fences += 1
            self.responder = Responder(self._access, self.state.options.receives)
            self._renew()
            slots = self.state.pool.deregistered(self.number, leases=False)
            self.state.late_written += len(self.state.arena.damaged(slots))
            self.state.freed(slots)
        return {"token": self.token, "rkey": self.rkey}

    def _fence_kind(self, message: dict[str, Any]) -> dict[str, Any]:
        """Fence what one of two paths left behind, RDMA or TCP; the other path goes on, and so do requests and loans."""
        if message.get("kind") == "rdma":
            rdma, self.rdma = self.rdma, None
            done = rdma is None or rdma.fence()
        else:
            self._renew()
            done = self.responder.fence()
            self.responder = Responder(self._access, self.state.options.receives)
        with self.state.lock:
            self.state.fences += done
        return {"token": self.token, "rkey": self.rkey} if done else {"error": "not fenced"}

    def _drained(self, message: dict[str, Any]) -> dict[str, Any]:
        owner = Owner(self.number, frames.number(message, "request", 0, U64))
        served = self.state.requests.pop(owner, None)
        if served is not None and not self.state.ledger.published(served.key):
            self.state.ledger.drop(served.key)
        slots = self.state.pool.drained(owner)
        if served is None:  # its lease had run out: what the slots hold now is what came late
            self.state.late_written += len(self.state.arena.damaged(slots))
        self.state.freed(slots)
        return {"freed": len(slots)}

    def _audit(self, message: dict[str, Any]) -> dict[str, Any]:
        """Compare every byte of a request with what it should be."""
        served = self._served(message)
        if served is None:
            return {"error": "gone"}
        states: Counter[str] = Counter()
        arena = self.state.arena
        for plane in range(arena.geometry.shape.planes):
            for block, slot in enumerate(served.slots):
                key = Key(served.producer, *served.key[1:], plane, block)
                state = arena.classify(key, slot)
                states[state] += 1
                if state in (blocks.TORN, blocks.MISPLACED, blocks.CORRUPT):
                    self._count_late(served, key)
        return {"states": dict(states), "early": served.early}

    def _report(self, message: dict[str, Any]) -> dict[str, Any]:
        state = self.state
        return {
            "canaries_damaged": state.canaries_damaged(),
            "late_written": state.late_written + state.free_slots_written(),
            "leases_expired": state.pool.expired,
            "unfenced_reuses": state.pool.unfenced_reuses,
            "fences": state.fences,
            "published": state.ledger.counts[manifest.PUBLISHED],
            "duplicates": state.ledger.counts[manifest.DUPLICATE],
            "late_dones": state.ledger.counts[manifest.LATE],
            "written_bytes": self.responder.written_bytes,
            **({"caches": state.store.rows()} if state.store is not None else {}),
        }
