"""Runs of the TCP transport with one fault each, and the rule that it is the proof of.

`python -m tests.kv.scenarios` runs each and writes what it measured to tests/data/nodes/kv-<name>/result.jsonl, so that the rules are
tried on real results. The faults are made in tests/kv/faulty.py, in the listening side's options, or in the producer.
"""

from __future__ import annotations

import contextlib
import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from rdmadiag.kv.blocks import Key
from rdmadiag.kv.client import PUSH, PUSH_IMM, Client, Connect, Settings, connect_tcp
from rdmadiag.kv.layout import Shape
from rdmadiag.kv.record import Recorder
from rdmadiag.kv.recovery import Limits, Route
from rdmadiag.kv.server import Server
from rdmadiag.kv.session import DONE, Options
from rdmadiag.kv.store import Store
from rdmadiag.kv.transport import WRITE, Pump, Work
from tests.kv.faulty import Once, faulty

SHAPE = Shape(3, 2, 512, 16)
QUICK = Limits(tries=2, first_seconds=0.001, budget_seconds=20.0)
SETTINGS = Settings(slots=80, merge_bytes=2048, deadline_seconds=3.0, limits=QUICK)
TOKENS = 16 * 20


@contextlib.contextmanager
def pair(
    mode: str = PUSH,
    connect: Connect = connect_tcp,
    hosts: tuple[str, ...] = ("127.0.0.1",),
    client_class: type[Client] = Client,
    **options: Any,
) -> Iterator[tuple[Server, Client]]:
    """Give a listening side and a client that is connected to it; options are those of both, `slots` the listening side's."""
    changed = {name: options.pop(name) for name in list(options) if name in Settings._fields and name != "slots"}
    routes = options.pop("routes", None)
    with (
        Server(SHAPE, Options(**{"slots": 80, **options}), hosts) as server,
        client_class(server.address, SHAPE, SETTINGS._replace(mode=mode, **changed), connect, routes) as client,
    ):
        yield server, client


def write(client: Client, slots: list[int], request: int) -> None:
    """Write pieces of a request to slots, whoever has them now: what a stalled sender does that wakes up."""
    own = client.pool.free[0]
    transport = client.transport()
    for slot in slots:
        client.arena.put(Key(client.arena.incarnation, request, 1, 0, 0), own)
        offsets = client.arena.geometry.offset(0, own), client.remote.offset(0, slot)
        assert Pump(transport, 4).run([Work(0, WRITE, 0, *offsets, SHAPE.piece_bytes)]) is None
    client.arena.paint([own])


def let_lease_expire(server: Server, client: Client, blocks: int) -> list[int]:
    """Lease slots to request 9 and wait until the lease has run out; the slots."""
    ask = {"type": "request", "version": 1, "incarnation": client.peer, "request": 9, "blocks": blocks}
    slots: list[int] = client._ask(ask)["slots"]
    while not server.state.pool.expired:
        time.sleep(0.01)
    server.state.options = server.state.options._replace(lease_seconds=30.0)
    return slots


def moved(client: Client, requests: int = 3) -> Recorder:
    """Move requests, and return what was measured."""
    for request in range(1, requests + 1):
        client.transfer(request, TOKENS)
    client.report()
    return client.recorder


def healthy() -> Recorder:
    with pair() as (_, client):
        return moved(client)


def failing(status: str, mode: str = PUSH) -> Callable[[], Recorder]:
    def run() -> Recorder:
        with pair(mode, faulty(Once(lambda work: status, after=40))) as (_, client):
            return moved(client)

    return run


def dead() -> Recorder:
    with pair(PUSH, faulty(lambda work: "RETRY_EXC_ERR")) as (_, client):
        return moved(client, 1)


def fallback() -> Recorder:
    def routes(data: list[str]) -> list[Route]:
        return [Route("dev0", "rdma", data[0]), Route("tcp", "tcp", data[0])]

    def connect(to: Route, *args: Any) -> Any:
        return connect_tcp(to, *args) if to.kind == "tcp" else faulty(lambda work: "RETRY_EXC_ERR")(to, *args)

    with pair(PUSH, connect, routes=routes) as (_, client):
        return moved(client)


def dropped() -> Recorder:
    with pair(PUSH, faulty(Once(lambda work: work._replace(length=0)))) as (_, client):
        return moved(client)


def early() -> Recorder:
    with pair(PUSH, faulty(Once(lambda work: work._replace(length=0), times=3)), publish_on=DONE) as (_, client):
        return moved(client)


class StaleProducer(Client):
    """Tells the CRC of what lies there: a block of the version before."""

    def make(self, key: Key, slot: int) -> int:
        return super().make(key._replace(version=key.version - 1) if key.block == 3 else key, slot)


class DamagedProducer(Client):
    """Damages blocks before the CRC is made: no CRC of the transfer can find that."""

    def make(self, key: Key, slot: int) -> int:
        super().make(key, slot)
        if key.block == 3:
            self.arena.piece(key.plane, slot)[7] ^= 1
        return self.arena.crc(key.plane, slot)


def produced_by(client_class: type[Client]) -> Callable[[], Recorder]:
    def run() -> Recorder:
        with pair(client_class=client_class) as (_, client):
            return moved(client)

    return run


def late_write() -> Recorder:
    with pair(lease_seconds=0.05) as (server, client):
        slots = let_lease_expire(server, client, 5)
        write(client, slots[:2], 9)
        return moved(client, 1)


def unfenced() -> Recorder:
    with pair(lease_seconds=0.05, unfenced=True, slots=24, canary_every=24) as (server, client):
        let_lease_expire(server, client, 23)
        return moved(client, 1)


def canary() -> Recorder:
    with pair() as (server, client):
        write(client, sorted(server.state.pool.canaries)[:1], 5)
        return moved(client, 1)


class Slow:
    """What a work request waits for, and the run of a transfer that becomes slower in its middle."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def change(self, work: Work) -> Work:
        """Take the time that it takes now."""
        time.sleep(self.seconds)
        return work

    def run(self, client: Client, before: float, each: float, after: float) -> None:
        """Transfer for `before` seconds as it is, then for `after` with `each` second more a work request."""
        first = 1

        def for_seconds(seconds: float) -> None:
            nonlocal first
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                client.transfer(first, TOKENS, audit=False)
                first += 1

        for_seconds(before)
        client.recorder.event("fault")
        self.seconds = each
        for_seconds(0.3)
        client.recorder.event("fault_removed")
        for_seconds(after)


def slower() -> Recorder:
    """Each work takes longer after the fault than before it."""
    slow = Slow()
    with pair(PUSH, faulty(slow.change)) as (_, client):
        slow.run(client, 1.6, 0.005, 1.8)
        client.report()
        return client.recorder


class Asked(Protocol):
    """A store, by whatever way it is asked: blocks of `block_bytes`, those that went down in the file `path`."""

    block_bytes: int
    path: str

    def write(self, blocks: range) -> None:
        """Write blocks; what is refused is left out."""

    def read(self, blocks: range) -> None:
        """Read blocks, whether they are there or not."""

    def lend(self, blocks: range) -> None:
        """Take a lease on each block, and keep it."""


def asked_for_more(store: Asked) -> None:
    """A store is asked for far more blocks than it has room for, four times."""
    store.write(range(30))
    for _ in range(4):
        store.read(range(30))


def damaged_at_rest(store: Asked) -> None:
    """The store's file is damaged at rest."""
    store.write(range(8))
    with open(store.path, "r+b") as file:
        file.seek(7 * store.block_bytes)  # where the first block that went down lies
        file.write(b"!")
    store.read(range(8))


def all_lent(store: Asked) -> None:
    """Every block of the store is on loan, and more are written."""
    store.write(range(4))
    store.lend(range(4))
    store.write(range(4, 6))


STORES: dict[Callable[[Asked], None], tuple[int, int]] = {
    asked_for_more: (2, 2),
    damaged_at_rest: (4, 8),
    all_lent: (4, 0),
}
"""What is done to a store, and how many blocks it holds in memory and in its file."""


class Here:
    """A store that is asked directly."""

    def __init__(self, store: Store, path: str) -> None:
        self.block_bytes, self.path, self._store = 64, path, store

    def write(self, blocks: range) -> None:
        """Write blocks; what is refused is left out."""
        for block in blocks:
            with contextlib.suppress(Exception):
                self._store.put(block, 1, bytes([block % 256]) * self.block_bytes)

    def read(self, blocks: range) -> None:
        """Read blocks, whether they are there or not."""
        for block in blocks:
            self._store.get(block)

    def lend(self, blocks: range) -> None:
        """Take a lease on each block, and keep it."""
        for block in blocks:
            self._store.lease(block, 60.0)


def stored(act: Callable[[Asked], None]) -> Callable[[], Recorder]:
    def run() -> Recorder:
        memory, file = STORES[act]
        with tempfile.TemporaryDirectory() as folder, Store(64, memory, file, f"{folder}/blocks") as store:
            act(Here(store, f"{folder}/blocks"))
            recorder = Recorder("store")
            recorder.caches += store.rows()
            return recorder

    return run


SCENARIOS: dict[str, tuple[Callable[[], Recorder], str | None]] = {
    "healthy": (healthy, None),
    "path-fails": (failing("RETRY_EXC_ERR"), "kv-path-failing"),
    "retried": (failing("SOFTWARE_DEADLINE"), "kv-retries"),
    "key-unknown": (failing("REM_ACCESS_ERR"), "kv-key-not-known"),
    "receiver-not-ready": (failing("RNR_RETRY_EXC_ERR", PUSH_IMM), "kv-receiver-not-ready"),
    "dead": (dead, "kv-request-failed"),
    "fallback": (fallback, "kv-fallback-used"),
    "dropped": (dropped, "kv-acknowledged-not-there"),
    "early": (early, "kv-published-early"),
    "wrong": (early, "kv-blocks-wrong"),
    "stale": (produced_by(StaleProducer), "kv-blocks-stale"),
    "corrupt": (produced_by(DamagedProducer), "kv-blocks-corrupt"),
    "late-write": (late_write, "kv-late-write"),
    "unfenced": (unfenced, "kv-slots-reused-unfenced"),
    "canary": (canary, "kv-canary-damaged"),
    "slower": (slower, "kv-goodput-not-recovered"),
    "cache-small": (stored(asked_for_more), "kv-cache-hit-rate-low"),
    "cache-damaged": (stored(damaged_at_rest), "kv-cache-block-damaged"),
    "cache-pinned": (stored(all_lent), "kv-cache-full-of-pinned"),
}


def save(folder: Path) -> None:
    """Run every scenario and keep its result as a node of the tests."""
    for name, (run, rule) in SCENARIOS.items():
        place = folder / f"kv-{name}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "result.jsonl").write_text("".join(f"{line}\n" for line in run().lines()))
        expected = {"rule": rule, "confirmed": True} if rule else {"healthy": True, "why": "nothing was made to fail"}
        (place / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")
        (place / "origin.md").write_text(
            f"# Origin\n\nA real run of rdmadiag's KV transfer over TCP on loopback, Linux {platform.release()}, Python "
            f"{platform.python_version()}: scenario `{name}` of tests/kv/scenarios.py, which says what was made to fail. Written by "
            "`python -m tests.kv.scenarios`.\n"
        )


if __name__ == "__main__":
    save(Path(__file__).parent.parent / "data/nodes")
