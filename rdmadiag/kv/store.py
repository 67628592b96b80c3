"""A block store of two tiers, memory over a file: LRU in each, nothing in use is put out, everything that goes up is verified.

A block that leaves memory goes to the file, a block that leaves the file is gone. Pins (this process reads it) and leases (a
peer may read it until a time) keep a block where it is. A block has a version: an older one than it has is not taken, so that
what comes by either of two paths in any order ends as the same.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from rdmadiag.errors import RdmadiagError
from rdmadiag.kv.blocks import crc

MEMORY, FILE = "memory", "file"


class StoreFull(RdmadiagError):
    """Every block of the memory tier is pinned or leased."""


class _Block:
    def __init__(self, version: int, check: int) -> None:
        self.version, self.check = version, check
        self.data: bytes | None = None
        self.place: int | None = None  # slot of the file
        self.pins = 0
        self.until = 0.0

    def held(self, now: float) -> bool:
        return self.pins > 0 or self.until > now


class Store:
    """Blocks of one size by id; thread-safe. `path` is its own file, made new. `clock` gives the time of leases [s]."""

    def __init__(
        self,
        block_bytes: int,
        memory_blocks: int,
        file_blocks: int,
        path: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.block_bytes = block_bytes
        self.capacity = {MEMORY: memory_blocks, FILE: file_blocks}
        self._clock = clock
        self._memory: OrderedDict[int, _Block] = OrderedDict()
        self._file: OrderedDict[int, _Block] = OrderedDict()
        self._places = list(range(file_blocks))
        self._seen: set[int] = set()
        self._lock = threading.RLock()
        self._worker = ThreadPoolExecutor(1, "kv prefetch")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.counts: dict[str, Counter[str]] = {MEMORY: Counter(), FILE: Counter()}

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End prefetches and close the file; may be called twice."""
        self._worker.shutdown(cancel_futures=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def put(self, block: int, version: int, data: bytes) -> bool:
        """Store a block; False when it has a newer version, or a version in use would be changed. Raises StoreFull, ValueError."""
        if len(data) != self.block_bytes:
            raise ValueError(f"{len(data)} bytes; blocks of this store have {self.block_bytes}")
        with self._lock:
            old = self._memory.get(block) or self._file.get(block)
            if old is not None and (version < old.version or (version > old.version and old.held(self._clock()))):
                return False
            if old is None or version > old.version:
                if old is not None:
                    self._remove(block)
                self._admit(block, self._new(version, bytes(data)))
            self._seen.add(block)
            return True

    @staticmethod
    def _new(version: int, data: bytes) -> _Block:
        made = _Block(version, crc(data))
        made.data = data
        return made

    def get(self, block: int, at_least: int = 0) -> bytes | None:
        """Return a block of a version or newer, and promote it; None when it is not here (any more)."""
        with self._lock:
            self.counts[MEMORY]["lookups"] += 1
            self.counts[MEMORY]["reusable"] += block in self._seen
            found = self._memory.get(block)
            if found is not None and found.version >= at_least:
                self._memory.move_to_end(block)
                self.counts[MEMORY]["hits"] += 1
                return found.data
            below = self._file.get(block)
            if below is None or below.version < at_least:
                return None
            self.counts[FILE]["lookups"] += 1
            data = self._promote(block)
            self.counts[FILE]["hits"] += data is not None
            return data

    def _promote(self, block: int) -> bytes | None:
        """Bring a block up, verified; one that is damaged is thrown away."""
        held = self._file[block]
        assert held.place is not None
        data = os.pread(self._descriptor, self.block_bytes, held.place * self.block_bytes)
        if len(data) != self.block_bytes or crc(data) != held.check:
            self.counts[FILE]["damaged"] += 1
            self._remove(block)
            return None
        del self._file[block]  # its place is free for what comes down instead
        self._places.append(held.place)
        try:
            self._room(MEMORY)
        except StoreFull:
            self._places.remove(held.place)
            self._file[block] = held
            return data  # read through: it stays below
        held.place, held.data = None, data
        self._memory[block] = held
        self.counts[FILE]["promotions"] += 1
        return data

    def _admit(self, block: int, made: _Block) -> None:
        self._room(MEMORY)
        self._memory[block] = made

    def _room(self, tier: str) -> None:
        """Make room for one block. Raises StoreFull when all blocks are in use; a block that leaves memory goes to the file."""
        blocks = self._memory if tier == MEMORY else self._file
        if len(blocks) < self.capacity[tier]:
            return
        now = self._clock()
        victim = next((block for block, each in blocks.items() if not each.held(now)), None)
        if victim is None:
            self.counts[tier]["refused"] += 1
            raise StoreFull(f"all {self.capacity[tier]} blocks of tier {tier} are pinned or leased")
        self.counts[tier]["evictions"] += 1
        if tier == FILE:
            self._remove(victim)
            return
        leaving = blocks.pop(victim)
        if not self.capacity[FILE]:
            return
        try:
            self._room(FILE)
        except StoreFull:
            return  # the file has no room: the block is gone, and is computed again
        leaving.place = self._places.pop()
        os.pwrite(self._descriptor, leaving.data or b"", leaving.place * self.block_bytes)
        leaving.data = None
        self._file[victim] = leaving

    def _remove(self, block: int) -> None:
        self._memory.pop(block, None)
        below = self._file.pop(block, None)
        if below is not None and below.place is not None:
            self._places.append(below.place)

    def version_of(self, block: int) -> int | None:
        """Return the version of a block; None when it is not here."""
        with self._lock:
            held = self._memory.get(block) or self._file.get(block)
            return held.version if held is not None else None

    def tier(self, block: int) -> str | None:
        """Return the tier that a block is in; None when it is not here."""
        with self._lock:
            return MEMORY if block in self._memory else FILE if block in self._file else None

    @contextmanager
    def pinned(self, block: int) -> Iterator[bytes | None]:
        """Give a block that stays where it is while it is read; None when it is not here."""
        with self._lock:
            data = self.get(block)
            held = (self._memory.get(block) or self._file.get(block)) if data is not None else None
            if held is not None:
                held.pins += 1
        try:
            yield data
        finally:
            if held is not None:
                with self._lock:
                    held.pins -= 1

    def lease(self, block: int, seconds: float) -> bool:
        """Keep a block for a peer that reads it by itself (RDMA READ), so long; False when it is not here."""
        with self._lock:
            held = self._memory.get(block) or self._file.get(block)
            if held is not None:
                held.until = max(held.until, self._clock() + seconds)
            return held is not None

    def release(self, block: int) -> None:
        """End a lease early: the peer is done with it."""
        with self._lock:
            held = self._memory.get(block) or self._file.get(block)
            if held is not None:
                held.until = 0.0

    def prefetch(self, blocks: Iterable[int]) -> Future[int]:
        """Bring blocks up in a thread while the caller computes; how many are in memory at the end."""
        wanted = list(blocks)

        def bring() -> int:
            with_room = 0
            for block in wanted:
                with self._lock:  # one at a time: a get in between is not kept waiting for all
                    if block in self._file:
                        self._promote(block)
                    with_room += block in self._memory
            return with_room

        return self._worker.submit(bring)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of kv_cache."""
        names = ("hits", "evictions", "refused", "promotions", "damaged")
        reusable = self.counts[MEMORY]["reusable"]
        return [
            {"tier": tier, "capacity_blocks": self.capacity[tier], "lookups": counts["lookups"], "reusable": reusable}
            | {name: counts[name] for name in names}
            for tier, counts in self.counts.items()
        ]
