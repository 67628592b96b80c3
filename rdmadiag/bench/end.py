"""Moves blocks between two RDMA devices of one node and times it: `python -m rdmadiag.bench.end DEVICE DEVICE`.

A line of JSON in, a line of JSON out, until the input ends: so the start of Python and the set-up of QPs are not in what is
measured. Content is made before the clock starts and compared after it stopped.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from rdmadiag.bench.whole import Whole
from rdmadiag.errors import RdmadiagError
from rdmadiag.verbs.endpoint import DEFAULTS, Endpoint, prepared, stream
from rdmadiag.verbs.errors import NotFinished
from rdmadiag.verbs.posting import Wr
from rdmadiag.verbs.qp import Qp

MEMORY_BYTES = 16 << 20
DEPTH = 512
ATTRIBUTES = DEFAULTS._replace(max_rd_atomic=0)
"""As many READs at once as the device takes, like perftest."""
WRITE, IMM, READ = "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ"
WHOLE = "whole"
LONGEST_SECONDS = 120.0


def _stream_imm(
    near: Endpoint, far: Endpoint, size: int, count: int, window: int, every: int, seconds: float, left: int
) -> tuple[float, int, int]:
    """Move blocks by WRITE_WITH_IMM; both ends' completions are taken, receives are posted again. `left`: those of the run before.

    Returns time, failures, and receives that are left.
    """
    batches = prepared(near, far.offer().memory, IMM, size, count, every, every)
    received = left + far.qp.post_receives((nth, ()) for nth in range(2 * window - left))
    more = far.qp.prepared_receives((nth, ()) for nth in range(every))
    posted = done = told = bad = nth = 0
    start = time.perf_counter()
    while (done < count or told < count) and not bad:
        while nth < len(batches) and posted - min(done, told) + len(batches[nth]) <= window:
            batches[nth].post()
            posted += len(batches[nth])
            nth += 1
        for one in far.cq.poll():
            told += 1
            bad += one.status != "SUCCESS"
        while received - told <= 2 * window - len(more):
            received += more.post()
        for one in near.cq.poll():
            done = one.wr_id + 1
            bad += one.status != "SUCCESS"
        if time.perf_counter() - start > seconds:
            raise NotFinished(f"{min(done, told)} of {count} blocks within {seconds:g} s")
    return time.perf_counter() - start, bad, received - told


class Pair:
    """Two connected endpoints, and what one measurement is."""

    def __init__(self, near: str, far: str) -> None:
        self.near = Endpoint(near, MEMORY_BYTES, ATTRIBUTES, depth=DEPTH)
        self.far = Endpoint(far, MEMORY_BYTES, ATTRIBUTES, depth=DEPTH)
        self._connect()
        self._round = self._receives = 0

    def _connect(self) -> None:
        self.near.connect(self.far.offer())
        self.far.connect(self.near.offer())

    def measure(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Move `count` blocks of `size` bytes by `op`; time, failed requests, and blocks whose content is wrong."""
        op, size, count = asked["op"], asked["size"], asked["count"]
        window, every = asked["window"], min(asked["signal_every"], asked["window"])
        used = min(count, MEMORY_BYTES // size) * size
        ends = (self.far, self.near) if op == READ else (self.near, self.far)
        source, target = (memoryview(end.mr.view or b"") for end in ends)
        self._round += 1
        seed = os.urandom(4096 - 8) + self._round.to_bytes(8, "little")
        for at in range(0, used, 4096):
            part = at.to_bytes(8, "little") + seed[8:]
            source[at : at + 4096] = part[: min(4096, MEMORY_BYTES - at)]
        target[:used] = bytes(used)
        if op == IMM:
            seconds, bad, self._receives = _stream_imm(
                self.near, self.far, size, count, window, every, LONGEST_SECONDS, self._receives
            )
        else:
            seconds, failed = stream(
                self.near, self.far.offer().memory, op, size, count, window, every, LONGEST_SECONDS
            )
            bad = len(failed)
        wrong = sum(source[at : at + size] != target[at : at + size] for at in range(0, used, size))
        if bad:
            self.near.anew()
            self.far.anew()
            self._receives = 0
            self._connect()
        return {"seconds": seconds, "bytes": size * count, "failed": bad, "wrong": wrong, "compared": used // size}


def post_seconds(pair: Pair, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Time what posting and polling alone cost: the share of a run in which Python, not the device, is at work."""
    qp: Qp = pair.near.qp
    count = asked["count"]
    theirs = pair.far.offer().memory
    batch = qp.prepared(Wr(nth, WRITE, (), theirs.address, theirs.rkey) for nth in range(min(count, DEPTH)))
    start = time.perf_counter()
    batch.post()
    posted = time.perf_counter()
    pair.near.cq.take(len(batch), 20.0)
    return {
        "post_seconds_each": (posted - start) / len(batch),
        "all_seconds_each": (time.perf_counter() - start) / len(batch),
    }


class Answers:
    """What the measuring program is asked; a whole transfer's session is kept as long as the same is asked."""

    def __init__(self, near: str, far: str) -> None:
        self._near, self._far = near, far
        self._pair = Pair(near, far)
        self._whole: Whole | None = None

    def close(self) -> None:
        """End the session of whole transfers."""
        if self._whole is not None:
            self._whole.close()
            self._whole = None

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Make one measurement. Raises NotFinished, RdmadiagError."""
        if asked["op"] == "post":
            return post_seconds(self._pair, asked)
        if asked["op"] != WHOLE:
            return self._pair.measure(asked)
        if self._whole is None or any(self._whole.asked[name] != asked[name] for name in self._whole.asked):
            self.close()
            self._whole = Whole(self._near, self._far, asked, DEFAULTS)
        return self._whole.measure()


def main() -> int:
    """Answer requests until the input ends."""
    answers = Answers(sys.argv[1], sys.argv[2])
    print(json.dumps({"ready": True, "memory_bytes": MEMORY_BYTES}), flush=True)  # noqa: T201
    for line in sys.stdin:
        try:
            answer = answers.answer(json.loads(line))
        except (NotFinished, RdmadiagError, OSError) as error:
            answer = {"problem": str(error)}
        print(json.dumps(answer), flush=True)  # noqa: T201
    answers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
