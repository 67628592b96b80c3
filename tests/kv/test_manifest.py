"""Publication: once, complete, and never for what is late."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rdmadiag.kv import manifest
from rdmadiag.kv.manifest import Bitmap, Ledger, RequestKey

PLANES, BLOCKS = 2, 3
PIECES = [(plane, block) for plane in range(PLANES) for block in range(BLOCKS)]
KEYS = st.builds(RequestKey, st.integers(6, 7), st.integers(1, 2), st.integers(1, 3))


class Publication(RuleBasedStateMachine):
    """Anything in any order; a model keeps which pieces of which key were verified."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(7)
        self.have: dict[RequestKey, set[tuple[int, int]]] = {}
        self.seen: list[RequestKey] = []
        self.ended: set[RequestKey] = set()

    @rule(key=KEYS)
    def opens(self, key: RequestKey) -> None:
        newest = max((k.version for k in {*self.have, *self.ended} if k.request == key.request), default=0)
        bitmap = self.ledger.open(key, PLANES, BLOCKS)
        assert (bitmap is not None) == (key.incarnation == 7 and key not in self.ended and key.version >= newest)
        if bitmap is not None:
            for older in [k for k in self.have if k.request == key.request and k.version < key.version]:
                self.have.pop(older)
                self.ended.add(older)
            self.have.setdefault(key, set())

    @rule(key=KEYS, piece=st.sampled_from(PIECES))
    def verifies(self, key: RequestKey, piece: tuple[int, int]) -> None:
        bitmap = self.ledger.bitmap(key)
        assert (bitmap is not None) == (key in self.have)
        if bitmap is not None:
            bitmap.set(*piece)
            self.have[key].add(piece)

    @rule(key=KEYS)
    def is_done(self, key: RequestKey) -> None:
        answer = self.ledger.publish(key)
        complete = self.have.get(key) == set(PIECES)
        assert (answer == manifest.PUBLISHED) == complete
        if key in self.have:
            assert answer in (manifest.PUBLISHED, manifest.INCOMPLETE)
        if complete:
            self.seen.append(key)
            self.ended.add(key)
            del self.have[key]
        elif key in self.seen:
            assert answer == manifest.DUPLICATE
        elif key in self.ended or key.incarnation != 7:
            assert answer == manifest.LATE

    @rule(key=KEYS)
    def fails(self, key: RequestKey) -> None:
        self.ledger.drop(key)
        if self.have.pop(key, None) is not None:
            self.ended.add(key)

    @rule(key=KEYS)
    def all_pieces_come(self, key: RequestKey) -> None:
        for piece in PIECES:
            self.verifies(key, piece)

    @invariant()
    def nothing_is_published_twice(self) -> None:
        assert len(self.seen) == len(set(self.seen)) == self.ledger.counts[manifest.PUBLISHED]
        assert all(self.ledger.published(key) for key in self.seen)


Publication.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestPublication = Publication.TestCase


@given(st.integers(1, 70), st.data())
def test_a_bitmap_that_went_over_the_wire_lacks_the_same(blocks: int, data: st.DataObject) -> None:
    bitmap = Bitmap(3, blocks)
    have = data.draw(st.sets(st.tuples(st.integers(0, 2), st.integers(0, blocks - 1))))
    for piece in have:
        bitmap.set(*piece)
    lacks = {(plane, block) for plane, some in bitmap.missing().items() for block in some}
    assert lacks == {(plane, block) for plane in range(3) for block in range(blocks)} - have
    assert manifest.missing_of(bitmap.words(), blocks) == bitmap.missing()
    assert bitmap.complete == (not lacks)


@pytest.mark.parametrize("words", [["zz"], ["-1"], ["ff"], ["1" * 100], [""]])
def test_a_bitmap_that_is_none_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError):
        manifest.missing_of(words, 4)


def test_a_piece_that_was_found_damaged_is_missing_again() -> None:
    bitmap = Bitmap(1, 2)
    bitmap.set(0, 0)
    bitmap.set(0, 1)
    bitmap.clear(0, 1)
    assert bitmap.missing() == {0: [1]}
    with pytest.raises(IndexError):
        bitmap.set(0, 2)


def test_what_was_forgotten_is_late_and_not_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "REMEMBERED", 1)
    ledger = Ledger(1)
    for request in (1, 2):
        key = RequestKey(1, request, 1)
        bitmap = ledger.open(key, 1, 1)
        assert bitmap is not None
        bitmap.set(0, 0)
        assert ledger.publish(key) == manifest.PUBLISHED
    assert ledger.publish(RequestKey(1, 1, 1)) == manifest.LATE
    assert ledger.open(RequestKey(1, 1, 1), 1, 1) is None
