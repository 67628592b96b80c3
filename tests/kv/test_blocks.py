"""Self-describing blocks: what happened to a block is told from its bytes."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from rdmadiag.kv import blocks
from rdmadiag.kv.blocks import Key

KEYS = st.builds(
    Key,
    st.integers(0, (1 << 64) - 1),
    st.integers(0, (1 << 64) - 2),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, 4095),
    st.integers(0, (1 << 20) - 1),
)
LENGTHS = st.integers(64, 600)


@given(KEYS, LENGTHS)
def test_a_piece_is_known_by_its_content(key: Key, length: int) -> None:
    data = blocks.content(key, length)
    assert len(data) == length
    assert blocks.classify(data, key) == blocks.OK
    assert set(blocks.owners(data)) == {key}


@given(KEYS, LENGTHS, st.data())
def test_any_changed_byte_is_corruption(key: Key, length: int, data: st.DataObject) -> None:
    piece = bytearray(blocks.content(key, length))
    at = data.draw(st.integers(0, length - 1))
    piece[at] ^= data.draw(st.integers(1, 255))
    assert blocks.classify(piece, key) == blocks.CORRUPT
    assert blocks.crc(piece) != blocks.crc(blocks.content(key, length))


@given(KEYS, LENGTHS, st.integers(0, 1 << 31), st.booleans())
def test_an_older_version_or_incarnation_is_stale(key: Key, length: int, other: int, version: bool) -> None:
    old = key._replace(version=other) if version else key._replace(incarnation=other)
    assume(old != key)
    assert blocks.classify(blocks.content(old, length), key) == blocks.STALE


@given(KEYS, KEYS, LENGTHS)
def test_another_block_is_misplaced(key: Key, other: Key, length: int) -> None:
    assume((other.plane, other.block) != (key.plane, key.block))
    assert blocks.classify(blocks.content(other, length), key) == blocks.MISPLACED


@given(KEYS, st.integers(0, 1 << 31), LENGTHS, st.data())
def test_cells_of_two_versions_are_torn(key: Key, version: int, length: int, data: st.DataObject) -> None:
    assume(version != key.version)
    cut = data.draw(st.integers(1, length // blocks.CELL_BYTES - 1)) * blocks.CELL_BYTES
    old = blocks.content(key._replace(version=version), length)
    assert blocks.classify(blocks.content(key, length)[:cut] + old[cut:], key) == blocks.TORN


@given(KEYS, LENGTHS)
def test_cells_in_a_wrong_order_are_corruption(key: Key, length: int) -> None:
    piece = blocks.content(key, length)
    cell = blocks.CELL_BYTES
    assert blocks.classify(piece[cell : 2 * cell] + piece[:cell] + piece[2 * cell :], key) == blocks.CORRUPT


@given(KEYS, LENGTHS, st.integers(0, 1000))
def test_a_free_slot_is_missing_to_who_wants_a_block_and_damaged_when_written(key: Key, length: int, slot: int) -> None:
    canary = blocks.canary(key.incarnation, key.plane, slot)
    assert blocks.classify(blocks.content(canary, length), key) == blocks.MISSING
    assert blocks.classify(blocks.content(canary, length), canary) == blocks.OK
    assert blocks.classify(blocks.content(key, length), canary) == blocks.CANARY


@given(KEYS, KEYS, LENGTHS)
def test_two_blocks_do_not_share_a_crc(key: Key, other: Key, length: int) -> None:
    assume(key != other)
    assert blocks.crc(blocks.content(key, length)) != blocks.crc(blocks.content(other, length))


@given(KEYS, st.binary(min_size=1, max_size=300))
def test_any_bytes_are_told_without_an_error(key: Key, data: bytes) -> None:
    assert blocks.classify(data, key) in blocks.STATES


def test_zeros_are_corrupt() -> None:
    assert blocks.classify(bytes(4096), Key(1, 2, 3, 4, 5)) == blocks.CORRUPT
