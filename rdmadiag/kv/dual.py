"""Turns whose blocks come from a peer's store by two paths (mode dual): each reads its prefix, computes what is missing, and stores it.

What a turn needs goes first (a decode waits for it), what it computed is written behind that and gives way; the blocks of the next
turn are prefetched at the peer meanwhile. A block of the store is a block of tokens of all layers; its content follows from
its number, so every byte that is read can be compared.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from rdmadiag.kv import blocks
from rdmadiag.kv.arrivals import Arrival
from rdmadiag.kv.blocks import Key
from rdmadiag.kv.client import PULL, Settings
from rdmadiag.kv.dualpath import DualPath, Missed, NotMoved
from rdmadiag.kv.frames import PeerGone, ProtocolError
from rdmadiag.kv.health import Policy
from rdmadiag.kv.layout import Shape, checked
from rdmadiag.kv.manifest import PUBLISHED
from rdmadiag.kv.record import Recorder
from rdmadiag.kv.run import BY_TCP, Sessions, Watch, Ways, paced
from rdmadiag.kv.scheduler import CONTROL, Path
from rdmadiag.kv.store import Store

DUAL = "dual"
URGENT, BEHIND = 1, 0
"""Priorities of what a turn waits for, and of what it writes behind."""
HEAD_BYTES = 64
VERSION = 1
EXPECTED_RTT_SECONDS = 0.001
"""Of both paths, until it is measured."""
_DAMAGE = (blocks.CORRUPT, blocks.STALE, blocks.MISSING, blocks.TORN, blocks.MISPLACED)


def whole(shape: Shape) -> Shape:
    """Return the shape of a store's blocks: all layers of a block of tokens in one piece. Raises BadInput where that is too large."""
    return checked(Shape(1, 1, shape.block_bytes, shape.block_tokens))


@contextmanager
def opened(shape: Shape, memory: int, file: int) -> Iterator[Store]:
    """Give a store of such blocks: so many in memory, so many in a file of its own, which is gone at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="rdmadiag-kv-") as folder,
        Store(whole(shape).piece_bytes, memory, file, f"{folder}/blocks") as store,
    ):
        yield store


def numbers(request: int, arrival: Arrival, shape: Shape, most: int) -> list[int]:
    """Return the blocks of a turn's prefix: a trace's hash ids, else half of the prompt that all requests share, half of its own."""
    if arrival.hash_ids:
        return list(arrival.hash_ids[:most])
    count = min(most, shape.blocks(arrival.input_tokens))
    return [block if block < count // 2 else (request << 20) + block for block in range(count)]


def _key(block: int) -> Key:
    return Key(0, block, VERSION, 0, 0)


class Turns:
    """The turns of one session."""

    def __init__(self, dual: DualPath, sessions: Sessions, size: int, audit: bool) -> None:
        self._dual, self._client, self._recorder = dual, sessions.client, sessions.recorder
        self._size, self._audit = size, audit
        self._behind: list[tuple[int, Future[bytes]]] = []

    def turn(self, request: int, wanted: list[int], following: list[int]) -> None:
        """Read what is there, compute what is not, write it behind; its row of kv_request."""
        dual, recorder = self._dual, self._recorder
        start, states, why = recorder.now(), Counter[str](), ""
        head = dual.read(wanted[0], VERSION, CONTROL, URGENT, min(HEAD_BYTES, self._size))
        at_hand = {
            block for block, future in self._behind if not future.done()
        }  # still being written: this side has it
        reads = [(block, dual.read(block, VERSION, priority=URGENT)) for block in wanted if block not in at_hand]
        if following:
            why = self._prefetch(following)
        missing, paths = [], set[str]()
        for block, future in [(wanted[0], head), *reads]:
            try:
                data = future.result()
            except Missed:
                missing += [block] if future is not head else []
            except NotMoved as error:
                why = why or str(error)
            else:
                paths.update(dual.paths_of(future))
                if self._audit and future is not head:
                    states[blocks.classify(data, _key(block))] += 1
        read = recorder.now() - start
        self.wait()
        self._behind = [(block, self._computed(block)) for block in missing]
        recorder.busy(start, recorder.now())
        self._row(request, wanted, why, states, read, "+".join(sorted(paths)) or self._client.route.name)

    def _prefetch(self, following: list[int]) -> str:
        try:
            self._dual.prefetch(following)
        except (PeerGone, ProtocolError) as error:
            return str(error)
        return ""

    def _computed(self, block: int) -> Future[bytes]:
        return self._dual.write(block, VERSION, blocks.content(_key(block), self._size), priority=BEHIND)

    def wait(self) -> None:
        """Wait for what was written behind; what the store did not take is an event: it is computed again when it is asked for."""
        for block, future in self._behind:
            try:
                future.result()
            except NotMoved as error:
                self._recorder.event("not_stored", reason=f"block {block}: {error}")
        self._behind = []

    def _row(self, request: int, wanted: list[int], why: str, states: Counter[str], seconds: float, path: str) -> None:
        recorder, size = self._recorder, len(wanted) * self._size
        row = {
            "request": request,
            "version": VERSION,
            "path": path,
            "state": "failed" if why else PUBLISHED,
            "why": why or None,
            "seconds": round(seconds, 6),
            "bytes": size,
            "blocks": len(wanted),
            "retries": 0,
            "resent_bytes": 0,
            "publications": int(not why),
            "early_pieces": 0,
            "audited": int(self._audit and not why),
            **{name: states[name] if self._audit and not why else None for name in _DAMAGE},
        }
        recorder.requests.append(row)
        recorder.show("request", **row)
        recorder.totals.update(
            requests=1, failed=bool(why), retries=0, reconnects=0, posted_bytes=size, resent_bytes=0,
            useful_bytes=0 if why else size,
        )  # fmt: skip


def _ahead(turns: Iterable[tuple[int, Arrival]]) -> Iterator[tuple[int, Arrival, Arrival | None]]:
    last: tuple[int, Arrival] | None = None
    for one in turns:
        if last is not None:
            yield *last, one[1]
        last = one
    if last is not None:
        yield *last, None


def send(
    address: tuple[str, int],
    shape: Shape,
    settings: Settings,
    arrivals: Iterable[Arrival],
    rates: tuple[float, float],
    pace: bool = False,
    audit: bool = True,
    ways: Ways = BY_TCP,
    watch: Watch | None = None,
    seconds: float | None = None,
    policy: Policy | None = None,
) -> Recorder:
    """Serve the turns of some arrivals from a peer's store; the recorder with all that was measured. Raises BadInput.

    `rates`: the most that RDMA and TCP are expected to bring [bytes/s]. The first RDMA device of `ways` is one path, TCP the other; without
    a device there is TCP only. A peer that went away is taken up again, as by a transfer; its store is empty then.
    """
    recorder = Recorder(DUAL)
    recorder.watch = watch
    store = whole(shape)
    most = max(1, settings.slots // 4)
    with Sessions(address, store, settings._replace(mode=PULL), ways, recorder) as sessions:
        turns = _ahead(paced(arrivals, pace, seconds, recorder, settings.first_request))
        going = True
        while going:
            going = False
            routes = {route.kind: route for route in reversed(sessions.client.routes)}
            expected = dict(zip(("rdma", "tcp"), rates, strict=True))
            paths = [Path(r.name, r.kind, expected[r.kind], EXPECTED_RTT_SECONDS) for r in routes.values()]
            with DualPath(sessions.client, paths, policy, window=settings.window) as dual:
                session = Turns(dual, sessions, store.piece_bytes, audit)
                for number, arrival, following in turns:
                    ahead = numbers(number + 1, following, shape, most) if following else []
                    session.turn(number, numbers(number, arrival, shape, most), ahead)
                    if not sessions.client.alive:
                        going = True
                        break
                session.wait()
            recorder.paths, recorder.jobs = dual.rows()
            going = going and sessions.renew(number)
        sessions.finish()
        recorder.facts["published"] = sum(row["publications"] for row in recorder.requests)
    return recorder
