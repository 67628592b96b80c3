"""What a receiver has of each request, and the one moment at which a consumer may see it.

A request is published once, when every piece of it has been verified, under the key (incarnation, request, version). Whatever
comes again or too late is counted and dropped. The bitmap of what is missing is what a sender resends.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

PUBLISHED, INCOMPLETE, DUPLICATE, LATE, UNKNOWN = "published", "incomplete", "duplicate", "late", "unknown"
ANSWERS = (PUBLISHED, INCOMPLETE, DUPLICATE, LATE, UNKNOWN)
REMEMBERED = 100_000
"""Requests that are remembered after their end, to know duplicates and late dones."""


class RequestKey(NamedTuple):
    """What one publication is about."""

    incarnation: int
    request: int
    version: int


class Bitmap:
    """Pieces of a request that were verified: one bit a plane and block."""

    def __init__(self, planes: int, blocks: int) -> None:
        self.blocks = blocks
        self._full = (1 << blocks) - 1
        self._bits = [0] * planes

    def set(self, plane: int, block: int) -> None:
        """Note a verified piece. Raises IndexError for one that the request does not have."""
        if not (0 <= plane < len(self._bits) and 0 <= block < self.blocks):
            raise IndexError(f"plane {plane}, block {block}: the request has {len(self._bits)} x {self.blocks}")
        self._bits[plane] |= 1 << block

    def clear(self, plane: int, block: int) -> None:
        """Take a piece back (it was found damaged)."""
        self._bits[plane] &= ~(1 << block)

    def plane_complete(self, plane: int) -> bool:
        """Tell whether a plane has all its blocks."""
        return self._bits[plane] == self._full

    @property
    def complete(self) -> bool:
        """Whether every piece is there."""
        return all(bits == self._full for bits in self._bits)

    def missing(self) -> dict[int, list[int]]:
        """Return the blocks that each plane lacks; planes that lack none are left out."""
        found = {}
        for plane, bits in enumerate(self._bits):
            lack = self._full & ~bits
            if lack:
                found[plane] = [block for block in range(self.blocks) if lack >> block & 1]
        return found

    def words(self) -> list[str]:
        """Return the bitmap as hex digits, one text a plane: what goes over the control channel."""
        return [f"{bits:x}" for bits in self._bits]


def missing_of(words: Sequence[str], blocks: int) -> dict[int, list[int]]:
    """Return what a bitmap that came as hex digits lacks. Raises ValueError for what is none."""
    bitmap = Bitmap(len(words), blocks)
    for plane, word in enumerate(words):
        if len(word) > blocks // 4 + 1:
            raise ValueError(f"plane {plane}: {len(word)} hex digits for {blocks} blocks")
        bits = int(word, 16)
        if bits < 0 or bits > bitmap._full:
            raise ValueError(f"plane {plane}: bits beyond block {blocks}")
        bitmap._bits[plane] = bits
    return bitmap.missing()


class Ledger:
    """Requests under way at a receiver, what was published, and what was dropped (`counts` by answer)."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self._open: dict[RequestKey, Bitmap] = {}
        self._ended: OrderedDict[RequestKey, str] = OrderedDict()
        self._newest: dict[int, int] = {}  # version by request
        self.counts: Counter[str] = Counter()

    def open(self, key: RequestKey, planes: int, blocks: int) -> Bitmap | None:
        """Begin a request, or go on with it: its bitmap. None where that may not be: another incarnation, ended, or an older version."""
        if key.incarnation != self.incarnation or key in self._ended or key.version < self._newest.get(key.request, 0):
            return None
        self._newest[key.request] = key.version
        for older in [k for k in self._open if k.request == key.request and k.version < key.version]:
            self.drop(older)
        return self._open.setdefault(key, Bitmap(planes, blocks))

    def bitmap(self, key: RequestKey) -> Bitmap | None:
        """Return the bitmap of a request under way."""
        return self._open.get(key)

    def publish(self, key: RequestKey) -> str:
        """Publish a complete request, once; one of ANSWERS. Only `published` lets a consumer see it."""
        answer = self._answer(key)
        if answer == PUBLISHED:
            self._end(key, PUBLISHED)
        self.counts[answer] += 1
        return answer

    def _answer(self, key: RequestKey) -> str:
        if key in self._open:
            return PUBLISHED if self._open[key].complete else INCOMPLETE
        ended = self._ended.get(key)
        if ended is not None:
            return DUPLICATE if ended == PUBLISHED else LATE
        if key.incarnation != self.incarnation or key.version < self._newest.get(key.request, 0):
            return LATE
        return UNKNOWN

    def drop(self, key: RequestKey) -> None:
        """End a request without publishing it (failed, lease run out, newer version): what comes for it is late."""
        if key in self._open:
            self._end(key, LATE)

    def published(self, key: RequestKey) -> bool:
        """Tell whether a consumer may see a request."""
        return self._ended.get(key) == PUBLISHED

    def _end(self, key: RequestKey, how: str) -> None:
        del self._open[key]
        self._ended[key] = how
        while len(self._ended) > REMEMBERED:
            old, _ = self._ended.popitem(last=False)
            if self._newest.get(old.request) == old.version:
                # Its version stays known by being raised: what comes for it after so long is late, not new.
                self._newest[old.request] = old.version + 1
