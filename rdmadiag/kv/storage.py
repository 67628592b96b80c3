"""The storage side of a session: blocks of a store, brought to a slot of the registered arena where the peer READs or WRITEs them itself.

`locate` lends a slot with a block in it, `accept` an empty one for a block that comes, `commit` verifies that one and stores it,
`free` gives a slot back, `prefetch` says what will be asked for soon. The messages are small and go over the control channel; the
data takes whatever path the peer chose.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rdmadiag.kv import frames
from rdmadiag.kv.blocks import crc
from rdmadiag.kv.pool import NoRoom, Owner
from rdmadiag.kv.store import StoreFull

if TYPE_CHECKING:
    from rdmadiag.kv.session import State

U32, U63 = (1 << 32) - 1, (1 << 63) - 1
MOST_PREFETCHED = 1 << 16
_TICKETS = 1 << 62
"""Owners of slots from here on are tickets of blocks, below are requests."""


class _Lent(NamedTuple):
    block: int
    version: int
    slot: int
    comes: bool


class Shelf:
    """What one session has on loan; every call is made with the state's lock held."""

    def __init__(self, state: State, session: int) -> None:
        self._state, self._session = state, session
        self._lent: dict[int, _Lent] = {}
        self._next = _TICKETS
        self.handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "locate": self._locate,
            "accept": self._accept,
            "commit": self._commit,
            "prefetch": self._prefetch,
            "free": self._free,
        }

    def _lend(self, block: int, version: int, comes: bool) -> tuple[int, int] | str:
        """Return (ticket, slot), or why there is none."""
        state = self._state
        self._next += 1
        try:
            slots = state.pool.take(Owner(self._session, self._next), 1, time.monotonic() + state.options.lease_seconds)
        except NoRoom as error:
            return str(error)
        self._lent[self._next] = _Lent(block, version, slots[0], comes)
        return self._next, slots[0]

    def _locate(self, message: dict[str, Any]) -> dict[str, Any]:
        store, arena = self._state.store, self._state.arena
        if store is None:
            return {"error": "no store here"}
        block = frames.number(message, "block", 0, U63)
        found = store.version_of(block)
        data = store.get(block, frames.number(message, "version", 0, U32))
        if data is None or found is None:
            return {"error": "miss"}
        lent = self._lend(block, found, comes=False)
        if isinstance(lent, str):
            return {"error": "no room", "why": lent}
        ticket, slot = lent
        store.lease(block, self._state.options.lease_seconds)
        arena.piece(0, slot)[:] = data
        offset = arena.geometry.offset(0, slot)
        return {"ticket": ticket, "offset": offset, "length": len(data), "version": found, "crc": crc(data)}

    def _accept(self, message: dict[str, Any]) -> dict[str, Any]:
        store, arena = self._state.store, self._state.arena
        if store is None:
            return {"error": "no store here"}
        block, version = frames.number(message, "block", 0, U63), frames.number(message, "version", 0, U32)
        known = store.version_of(block)
        if known is not None and known > version:
            return {"error": "older", "version": known}
        lent = self._lend(block, version, comes=True)
        if isinstance(lent, str):
            return {"error": "no room", "why": lent}
        return {"ticket": lent[0], "offset": arena.geometry.offset(0, lent[1]), "length": store.block_bytes}

    def _commit(self, message: dict[str, Any]) -> dict[str, Any]:
        ticket = frames.number(message, "ticket", 0, U63)
        lent, store = self._lent.get(ticket), self._state.store
        if lent is None or store is None or not lent.comes:
            return {"error": "gone"}
        if not self._state.pool.leased(Owner(self._session, ticket)):
            return {"error": "gone"}
        data = bytes(self._state.arena.piece(0, lent.slot))
        if crc(data) != frames.number(message, "crc", 0, U32):
            return {"error": "damaged"}
        try:
            return {"stored": store.put(lent.block, lent.version, data)}
        except StoreFull as error:
            return {"error": "no room", "why": str(error)}

    def _prefetch(self, message: dict[str, Any]) -> dict[str, Any]:
        """Bring blocks up from the file while the peer computes; nothing is waited for."""
        wanted = frames.numbers(message, "blocks", MOST_PREFETCHED, U63)
        if self._state.store is None:
            return {"error": "no store here"}
        self._state.store.prefetch(wanted)
        return {}

    def _free(self, message: dict[str, Any]) -> dict[str, Any]:
        ticket = frames.number(message, "ticket", 0, U63)
        lent = self._lent.pop(ticket, None)
        if lent is None:
            return {"freed": 0}
        if not lent.comes and self._state.store is not None:
            self._state.store.release(lent.block)
        slots = self._state.pool.drained(Owner(self._session, ticket))
        self._state.freed(slots)
        return {"freed": len(slots)}
