"""The RDMA transport: RC QPs of a device to one peer's arena, posted in batches; keeps to Transport. And this side's devices.

A device is opened once and the arena is registered with it once, for all connections of a client. What the peer must know
of the QPs goes over the control channel, which also brings its QPs and the key of its memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from rdmadiag.errors import RdmadiagError
from rdmadiag.kv import wire
from rdmadiag.kv.frames import PeerGone, ProtocolError
from rdmadiag.kv.recovery import Route
from rdmadiag.kv.tcp import TcpTransport
from rdmadiag.kv.transport import Completion, Granted, Transport, Work
from rdmadiag.verbs import exchange
from rdmadiag.verbs.attributes import RcAttributes
from rdmadiag.verbs.cq import Cq
from rdmadiag.verbs.device import Device, Pd
from rdmadiag.verbs.errors import NotFinished, VerbsError
from rdmadiag.verbs.exchange import Memory, Offer
from rdmadiag.verbs.mr import Mr
from rdmadiag.verbs.posting import SIGNALED, Sge, Wr
from rdmadiag.verbs.qp import Qp

Ask = Callable[[dict[str, Any]], dict[str, Any]]
_MASK, _SIGN = (1 << 64) - 1, 1 << 63
DRAIN_SECONDS = 2.0


class RdmaTransport:
    """Connected QPs. Raises OSError when they cannot be made or connected, as a TCP connection would."""

    kind = "rdma"

    def __init__(self, rail: Rail, ask: Ask, peer_device: int, qps: int, depth: int) -> None:
        self.qps, self.depth = qps, depth
        self._local = rail.mr.address
        self._lkey = rail.mr.lkey
        with contextlib.ExitStack() as unless_connected:
            enter = unless_connected.enter_context
            self._cq = enter(Cq(rail.device, 2 * qps * (depth + 1)))
            self._ends = [enter(Qp(rail.pd, self._cq, None, depth, 4, sges=1)) for _ in range(qps)]
            psns = [rail.attributes.first_psn() for _ in self._ends]
            gid, port = rail.device.gid(rail.gid_index), rail.device.port()
            pairs = tuple((end.qpn, psn) for end, psn in zip(self._ends, psns, strict=True))
            atomics, name = self._ends[0].rd_atomic(rail.attributes), rail.device.name
            mine = Offer(pairs, gid.gid, port.active_mtu, port.lid, atomics, Memory(0, 0, 0), name)
            answer = ask(
                {"type": "rdma", "device": peer_device, "offer": mine.as_json(), "attributes": list(rail.attributes)}
            )
            if "error" in answer:
                raise OSError(f"the peer's end: {answer['error']}")
            theirs = exchange.read(answer.get("offer"))
            if len(theirs.qps) != qps:
                raise OSError(f"the peer made {len(theirs.qps)} QPs for {qps}")
            for nth, end in enumerate(self._ends):
                end.connect(psns[nth], theirs.peer(nth), rail.attributes, gid.gid_index)
            self._close = unless_connected.pop_all()
        self._remote, self._rkey = theirs.memory.address, theirs.memory.rkey
        self._index = {end.qpn: nth for nth, end in enumerate(self._ends)}
        self.peer_device, self.path_mtu = theirs.device, min(port.active_mtu, theirs.mtu)

    @property
    def qpns(self) -> list[int]:
        """Numbers of this side's QPs."""
        return list(self._index)

    def post(self, works: Sequence[Work]) -> int:
        """Post works, those that follow each other on a QP with one doorbell."""
        count = 0
        for (qp, op, imm), group in groupby(works, lambda work: (work.qp, work.op, work.imm is not None)):
            some = list(group)
            try:
                if imm:
                    self._ends[qp].post([self._wr(work) for work in some])
                else:
                    self._ends[qp].post_rdma(op, self._lkey, self._rkey, map(self._part, some))
            except VerbsError:
                break  # the queue is full
            count += len(some)
        return count

    def _part(self, work: Work) -> tuple[int, int, int, int, int]:
        flags = SIGNALED if work.signaled else 0
        return work.wr_id & _MASK, self._local + work.local, self._remote + work.remote, work.length, flags

    def _wr(self, work: Work) -> Wr:
        wr_id, local, remote, length, flags = self._part(work)
        return Wr(wr_id, work.op, (Sge(local, length, self._lkey),), remote, self._rkey, work.imm or 0, flags)

    def poll(self, seconds: float) -> list[Completion]:
        """Return completions of these QPs."""
        found = []
        for one in self._cq.wait(seconds) if seconds else self._cq.poll():
            qp = self._index.get(one.qpn)
            if qp is not None:
                wr_id = one.wr_id - (1 << 64) if one.wr_id & _SIGN else one.wr_id
                found.append(Completion(wr_id, one.status, qp, one.vendor_err))
        return found

    def error(self, qp: int) -> None:
        """Move a QP to ERR; of a device that is gone nothing comes any more, and the caller's deadline ends the wait."""
        with contextlib.suppress(VerbsError):
            self._ends[qp].error()

    def close(self) -> None:
        """Drain and destroy the QPs: when this returns, the adapter sends nothing more of them."""
        for end in self._ends:
            with contextlib.suppress(VerbsError, NotFinished):
                end.drain(DRAIN_SECONDS)
        self._ends = []
        self._close.close()


class Rail:
    """One device of this side: opened, the arena registered with it. `before` are its counters then."""

    def __init__(self, device: str, arena: memoryview, attributes: RcAttributes, gid_index: int | None) -> None:
        self.attributes, self.gid_index = attributes, gid_index
        with contextlib.ExitStack() as unless_made:
            self.device = unless_made.enter_context(Device(device))
            self.pd = unless_made.enter_context(Pd(self.device))
            self.mr = unless_made.enter_context(Mr(self.pd, memory=arena))
            self._close = unless_made.pop_all()

    def close(self) -> None:
        """Deregister and close."""
        self._close.close()


class Rails:
    """Connects a client's routes: RDMA by this side's devices, TCP bound to a netdev where one is given. Use `connect` as its Connect."""

    def __init__(
        self, devices: Sequence[str], attributes: RcAttributes, bind: str = "", gid_index: int | None = None
    ) -> None:
        self.devices, self._attributes, self._bind, self._gid_index = (
            tuple(devices),
            attributes.checked(),
            bind,
            gid_index,
        )
        self._rails: dict[str, Rail] = {}
        self._before: dict[str, wire.Counters] = {}
        self._used: dict[str, dict[str, Any]] = {}

    def connect(self, route: Route, granted: Granted, arena: memoryview, qps: int, depth: int) -> Transport:
        """Connect a route. Raises OSError."""
        subject = route.name if route.kind == "rdma" else self._bind
        self._before.setdefault(route.name, wire.read(route.kind, subject))
        used = self._used.setdefault(
            route.name, {"kind": route.kind, "device": subject or None, "connections": 0, "qpns": []}
        )
        if route.kind != "rdma":
            host, _, port = route.address.rpartition(":")
            made = TcpTransport((host, int(port)), granted.token, granted.rkey, arena, qps, depth, bind=self._bind)
            used["connections"] += 1
            return made
        if granted.ask is None:
            raise OSError("no control channel to exchange QPs by")
        try:
            if route.name not in self._rails:
                self._rails[route.name] = Rail(route.name, arena, self._attributes, self._gid_index)
            found = RdmaTransport(self._rails[route.name], granted.ask, int(route.address), qps, depth)
        except (PeerGone, ProtocolError):
            raise
        except RdmadiagError as error:
            raise OSError(str(error)) from error
        used["connections"] += 1
        used["qpns"] += found.qpns
        used |= {"peer_device": found.peer_device, "path_mtu": found.path_mtu}
        if granted.here is not None:
            used["same_device"] = int(granted.here and found.peer_device == route.name)
        return found

    def close(self) -> None:
        """Let go of the arena and the devices; may be called twice."""
        for rail in self._rails.values():
            rail.close()
        self._rails.clear()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of kv_route: what each route that was used connected, and what its device's own counters say went over it."""
        rows = []
        for path, used in self._used.items():
            moved = wire.moved(self._before[path], wire.read(used["kind"], used["device"] or ""))
            rows.append({"path": path, **used, "qpns": " ".join(map(str, used["qpns"])) or None, **moved})
        return rows
