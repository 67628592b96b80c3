"""The memory of one side: one region that is registered once, its pieces, and canaries in slots that nobody may write."""

from __future__ import annotations

import mmap
from collections.abc import Iterable

from rdmadiag.kv import blocks
from rdmadiag.kv.layout import Geometry


class Arena:
    """Page-aligned memory of a geometry, all slots painted with canaries. `close` gives it back; no view may be left then."""

    def __init__(self, geometry: Geometry, incarnation: int) -> None:
        self.geometry, self.incarnation = geometry, incarnation
        self._map = mmap.mmap(-1, geometry.size_bytes)
        self.view = memoryview(self._map)
        self.paint(range(geometry.slots))

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back; may be called twice."""
        self.view.release()
        self._map.close()

    def piece(self, plane: int, slot: int) -> memoryview:
        """Return a piece as memory."""
        start = self.geometry.offset(plane, slot)
        return self.view[start : start + self.geometry.shape.piece_bytes]

    def put(self, key: blocks.Key, slot: int) -> int:
        """Write the piece of a key to its plane of a slot, and return its CRC: what a producer does."""
        data = blocks.content(key, self.geometry.shape.piece_bytes)
        self.piece(key.plane, slot)[:] = data
        return blocks.crc(data)

    def crc(self, plane: int, slot: int) -> int:
        """Return the CRC of a piece."""
        return blocks.crc(self.piece(plane, slot))

    def classify(self, key: blocks.Key, slot: int) -> str:
        """Return what a slot's piece is, compared with a key."""
        return blocks.classify(self.piece(key.plane, slot), key)

    def paint(self, slots: Iterable[int]) -> None:
        """Fill slots with their canaries, in all planes."""
        for slot in slots:
            for plane in range(self.geometry.shape.planes):
                self.put(blocks.canary(self.incarnation, plane, slot), slot)

    def damaged(self, slots: Iterable[int]) -> list[tuple[int, int]]:
        """Return (plane, slot) of canaries that somebody wrote over."""
        return [
            (plane, slot)
            for slot in slots
            for plane in range(self.geometry.shape.planes)
            if self.classify(blocks.canary(self.incarnation, plane, slot), slot) != blocks.OK
        ]
