"""A device: its ports, GIDs, limits and asynchronous events; and protection domains."""

from __future__ import annotations

import select
from typing import Any, NamedTuple

from rdmadiag.errors import BadInput
from rdmadiag.verbs import library
from rdmadiag.verbs.errors import VerbsError

GID_TYPES = {0: "IB/RoCE v1", 1: "RoCE v1", 2: "RoCE v2"}
"""enum ibv_gid_type: 0 InfiniBand (and RoCE v1 in older rdma-core), 1 RoCE v1, 2 RoCE v2."""
_LIMITS = (
    "max_qp",
    "max_qp_wr",
    "max_sge",
    "max_cqe",
    "max_mr",
    "max_mr_size",
    "max_qp_rd_atom",
    "max_qp_init_rd_atom",
)
PORT_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")


class Port(NamedTuple):
    """What ibv_query_port says: `active_mtu` [bytes], `link_layer` InfiniBand or Ethernet."""

    number: int
    state: str
    active_mtu: int
    max_msg_bytes: int
    link_layer: str
    lid: int


class Gid(NamedTuple):
    """One entry of the GID table. `gid` is written as an IPv6 address is, in full."""

    gid_index: int
    gid: str
    gid_type: str

    @property
    def is_ipv4(self) -> bool:
        """Whether it is an IPv4 address (::ffff:a.b.c.d)."""
        return self.gid.startswith("0000:0000:0000:0000:0000:ffff:")


def names() -> list[str]:
    """Return the devices that libibverbs sees. Raises NoPyverbs."""
    with library.calling("ibv_get_device_list"):
        return sorted(one.name.decode() for one in library.module("device").get_device_list())


class Device:
    """An opened device. A context manager: closing it closes all that was made from it. Raises BadInput, VerbsError, NoPyverbs."""

    def __init__(self, name: str, port: int = 1) -> None:
        known = names()
        if name not in known:
            raise BadInput(
                f"no RDMA device {name!r}; libibverbs sees {', '.join(known) or 'none'} (rdma link; ibv_devices)"
            )
        self.name, self.port_number = name, port
        with library.new_descriptor(library.EVENT_FILE) as opened, library.calling(f"ibv_open_device {name}"):
            self.context: Any = library.module("device").Context(name=name)
        self._events_fd = opened[0] if len(opened) == 1 else None

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the device and what was made from it; may be called twice."""
        self.context.close()

    def limits(self) -> dict[str, int]:
        """Return limits of ibv_query_device by name: max_qp_wr, max_sge, max_cqe, max_mr_size, max_qp_rd_atom, ..."""
        with library.calling(f"ibv_query_device {self.name}"):
            found = self.context.query_device()
        return {name: int(getattr(found, name)) for name in _LIMITS}

    def port(self) -> Port:
        """Return the port's state."""
        with library.calling(f"ibv_query_port {self.name}"):
            found = self.context.query_port(self.port_number)
        state = PORT_STATES[found.state] if found.state < len(PORT_STATES) else str(found.state)
        layer = {1: "InfiniBand", 2: "Ethernet"}.get(found.link_layer, "unspecified")
        return Port(self.port_number, state, 128 << found.active_mtu, found.max_msg_sz, layer, found.lid)

    def gids(self) -> list[Gid]:
        """Return the entries of the port's GID table that are in use, as they are now."""
        with library.calling(f"ibv_query_gid_table {self.name}"):
            entries = self.context.query_gid_table(256)
            return [
                Gid(
                    one.gid_index, str(self.context.query_gid(self.port_number, one.gid_index)), GID_TYPES[one.gid_type]
                )
                for one in entries
                if one.port_num == self.port_number
            ]

    def gid(self, index: int | None = None) -> Gid:
        """Return a GID: of an index, else the first RoCE v2 one of an IPv4 address, of any address, else the first. Raises BadInput."""
        table = self.gids()
        if index is not None:
            found = [one for one in table if one.gid_index == index]
        else:
            routed = [one for one in table if one.gid_type == "RoCE v2"]
            found = [one for one in routed if one.is_ipv4] or routed or table
        if not found:
            there = ", ".join(f"{one.gid_index} {one.gid}" for one in table) or "none"
            wanted = "a GID" if index is None else f"GID index {index}"
            raise BadInput(
                f"{self.name}/{self.port_number}: no {wanted}; the table has {there}. Is the netdev up, with an address?"
            )
        return found[0]

    def event(self, seconds: float | None = None) -> library.Event | None:
        """Return the next asynchronous event, waiting so long [s] for one (None: for ever); None when there was none."""
        if self._events_fd is None:
            raise VerbsError("ibv_get_async_event", 0, f"{self.name}: its event file was not found in /proc/self/fd")
        if not select.select([self._events_fd], [], [], seconds)[0]:
            return None
        return library.read_event(self._events_fd)

    def events(self) -> list[library.Event]:
        """Return the events that are there."""
        found = []
        while event := self.event(0):
            found.append(event)
        return found


class Pd:
    """A protection domain: memory and QPs of different ones do not mix. A context manager."""

    def __init__(self, device: Device) -> None:
        self.device = device
        with library.calling(f"ibv_alloc_pd {device.name}"):
            self.pd: Any = library.module("pd").PD(device.context)

    def __enter__(self) -> Pd:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give it back with the memory regions and QPs in it; may be called twice."""
        self.pd.close()
