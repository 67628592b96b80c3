"""Two paths to one store, here both over loopback: what each transfer takes, what follows a failure, and that versions end alike."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import Any

import pytest

from rdmadiag.kv.client import Client, connect_tcp
from rdmadiag.kv.dualpath import DualPath, NotMoved
from rdmadiag.kv.health import Policy
from rdmadiag.kv.layout import Shape
from rdmadiag.kv.live import Live
from rdmadiag.kv.recovery import Route
from rdmadiag.kv.scheduler import CONTROL, Path
from rdmadiag.kv.server import Server
from rdmadiag.kv.session import Options
from rdmadiag.kv.store import Store
from rdmadiag.kv.transport import Work
from tests.kv.faulty import Faulty
from tests.kv.scenarios import SETTINGS

SIZE = 64 << 10
SHAPE = Shape(1, 1, SIZE, 16)
PATHS = (Path("fast", "rdma", 100e6, 0.001), Path("tcp", "tcp", 10e6, 0.0001))
POLICY = Policy(failures=2, demoted_seconds=0.2, successes=2)


def content(seed: int) -> bytes:
    return random.Random(seed).randbytes(SIZE)


@contextlib.contextmanager
def paths(folder: FilePath, change: Callable[[Work], Any] | None = None) -> Iterator[tuple[Store, Client, DualPath]]:
    """Give a store behind a server, and two paths to it; the works of the fast one go through `change`."""

    def routes(data: list[str]) -> list[Route]:
        return [Route("fast", "rdma", data[0]), Route("tcp", "tcp", data[0])]

    def connect(route: Route, *more: Any) -> Any:
        made = connect_tcp(route, *more)
        return Faulty(made, change) if change and route.kind == "rdma" else made

    with (
        Store(SIZE, 8, 8, str(folder / "store")) as store,
        Server(SHAPE, Options(slots=32), store=store) as server,
        Client(server.address, SHAPE, SETTINGS._replace(slots=32), connect, routes) as client,
        DualPath(client, PATHS, POLICY) as dual,
    ):
        yield store, client, dual


def events(client: Client) -> list[tuple[str, str]]:
    return [(row["event"], row["path"]) for kind, row in client.recorder.rows() if kind == "event" and "path" in row]


def test_blocks_are_written_and_read_back_and_all_slots_come_back(tmp_path: FilePath) -> None:
    with paths(tmp_path) as (store, client, dual):
        for future in [dual.write(block, 1, content(block)) for block in range(6)]:
            future.result(20)
        read = [dual.read(block, 1) for block in range(6)]
        assert [future.result(20) for future in read] == [content(block) for block in range(6)]
        assert [store.version_of(block) for block in range(6)] == [1] * 6
        assert client.report()["canaries_damaged"] == client.report()["late_written"] == 0
        assert len(client.pool.free) == 30


def test_bulk_takes_the_fast_path_and_control_the_other(tmp_path: FilePath) -> None:
    with paths(tmp_path) as (store, _, dual):
        store.put(1, 1, content(1))
        bulk = dual.read(1)
        assert bulk.result(20) == content(1)
        small = dual.read(1, kind=CONTROL, size=32)
        assert small.result(20) == content(1)[:32]
        assert (dual.paths_of(bulk), dual.paths_of(small)) == (["fast"], ["tcp"])


def test_a_path_that_fails_is_demoted_its_transfers_go_on_by_the_other_and_it_comes_back(tmp_path: FilePath) -> None:
    broken = [True]

    def change(work: Work) -> Work | str:
        return "RETRY_EXC_ERR" if broken[0] and work.local % SIZE >= 16 << 10 else work

    with paths(tmp_path, change) as (store, client, dual):
        for block in range(8):
            store.put(block, 1, content(block))
        reads = [dual.read(block) for block in range(4)]
        assert [future.result(20) for future in reads] == [content(block) for block in range(4)]
        assert ("demoted", "fast") in events(client)
        broken[0] = False
        end = time.monotonic() + 20
        while ("returned", "fast") not in events(client) and time.monotonic() < end:
            assert dual.read(5).result(20) == content(5)
        assert ("probation", "fast") in events(client) and ("returned", "fast") in events(client)
        last = dual.read(6)
        assert last.result(20) == content(6) and dual.paths_of(last) == ["fast"]


def test_whoever_looks_on_is_told_of_a_failure_without_a_request_and_of_what_became_of_the_path(
    tmp_path: FilePath,
) -> None:
    told: list[Any] = []
    with paths(tmp_path, lambda work: "RETRY_EXC_ERR" if work.length else work) as (store, client, dual):
        client.recorder.watch = Live(told.append)
        store.put(1, 1, content(1))
        reads = [dual.read(1) for _ in range(4)]
        assert [future.result(20) for future in reads] == [content(1)] * 4
    errors = [one for one in told if one["event"] == "error"]
    assert errors and {one["status"] for one in errors} == {"RETRY_EXC_ERR"} and "request" not in errors[0]
    assert {"event": "path", "path": "fast", "state": "demoted"} in told
    assert "recovered" in {one["event"] for one in told}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_one_path_ends_what_waits_instead_of_letting_it_wait_for_ever(tmp_path: FilePath) -> None:
    def bug(what: str, values: Any) -> None:
        if what == "detected":
            raise KeyError("a bug")

    with paths(tmp_path, lambda work: "RETRY_EXC_ERR" if work.length else work) as (store, client, dual):
        client.recorder.watch = bug
        store.put(1, 1, content(1))
        with pytest.raises(KeyError, match="a bug"):
            dual.read(1).result(20)
        with pytest.raises(NotMoved, match="paths were closed"):
            dual.read(1)


def test_a_job_of_a_higher_priority_is_done_before_what_was_under_way(tmp_path: FilePath) -> None:
    with paths(tmp_path, lambda work: (time.sleep(0.002), work)[1]) as (store, _, dual):
        for block in range(8):
            store.put(block, 1, content(block))
        done: list[int] = []
        dual._chunk_bytes = 16 << 10
        slow = [dual.read(block) for block in range(6)]
        for nth, future in enumerate(slow):
            future.add_done_callback(lambda _, nth=nth: done.append(nth))  # type: ignore[misc]
        urgent = dual.read(7, priority=5)
        urgent.add_done_callback(lambda _: done.append(7))
        assert urgent.result(20) == content(7)
        assert [future.result(20) for future in slow] == [content(block) for block in range(6)]
        assert done.index(7) < 5


def test_the_round_trip_of_each_path_is_measured_and_what_the_scheduler_chose_is_told(tmp_path: FilePath) -> None:
    with paths(tmp_path) as (store, _, dual):
        store.put(1, 1, content(1))
        assert dual.read(1).result(20) == content(1)
        dual.read(1, kind=CONTROL, size=32).result(20)
        path_rows, job_rows = dual.rows()
    by_path = {row["path"]: row for row in path_rows}
    for row in by_path.values():
        assert (row["state"], row["probes_failed"], row["demotions"]) == ("healthy", 0, 0)
        assert 0 < row["rtt_p50_seconds"] <= row["rtt_p99_seconds"]
    assert (by_path["fast"]["bytes"], by_path["tcp"]["bytes"]) == (SIZE, 32)
    assert [(row["kind"], row["size"], row["path"], row["jobs"]) for row in job_rows] == [
        ("control", "small", "tcp", 1),
        ("data", "bulk", "fast", 1),
    ]


def test_what_is_done_is_not_kept(tmp_path: FilePath) -> None:
    with paths(tmp_path) as (store, _, dual):
        store.put(1, 1, content(1))
        for _ in range(20):
            assert dual.read(1).result(20) == content(1)
        end = time.monotonic() + 20
        while dual._tasks and time.monotonic() < end:
            time.sleep(0.01)
        assert not dual._tasks


def test_an_idle_path_that_stops_answering_is_left_before_a_job_meets_it(tmp_path: FilePath) -> None:
    dead = [False]
    with paths(tmp_path, lambda work: "RETRY_EXC_ERR" if dead[0] else work) as (store, client, dual):
        store.put(1, 1, content(1))
        assert dual.read(1).result(20) == content(1)
        dead[0] = True
        end = time.monotonic() + 20
        while ("demoted", "fast") not in events(client) and time.monotonic() < end:
            time.sleep(0.01)
        assert ("demoted", "fast") in events(client)
        assert [row["jobs_failed"] for row in dual.rows()[0]] == [0, 0]
        assert dual.rows()[0][0]["away_seconds"] > 0


def test_what_a_failed_connection_left_behind_is_fenced_before_the_other_path_goes_on(tmp_path: FilePath) -> None:
    broken = [True]

    def change(work: Work) -> Work | str:
        return "RETRY_EXC_ERR" if broken[0] and work.length else work

    with paths(tmp_path, change) as (store, client, dual):
        asked: list[str] = []
        ask = client._ask
        client._ask = lambda message: (asked.append(message["type"]), ask(message))[1]  # type: ignore[method-assign]
        dual.write(1, 1, content(1)).result(20)
        assert store.get(1) == content(1)
        assert asked.index("fence") < asked.index("commit")


def test_an_older_version_is_refused_whatever_path_it_comes_by(tmp_path: FilePath) -> None:
    with paths(tmp_path) as (store, _, dual):
        dual.write(1, 3, content(3)).result(20)
        with pytest.raises(NotMoved, match="block 1: older"):
            dual.write(1, 2, content(2), kind=CONTROL).result(20)
        assert store.get(1) == content(3)


def test_a_block_that_is_not_there_and_a_version_that_is_not_are_misses(tmp_path: FilePath) -> None:
    with paths(tmp_path) as (store, _, dual):
        store.put(1, 1, content(1))
        for wrong in (dual.read(9), dual.read(1, at_least=2)):
            with pytest.raises(NotMoved, match="miss"):
                wrong.result(20)


def test_a_block_that_is_damaged_on_its_way_to_the_store_is_not_stored(tmp_path: FilePath) -> None:
    with paths(tmp_path, lambda work: work._replace(length=0)) as (store, _, dual):
        with pytest.raises(NotMoved, match="not stored, damaged"):
            dual.write(1, 1, content(1)).result(20)
        assert store.version_of(1) is None


def test_a_server_without_a_store_says_so(tmp_path: FilePath) -> None:
    with (
        Server(SHAPE, Options(slots=8)) as server,
        Client(server.address, SHAPE, SETTINGS._replace(slots=8)) as client,
        DualPath(client, (Path("tcp0", "tcp", 1e6, 0.1),)) as dual,
        pytest.raises(NotMoved, match="no store here"),
    ):
        dual.read(1).result(20)


def test_transfers_that_were_not_done_end_when_the_paths_are_closed(tmp_path: FilePath) -> None:
    with paths(tmp_path, lambda work: None) as (store, _, dual):
        store.put(1, 1, content(1))
        dual._deadline = 0.2
        waiting = dual.read(1)
        dual.close()
        with pytest.raises(NotMoved):
            waiting.result(1)
