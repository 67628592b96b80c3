"""Who may write which slot, and when a slot may be used again: leases and fences.

A slot that a peer could write is used again only after a fence: the peer's word that it has drained its queue, or its QP
in ERR here and the rkey deregistered (what the IBA spec calls invalidation, 10.6.3: an access with that key completes in
error from then on). A lease that runs out is no fence: its slots go to quarantine. `unfenced=True` is the mistake that
some engines make (they free on expiry), kept to show what comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rdmadiag.errors import RdmadiagError
from rdmadiag.kv.layout import shuffled

DRAINED, DEREGISTERED = "drained", "deregistered"
FENCES = (DRAINED, DEREGISTERED)


class NoRoom(RdmadiagError):
    """Not so many slots are free: wait for others to end, or refuse the request."""


class Owner(NamedTuple):
    """Who may write a slot: a request of a session."""

    session: int
    request: int


class Pool:
    """Slots of an arena: fences between requests (never lent), free, leased, in quarantine. Every call is O(slots moved)."""

    def __init__(self, slots: int, seed: int = 0, canary_every: int = 16, unfenced: bool = False) -> None:
        self.canaries = frozenset(range(canary_every - 1, slots, canary_every)) if canary_every else frozenset()
        self._free = shuffled([slot for slot in range(slots) if slot not in self.canaries], seed)
        self._leased: dict[Owner, list[int]] = {}
        self._until: dict[Owner, float] = {}
        self._quarantine: dict[Owner, list[int]] = {}
        self.unfenced = unfenced
        self.expired = self.unfenced_reuses = 0
        self._risky: set[int] = set()  # freed without a fence

    @property
    def free(self) -> list[int]:
        """Slots that may be lent; they hold canaries."""
        return list(self._free)

    @property
    def quarantined(self) -> list[int]:
        """Slots that a peer may still write, and that nobody may use."""
        return [slot for slots in self._quarantine.values() for slot in slots]

    def leased(self, owner: Owner) -> list[int]:
        """Return an owner's slots; empty when it has none (any more)."""
        return list(self._leased.get(owner, ()))

    def take(self, owner: Owner, count: int, until: float) -> list[int]:
        """Lease slots to an owner until a time [s, any clock]. Raises NoRoom; ValueError for an owner that has a lease."""
        if owner in self._leased or owner in self._quarantine:
            raise ValueError(f"request {owner.request} of session {owner.session} has slots already")
        if count > len(self._free):
            raise NoRoom(f"{count} slots wanted, {len(self._free)} free, {len(self.quarantined)} wait for a fence")
        taken, self._free = self._free[:count], self._free[count:]
        self.unfenced_reuses += sum(slot in self._risky for slot in taken)
        self._risky.difference_update(taken)
        self._leased[owner], self._until[owner] = taken, until
        return list(taken)

    def extend(self, owner: Owner, until: float) -> bool:
        """Extend a lease; False when there is none: it ran out."""
        if owner in self._leased:
            self._until[owner] = max(self._until[owner], until)
        return owner in self._leased

    def expire(self, now: float) -> list[tuple[Owner, list[int]]]:
        """End the leases that have run out, and return them with their slots. That alone frees nothing, unless `unfenced`."""
        late = [owner for owner, until in self._until.items() if until <= now]
        ended = [(owner, self._end(owner)) for owner in late]
        self.expired += len(late)
        if self.unfenced:
            for owner, slots in ended:
                self._risky.update(slots)
                self._free += self._quarantine.pop(owner)
        return ended

    def revoke(self, owner: Owner) -> list[int]:
        """End a lease early (the request failed): to quarantine, until a fence."""
        return self._end(owner) if owner in self._leased else []

    def _end(self, owner: Owner) -> list[int]:
        slots = self._leased.pop(owner)
        del self._until[owner]
        self._quarantine[owner] = slots
        return list(slots)

    def drained(self, owner: Owner) -> list[int]:
        """Free an owner's slots on its word that nothing of that request is under way any more; returns them."""
        self._until.pop(owner, None)
        freed = self._leased.pop(owner, []) + self._quarantine.pop(owner, [])
        self._free += freed
        return freed

    def deregistered(self, session: int, leases: bool = True) -> list[int]:
        """Free the slots of a session whose QPs are in ERR and whose rkey is deregistered; returns them.

        `leases` False: only what waits for a fence; running requests keep their slots (they go on with a new key).
        """
        owners = [owner for owner in (*(self._leased if leases else ()), *self._quarantine) if owner.session == session]
        return [slot for owner in owners for slot in self.drained(owner)]

    def held(self, slots: Iterable[int]) -> set[int]:
        """Return those of some slots that somebody may write now."""
        busy = {slot for group in (*self._leased.values(), *self._quarantine.values()) for slot in group}
        return busy & set(slots)
