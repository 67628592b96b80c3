"""The side that connects: moves requests by push or pull, recovers from failed completions, and ends each request for good.

Push (prefill side): slots are granted, planes are made and written one after another, the peer verifies and publishes. Pull
(decode side): the peer makes planes, this side READs, verifies and publishes them, and releases the peer's slots.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rdmadiag.errors import BadInput, RdmadiagError
from rdmadiag.kv import frames, manifest, wire
from rdmadiag.kv.arena import Arena
from rdmadiag.kv.blocks import Key
from rdmadiag.kv.health import DEMOTED, Health, Policy
from rdmadiag.kv.layout import Shape, geometry
from rdmadiag.kv.manifest import Ledger
from rdmadiag.kv.pool import Pool
from rdmadiag.kv.record import Recorder
from rdmadiag.kv.recovery import Limits, Route
from rdmadiag.kv.tcp import TcpTransport, dial
from rdmadiag.kv.transfer import MODES, PULL, PUSH, PUSH_IMM, RequestFailed, Transfer
from rdmadiag.kv.transport import SUCCESS, Granted, Transport, round_trip


class Settings(NamedTuple):
    """How a client moves requests; `merge_bytes` is the longest work request, `deadline_seconds` the time of each.

    Requests are numbered from `first_request` on; two senders to one listening side must not have numbers in common.
    `policy` says when a route is left for another and taken again. Without `overlap` all planes are made before the first work request
    is posted and verified after the last one completed, so that `moving_seconds` of a request has neither in it.
    """

    mode: str = PUSH
    slots: int = 256
    qps: int = 2
    window: int = 32
    signal_every: int = 1
    merge_bytes: int = 1 << 20
    deadline_seconds: float = 5.0
    limits: Limits = Limits()
    seed: int = 2
    first_request: int = 1
    policy: Policy = Policy()
    overlap: bool = True


Connect = Callable[[Route, Granted, memoryview, int, int], Transport]


def connect_tcp(route: Route, granted: Granted, arena: memoryview, qps: int, depth: int) -> Transport:
    """Connect a TCP transport. Raises OSError."""
    host, _, port = route.address.rpartition(":")
    return TcpTransport((host, int(port)), granted.token, granted.rkey, arena, qps, depth)


class Client:
    """A session with a server. A context manager. `connect` makes the transport of a route: RDMA and tests give their own.

    `devices` are RDMA devices of this side, the nth against the peer's nth; after them comes TCP, by the netdev `bind`. `let_go` is
    called before the arena is given back.
    """

    def __init__(
        self,
        address: tuple[str, int],
        shape: Shape,
        settings: Settings,
        connect: Connect = connect_tcp,
        routes: Callable[[Sequence[str]], Sequence[Route]] | None = None,
        devices: Sequence[str] = (),
        bind: str = "",
        let_go: Callable[[], None] = lambda: None,
        recorder: Recorder | None = None,
    ) -> None:
        if settings.mode not in MODES:
            raise BadInput(f"mode {settings.mode!r}; known: {', '.join(MODES)}")
        self.settings, self._connect = settings, connect
        self._devices, self._let_go = tuple(devices), let_go
        self.arena = Arena(geometry(shape, settings.slots), secrets.randbits(62))
        self.pool = Pool(settings.slots, settings.seed, canary_every=16)
        self.ledger = Ledger(self.arena.incarnation)
        self.recorder = recorder or Recorder(settings.mode)
        self._transport: Transport | None = None
        self._alive = True
        try:
            self._control = dial(address, 5.0, bind)
        except OSError as error:
            self.arena.close()
            raise BadInput(f"{address[0]}:{address[1]}: {error}; is the other side up?") from error
        self._control.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._begin(address, shape, routes)
        except RdmadiagError:
            self.close()
            raise

    def _begin(
        self, address: tuple[str, int], shape: Shape, routes: Callable[[Sequence[str]], Sequence[Route]] | None
    ) -> None:
        hello = {"type": "hello", "protocol": 1, "shape": list(shape), "incarnation": self.arena.incarnation}
        welcome = self._ask(hello)
        self.peer = frames.number(welcome, "incarnation")
        self.remote = geometry(shape, frames.number(welcome, "slots", 1))
        theirs, ours = welcome.get("machine"), wire.machine()
        self._here = theirs == ours if theirs and ours else None
        self._grant(welcome)
        data = frames.words(welcome, "data", 64)
        tcp = [Route(f"tcp{n}", "tcp", where) for n, where in enumerate(data)]
        devices = frames.words(welcome, "devices", 64) if self._devices else []
        pairs = zip(self._devices, range(len(devices)), strict=False)
        self.routes = list(routes(data)) if routes else [*(Route(one, "rdma", str(n)) for one, n in pairs), *tcp]
        if self._devices and not devices:
            raise BadInput(f"{address[0]}:{address[1]} has no RDMA devices; start its side with --device")
        self._route = self.routes[0]
        self.health = {route.name: Health(self.settings.policy, self._told(route.name)) for route in self.routes}
        facts = {"peer": f"{address[0]}:{address[1]}", "path": self._route.name, "kind": self._route.kind}
        self.recorder.facts.update(facts, piece_bytes=shape.piece_bytes, planes=shape.planes)

    def _told(self, path: str) -> Callable[[str], None]:
        return lambda change: self.recorder.event(change, path=path)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Say goodbye and give everything back; may be called twice."""
        self._drop_transport()
        if self._control.fileno() >= 0:
            try:
                frames.send(self._control, {"type": "bye"}, 1.0)
            except frames.PeerGone:
                pass
            self._control.close()
        self._let_go()
        self.arena.close()

    @property
    def alive(self) -> bool:
        """Whether the control channel is there: a peer that went away closes it."""
        return self._alive

    def report(self) -> dict[str, Any]:
        """Return the peer's counts (leases, late writes, canaries), added to the recorder's, with this side's canaries."""
        told = self._ask({"type": "report"})
        del told["type"]
        caches = told.pop("caches", [])
        self.recorder.caches = [row for row in caches if isinstance(row, dict)] if isinstance(caches, list) else []
        if self.settings.mode == PULL:  # what is published is published here
            names = (
                ("published", manifest.PUBLISHED),
                ("duplicates", manifest.DUPLICATE),
                ("late_dones", manifest.LATE),
            )
            told.update({name: self.ledger.counts[answer] for name, answer in names})
        told["canaries_damaged"] += len(self.arena.damaged([*self.pool.canaries, *self.pool.free]))
        self.recorder.facts.update(told)
        return told

    def transfer(self, request: int, tokens: int, version: int = 1, audit: bool = True) -> dict[str, Any]:
        """Move one request; return its row of kv_request, also when it failed (state `failed`, why)."""
        return Transfer(self, request, version, self.arena.geometry.shape.blocks(tokens)).run(audit)

    def make(self, key: Key, slot: int) -> int:
        """Produce a piece in this side's arena and return its CRC."""
        return self.arena.put(key, slot)

    def heartbeat(self, request: int) -> bool:
        """Extend a lease at the peer; False when it ran out."""
        return bool(self._ask({"type": "heartbeat", "request": request}).get("held"))

    # --- used by Transfer ---

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self._tell(message)
        with self._watched():
            answer = frames.receive(self._control, 60.0)
        if answer["type"] == "refused":
            raise frames.ProtocolError(f"the peer refused {message['type']}: {str(answer.get('why'))[:300]}")
        return answer

    def _tell(self, message: dict[str, Any]) -> None:
        with self._watched():
            frames.send(self._control, message)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except frames.PeerGone:
            self._alive = False
            raise

    def transport(self) -> Transport:
        """Return the connected transport, connecting it when there is none. Raises OSError."""
        if self._transport is None:
            settings = self.settings
            self._transport = self._connect(
                self._route, self._granted, self.arena.view, settings.qps, max(256, settings.window)
            )
        return self._transport

    def _drop_transport(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def reconnect(self, route: Route) -> None:
        """Fence what was: the peer's end in ERR and its key void; then connect by `route` with new ones."""
        self._drop_transport()
        answer = self._ask({"type": "reconnect"})
        if "error" in answer:
            raise RequestFailed(f"reconnect: {answer['error']}")
        self._grant(answer)
        self._route = route

    def fence(self, kind: str) -> None:
        """Void the peer's end of the connections of one kind (rdma, tcp); the others go on. Raises PeerGone, ProtocolError."""
        answer = self._ask({"type": "fence", "kind": kind})
        if "error" in answer:
            raise frames.ProtocolError(f"fence: {answer['error']}")
        if kind == "tcp":
            self._grant(answer)

    def go_back(self) -> None:
        """Take the first route again that was left and whose time away is over, when it answers: before a request depends on it.

        Raises RequestFailed, PeerGone, ProtocolError as `reconnect` does.
        """
        old = self._route
        for route in self.routes:
            if route == old:
                break
            health = self.health[route.name]
            if health.state(time.monotonic()) == DEMOTED:
                continue
            self.reconnect(route)
            try:
                seconds, status = round_trip(self.transport(), self.settings.deadline_seconds)
            except OSError as error:
                seconds, status = 0.0, str(error)
            if status == SUCCESS:
                reason = f"it answers within {seconds * 1e3:.2f} ms"
                self.recorder.event("back", path=old.name, to_path=route.name, reason=reason)
                return
            health.leave(time.monotonic())
        if self._route != old:
            self.reconnect(old)

    def _grant(self, answer: dict[str, Any]) -> None:
        token, rkey = (frames.number(answer, name, 0, 1 << 64) for name in ("token", "rkey"))
        self._granted = Granted(token, rkey, self._ask, self._here)

    @property
    def route(self) -> Route:
        """The route in use."""
        return self._route


__all__ = [
    "MODES",
    "PULL",
    "PUSH",
    "PUSH_IMM",
    "Client",
    "Connect",
    "Granted",
    "RequestFailed",
    "Settings",
    "connect_tcp",
]
