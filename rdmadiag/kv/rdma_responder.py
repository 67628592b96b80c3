"""The listening side of RDMA sessions: its devices, and for each connection a protection domain, memory, QPs and receives of its own.

A fence is complete when the QPs are destroyed and the memory is deregistered: from then on the adapter lets nothing of that
connection touch the arena (IBA vol 1, 10.6.3), and the next connection has another key.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rdmadiag.errors import BadInput, RdmadiagError
from rdmadiag.kv import frames
from rdmadiag.verbs import exchange
from rdmadiag.verbs.attributes import RcAttributes
from rdmadiag.verbs.cq import Cq
from rdmadiag.verbs.device import Device, Pd
from rdmadiag.verbs.errors import NotFinished, VerbsError
from rdmadiag.verbs.exchange import Memory, Offer
from rdmadiag.verbs.mr import Mr
from rdmadiag.verbs.qp import Qp

MOST_QPS = 64
_ACCESS = ("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ")


class RdmaResponder:
    """One end of a connection: what the peer may write and read is `arena`, until `fence`. Raises RdmadiagError when it cannot be made."""

    def __init__(
        self,
        device: Device,
        arena: memoryview,
        theirs: Offer,
        attributes: RcAttributes,
        receives: int,
        notify: Callable[[], None],
    ) -> None:
        self.arrived: deque[int] = deque()
        self._notify = notify
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._next = 0
        self._consumed: deque[int] = deque()
        count = len(theirs.qps)
        if not 1 <= count <= MOST_QPS:
            raise BadInput(f"{count} QPs; wanted 1 to {MOST_QPS}")
        depth = max(2, receives)
        with contextlib.ExitStack() as unless_connected:
            enter = unless_connected.enter_context
            pd = enter(Pd(device))
            self._mr = enter(Mr(pd, access=_ACCESS, memory=arena))
            self._cq = enter(Cq(device, 2 * count * (depth + 1), channel=True))
            self._qps = [enter(Qp(pd, self._cq, None, 4, depth, sges=1)) for _ in range(count)]
            gid, port = device.gid(), device.port()
            psns = [attributes.first_psn() for _ in self._qps]
            for qp in self._qps:
                qp.to_init(_ACCESS)
            self.post_receives(receives * count)
            for nth, qp in enumerate(self._qps):
                qp.to_rtr(theirs.peer(nth), attributes, gid.gid_index)
                qp.to_rts(psns[nth], attributes, theirs.rd_atomic)
            self._close = unless_connected.pop_all()
        memory = Memory(self._mr.address, self._mr.length, self._mr.rkey)
        pairs = tuple((qp.qpn, psn) for qp, psn in zip(self._qps, psns, strict=True))
        self.offer = Offer(
            pairs, gid.gid, port.active_mtu, port.lid, self._qps[0].rd_atomic(attributes), memory, device.name
        )
        self._thread = threading.Thread(target=self._watch, daemon=True, name="kv rdma responder")
        self._thread.start()

    def post_receives(self, count: int) -> None:
        """Post receives for immediates, where some were used up; else on one QP after the other."""
        with self._lock:
            for _ in range(count):
                index = self._consumed.popleft() if self._consumed else self._next
                with contextlib.suppress(VerbsError):  # full, or in ERR: there is nothing to receive for
                    self._qps[index].post_receives([(index, ())])
                self._next = (self._next + 1) % len(self._qps)

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                found = self._cq.wait(0.1)
            except VerbsError:
                return  # the device is gone
            for one in found:
                if one.ok and one.imm is not None:
                    self._consumed.append(one.wr_id)
                    self.arrived.append(one.imm)
                    self._notify()

    def fence(self, seconds: float = 5.0) -> bool:
        """QPs to ERR, drained, destroyed, the memory deregistered; may be called twice. False when that could not be done."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)
        for qp in self._qps:
            with contextlib.suppress(VerbsError, NotFinished):
                qp.drain(seconds)
        try:
            self._close.close()
        except VerbsError:
            return False
        return not self._thread.is_alive()


class Devices:
    """The devices of a listening side, opened at first use and closed with it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._open: dict[str, Device] = {}
        self._lock = threading.Lock()

    def respond(
        self, message: dict[str, Any], arena: memoryview, receives: int, notify: Callable[[], None]
    ) -> RdmaResponder:
        """Make the end that a peer's message asks for. Raises RdmadiagError: what it asks for is not to be had; ProtocolError, BadOffer."""
        index = frames.number(message, "device", 0, 63)
        if index >= len(self.names):
            raise BadInput(f"device {index}: this side has {len(self.names)} RDMA devices")
        values = message.get("attributes")
        fields = len(RcAttributes._fields)
        if (
            not isinstance(values, list)
            or len(values) != fields
            or not all(v is None or type(v) is int for v in values)
        ):
            raise frames.ProtocolError(f"rdma: attributes is not a list of {fields} integers")
        try:
            attributes = RcAttributes(*values).checked()
        except TypeError:
            raise frames.ProtocolError("rdma: an attribute is missing") from None
        theirs = exchange.read(message.get("offer"))
        with self._lock:
            name = self.names[index]
            if name not in self._open:
                self._open[name] = Device(name)
        return RdmaResponder(self._open[name], arena, theirs, attributes, receives, notify)

    def close(self) -> None:
        """Close the devices; their sessions must have ended."""
        for device in self._open.values():
            with contextlib.suppress(RdmadiagError):
                device.close()
        self._open.clear()
