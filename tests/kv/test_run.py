"""Two processes: the command line moves a KV cache between them, and says what became of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.errors import BadInput
from rdmadiag.kv import dual, run
from rdmadiag.kv.client import MODES, Client, Settings
from rdmadiag.kv.frames import ProtocolError
from rdmadiag.kv.recovery import Limits
from rdmadiag.kv.server import Server
from rdmadiag.kv.session import Options
from tests.kv.scenarios import SETTINGS, SHAPE, TOKENS

Cli = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("--shape", "llama-3-70b-tp8", "--layers", "2", "--slots", "48", "--requests", "2", "--tokens", "320")


@pytest.mark.parametrize("mode", MODES)
def test_a_kv_cache_goes_from_one_process_to_another_and_every_byte_is_checked(rdmadiag: Cli, mode: str) -> None:
    result = rdmadiag("kv", "run", "--mode", mode, *SMALL, "--format", "json")
    told = json.loads(result.stdout)
    assert result.returncode == 0, result.stderr
    assert (told["requests"], told["published"], told["failed"], told["audited"]) == (2, 2, 0, 2)
    assert told["useful_bytes"] == 2 * 20 * 4 * 4096 == told["acknowledged_bytes"]
    assert not any(told["damage"].values())


def test_what_a_run_measured_is_evidence_that_can_be_asked(rdmadiag: Cli, tmp_path: Path) -> None:
    output = str(tmp_path / "result.jsonl")
    shown = rdmadiag("kv", "run", *SMALL, "--output", output).stdout
    assert "2 of 2 requests published" in shown and "every byte is what was sent" in shown
    asked = rdmadiag("query", "--from", output, "--format", "json", "select state, sum(bytes) as bytes from kv_request")
    assert '"published"' in asked.stdout and str(2 * 20 * 4 * 4096) in asked.stdout
    report = json.loads(rdmadiag("check", "--from", output, "--format", "json").stdout)
    assert report["summary"]["exit_code"] == 0 and not report["findings"]


def test_a_trace_says_what_is_moved(rdmadiag: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 100, "output_length": 5, "hash_ids": [1]}\n' * 3)
    told = json.loads(
        rdmadiag("kv", "run", *SMALL, "--trace", str(trace), "--requests", "9", "--format", "json").stdout
    )
    assert (told["requests"], told["useful_bytes"]) == (3, 3 * 7 * 4 * 4096)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("run", "--shape", "nosuch"), "known: llama-3-70b-tp8"),
        (("run", "--layers", "0"), "layers 0"),
        (("send", "nowhere"), "HOST:PORT"),
        (("send", "127.0.0.1:1"), "is the other side up"),
        (("run", "--trace", "/nosuch"), "/nosuch: cannot be read"),
        (("run", "--rate", "100gbit"), "wanted both"),
        (("serve", "--host", "203.0.113.7"), "cannot listen on 203.0.113.7"),
    ],
)
def test_wrong_use_is_said(rdmadiag: Cli, words: tuple[str, ...], what: str) -> None:
    result = rdmadiag("kv", *words)
    assert result.returncode == 2 and what in result.stderr, result.stderr


@pytest.mark.parametrize(
    ("rate", "rtt", "qps", "window"),
    [("100gbit", "50us", 1, 154), ("100gbit", "50us", 2, 77), ("400gbit", "1ms", 2, 256)],
)
def test_the_window_fills_the_link(rate: str, rtt: str, qps: int, window: int) -> None:
    assert run.window_for(rate, rtt, run.shape_named("llama-3-70b-tp8"), qps) == window


def serving(settings: Settings) -> Any:
    return run.serving(["--shape", "llama-3-70b-tp8", "--layers", "2", "--slots", str(settings.slots)])


QUICK = Settings(slots=48, deadline_seconds=0.5, limits=Limits(tries=1, first_seconds=0.01))


def test_a_peer_that_is_killed_is_a_clean_failure() -> None:
    shape = run.shape_named("llama-3-70b-tp8", 2)
    with serving(QUICK) as (address, pid), Client(address, shape, QUICK) as client:
        assert client.transfer(1, 320)["state"] == "published"
        os.kill(pid, signal.SIGKILL)
        row = client.transfer(2, 320)
        assert row["state"] == "failed" and "control channel" in row["why"] and row["publications"] == 0
        assert sorted(client.pool.free) == sorted(set(range(48)) - client.pool.canaries)


def test_a_peer_that_began_anew_under_the_same_name_is_not_the_one_before() -> None:
    shape = run.shape_named("llama-3-70b-tp8", 2)
    incarnations = []
    for _ in range(2):
        with serving(QUICK) as (address, _pid), Client(address, shape, QUICK) as client:
            incarnations.append(client.peer)
    assert incarnations[0] != incarnations[1]


def test_a_peer_that_took_the_place_of_another_is_sent_what_was_not_published_under_a_new_version() -> None:
    servers = [Server(SHAPE, Options(slots=80))]
    address = servers[0].address

    def watch(what: str, row: Any) -> None:
        if what == "request" and len(servers) == 1:
            servers[0].close()
            servers.append(Server(SHAPE, Options(slots=80), port=address[1]))

    recorder = run.send(address, SHAPE, SETTINGS, run.fixed(3, TOKENS), watch=watch)
    servers[1].close()
    rows = [(row["request"], row["version"], row["state"]) for row in recorder.requests]
    assert rows == [(1, 1, "published"), (2, 1, "failed"), (2, 2, "published"), (3, 1, "published")]
    told = [row for kind, row in recorder.rows() if kind == "event" and row["event"] == "session"]
    assert [row["reason"] for row in told] == ["the peer's process went away, and another took its place"]


def test_a_control_channel_that_broke_is_opened_again_with_the_same_peer() -> None:
    with Server(SHAPE, Options(slots=80)) as server:

        def watch(what: str, row: Any) -> None:
            if what == "request" and row["request"] == 1:
                for sock in list(server._open):
                    sock.shutdown(socket.SHUT_RDWR)

        recorder = run.send(server.address, SHAPE, SETTINGS, run.fixed(2, TOKENS), watch=watch)
        rows = [(row["request"], row["version"], row["state"]) for row in recorder.requests]
        assert rows == [(1, 1, "published"), (2, 1, "failed"), (2, 2, "published")]
        told = [row for kind, row in recorder.rows() if kind == "event" and row["event"] == "session"]
        assert [row["reason"] for row in told] == ["the control channel broke"]
        assert sorted(server.state.pool.free) == sorted(set(range(80)) - server.state.pool.canaries)


def test_a_peer_that_does_not_come_back_ends_the_run_with_what_was_measured() -> None:
    server = Server(SHAPE, Options(slots=80))

    def watch(what: str, row: Any) -> None:
        if what == "request":
            server.close()

    ways = run.Ways(return_seconds=0.3)
    recorder = run.send(server.address, SHAPE, SETTINGS, run.fixed(1000, TOKENS), ways=ways, watch=watch)
    rows = [(row["request"], row["version"], row["state"]) for row in recorder.requests]
    assert rows == [(1, 1, "published"), (2, 1, "failed")]
    assert [row["request"] for kind, row in recorder.rows() if kind == "event" and row["event"] == "peer_gone"] == [2]


def test_a_peer_of_another_shape_does_not_take_the_place_of_the_one_that_went_away() -> None:
    servers = [Server(SHAPE, Options(slots=80))]
    address = servers[0].address

    def watch(what: str, row: Any) -> None:
        if what == "request" and len(servers) == 1:
            servers[0].close()
            servers.append(Server(SHAPE._replace(layers=5), Options(slots=80), port=address[1]))

    recorder = run.send(address, SHAPE, SETTINGS, run.fixed(3, TOKENS), watch=watch)
    servers[1].close()
    assert [(row["request"], row["state"]) for row in recorder.requests] == [(1, "published"), (2, "failed")]
    (gone,) = (row for kind, row in recorder.rows() if kind == "event" and row["event"] == "peer_gone")
    assert "same model" in gone["reason"]


def test_turns_read_their_prefix_from_the_peers_store_and_write_what_was_missing(rdmadiag: Cli, tmp_path: Path) -> None:
    output = str(tmp_path / "result.jsonl")
    words = (
        "--mode",
        "dual",
        "--layers",
        "2",
        "--slots",
        "64",
        "--requests",
        "4",
        "--tokens",
        "128",
        "--store",
        "4,32",
    )
    result = rdmadiag("kv", "run", *words, "--output", output, "--format", "json")
    told = json.loads(result.stdout)
    assert result.returncode == 0, result.stderr
    assert (told["mode"], told["published"], told["failed"], told["audited"]) == ("dual", 4, 0, 4)
    assert not any(told["damage"].values())
    # Of 8 blocks a turn the first 4 are shared. The third and fourth turn find them: the first one's were written before the second ended.
    assert sum(cache["hits"] for cache in told["caches"]) >= 2 * 4
    assert sum(job["jobs"] for job in told["jobs"] if job["priority"] == 0) == 4 + 4 * 4
    asked = rdmadiag("query", "--from", output, "SELECT path, state, rtt_p50_seconds > 0 AS measured FROM kv_path")
    assert asked.stdout.split() == ["path", "state", "measured", "tcp0", "healthy", "1"]


def test_turns_with_a_side_that_has_no_store_are_told_what_it_lacks() -> None:
    with Server(SHAPE, Options(slots=80)) as server, pytest.raises(ProtocolError, match="--store"):
        dual.send(server.address, SHAPE, SETTINGS, run.fixed(1, TOKENS), (1e9, 1e8))


@pytest.mark.parametrize("words", [("--store", "0,5"), ("--store", "5"), ("--store", "a,b"), ("--path-rates", "fast")])
def test_what_is_no_store_and_no_rate_is_said(rdmadiag: Cli, words: tuple[str, str]) -> None:
    result = rdmadiag("kv", "run", "--mode", "dual", "--layers", "1", "--requests", "1", "--tokens", "16", *words)
    assert result.returncode == 2 and "wanted" in result.stderr


def test_a_listening_side_that_cannot_start_is_said() -> None:
    with pytest.raises(BadInput, match="did not start"), run.serving(["--slots", "nonsense"]):
        pass


@pytest.mark.parametrize(
    ("counted", "answer"),
    [
        ({"packets_sent": 10, "packets_received": 5, "path_mtu": 1024}, True),
        ({"packets_sent": 9, "packets_received": 5, "path_mtu": 1024}, False),
        ({"packets_sent": 10, "packets_received": 1, "path_mtu": 1024}, False),
        ({"packets_sent": 10, "packets_received": None, "path_mtu": 1024}, None),
        ({"packets_sent": 10, "packets_received": 9}, None),
        ({"wire_bytes_sent": 10240, "wire_bytes_received": 2048, "packets_sent": 1}, True),
    ],
)
def test_what_a_route_claims_is_held_against_its_devices_counters(counted: dict[str, int], answer: bool | None) -> None:
    assert run.on_the_wire({"acknowledged_bytes": 12288, "read_bytes": 2048, **counted}) is answer


def test_no_request_begins_after_the_time_that_was_given() -> None:
    with Server(SHAPE, Options(slots=80)) as server:
        recorder = run.send(server.address, SHAPE, SETTINGS, run.fixed(1_000_000, TOKENS), seconds=0.3)
    assert 1 <= len(recorder.requests) < 1_000_000
    assert all(row["state"] == "published" for row in recorder.requests)
