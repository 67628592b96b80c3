"""What the worker in the lab does for test_kv: KV transfers over real rxe, the listening side in threads or in a process of its own."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from rdmadiag.kv import dual
from rdmadiag.kv import run as runs
from rdmadiag.kv.arrivals import Agents, synthetic
from rdmadiag.kv.client import PUSH, Client
from rdmadiag.kv.dualpath import DualPath
from rdmadiag.kv.health import HEALTHY, Policy
from rdmadiag.kv.layout import Shape
from rdmadiag.kv.rdma import Rails
from rdmadiag.kv.recovery import Limits
from rdmadiag.kv.scheduler import CONTROL, Path
from rdmadiag.kv.server import Server
from rdmadiag.kv.session import Options
from rdmadiag.kv.store import Store
from rdmadiag.kv.transport import WRITE, Granted, Pump, Transport, Work
from rdmadiag.verbs import attributes
from tests.kv.faulty import Faulty, Once
from tests.kv.scenarios import SETTINGS, TOKENS, let_lease_expire, write

SHAPE = Shape(3, 2, 512, 16)
FAST = "timeout=12,retry_cnt=3"
PATIENT = Limits(tries=2, first_seconds=0.001, budget_seconds=300.0)
"""No budget of time decides a test: an emulated guest on a busy machine is slow."""
HOSTS = ("10.0.100.2",)
STATES = ("corrupt", "stale", "missing", "torn", "misplaced", "early_pieces")
Change = Callable[[Work], "Work | str | None"]


class _Both:
    """Rails whose RDMA transports go through `change`; `made` are the transports."""

    def __init__(self, rails: Rails, change: Change | None) -> None:
        self.rails, self.change = rails, change
        self.made: list[Transport] = []

    def connect(self, route: Any, granted: Granted, arena: memoryview, qps: int, depth: int) -> Transport:
        made = self.rails.connect(route, granted, arena, qps, depth)
        self.made.append(made)
        return Faulty(made, self.change) if self.change and route.kind == "rdma" else made


@contextlib.contextmanager
def pair(
    mode: str = PUSH,
    rc: str = FAST,
    devices: Sequence[str] = ("rxe1",),
    theirs: Sequence[str] = ("rxe2",),
    change: Change | None = None,
    shape: Shape = SHAPE,
    client_class: type[Client] = Client,
    **options: Any,
) -> Iterator[tuple[Server, Client, _Both]]:
    """Give a listening side on the second host's devices and a client on the first one's; TCP by the plain network."""
    fields = {name: options.pop(name) for name in list(options) if name in SETTINGS._fields and name != "slots"}
    settings = SETTINGS._replace(**{"mode": mode, "limits": PATIENT, **fields})
    both = _Both(Rails(devices, attributes.parse(rc), "e1"), change)
    with (
        Server(shape, Options(**{"slots": 80, **options}), HOSTS, 0, theirs, "e2") as server,
        client_class(server.address, shape, settings, both.connect, None, devices, "e1", both.rails.close) as client,
    ):
        yield server, client, both


def told(client: Client, both: _Both, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a test looks at."""
    report = client.report()
    client.recorder.routes = both.rails.rows()
    summary = runs.summary(client.recorder)
    events = [
        {name: event[name] for name in ("event", "status", "path", "to_path") if event.get(name)}
        for event in summary["events"]
    ]
    damage = sum(row[name] or 0 for row in rows for name in STATES)
    return {"rows": rows, "damage": damage, "report": report, "routes": summary["routes"], "events": events}


def transfer(mode: str, rc: str = FAST, requests: int = 3, **options: Any) -> dict[str, Any]:
    """Move requests over RDMA, slots used again."""
    with pair(mode, rc, **options) as (_, client, both):
        return told(client, both, [client.transfer(request, TOKENS) for request in range(1, requests + 1)])


# --- faults in the middle of a transfer ---


def at_work(number: int, do: Callable[[], object]) -> Change:
    """Return a change that does something once, when the nth work is posted."""
    seen = [0]

    def change(work: Work) -> Work:
        seen[0] += 1
        if seen[0] == number:
            do()
        return work

    return change


def fails_in_the_middle(mode: str, what: str) -> dict[str, Any]:
    """A QP goes to ERR here or at the peer, or a request has a bad key, in the middle of a transfer."""
    at: list[Any] = []

    def local() -> None:
        at[1].made[-1].error(0)

    def remote() -> None:
        session = next(iter(at[0]._sessions.values()))
        session.rdma._qps[0].error()

    def deregistered() -> None:
        session = next(iter(at[0]._sessions.values()))
        session.rdma._mr.mr.close()

    do = {"local": local, "remote": remote, "deregistered": deregistered}[what]
    with pair(mode, change=at_work(40, do), window=4) as (server, client, both):
        at += [server, both]
        return told(client, both, [client.transfer(request, TOKENS) for request in (1, 2)])


def not_ready(receives: int = 0) -> dict[str, Any]:
    """Immediates without receives posted, with few RNR retries."""
    with pair("push_imm", "rnr,timeout=18", receives=receives) as (_, client, both):
        return told(client, both, [client.transfer(1, TOKENS)])


def switch(*words: str) -> None:
    """Run a command on the switch."""
    subprocess.run(["ip", "netns", "exec", "switch", *words], check=True, capture_output=True)


@contextlib.contextmanager
def lossy_path() -> Iterator[Callable[[], None]]:
    """Give a function that makes the switch drop all RDMA packets of the first host's requests; taken off at the end."""
    made = []

    def drop() -> None:
        switch("tc", "qdisc", "add", "dev", "p1", "clsact")
        made.append(True)
        parts = ("filter", "add", "dev", "p1", "ingress", "protocol", "ip")
        # ACKs (opcode 0x11) of the first host's answers pass: requests of the other direction go on.
        switch("tc", *parts, "prio", "1", "u32", "match", "u8", "0x11", "0xff", "at", "28", "action", "ok")
        switch("tc", *parts, "prio", "2", "u32", "match", "ip", "dport", "4791", "0xffff", "action", "drop")

    def mend() -> None:
        if made:
            made.clear()
            switch("tc", "qdisc", "del", "dev", "p1", "clsact")

    drop.mend = mend  # type: ignore[attr-defined]
    try:
        yield drop
    finally:
        mend()


def path_lost(rails: int = 1, rc: str = FAST, deadline_seconds: float = 3.0) -> dict[str, Any]:
    """The path dies in the middle: what is missing goes by the second device (from h2's side of the cable), or by TCP."""
    devices, theirs = (("rxe1", "rxe2"), ("rxe2", "rxe1")) if rails == 2 else (("rxe1",), ("rxe2",))
    with (
        lossy_path() as drop,
        pair(PUSH, rc, devices, theirs, at_work(40, drop), window=4, deadline_seconds=deadline_seconds) as (
            _,
            client,
            both,
        ),
    ):
        return told(client, both, [client.transfer(request, TOKENS) for request in (1, 2)])


def short_blackout(seconds: float = 0.3, rc: str = "timeout=18,retry_cnt=6") -> dict[str, Any]:
    """The path loses everything for less time than the retries of a QP take (here 7 times 1.07 s)."""
    with lossy_path() as drop:
        mending = threading.Timer(seconds, drop.mend)  # type: ignore[attr-defined]

        def begin() -> None:
            drop()
            mending.start()

        with pair(PUSH, rc, change=at_work(40, begin), window=4, deadline_seconds=60.0) as (_, client, both):
            before = counters("rxe1")
            rows = [client.transfer(request, TOKENS) for request in (1, 2)]
            mending.join()
            after = counters("rxe1")
            moved = {name: after[name] - before[name] for name in before if after[name] != before[name]}
            return {**told(client, both, rows), "moved": moved}


def counters(device: str) -> dict[str, int]:
    """Return a device's hw_counters."""
    folder = f"/sys/class/infiniband/{device}/ports/1/hw_counters"
    found = {}
    for name in os.listdir(folder):
        with contextlib.suppress(OSError, ValueError), open(f"{folder}/{name}") as file:
            found[name] = int(file.read())
    return found


def path_returns(most: int = 40) -> dict[str, Any]:
    """The path dies in the first request and is mended after it: the transfer goes back to it."""
    policy = Policy(demoted_seconds=0.5, successes=2)
    with (
        lossy_path() as drop,
        pair(PUSH, change=at_work(40, drop), window=4, policy=policy) as (_, client, both),
    ):
        rows = [client.transfer(1, TOKENS)]
        drop.mend()  # type: ignore[attr-defined]
        while len(rows) < most and client.health["rxe1"].state(time.monotonic()) != HEALTHY:
            rows.append(client.transfer(len(rows) + 1, TOKENS))
            time.sleep(0.05)
        return told(client, both, rows)


def no_way_left() -> dict[str, Any]:
    """The path is dead and TCP is not allowed: a clean failure of that request."""
    limits = Limits(tries=1, first_seconds=0.01, tcp_allowed=False)
    with lossy_path() as drop, pair(PUSH, limits=limits) as (server, client, both):
        drop()
        row = client.transfer(1, TOKENS)
        free = len(server.state.pool.free)
        return {**told(client, both, [row]), "free": free, "quarantined": len(server.state.pool.quarantined)}


def gid_moved() -> dict[str, Any]:
    """The first host gets another address between two requests: new QPs take the GID that is there then."""
    words = ("ip", "address")
    with pair(PUSH, limits=Limits(tries=5, first_seconds=0.1, tcp_allowed=False)) as (_, client, both):
        first = client.transfer(1, TOKENS)
        before = both.rails._rails["rxe1"].device.gid()
        for change in (("del", "10.0.0.1/24"), ("add", "10.0.0.99/24")):
            subprocess.run([*words, *change, "dev", "v1"], check=True)
        try:
            both.made[-1].error(0)
            second = client.transfer(2, TOKENS)
            after = both.rails._rails["rxe1"].device.gid()
        finally:
            for change in (("del", "10.0.0.99/24"), ("add", "10.0.0.1/24")):
                subprocess.run([*words, *change, "dev", "v1"], check=True)
        return {**told(client, both, [first, second]), "gids": [before.gid, after.gid]}


# --- a peer's process ---


class Forked:
    """A listening process: a fork of this one, which has everything loaded; killed and started again on the same port."""

    def __init__(self) -> None:
        self.port = self.pid = 0

    def start(self) -> None:
        """Start it, and wait until it listens."""
        read, write = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                server = Server(SHAPE, Options(80), HOSTS, self.port, ("rxe2",), "e2")
                os.write(write, str(server.address[1]).encode())
                server.wait()
            finally:
                os._exit(1)
        os.close(write)
        self.port = int(os.read(read, 16))
        os.close(read)

    def kill(self) -> None:
        """Kill it, as the kernel would."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def killed_peer(mode: str, requests: int = 4) -> dict[str, Any]:
    """The listening process is killed after the first request, and comes back on the same port a little later."""
    peer = Forked()
    peer.start()
    killed: list[threading.Timer] = []

    def watch(what: str, row: Any) -> None:
        if what == "request" and not killed:
            peer.kill()
            killed.append(threading.Timer(0.5, peer.start))
            killed[0].start()

    try:
        ways = runs.Ways(("rxe1",), attributes.parse(FAST), "e1", None, 60.0)
        settings = SETTINGS._replace(mode=mode)
        recorder = runs.send(
            (HOSTS[0], peer.port), SHAPE, settings, runs.fixed(requests, TOKENS), ways=ways, watch=watch
        )
    finally:
        peer.kill()
    summary = runs.summary(recorder)
    return {
        "rows": recorder.requests,
        "events": [event["event"] for event in summary["events"]],
        "damage": sum(summary["damage"].values()),
    }


# --- fences and late writes ---


def late_write(unfenced: bool) -> dict[str, Any]:
    """WRITE into slots whose lease ran out: they wait for a fence, or were lent again without one."""
    slots = 24 if unfenced else 80
    with pair(lease_seconds=0.05, unfenced=unfenced, slots=slots, canary_every=24 if unfenced else 16) as (
        server,
        client,
        both,
    ):
        lent = let_lease_expire(server, client, 23 if unfenced else 5)
        if not unfenced:
            write(client, lent[:2], 9)
            return told(client, both, [])
        original = client._ask

        def late(message: dict[str, Any]) -> dict[str, Any]:
            answer = original(message)
            if message["type"] == "done":
                write(client, lent[:2], 9)
            return answer

        client._ask = late  # type: ignore[method-assign]
        return told(client, both, [client.transfer(1, 16 * 23)])


def after_the_fence() -> dict[str, Any]:
    """A fence at the peer while WRITEs are under way: they fail, and nothing of them lands later."""
    with pair(window=16) as (server, client, both):
        client.transfer(1, TOKENS)
        transport = both.made[-1]
        session = next(iter(server._sessions.values()))
        old = session.rdma
        works = [Work(n, WRITE, 0, 0, n * 512, 512) for n in range(64)]
        before = bytes(server.arena.view)
        fenced = old.fence() if old else None
        after = bytes(server.arena.view)
        stalled = Pump(transport, 16, 5.0).run(works)
        session.rdma = None
        left = server.arena.view == after
        return {
            "fenced": fenced,
            "status": stalled.status if stalled else None,
            "drained": stalled.drained if stalled else None,
            "untouched": before == after and left,
        }


def leaks(requests: int = 3) -> dict[str, Any]:
    """QPs, MRs and files of this process before a run with a reconnect, and after it."""

    def left() -> list[str]:
        words = subprocess.run(["rdma", "resource", "show"], capture_output=True, text=True, check=True).stdout
        return [*(line for line in words.splitlines() if "rxe" in line), str(len(os.listdir("/proc/self/fd")))]

    with pair():
        pass
    before = left()
    with pair(change=Once(lambda work: "WR_FLUSH_ERR", after=30)) as (_, client, _both):
        for request in range(1, requests + 1):
            client.transfer(request, TOKENS)
    return {"before": before, "after": left()}


# --- two paths to a store ---

BLOCK = 64 << 10


def dual_path() -> dict[str, Any]:
    """Blocks of a store by RDMA and TCP: what each takes, what happens when the RDMA path dies and comes back."""
    wanted = {block: random.Random(block).randbytes(BLOCK) for block in range(6)}
    shape = Shape(1, 1, BLOCK, 16)
    policy = Policy(failures=2, demoted_seconds=0.5, successes=2)
    paths = (Path("rxe1", "rdma", 20e6, 0.002), Path("tcp0", "tcp", 1e6, 0.0005))
    result: dict[str, Any] = {}
    rails = Rails(("rxe1",), attributes.parse("timeout=10,retry_cnt=3"), "e1")
    settings = SETTINGS._replace(slots=24)
    with (
        tempfile.TemporaryDirectory() as folder,
        Store(BLOCK, 4, 8, f"{folder}/store") as store,
        Server(shape, Options(24), HOSTS, 0, ("rxe2",), "e2", store) as server,
        Client(server.address, shape, settings, rails.connect, None, ("rxe1",), "e1", rails.close) as client,
        lossy_path() as drop,
    ):
        with DualPath(client, paths, policy) as dual:
            for block, data in wanted.items():
                dual.write(block, 1, data).result(60)
            bulk = [dual.read(block, 1) for block in wanted]
            small = dual.read(0, kind=CONTROL, size=64)
            result["equal"] = [future.result(60) for future in bulk] == list(wanted.values())
            result["small"] = small.result(60) == wanted[0][:64]
            result["bulk took"] = sorted({path for future in bulk for path in dual.paths_of(future)})
            result["small took"] = dual.paths_of(small)
            drop()
            lost = [dual.read(block) for block in wanted]
            result["equal while dead"] = [future.result(60) for future in lost] == list(wanted.values())
            result["while dead"] = sorted({dual.paths_of(future)[-1] for future in lost})
            drop.mend()  # type: ignore[attr-defined]
            end = time.monotonic() + 60
            names = set[str]()
            while "returned" not in names and time.monotonic() < end:
                dual.read(1).result(60)
                names = {
                    str(row["event"])
                    for kind, row in client.recorder.rows()
                    if kind == "event" and row.get("path") == "rxe1"
                }
            last = dual.read(2)
            result["equal after"] = last.result(60) == wanted[2]
            result["after"] = dual.paths_of(last)
            result["events"] = sorted(names)
            client.recorder.caches = store.rows()
        client.recorder.routes = rails.rows()
        summary = runs.summary(client.recorder)
        result["routes"] = summary["routes"]
        result["operations"] = sorted({(one["path"], one["op"], one["status"]) for one in summary["operations"]})
        result["report"] = client.report()
    return result


def preempted(size: int = 1 << 20) -> dict[str, Any]:
    """Reads of large blocks by RDMA, and an urgent one that comes when the first of them is under way."""
    wanted = {block: random.Random(block).randbytes(size) for block in range(5)}
    rails = Rails(("rxe1",), attributes.parse("timeout=18"), "e1")
    settings = SETTINGS._replace(slots=16)
    shape, paths = Shape(1, 1, size, 16), (Path("rxe1", "rdma", 20e6, 0.002), Path("tcp0", "tcp", 1e3, 0.0005))
    order: list[int] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Store(size, 8, 8, f"{folder}/store") as store,
        Server(shape, Options(16), HOSTS, 0, ("rxe2",), "e2", store) as server,
        Client(server.address, shape, settings, rails.connect, None, ("rxe1",), "e1", rails.close) as client,
        DualPath(client, paths, deadline_seconds=20.0) as dual,
    ):
        for block, data in wanted.items():
            store.put(block, 1, data)
        futures = {}
        for block in range(5):
            if block == 4:
                end = time.monotonic() + 60
                while not dual.rows()[0][0]["bytes"] and time.monotonic() < end:
                    time.sleep(0.002)
                at_once = dual.rows()[0][0]["bytes"]
            futures[block] = dual.read(block, priority=5 if block == 4 else 0)
            futures[block].add_done_callback(lambda _, block=block: order.append(block))  # type: ignore[misc]
        equal = {block: future.result(120) == wanted[block] for block, future in futures.items()}
        rows = {row["path"]: row for row in dual.rows()[0]}
        took = {block: dual.paths_of(future) for block, future in futures.items()}
    return {"equal": equal, "order": order, "paths": rows, "took": took, "moved before": at_once}


def turns(most: int = 200) -> dict[str, Any]:
    """Agents' turns from a peer's store (mode dual): the RDMA path dies at the third and is mended when it has been left."""
    shape = Shape(4, 2, 32 << 10, 16)
    policy = Policy(failures=2, demoted_seconds=0.5, successes=2)
    ways = runs.Ways(("rxe1",), attributes.parse("timeout=12,retry_cnt=3"), "e1")
    changes: list[str] = []
    work = islice(synthetic(Agents(agents=2, turns=most, think_seconds=0.0, token_seconds=0.0)), most)
    with (
        lossy_path() as drop,
        dual.opened(shape, 8, 64) as store,
        Server(dual.whole(shape), Options(48), HOSTS, 0, ("rxe2",), "e2", store) as server,
    ):

        def watch(what: str, row: Any) -> None:
            if what == "request" and row["request"] == 3:
                drop()
            if what in ("demoted", "probation", "returned") and row["path"] == "rxe1":
                changes.append(what)
            if what == "demoted" and row["path"] == "rxe1":
                drop.mend()  # type: ignore[attr-defined]

        def until_returned() -> Iterator[Any]:
            for arrival in work:
                yield arrival
                if "returned" in changes:
                    return

        recorder = dual.send(
            server.address, shape, SETTINGS._replace(slots=48, window=8), until_returned(), (20e6, 2e6), ways=ways,
            watch=watch, policy=policy,
        )  # fmt: skip
    summary = runs.summary(recorder)
    return {
        "changes": changes,
        "states": sorted({row["state"] for row in recorder.requests}),
        **{name: summary[name] for name in ("paths", "jobs", "caches", "damage", "audited", "requests", "routes")},
        "late": (summary["late_written"], summary["canaries_damaged"]),
        "lines": list(recorder.lines()),
    }
