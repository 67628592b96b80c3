"""One end of a connection, put together: device, protection domain, completion queue, memory and RC QPs."""

from __future__ import annotations

import contextlib
import time

from rdmadiag.verbs.attributes import RcAttributes
from rdmadiag.verbs.cq import Completion, Cq
from rdmadiag.verbs.device import Device, Pd
from rdmadiag.verbs.errors import NotFinished
from rdmadiag.verbs.exchange import Memory, Offer
from rdmadiag.verbs.mr import ALL_ACCESS, Mr
from rdmadiag.verbs.posting import SIGNALED, Prepared, Sge, Wr
from rdmadiag.verbs.qp import Qp

DEFAULTS = RcAttributes()


class Endpoint:
    """A device with one region and some QPs that share one completion queue. A context manager.

    Two of them are connected by `first.connect(second.offer())` and the other way round, in one process or in two.
    """

    def __init__(
        self,
        device: str,
        length: int = 1 << 20,
        attributes: RcAttributes = DEFAULTS,
        qps: int = 1,
        depth: int = 256,
        memory: memoryview | None = None,
        access: tuple[str, ...] = ALL_ACCESS,
        gid_index: int | None = None,
        inline_bytes: int = 0,
        channel: bool = False,
    ) -> None:
        self.attributes = attributes.checked()
        self.access, self._depth, self._inline = access, depth, inline_bytes
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as unless_made:
            enter = unless_made.enter_context
            self.device = enter(Device(device))
            self.pd = enter(Pd(self.device))
            self.cq = enter(Cq(self.device, 2 * qps * (depth + 1), channel))
            self.mr = enter(Mr(self.pd, length, access, memory))
            self.gid = self.device.gid(gid_index)
            self.qps = [enter(self._new()) for _ in range(qps)]
            self._stack = unless_made.pop_all()
        self.psns = [self.attributes.first_psn() for _ in self.qps]

    def _new(self) -> Qp:
        return Qp(self.pd, self.cq, None, self._depth, self._depth, inline_bytes=self._inline)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all of it, last made first; may be called twice."""
        self._stack.close()

    @property
    def qp(self) -> Qp:
        """The first QP."""
        return self.qps[0]

    def offer(self) -> Offer:
        """Return what the other end must be told."""
        port = self.device.port()
        memory = Memory(self.mr.address, self.mr.length, self.mr.rkey)
        pairs = tuple((qp.qpn, psn) for qp, psn in zip(self.qps, self.psns, strict=True))
        return Offer(
            pairs, self.gid.gid, port.active_mtu, port.lid, self.qp.rd_atomic(self.attributes), memory, self.device.name
        )

    def connect(self, theirs: Offer) -> None:
        """Bring all QPs from RESET to RTS. Raises WrongTransition, VerbsError."""
        for index, qp in enumerate(self.qps):
            qp.connect(self.psns[index], theirs.peer(index), self.attributes, self.gid.gid_index, self.access)

    def anew(self) -> None:
        """Replace the QPs by new ones with new PSNs, after ERR and a drain. The GID table is read again: a GID can have moved."""
        for qp in self.qps:
            qp.drain()
            qp.close()
        table = self.device.gids()
        same = [one for one in table if (one.gid, one.gid_type) == (self.gid.gid, self.gid.gid_type)]
        self.gid = same[0] if same else self.device.gid()
        self.qps = [self._stack.enter_context(self._new()) for _ in self.qps]
        self.psns = [self.attributes.first_psn() for _ in self.qps]

    # --- work on the first QP, as tests and faults want it ---

    def sge(self, offset: int, length: int) -> Sge:
        """Return a piece of this end's memory."""
        return Sge(self.mr.address + offset, length, self.mr.lkey)

    def wr(self, theirs: Memory, wr_id: int, opcode: str, length: int, offset: int = 0, remote_offset: int = 0) -> Wr:
        """Return a work request from `offset` of this end's memory to `remote_offset` of theirs."""
        sges = (self.sge(offset, length),)
        return Wr(wr_id, opcode, sges, theirs.address + remote_offset, theirs.rkey)

    def wait(self, count: int, seconds: float = 20.0) -> list[Completion]:
        """Return so many completions. Raises NotFinished."""
        return self.cq.take(count, seconds)


def stream(
    end: Endpoint,
    theirs: Memory,
    opcode: str,
    size: int,
    count: int,
    window: int = 32,
    signal_every: int = 8,
    seconds: float = 60.0,
) -> tuple[float, list[Completion]]:
    """Move `count` blocks of `size` bytes by READ or WRITE, round the memory; return the time [s] and completions that failed.

    The loop of a benchmark: batches are posted with one doorbell, every nth request is signalled, and nothing is made for a request
    but what was made before the clock starts.
    """
    if not 1 <= signal_every <= window:
        raise ValueError(f"signal_every {signal_every}: wanted 1 to the window, {window}")
    together = max(1, window // 2 // signal_every) * signal_every
    batches = prepared(end, theirs, opcode, size, count, together, signal_every)
    cq = end.cq
    posted = done = nth = 0
    bad: list[Completion] = []
    start = time.perf_counter()
    while done < count and not bad:
        while nth < len(batches) and posted - done + len(batches[nth]) <= window:
            batches[nth].post()
            posted += len(batches[nth])
            nth += 1
        for one in cq.wait(1.0):
            if one.status != "SUCCESS":
                bad.append(one)
            else:
                done = one.wr_id + 1  # in order: it retires all before it
        if time.perf_counter() - start > seconds:
            raise NotFinished(f"{done} of {count} blocks within {seconds:g} s")
    return time.perf_counter() - start, bad


def prepared(
    end: Endpoint, theirs: Memory, opcode: str, size: int, count: int, together: int, signal_every: int
) -> list[Prepared]:
    """Make `count` blocks of `size` bytes, round the memory, in batches of so many; the immediate value is the block's number."""
    places = max(1, min(end.mr.length, theirs.length) // size)
    wrs = []
    for wr_id in range(count):
        place = wr_id % places * size
        signaled = SIGNALED if (wr_id + 1) % signal_every == 0 or wr_id + 1 == count else 0
        sge = (Sge(end.mr.address + place, size, end.mr.lkey),)
        wrs.append(Wr(wr_id, opcode, sge, theirs.address + place, theirs.rkey, wr_id & 0xFFFFFFFF, signaled))
    return [end.qp.prepared(wrs[first : first + together]) for first in range(0, count, together)]
