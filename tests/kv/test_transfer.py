"""Whole transfers over loopback TCP, with faults: equal content at the end, or a clean failure that names itself."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from rdmadiag.errors import BadInput
from rdmadiag.kv import frames
from rdmadiag.kv.client import MODES, PULL, PUSH, PUSH_IMM, Client, connect_tcp
from rdmadiag.kv.health import Policy
from rdmadiag.kv.recovery import Route
from rdmadiag.kv.server import Server
from rdmadiag.kv.session import DONE, Options
from rdmadiag.kv.tcp import ANSWER, GREETING, MAGIC, REQUEST, TcpTransport
from rdmadiag.kv.transport import READ, WRITE, Pump, Work
from tests.kv.faulty import Once, faulty
from tests.kv.scenarios import SETTINGS, SHAPE, TOKENS, let_lease_expire, pair, write


def at(server: Server) -> tuple[str, int]:
    host, _, port = server.data[0].rpartition(":")
    return host, int(port)


def clean(row: dict[str, Any]) -> bool:
    return row["state"] == "published" and not any(
        row[name] for name in ("corrupt", "stale", "missing", "torn", "misplaced", "early_pieces")
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("signal_every", [1, 5])
def test_requests_arrive_whole_with_shuffled_pages(mode: str, signal_every: int) -> None:
    with pair(mode, signal_every=signal_every, window=8) as (server, client):
        rows = [client.transfer(request, TOKENS) for request in range(1, 8)]  # slots are used again
        assert all(map(clean, rows))
        assert [row["publications"] for row in rows] == [1] * 7
        report = client.report()
        assert (report["published"], report["late_written"], report["canaries_damaged"]) == (7, 0, 0)
        assert sorted(server.state.pool.free) == sorted(set(range(80)) - server.state.pool.canaries)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("status", ["RETRY_EXC_ERR", "REM_ACCESS_ERR", "RNR_RETRY_EXC_ERR", "WR_FLUSH_ERR"])
def test_a_failed_completion_is_recovered_and_only_what_is_missing_is_sent_again(mode: str, status: str) -> None:
    with pair(mode, faulty(Once(lambda work: status, after=60)), window=4) as (_, client):
        row = client.transfer(1, TOKENS)
        assert clean(row)
        assert (row["retries"], row["reconnects"], row["publications"]) == (1, 1, 1)
        assert 0 < row["resent_bytes"] <= 4 * 2 * 2048, "no more than the windows of both QPs held"
        assert client.report()["late_written"] == 0


@pytest.mark.parametrize("mode", [PUSH, PULL])
def test_a_request_without_a_completion_is_ended_by_its_deadline(mode: str) -> None:
    with pair(mode, faulty(Once(lambda work: None, after=5, times=10**6), first_only=True), deadline_seconds=0.2) as (
        _,
        client,
    ):
        row = client.transfer(1, TOKENS)
        assert clean(row) and row["retries"] == 1
        assert "SOFTWARE_DEADLINE" in {values.get("status") for _, values in client.recorder.rows()}


def test_a_write_that_was_acknowledged_and_did_not_land_is_found_and_sent_again() -> None:
    with pair(PUSH, faulty(Once(lambda work: work._replace(length=0)))) as (_, client):
        row = client.transfer(1, TOKENS)
        assert clean(row)
        assert row["damaged_on_arrival"] >= 1 and row["retries"] == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_block_of_another_place_is_never_published(mode: str) -> None:
    shift = faulty(Once(lambda work: work._replace(local=(work.local + 512) % (6 * 80 * 512 - 4096)), times=10**6))
    with pair(mode, shift) as (_, client):
        row = client.transfer(1, TOKENS)
        assert row["state"] == "failed" and row["publications"] == 0
        assert "REM_OP_ERR" in row["why"]


def test_a_local_error_fails_the_request_and_not_the_next_one() -> None:
    with pair(PUSH, faulty(Once(lambda work: "LOC_PROT_ERR"))) as (_, client):
        failed = client.transfer(1, TOKENS)
        assert failed["state"] == "failed" and "LOC_PROT_ERR" in failed["why"] and failed["retries"] == 0
        client.reconnect(client.route)
        assert clean(client.transfer(2, TOKENS))


def test_a_dead_device_is_left_for_the_second_and_then_for_tcp() -> None:
    def routes(data: list[str]) -> list[Route]:
        return [Route("dev0", "rdma", data[0]), Route("dev1", "rdma", data[1]), Route("tcp", "tcp", data[0])]

    def connect(to: Route, *args: Any) -> Any:
        return connect_tcp(to, *args) if to.kind == "tcp" else faulty(lambda work: "RETRY_EXC_ERR")(to, *args)

    with pair(PUSH, connect, ("127.0.0.1", "127.0.0.2"), routes=routes) as (_, client):
        assert clean(client.transfer(1, TOKENS))
        events = [
            (values["event"], values["path"], values["to_path"])
            for kind, values in client.recorder.rows()
            if kind == "event" and "to_path" in values
        ]
        assert [event for event in events if event[0] != "reconnect"] == [
            ("moved", "dev0", "dev1"),
            ("fallback", "dev1", "tcp"),
        ]
        assert clean(client.transfer(2, TOKENS)), "the next request begins with what works"


def two_ways(change: Callable[[Work], Any], **options: Any) -> Any:
    """Give a pair with an RDMA route whose works go through `change`, and TCP."""

    def routes(data: list[str]) -> list[Route]:
        return [Route("dev0", "rdma", data[0]), Route("tcp", "tcp", data[0])]

    def connect(to: Route, *args: Any) -> Any:
        return connect_tcp(to, *args) if to.kind == "tcp" else faulty(change)(to, *args)

    return pair(PUSH, connect, routes=routes, **options)


def changes(client: Client) -> list[tuple[str, str]]:
    """Return what happened to paths."""
    names = ("demoted", "probation", "back", "returned", "fallback", "moved")
    return [
        (row["event"], row["path"]) for kind, row in client.recorder.rows() if kind == "event" and row["event"] in names
    ]


def until_tried_again(client: Client) -> None:
    while client.health["dev0"].state(time.monotonic()) == "demoted":
        time.sleep(0.01)


def test_a_route_that_was_left_is_taken_again_when_it_answers_and_healthy_after_some_requests() -> None:
    dead = [True]
    policy = Policy(demoted_seconds=0.05, successes=2)
    with two_ways(lambda work: "RETRY_EXC_ERR" if dead[0] else work, policy=policy) as (_, client):
        first = client.transfer(1, TOKENS)
        dead[0] = False
        until_tried_again(client)
        rows = [client.transfer(request, TOKENS) for request in (2, 3, 4)]
        assert all(map(clean, (first, *rows)))
        assert [row["path"] for row in (first, *rows)] == ["tcp", "dev0", "dev0", "dev0"]
        assert [row["retries"] for row in rows] == [0, 0, 0]
        assert changes(client) == [
            ("demoted", "dev0"),
            ("fallback", "dev0"),
            ("probation", "dev0"),
            ("back", "tcp"),
            ("returned", "dev0"),
        ]
        assert client.report()["late_written"] == 0


def test_a_route_that_does_not_answer_yet_costs_no_request_and_is_left_for_longer() -> None:
    with two_ways(lambda work: "RETRY_EXC_ERR", policy=Policy(demoted_seconds=0.05)) as (_, client):
        client.transfer(1, TOKENS)
        until_tried_again(client)
        row = client.transfer(2, TOKENS)
        assert clean(row) and (row["path"], row["retries"], row["reconnects"]) == ("tcp", 0, 0)
        assert client.health["dev0"].state(time.monotonic()) == "demoted"
        assert client.health["dev0"]._seconds == 0.1
        assert ("back", "tcp") not in changes(client)


def test_a_route_on_probation_that_fails_in_a_request_is_left_at_the_first_failure() -> None:
    with two_ways(lambda work: "RETRY_EXC_ERR" if work.length else work, policy=Policy(demoted_seconds=0.05)) as (
        _,
        client,
    ):
        client.transfer(1, TOKENS)
        until_tried_again(client)
        row = client.transfer(2, TOKENS)
        assert clean(row) and (row["path"], row["retries"]) == ("tcp", 1)
        assert changes(client).count(("demoted", "dev0")) == 2


@pytest.mark.parametrize("mode", MODES)
def test_without_overlap_blocks_are_made_before_the_first_request_and_verified_after_the_last(mode: str) -> None:
    done: list[str] = []

    def noted(what: str, function: Any) -> Any:
        return lambda *args: (done.append(what), function(*args))[1]

    with pair(mode, faulty(noted("posted", lambda work: work)), overlap=False) as (server, client):
        source, target = (server, client) if mode == PULL else (client, server)
        source.arena.put = noted("made", source.arena.put)  # type: ignore[method-assign]
        target.arena.crc = noted("verified", target.arena.crc)  # type: ignore[method-assign]
        row = client.transfer(1, TOKENS, audit=False)
        assert (row["state"], row["publications"]) == ("published", 1)
        assert 0 < row["moving_seconds"] <= row["seconds"]
    ends = {what: (done.index(what), len(done) - done[::-1].index(what) - 1) for what in ("made", "posted", "verified")}
    assert done.count("verified") == 20 * SHAPE.planes
    assert done.index("posted") > [nth for nth, what in enumerate(done) if what == "made"][20 * SHAPE.planes - 1]
    assert ends["verified"][0] > ends["posted"][1]


def test_every_route_dead_is_a_clean_failure_and_all_slots_come_back() -> None:
    with pair(PUSH, faulty(lambda work: "RETRY_EXC_ERR")) as (server, client):
        row = client.transfer(1, TOKENS)
        assert row["state"] == "failed" and "every route" in row["why"]
        assert len(server.state.pool.free) == 75 and not server.state.pool.quarantined


def test_a_done_that_comes_twice_is_counted_and_dropped() -> None:
    with pair() as (_, client):
        row = client.transfer(1, TOKENS)
        assert client._ask({"type": "done", "request": 1, "version": 1})["answer"] == "duplicate"
        assert client._ask({"type": "done", "request": 1, "version": 0})["answer"] == "late"
        report = client.report()
        assert (row["publications"], report["published"], report["duplicates"], report["late_dones"]) == (1, 1, 1, 1)


def test_a_newer_version_is_published_beside_the_older_and_an_older_is_refused() -> None:
    with pair() as (_, client):
        assert [client.transfer(1, TOKENS, version)["state"] for version in (1, 3, 2)] == [
            "published",
            "published",
            "failed",
        ]


def test_a_receiver_that_began_anew_refuses_requests_of_before() -> None:
    with pair() as (_, client):
        client.peer += 1
        row = client.transfer(1, TOKENS)
        assert row["state"] == "failed" and "incarnation" in row["why"]


def test_a_lease_that_ran_out_frees_nothing_until_the_fence() -> None:
    with pair(lease_seconds=0.05) as (server, client):
        client._ask({"type": "request", "request": 9, "version": 1, "blocks": 70, "incarnation": client.peer})
        while not server.state.pool.expired:
            time.sleep(0.01)
        assert client.transfer(1, TOKENS)["state"] == "failed"
        assert "wait for a fence" in client.transfer(2, TOKENS)["why"]
        client.reconnect(client.route)
        server.state.options = server.state.options._replace(lease_seconds=30.0)
        assert clean(client.transfer(3, TOKENS))
        report = client.report()
        assert (report["leases_expired"], report["unfenced_reuses"], report["fences"]) == (1, 0, 1)


def test_a_write_into_slots_that_wait_for_a_fence_is_seen() -> None:
    with pair(lease_seconds=0.05) as (server, client):
        slots = client._ask({"type": "request", "request": 9, "version": 1, "blocks": 5, "incarnation": client.peer})[
            "slots"
        ]
        while not server.state.pool.expired:
            time.sleep(0.01)
        write(client, slots[:2], 9)
        assert client.report()["late_written"] == 2


def test_a_write_into_slots_that_were_lent_again_without_a_fence_is_seen() -> None:
    with pair(lease_seconds=0.05, unfenced=True, slots=24, canary_every=24) as (server, client):
        ask = {"type": "request", "version": 1, "blocks": 23, "incarnation": client.peer}
        slots = client._ask({**ask, "request": 9})["slots"]
        while not server.state.pool.expired:
            time.sleep(0.01)
        server.state.options = server.state.options._replace(lease_seconds=30.0)
        original = client._ask

        def late(message: dict[str, Any]) -> dict[str, Any]:
            answer = original(message)
            if message["type"] == "done":
                write(client, slots[:2], 9)
            return answer

        client._ask = late  # type: ignore[method-assign]
        row = client.transfer(1, 16 * 23)
        report = client.report()
        assert row["state"] == "published" and row["misplaced"] == 2
        assert (report["late_written"], report["unfenced_reuses"]) == (2, 23)


def test_a_receiver_that_believes_done_publishes_what_is_not_there_and_that_is_told() -> None:
    drop = faulty(Once(lambda work: work._replace(length=0), times=3))
    with pair(PUSH, drop, publish_on=DONE) as (_, client):
        row = client.transfer(1, TOKENS)
        assert row["state"] == "published" and row["early_pieces"] >= 3 and row["missing"] == row["early_pieces"]


def test_a_write_between_requests_damages_a_canary() -> None:
    with pair() as (server, client):
        write(client, sorted(server.state.pool.canaries)[:1], 5)
        assert client.report()["canaries_damaged"] == 1


def test_after_a_reconnect_the_old_key_opens_nothing() -> None:
    with pair() as (server, client):
        old = client._granted
        client.reconnect(client.route)
        with pytest.raises(OSError):
            stale = TcpTransport(at(server), old.token, old.rkey, client.arena.view, 1)
            assert Pump(stale, 4).run([Work(0, WRITE, 0, 0, 0, 512)]).status == "RETRY_EXC_ERR"  # type: ignore[union-attr]
            raise OSError
        fresh = TcpTransport(at(server), client._granted.token, old.rkey, client.arena.view, 1)
        stalled = Pump(fresh, 4).run([Work(0, WRITE, 0, 0, 0, 512)])
        assert stalled is not None and stalled.status == "REM_ACCESS_ERR" and stalled.drained
        fresh.close()
        assert client.report()["late_written"] == 0


@pytest.mark.parametrize("op", [WRITE, READ])
def test_an_access_beyond_the_arena_is_refused_and_flushes_the_rest(op: str) -> None:
    with pair() as (_, client):
        end = client.remote.size_bytes
        works = [Work(0, op, 0, 0, end - 100, 512), Work(1, op, 0, 0, 0, 512)]
        stalled = Pump(client.transport(), 8).run(works)
        assert stalled is not None and (stalled.status, stalled.unacknowledged, stalled.drained) == (
            "REM_ACCESS_ERR",
            2,
            True,
        )


def test_an_immediate_without_a_posted_receive_is_receiver_not_ready() -> None:
    with pair(PUSH_IMM, receives=0) as (_, client):
        row = client.transfer(1, TOKENS)
        assert row["state"] == "failed" and "RNR_RETRY_EXC_ERR" in row["why"]


def test_sides_of_different_shapes_do_not_begin() -> None:
    with Server(SHAPE, Options(slots=10)) as server, pytest.raises(frames.ProtocolError, match="same model"):
        Client(server.address, SHAPE._replace(layers=4), SETTINGS)


def test_nobody_listening_is_said_with_the_address() -> None:
    with pytest.raises(BadInput, match=r"127.0.0.1:1: .*is the other side up"):
        Client(("127.0.0.1", 1), SHAPE, SETTINGS)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!I", 1 << 31),
        frames.encode({"type": "done"}),
        frames.encode({"type": "hello", "protocol": 99}),
        frames.encode({"type": "hello", "protocol": 1, "shape": "x", "incarnation": -1}),
    ],
)
def test_a_stranger_on_the_control_port_is_refused_and_others_go_on(data: bytes) -> None:
    with pair() as (server, client):
        with socket.create_connection(server.address) as stranger:
            stranger.sendall(data)
            stranger.settimeout(5.0)
            assert b"refused" in stranger.recv(4096)
        assert clean(client.transfer(1, TOKENS))


@pytest.mark.parametrize(
    "message",
    [
        {"type": "nonsense"},
        {"type": "request", "request": -1, "version": 1, "blocks": 1, "incarnation": 0},
        {"type": "request", "request": 1, "version": 1, "blocks": 10**9, "incarnation": 0},
        {"type": "plane", "request": 1, "version": 1, "plane": 600},
        {"type": "heartbeat", "request": True},
    ],
)
def test_a_message_out_of_bounds_ends_the_session_with_the_reason(message: dict[str, Any]) -> None:
    with pair() as (_, client), pytest.raises(frames.ProtocolError, match="wanted"):
        client._ask(message)


@pytest.mark.parametrize("greeting", [b"x", b"y" * 64, GREETING.pack(MAGIC, 12345)])
def test_a_stranger_on_the_data_port_writes_nothing(greeting: bytes) -> None:
    with pair() as (server, client):
        with socket.create_connection(at(server)) as stranger:
            stranger.sendall(greeting)
            stranger.shutdown(socket.SHUT_WR)
            stranger.settimeout(5.0)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(100) == b""
        assert clean(client.transfer(1, TOKENS))
        assert client.report()["canaries_damaged"] == 0


def test_a_request_that_is_none_is_refused_by_the_responder() -> None:
    with pair() as (server, client), socket.create_connection(at(server)) as raw:
        raw.sendall(GREETING.pack(MAGIC, client._granted.token) + REQUEST.pack(77, 0, 5, client._granted.rkey, 0, 10))
        raw.settimeout(5.0)
        assert ANSWER.unpack(raw.recv(ANSWER.size)) == (9, 5, 0)  # REM_INV_REQ_ERR


@pytest.mark.parametrize("twice", [False, True])
def test_a_late_write_into_a_slot_that_was_lent_again_is_counted_though_verification_has_it_sent_again(
    twice: bool,
) -> None:
    """A sender whose lease ran out writes into the slots of another request, between its WRITEs and their verification."""
    with pair(lease_seconds=0.05, unfenced=True, slots=24, canary_every=24) as (server, client):
        lost = let_lease_expire(server, client, 23)
        before = client._tell

        def late(message: dict[str, Any]) -> None:
            if message["type"] == "plane" and message["plane"] == 0:
                client._tell = before  # type: ignore[method-assign]
                for _ in range(1 + twice):
                    write(client, lost[:3], 9)
            before(message)

        client._tell = late  # type: ignore[method-assign]
        row = client.transfer(1, TOKENS)
        assert clean(row) and 0 < row["damaged_on_arrival"] <= 3
        assert client.report()["late_written"] == 3, "each once, whoever has the slot by then"
