"""Where the blocks of a KV cache lie: shape, planes, page tables, and the runs that one work request each can move.

A paged cache keeps for every layer an array of slots; a block of tokens has the same slot in each of them (vLLM,
"PagedAttention", SOSP 2023, 4.1). Where K and V are arrays of their own, a layer is two planes. The offset of a slot is
`(plane * slots + slot) * piece_bytes`, so an arena is one memory region that is registered once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rdmadiag.errors import BadInput
from rdmadiag.plan.kv import PRESETS, Model, described

MOST_PLANES, MOST_SLOTS, MOST_BYTES = 4096, 1 << 20, 1 << 40


class Shape(NamedTuple):
    """What a block of one rank looks like: `pieces` planes a layer (2 where K and V lie apart), bytes of a piece."""

    layers: int
    pieces: int
    piece_bytes: int
    block_tokens: int

    @property
    def planes(self) -> int:
        """Arrays of slots: one a layer and piece."""
        return self.layers * self.pieces

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of tokens in all layers."""
        return self.planes * self.piece_bytes

    def blocks(self, tokens: int) -> int:
        """Return how many blocks hold so many tokens."""
        return math.ceil(tokens / self.block_tokens)

    def layer(self, plane: int) -> int:
        """Return the layer that a plane belongs to."""
        return plane // self.pieces


def shape(model: Model, block_tokens: int = 16, tensor_parallel: int = 1, apart: bool = True) -> Shape:
    """Return the shape of a model's blocks on one rank; `apart`: K and V in planes of their own (never for a latent vector).

    Raises BadInput where a block is not a whole number of bytes.
    """
    if block_tokens < 1 or tensor_parallel < 1:
        raise BadInput(f"block_tokens {block_tokens}, tensor_parallel {tensor_parallel}: wanted 1 or more")
    pieces = 2 if apart and not model.latent else 1
    size = model.block_bytes(block_tokens, tensor_parallel) / pieces
    if size < 1 or size != int(size):
        raise BadInput(f"a block of {block_tokens} tokens on one of {tensor_parallel} ranks has {size:g} bytes")
    return checked(Shape(model.layers, pieces, int(size), block_tokens))


def checked(wanted: Shape) -> Shape:
    """Return a shape that memory can hold. Raises BadInput for one that it cannot, or with a number below 1."""
    if min(wanted) < 1 or wanted.planes > MOST_PLANES or wanted.piece_bytes > 1 << 30:
        raise BadInput(f"{wanted}: wanted numbers from 1 on, at most {MOST_PLANES} planes and 1 GiB a piece")
    return wanted


SHAPES: dict[str, Shape] = {
    "llama-3-70b-tp8": shape(PRESETS["llama-3-70b"], 16, 8),
    "llama-3-8b": shape(PRESETS["llama-3-8b"], 16, 1),
    "qwen3-32b": shape(PRESETS["qwen3-32b"], 16, 8),
    "deepseek-v3": shape(PRESETS["deepseek-v3"], 64),
    "page-1": shape(PRESETS["llama-3-70b"], 1, 8),
}
"""Shapes by name; page-1 is one token a page, as SGLang has by default (256-byte pieces for a 70B on 8 ranks)."""


def named(text: str) -> Shape:
    """Return a shape by its name, or by the parameters of a model: model=qwen3-8b,tp=2 or layers=40,kv_heads=8,head_dim=128,tp=4.

    Raises BadInput.
    """
    if "=" in text:
        model, given = described(text.split(","))
        return shape(model, given["block_tokens"], given["tp"])
    if text not in SHAPES:
        raise BadInput(
            f"no shape named {text!r}; known: {', '.join(SHAPES)}; or layers=, kv_heads=, head_dim=, tp= ..."
        )
    return SHAPES[text]


class Geometry(NamedTuple):
    """An arena: `slots` in every plane of a shape."""

    shape: Shape
    slots: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the arena."""
        return self.shape.planes * self.slots * self.shape.piece_bytes

    def offset(self, plane: int, slot: int) -> int:
        """Return where a piece begins [bytes]. Raises IndexError outside of the arena."""
        if not (0 <= plane < self.shape.planes and 0 <= slot < self.slots):
            raise IndexError(f"plane {plane}, slot {slot}: outside of {self.shape.planes} x {self.slots}")
        return (plane * self.slots + slot) * self.shape.piece_bytes


def geometry(wanted: Shape, slots: int) -> Geometry:
    """Return an arena's geometry. Raises BadInput where it has no slot or is too large."""
    made = Geometry(checked(wanted), slots)
    if not 1 <= slots <= MOST_SLOTS or made.size_bytes > MOST_BYTES:
        raise BadInput(
            f"{slots} slots of {wanted.block_bytes} bytes: wanted 1 to {MOST_SLOTS}, and at most 1 TiB in all"
        )
    return made


def shuffled(slots: Sequence[int], seed: int, run: int = 1) -> list[int]:
    """Return slots in an order that looks like a cache in use: runs of `run` neighbours, the runs shuffled."""
    parts = [list(slots[at : at + run]) for at in range(0, len(slots), run)]
    random.Random(seed).shuffle(parts)
    return [slot for part in parts for slot in part]


class Run(NamedTuple):
    """Neighbouring pieces of one plane that lie together on both sides: what one work request moves.

    `first` and `blocks` number blocks of the request, not slots.
    """

    plane: int
    first: int
    blocks: int
    source: int
    target: int
    length: int


def runs(
    source: Geometry,
    source_slots: Sequence[int],
    target: Geometry,
    target_slots: Sequence[int],
    plane: int,
    wanted: Sequence[int] | None = None,
    most_bytes: int = 1 << 20,
) -> Iterator[Run]:
    """Yield the runs that move the wanted blocks (all when None) of one plane, merged up to `most_bytes` each.

    Blocks are joined where both slots follow each other. Raises ValueError where the sides do not fit each other.
    """
    if source.shape != target.shape or len(source_slots) != len(target_slots):
        raise ValueError(f"{source.shape} with {len(source_slots)} slots, {target.shape} with {len(target_slots)}")
    size = source.shape.piece_bytes
    most = max(1, most_bytes // size)
    order = range(len(source_slots)) if wanted is None else wanted
    first = count = 0
    for block in order:
        if (
            count
            and count < most
            and block == first + count
            and source_slots[block] == source_slots[first] + count
            and target_slots[block] == target_slots[first] + count
        ):
            count += 1
            continue
        if count:
            yield _run(source, source_slots, target, target_slots, plane, first, count)
        first, count = block, 1
    if count:
        yield _run(source, source_slots, target, target_slots, plane, first, count)


def _run(
    source: Geometry,
    source_slots: Sequence[int],
    target: Geometry,
    target_slots: Sequence[int],
    plane: int,
    first: int,
    count: int,
) -> Run:
    start, end = source.offset(plane, source_slots[first]), target.offset(plane, target_slots[first])
    return Run(plane, first, count, start, end, count * source.shape.piece_bytes)
