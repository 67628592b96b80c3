"""Connections by rdma_cm: the kernel's connection manager carries QPN, PSN and private data; our own QP is brought to RTS with them.

Waits have a deadline: pyverbs' own waits would hold the interpreter's lock for ever, so an event is read only when its file has one.
"""

from __future__ import annotations

import contextlib
import json
import select
import time
from typing import Any

from rdmadiag.errors import RdmadiagError
from rdmadiag.explain import qp_states
from rdmadiag.verbs import exchange, library
from rdmadiag.verbs.attributes import RcAttributes
from rdmadiag.verbs.endpoint import Endpoint
from rdmadiag.verbs.errors import VerbsError
from rdmadiag.verbs.exchange import Memory
from rdmadiag.verbs.mr import access_mask

EVENTS = (
    "ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR",
    "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN", "MULTICAST_ERROR",
    "ADDR_CHANGE", "TIMEWAIT_EXIT",
)  # fmt: skip
"""enum rdma_cm_event_type by number, without RDMA_CM_EVENT_ (librdmacm/rdma_cma.h)."""
_PS_TCP, _PASSIVE = 0x0106, 1
_PRIVATE_BYTES = 56
"""What a request carries in RDMA_PS_TCP; an answer could carry more."""


class CmFailed(RdmadiagError):
    """The connection manager said something else than what was wanted, or nothing in time: names the event."""

    def __init__(self, wanted: str, got: str, hint: str = "") -> None:
        self.wanted, self.got = wanted, got
        super().__init__(f"rdma_cm: {got} where {wanted} was wanted{': ' * bool(hint)}{hint}")


_HINTS = {
    "ADDR_ERROR": "no route to the address, or no RDMA device on the netdev that the route takes",
    "ROUTE_ERROR": "the peer's link-layer address was not found",
    "REJECTED": "nobody listens there, or the listener refused",
    "UNREACHABLE": "the peer does not answer: is UDP port 4791 let through?",
}


class _Channel:
    """An event channel with deadlines."""

    def __init__(self) -> None:
        self._cmid = library.module("cmid")
        with (
            library.new_descriptor(library.CM_FILE) as opened,
            library.calling("rdma_create_event_channel", "modprobe rdma_ucm"),
        ):
            self.channel: Any = self._cmid.CMEventChannel()
        if len(opened) != 1:
            raise VerbsError("rdma_create_event_channel", 0, "its file was not found in /proc/self/fd")
        self._fd = opened[0]

    def event(self, wanted: str, seconds: float) -> Any:
        """Return the next event, not yet acknowledged. Raises CmFailed when it is another one, or none came in time [s]."""
        if not select.select([self._fd], [], [], max(0.0, seconds))[0]:
            raise CmFailed(wanted, "nothing", f"no event within {seconds:.1f} s")
        with library.calling("rdma_get_cm_event"):
            event = self._cmid.CMEvent(self.channel)
        name = EVENTS[event.event_type] if event.event_type < len(EVENTS) else str(event.event_type)
        if name != wanted:
            event.close()
            raise CmFailed(wanted, name, _HINTS.get(name, ""))
        return event

    def expect(self, wanted: str, seconds: float) -> bytes:
        """Take an event and return its private data. Raises CmFailed."""
        event = self.event(wanted, seconds)
        data = bytes(event.private_data) if wanted in ("CONNECT_RESPONSE", "CONNECT_REQUEST") else b""
        event.close()
        return data

    def close(self) -> None:
        self.channel.close()


class Connection:
    """A connected endpoint and its rdma_cm id. A context manager: closing disconnects. `memory` is the peer's."""

    def __init__(self, cmid: Any, memory: Memory, keep: contextlib.ExitStack) -> None:
        self._cmid, self.memory, self._keep = cmid, memory, keep

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; may be called twice. The QP is not touched: bring it to ERR and drain it first."""
        self._keep.close()


def _private(end: Endpoint) -> bytes:
    return json.dumps([end.mr.address, end.mr.length, end.mr.rkey], separators=(",", ":")).encode()


def _memory(data: bytes) -> Memory:
    try:
        value = json.loads(data.rstrip(b"\0"))
    except (ValueError, RecursionError):
        raise exchange.BadOffer(f"private data: {data[:40]!r}; wanted address, length and rkey") from None
    offer = exchange.Offer(((1, 0),), "::").as_json() | {"memory": value}
    return exchange.read(offer).memory


def _parameters(end: Endpoint) -> Any:
    attributes = end.attributes
    depth = end.qp.rd_atomic(attributes)
    cmid = library.module("cmid")
    wanted = cmid.ConnParam(
        resources=depth, depth=depth, retry=attributes.retry_cnt, rnr_retry=attributes.rnr_retry, qp_num=end.qp.qpn,
        data_len=_PRIVATE_BYTES,
    )  # fmt: skip
    wanted.set_private_data(_private(end))
    return wanted


# Attributes that rdma_cm chooses by itself are ours again: the others are part of what both ends agreed on.
def _step(end: Endpoint, cmid: Any, new: str, attributes: RcAttributes) -> None:
    with library.calling(f"rdma_init_qp_attr {new}"):
        wanted, mask = cmid.init_qp_attr(qp_states.STATES.index(new))
    if new == "INIT":
        wanted.qp_access_flags = access_mask(end.access)
    elif new == "RTR":
        wanted.min_rnr_timer = attributes.min_rnr_timer
        if attributes.path_mtu:
            wanted.path_mtu = attributes.path_mtu.bit_length() - 8
    elif new == "RTS":
        wanted.timeout, wanted.retry_cnt, wanted.rnr_retry = (
            attributes.timeout,
            attributes.retry_cnt,
            attributes.rnr_retry,
        )
    end.qp.modify_as_told(new, wanted, mask)


class Listener:
    """Waits for connections on an address of an RDMA device. A context manager. Port 0 is not possible: the peer must know it."""

    def __init__(self, address: str, port: int) -> None:
        module = library.module("cmid")
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as unless_made:
            self._channel = _Channel()
            unless_made.callback(self._channel.close)
            with library.calling(f"rdma_getaddrinfo {address}:{port}"):
                info = module.AddrInfo(src=address, src_service=str(port), port_space=_PS_TCP, flags=_PASSIVE)
            with library.calling("rdma_create_id"):
                self._id = module.CMID(creator=self._channel.channel, port_space=_PS_TCP)
            unless_made.callback(self._id.close)
            with library.calling(
                f"rdma_bind_addr {address}:{port}", "is it an address of an RDMA device, and the port free?"
            ):
                self._id.bind_addr(info)
            with library.calling("rdma_listen"):
                self._id.listen(16)
            self._stack = unless_made.pop_all()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Listen no more; connections that were accepted must be closed before. May be called twice."""
        self._stack.close()

    def accept(self, end: Endpoint, seconds: float = 20.0) -> Connection:
        """Accept one connection for an endpoint's first QP. Raises CmFailed, WrongTransition, BadOffer."""
        deadline = time.monotonic() + seconds
        event = self._channel.event("CONNECT_REQUEST", seconds)
        child = library.module("cmid").CMID(creator=event, listen_id=self._id)
        with contextlib.ExitStack() as keep:
            keep.callback(child.close)
            try:
                memory = _memory(bytes(event.private_data))
            finally:
                event.close()
            for new in ("INIT", "RTR", "RTS"):
                _step(end, child, new, end.attributes)
            with library.calling("rdma_accept"):
                child.accept(_parameters(end))
            self._channel.expect("ESTABLISHED", deadline - time.monotonic())
            keep.callback(_disconnect, child)
            return Connection(child, memory, keep.pop_all())


def connect(end: Endpoint, address: str, port: int, source: str | None = None, seconds: float = 20.0) -> Connection:
    """Connect an endpoint's first QP to a listener; `source` is the device's own address. Raises CmFailed, WrongTransition, BadOffer."""
    module = library.module("cmid")
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as keep:
        channel = _Channel()
        keep.callback(channel.close)
        with library.calling(f"rdma_getaddrinfo {address}:{port}"):
            info = module.AddrInfo(src=source, dst=address, dst_service=str(port), port_space=_PS_TCP)
        with library.calling("rdma_create_id"):
            cmid = module.CMID(creator=channel.channel, port_space=_PS_TCP)
        keep.callback(cmid.close)
        with library.calling(f"rdma_resolve_addr {address}"):
            cmid.resolve_addr(info, int(seconds * 1000))
        channel.expect("ADDR_RESOLVED", deadline - time.monotonic())
        with library.calling(f"rdma_resolve_route {address}"):
            cmid.resolve_route(int(seconds * 1000))
        channel.expect("ROUTE_RESOLVED", deadline - time.monotonic())
        if cmid.dev_name != end.device.name:
            raise CmFailed(
                end.device.name, str(cmid.dev_name), "the route takes another device than the endpoint's; give `source`"
            )
        _step(end, cmid, "INIT", end.attributes)
        with library.calling("rdma_connect"):
            cmid.connect(_parameters(end))
        memory = _memory(channel.expect("CONNECT_RESPONSE", deadline - time.monotonic()))
        for new in ("RTR", "RTS"):
            _step(end, cmid, new, end.attributes)
        with library.calling("rdma_establish"):
            cmid.establish()
        keep.callback(_disconnect, cmid)
        return Connection(cmid, memory, keep.pop_all())


def _disconnect(cmid: Any) -> None:
    with contextlib.suppress(VerbsError), library.calling("rdma_disconnect"):
        cmid.disconnect()  # refused where the peer did it first
