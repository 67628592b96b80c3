"""Shapes, arenas and runs of a KV cache."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.errors import BadInput
from rdmadiag.kv import layout
from rdmadiag.plan.kv import PRESETS

SMALL = layout.Shape(3, 2, 64, 16)


def test_a_70b_on_eight_ranks_has_4_kib_of_k_and_4_of_v_in_a_block() -> None:
    shape = layout.SHAPES["llama-3-70b-tp8"]
    assert (shape.layers, shape.pieces, shape.piece_bytes) == (80, 2, 4096)
    assert shape.blocks(2048) * shape.block_bytes == 80 << 20


def test_latent_attention_has_one_piece_a_layer_and_is_not_split() -> None:
    assert layout.SHAPES["deepseek-v3"] == layout.Shape(61, 1, 72 << 10, 64)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("layers=80,kv_heads=8,head_dim=128,tp=8", "llama-3-70b-tp8"),
        ("model=llama-3-8b", "llama-3-8b"),
        ("layers=61,latent=576,block_tokens=64,tp=8", "deepseek-v3"),
        ("model=llama-3-70b,tp=8,block_tokens=1", "page-1"),
    ],
)
def test_parameters_of_a_model_give_the_shape_that_has_a_name(text: str, same: str) -> None:
    assert layout.named(text) == layout.SHAPES[same]


def test_one_byte_a_value_halves_the_pieces() -> None:
    half = layout.named("layers=80,kv_heads=8,head_dim=128,tp=8,dtype_bytes=1").piece_bytes
    assert 2 * half == layout.SHAPES["llama-3-70b-tp8"].piece_bytes


@pytest.mark.parametrize(
    "text",
    ["nosuch", "layers=4", "layers=4,kv_heads=8", "layers=4,latent=5,head_dim=8", "layers=0,latent=5", "a=b", "=", ","],
)
def test_words_that_give_no_shape_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        layout.named(text)


def test_pages_of_one_token_have_256_byte_pieces() -> None:
    assert layout.SHAPES["page-1"].piece_bytes == 256


@pytest.mark.parametrize("shape", layout.SHAPES.values(), ids=list(layout.SHAPES))
def test_a_preset_holds_its_models_bytes(shape: layout.Shape) -> None:
    sizes = {m.block_bytes(shape.block_tokens, tp) * m.layers for m in PRESETS.values() for tp in (1, 8)}
    assert shape.block_bytes in sizes


def test_a_shape_that_no_memory_can_hold_is_refused() -> None:
    for shape in (layout.Shape(0, 1, 1, 1), layout.Shape(1, 1, 1 << 31, 1), layout.Shape(5000, 1, 1, 1)):
        with pytest.raises(BadInput, match="wanted"):
            layout.checked(shape)
    with pytest.raises(BadInput, match="slots"):
        layout.geometry(SMALL, 0)


@given(st.integers(1, 40), st.data())
def test_no_two_pieces_of_an_arena_overlap_and_all_of_it_is_used(slots: int, data: st.DataObject) -> None:
    arena = layout.geometry(SMALL, slots)
    offsets = sorted(arena.offset(plane, slot) for plane in range(SMALL.planes) for slot in range(slots))
    assert offsets == list(range(0, arena.size_bytes, SMALL.piece_bytes))
    with pytest.raises(IndexError):
        arena.offset(SMALL.planes, data.draw(st.integers(0, slots - 1)))


@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 60))
def test_a_shuffled_page_table_has_every_slot_once(seed: int, run: int, count: int) -> None:
    assert sorted(layout.shuffled(range(count), seed, run)) == list(range(count))


@given(st.data(), st.integers(1, 40), st.integers(1, 6), st.integers(1, 1000))
def test_runs_move_every_wanted_block_to_its_place_once(
    data: st.DataObject, blocks: int, run: int, most_bytes: int
) -> None:
    source, target = layout.geometry(SMALL, 50), layout.geometry(SMALL, 60)
    left = layout.shuffled(range(50), data.draw(st.integers(0, 99)), run)[:blocks]
    right = layout.shuffled(range(60), data.draw(st.integers(0, 99)), run)[:blocks]
    wanted = data.draw(st.none() | st.lists(st.integers(0, blocks - 1), unique=True).map(sorted))
    plane = data.draw(st.integers(0, SMALL.planes - 1))
    moved = {}
    for one in layout.runs(source, left, target, right, plane, wanted, most_bytes):
        assert one.length == one.blocks * SMALL.piece_bytes
        assert one.blocks == 1 or one.length <= most_bytes
        for at in range(one.blocks):
            moved[one.first + at] = (one.source + at * SMALL.piece_bytes, one.target + at * SMALL.piece_bytes)
    expect = {
        block: (source.offset(plane, left[block]), target.offset(plane, right[block]))
        for block in (range(blocks) if wanted is None else wanted)
    }
    assert moved == expect


def test_neighbours_on_both_sides_become_one_request_and_others_do_not() -> None:
    arena = layout.geometry(SMALL, 10)
    found = list(layout.runs(arena, [0, 1, 2, 5], arena, [4, 5, 7, 8], 0))
    assert [(run.first, run.blocks) for run in found] == [(0, 2), (2, 1), (3, 1)]


def test_sides_that_do_not_fit_are_refused() -> None:
    arena = layout.geometry(SMALL, 10)
    with pytest.raises(ValueError, match="slots"):
        list(layout.runs(arena, [0, 1], arena, [0], 0))
