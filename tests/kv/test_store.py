"""The block store: LRU that keeps what is in use, promotion that verifies, versions that do not go back."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rdmadiag.kv.store import FILE, MEMORY, Store, StoreFull

SIZE = 64
IDS = st.integers(0, 9)


def data(block: int, version: int) -> bytes:
    return bytes([block, version]) * (SIZE // 2)


class Tiers(RuleBasedStateMachine):
    """Anything in any order; a model keeps the newest version of each block, and who holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store(SIZE, 3, 4, os.path.join(self.folder.name, "blocks"), lambda: self.now)
        self.newest: dict[int, int] = {}
        self.leases: dict[int, float] = {}

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def leased(self, block: int) -> bool:
        return self.leases.get(block, 0.0) > self.now

    @rule(block=IDS, version=st.integers(1, 4))
    def put(self, block: int, version: int) -> None:
        here = self.store.tier(block) is not None
        try:
            taken = self.store.put(block, version, data(block, version))
        except StoreFull:
            assert sum(self.store.tier(each) == MEMORY and self.leased(each) for each in range(10)) == 3
            self.newest.pop(block, None) if self.store.tier(block) is None else None
            return
        if taken:
            assert not here or version >= self.newest[block]
            assert not (here and self.leased(block) and version > self.newest[block])
            self.newest[block] = version
            assert self.store.tier(block) is not None
        else:
            assert here and (version < self.newest[block] or self.leased(block))

    @rule(block=IDS, at_least=st.integers(0, 4))
    def get(self, block: int, at_least: int) -> None:
        before = self.store.tier(block)
        found = self.store.get(block, at_least)
        if before is None or self.newest[block] < at_least:
            assert found is None
        else:
            assert found == data(block, self.newest[block])

    @rule(block=IDS, seconds=st.integers(1, 5))
    def lease(self, block: int, seconds: int) -> None:
        if self.store.lease(block, seconds):
            self.leases[block] = max(self.leases.get(block, 0.0), self.now + seconds)

    @rule(block=IDS)
    def release(self, block: int) -> None:
        self.store.release(block)
        if self.store.tier(block):
            self.leases.pop(block, None)

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(blocks=st.lists(IDS, max_size=5))
    def prefetch(self, blocks: list[int]) -> None:
        assert self.store.prefetch(blocks).result() <= len(blocks)

    @invariant()
    def tiers_hold_what_they_may_and_leased_blocks_stay(self) -> None:
        tiers = [self.store.tier(block) for block in range(10)]
        assert tiers.count(MEMORY) <= 3 and tiers.count(FILE) <= 4
        assert all(self.store.tier(block) for block in self.leases if self.leased(block))
        assert len(self.store._places) == 4 - tiers.count(FILE)


Tiers.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTiers = Tiers.TestCase


@pytest.fixture
def small(tmp_path: Path) -> Store:
    return Store(SIZE, 2, 2, str(tmp_path / "blocks"))


def test_the_block_that_was_not_used_longest_goes_down_and_comes_up_whole(small: Store) -> None:
    with small:
        for block in (1, 2):
            small.put(block, 1, data(block, 1))
        small.get(1)
        small.put(3, 1, data(3, 1))
        assert [small.tier(block) for block in (1, 2, 3)] == [MEMORY, FILE, MEMORY]
        assert small.get(2) == data(2, 1)
        assert small.tier(2) == MEMORY
        rows = {row["tier"]: row for row in small.rows()}
        assert (rows[FILE]["hits"], rows[FILE]["promotions"], rows[MEMORY]["evictions"]) == (1, 1, 2)


def test_a_block_that_was_damaged_at_rest_is_thrown_away_and_counted(small: Store, tmp_path: Path) -> None:
    with small:
        for block in (1, 2, 3):
            small.put(block, 1, data(block, 1))
        assert small.tier(1) == FILE
        with open(tmp_path / "blocks", "r+b") as file:
            raw = file.read()
            file.seek(raw.index(data(1, 1)) + 10)
            file.write(b"!")
        assert small.get(1) is None and small.tier(1) is None
        assert small.counts[FILE]["damaged"] == 1


def test_a_pinned_block_stays_and_a_store_full_of_them_takes_no_more(small: Store) -> None:
    with small:
        small.put(1, 1, data(1, 1))
        small.put(2, 1, data(2, 1))
        with small.pinned(1) as first, small.pinned(2):
            assert first == data(1, 1)
            with pytest.raises(StoreFull, match="pinned or leased"):
                small.put(3, 1, data(3, 1))
            assert not small.put(1, 2, data(1, 2)), "a block that is being read is not changed"
        small.put(3, 1, data(3, 1))
        assert small.put(2, 2, data(2, 2)) and small.get(2) == data(2, 2)


def test_prefetch_brings_blocks_up_while_the_caller_computes(small: Store) -> None:
    with small:
        for block in (1, 2, 3):
            small.put(block, 1, data(block, 1))
        assert small.tier(1) == FILE
        coming = small.prefetch([1])
        computed = sum(range(1000))
        assert (coming.result(), computed, small.tier(1)) == (1, 499500, MEMORY)


@pytest.mark.parametrize("file_blocks", [0, 1])
def test_a_store_with_hardly_a_file_tier_works(tmp_path: Path, file_blocks: int) -> None:
    with Store(SIZE, 1, file_blocks, str(tmp_path / "blocks")) as store:
        for block in (1, 2, 1, 2):
            store.put(block, 1, data(block, 1))
            assert store.get(block) == data(block, 1)
        assert store.get(1) == (data(1, 1) if file_blocks else None)
        assert store.counts[FILE]["refused"] == 0


def test_a_block_of_another_size_is_refused(small: Store) -> None:
    with small, pytest.raises(ValueError, match="64"):
        small.put(1, 1, b"x")


def test_closing_twice_is_fine(small: Store) -> None:
    small.close()
    small.close()
