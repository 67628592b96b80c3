"""Runs over real rxe, each with its fault, and the rule about KV transfers and block stores that it is the proof of.

`python -m tests.softroce.rule_cases LAB` makes each in a lab that is up and keeps its result as tests/data/nodes/kv-lab-<name>, so that
the rules are tried on them without a lab. What a program can do wrong (a producer, a receiver that believes, a lease without a fence) is done
by a program; what a path, a key or a device does is done to it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rdmadiag.kv import wire
from rdmadiag.kv.client import PUSH, PUSH_IMM, Client
from rdmadiag.kv.dualpath import DualPath, NotMoved
from rdmadiag.kv.layout import Shape
from rdmadiag.kv.rdma import Rails
from rdmadiag.kv.record import Recorder
from rdmadiag.kv.recovery import Limits, Route
from rdmadiag.kv.scheduler import Path as OnePath
from rdmadiag.kv.server import Server
from rdmadiag.kv.session import DONE, Options
from rdmadiag.kv.store import Store
from rdmadiag.kv.transport import Granted, Transport
from rdmadiag.verbs import attributes
from tests.kv.faulty import Once
from tests.kv.scenarios import (
    SETTINGS,
    STORES,
    TOKENS,
    Asked,
    DamagedProducer,
    Slow,
    StaleProducer,
    all_lent,
    asked_for_more,
    damaged_at_rest,
    let_lease_expire,
    write,
)
from tests.softroce.kv_cases import FAST, HOSTS, PATIENT, at_work, lossy_path, pair

BLOCK = 4096


def _moved(client: Client, both: Any, requests: int = 3) -> Recorder:
    for request in range(1, requests + 1):
        client.transfer(request, TOKENS)
    client.report()
    client.recorder.routes = both.rails.rows()
    return client.recorder


def healthy() -> Recorder:
    """Nothing is done."""
    with pair() as (_, client, both):
        return _moved(client, both)


def path_fails(rc: str = FAST, deadline_seconds: float = 3.0) -> Recorder:
    """The switch drops everything until the first failed completion."""
    with (
        lossy_path() as drop,
        pair(PUSH, rc, change=at_work(40, drop), window=4, deadline_seconds=deadline_seconds) as (_, client, both),
    ):

        def watch(what: str, row: Any) -> None:
            if what == "detected":
                drop.mend()  # type: ignore[attr-defined]

        client.recorder.watch = watch
        return _moved(client, both)


def never_completes() -> Recorder:
    """The same with retry_cnt 7, which rxe takes for endless: the deadline of the program ends it."""
    return path_fails("timeout=10,retry_cnt=7", 1.0)


def key_unknown() -> Recorder:
    """The peer's memory is deregistered under the transfer."""
    at: list[Any] = []

    def deregister() -> None:
        next(iter(at[0]._sessions.values())).rdma._mr.mr.close()

    with pair(PUSH, change=at_work(40, deregister), window=4) as (server, client, both):
        at.append(server)
        return _moved(client, both)


def not_ready() -> Recorder:
    """The peer posts no receives for immediates."""
    with pair(PUSH_IMM, "rnr,timeout=18", receives=0) as (_, client, both):
        return _moved(client, both, 1)


def no_way_left() -> Recorder:
    """The path is dead, and TCP is not allowed."""
    limits = Limits(tries=1, first_seconds=0.01, tcp_allowed=False)
    with lossy_path() as drop, pair(PUSH, limits=limits) as (_, client, both):
        drop()
        return _moved(client, both, 1)


def fallback() -> Recorder:
    """The path dies in the middle and does not come back."""
    with lossy_path() as drop, pair(PUSH, change=at_work(40, drop), window=4) as (_, client, both):
        return _moved(client, both, 2)


def changed(change: Callable[[], Any], **options: Any) -> Callable[[], Recorder]:
    """Work requests that do not do what they say."""

    def run() -> Recorder:
        with pair(PUSH, change=change(), **options) as (_, client, both):
            return _moved(client, both)

    return run


def empty(times: int) -> Callable[[], Once]:
    """So many WRITEs carry nothing, and are acknowledged."""
    return lambda: Once(lambda work: work._replace(length=0), times=times)


def produced_by(client_class: type[Client]) -> Callable[[], Recorder]:
    """A producer that makes wrong blocks."""

    def run() -> Recorder:
        with pair(client_class=client_class) as (_, client, both):
            return _moved(client, both)

    run.__doc__ = client_class.__doc__
    return run


def late_write() -> Recorder:
    """WRITEs into slots whose lease ran out."""
    with pair(lease_seconds=0.05) as (server, client, both):
        write(client, let_lease_expire(server, client, 5)[:2], 9)
        return _moved(client, both, 1)


def unfenced() -> Recorder:
    """Slots are lent again when a lease ran out, without a fence."""
    with pair(lease_seconds=0.05, unfenced=True, slots=24, canary_every=24) as (server, client, both):
        let_lease_expire(server, client, 23)
        return _moved(client, both, 1)


def canary() -> Recorder:
    """A WRITE between two requests."""
    with pair() as (server, client, both):
        write(client, sorted(server.state.pool.canaries)[:1], 5)
        return _moved(client, both, 1)


def slower() -> Recorder:
    """After the fault each work request takes longer than before it."""
    slow = Slow()
    with pair(PUSH, change=slow.change) as (_, client, both):
        slow.run(client, 4.0, 0.05, 6.0)
        return _moved(client, both, 0)


class Silent(Rails):
    """Takes TCP where RDMA was asked for, and says nothing: as engines do that find no device they can use."""

    def connect(self, route: Route, granted: Granted, arena: memoryview, qps: int, depth: int) -> Transport:
        """Connect by TCP, and keep the books of RDMA."""
        if route.kind != "rdma":
            return super().connect(route, granted, arena, qps, depth)
        self._before.setdefault(route.name, wire.read("rdma", route.name))
        used = {"kind": "rdma", "device": route.name, "connections": 1, "qpns": [], "peer_device": "rxe2"}
        self._used.setdefault(route.name, {**used, "same_device": 0, "path_mtu": 4096})
        (tcp,) = (other for other in self.routes if other.kind == "tcp")
        made = super().connect(tcp, granted, arena, qps, depth)
        self._used.pop(tcp.name)
        return made

    routes: list[Route]


def silent_tcp() -> Recorder:
    """RDMA is claimed, and TCP carries it."""
    rails = Silent(("rxe1",), attributes.parse(FAST), "e1")
    shape = Shape(3, 2, 8192, 16)
    settings = SETTINGS._replace(limits=PATIENT)
    with (
        Server(shape, Options(80), HOSTS, 0, ("rxe2",), "e2") as server,
        Client(server.address, shape, settings, rails.connect, None, ("rxe1",), "e1", rails.close) as client,
    ):
        rails.routes = client.routes

        class Both:
            """What _moved looks at."""

        both = Both()
        both.rails = rails  # type: ignore[attr-defined]
        return _moved(client, both, 1)


# --- a store behind two paths ---


class Behind:
    """A store that is asked over two paths."""

    def __init__(self, dual: DualPath, path: str) -> None:
        self.block_bytes, self.path, self._dual = BLOCK, path, dual

    def write(self, blocks: range) -> None:
        """Write blocks; what is refused is left out."""
        for block in blocks:
            with contextlib.suppress(NotMoved):
                self._dual.write(block, 1, bytes([block % 256]) * BLOCK).result(60)

    def read(self, blocks: range) -> None:
        """Read blocks, whether they are there or not."""
        for future in [self._dual.read(block) for block in blocks]:
            with contextlib.suppress(NotMoved):
                future.result(60)

    def lend(self, blocks: range) -> None:
        """Take a lease on each block, and keep it."""
        for block in blocks:
            self._dual._ask({"type": "locate", "block": block, "version": 0})


def stored(act: Callable[[Asked], None]) -> Callable[[], Recorder]:
    """What is done to a store is done to one behind two paths."""

    def run() -> Recorder:
        rails = Rails(("rxe1",), attributes.parse(FAST), "e1")
        settings, shape = SETTINGS._replace(slots=48), Shape(1, 1, BLOCK, 16)
        paths = (OnePath("rxe1", "rdma", 20e6, 0.002), OnePath("tcp0", "tcp", 1e6, 0.002))
        with (
            tempfile.TemporaryDirectory() as folder,
            Store(BLOCK, *STORES[act], f"{folder}/blocks") as store,
            Server(shape, Options(48), HOSTS, 0, ("rxe2",), "e2", store) as server,
            Client(server.address, shape, settings, rails.connect, None, ("rxe1",), "e1", rails.close) as client,
            DualPath(client, paths) as dual,
        ):
            act(Behind(dual, f"{folder}/blocks"))
            client.recorder.paths, client.recorder.jobs = dual.rows()
            client.report()
            client.recorder.routes = rails.rows()
            return client.recorder

    run.__doc__ = act.__doc__
    return run


CASES: dict[str, tuple[Callable[[], Recorder], str | None]] = {
    "healthy": (healthy, None),
    "path-fails": (path_fails, "kv-path-failing"),
    "never-completes": (never_completes, "kv-retries"),
    "key-unknown": (key_unknown, "kv-key-not-known"),
    "not-ready": (not_ready, "kv-receiver-not-ready"),
    "no-way-left": (no_way_left, "kv-request-failed"),
    "fallback": (fallback, "kv-fallback-used"),
    "acknowledged": (changed(empty(1)), "kv-acknowledged-not-there"),
    "early": (changed(empty(3), publish_on=DONE), "kv-published-early"),
    "wrong": (changed(empty(3), publish_on=DONE), "kv-blocks-wrong"),
    "stale": (produced_by(StaleProducer), "kv-blocks-stale"),
    "corrupt": (produced_by(DamagedProducer), "kv-blocks-corrupt"),
    "late-write": (late_write, "kv-late-write"),
    "unfenced": (unfenced, "kv-slots-reused-unfenced"),
    "canary": (canary, "kv-canary-damaged"),
    "slower": (slower, "kv-goodput-not-recovered"),
    "silent-tcp": (silent_tcp, "kv-claim-not-on-wire"),
    "store-small": (stored(asked_for_more), "kv-cache-hit-rate-low"),
    "store-damaged": (stored(damaged_at_rest), "kv-cache-block-damaged"),
    "store-leased": (stored(all_lent), "kv-cache-full-of-pinned"),
}


def rule_case(name: str) -> list[str]:
    """Make one run; the lines of its result."""
    return list(CASES[name][0]().lines())


def main(lab: str) -> None:
    """Make all and keep them."""
    from tests.softroce.conftest import ROOT, Worker

    worker = Worker(lab)
    for name, (run, rule) in CASES.items():
        lines = worker("rule_case", name=name)
        place = Path(ROOT) / f"tests/data/nodes/kv-lab-{name}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "result.jsonl").write_text("".join(f"{line}\n" for line in lines))
        expected = {"rule": rule, "confirmed": True} if rule else {"healthy": True, "why": "nothing was made to fail"}
        (place / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")
        said = (run.__doc__ or changed.__doc__ or "").strip().partition("\n")[0]
        (place / "origin.md").write_text(
            f"# Origin\n\nA run over real rxe (lab in QEMU, guest Debian 12, Linux 6.1): case `{name}` of tests/softroce/rule_cases.py. {said} "
            "Written by `python -m tests.softroce.rule_cases LAB`.\n"
        )
    worker.close()


if __name__ == "__main__":
    main(sys.argv[1])
