"""Leases and fences: no slot is lent while an earlier owner could still write it."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rdmadiag.kv.pool import NoRoom, Owner, Pool

SLOTS = 40
OWNERS = st.builds(Owner, st.integers(1, 3), st.integers(1, 6))


class Fencing(RuleBasedStateMachine):
    """Owners come, run out, drain and die in any order; a model keeps who could still write which slot."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(SLOTS, seed=1, canary_every=8)
        self.writers: dict[Owner, set[int]] = {}
        self.until: dict[Owner, float] = {}
        self.now = 0.0

    @rule(owner=OWNERS, count=st.integers(1, 12), seconds=st.integers(1, 10))
    def take(self, owner: Owner, count: int, seconds: int) -> None:
        free = len(self.pool.free)
        if owner in self.writers:
            with pytest.raises(ValueError):
                self.pool.take(owner, count, self.now + seconds)
            return
        if count > free:
            with pytest.raises(NoRoom):
                self.pool.take(owner, count, self.now + seconds)
            return
        slots = set(self.pool.take(owner, count, self.now + seconds))
        assert len(slots) == count
        assert not slots & self.pool.canaries
        assert not any(slots & others for others in self.writers.values())
        self.writers[owner], self.until[owner] = slots, self.now + seconds

    @rule(seconds=st.integers(0, 8))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        ended = dict(self.pool.expire(self.now))
        late = {owner for owner, until in self.until.items() if until <= self.now}
        assert set(ended) == late
        for owner in late:
            assert set(ended[owner]) == self.writers[owner]
            del self.until[owner]

    @rule(owner=OWNERS)
    def drains(self, owner: Owner) -> None:
        assert set(self.pool.drained(owner)) == self.writers.pop(owner, set())
        self.until.pop(owner, None)

    @rule(owner=OWNERS, seconds=st.integers(1, 9))
    def extends(self, owner: Owner, seconds: int) -> None:
        assert self.pool.extend(owner, self.now + seconds) == (owner in self.until)
        if owner in self.until:
            self.until[owner] = max(self.until[owner], self.now + seconds)

    @rule(owner=OWNERS)
    def is_revoked(self, owner: Owner) -> None:
        assert bool(self.pool.revoke(owner)) == (owner in self.until)
        self.until.pop(owner, None)

    @rule(session=st.integers(1, 3))
    def session_is_deregistered(self, session: int) -> None:
        gone = [owner for owner in self.writers if owner.session == session]
        freed = set(self.pool.deregistered(session))
        assert freed == set().union(*(self.writers.pop(owner) for owner in gone))
        for owner in gone:
            self.until.pop(owner, None)

    @invariant()
    def every_slot_is_in_one_place(self) -> None:
        free, held = set(self.pool.free), set().union(*self.writers.values())
        assert not free & held
        assert free | held | set(self.pool.canaries) == set(range(SLOTS))
        assert self.pool.held(range(SLOTS)) == held
        assert self.pool.unfenced_reuses == 0


Fencing.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestFencing = Fencing.TestCase


def test_a_pool_that_frees_on_expiry_counts_what_it_lends_again_without_a_fence() -> None:
    pool = Pool(10, canary_every=0, unfenced=True)
    pool.take(Owner(1, 1), 10, until=5.0)
    pool.expire(5.0)
    assert pool.unfenced_reuses == 0
    pool.take(Owner(2, 2), 4, until=9.0)
    assert (pool.expired, pool.unfenced_reuses) == (1, 4)
