"""One end of an engine's transfer, run on a host: `python -m rdmadiag.workloads.mooncake client '{...}'`.

The ends meet over TCP: one line of JSON each way. The server owns memory in which blocks arrive (push) or from which they are
read (pull); the client decides what moves, checks every block against its checksum where it arrives (push: the server does),
and after an error connects again and sends the same layer once more. What happens is printed as events of the workload `command`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import secrets
import socket
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from rdmadiag.verbs.opened import weakest

MESSAGE_MOST = 1 << 24
INCARNATION = secrets.token_hex(8)
FIRST_DELAY, DELAY_MOST = 0.1, 2.0
SERVER_SECONDS = 230.0


class EngineError(Exception):
    """A transfer failed: the engine's own words and status."""

    def __init__(self, words: str, status: str | int) -> None:
        self.words, self.status = words, status
        super().__init__(words)


class Engine(Protocol):
    """What an adapter brings: an engine with memory registered, and moves between two ends' memories."""

    def describe(self) -> dict[str, Any]:
        """Return what a peer needs to reach this end's memory, as JSON."""

    def connect(self, peer: Mapping[str, Any]) -> None:
        """Learn a peer, anew after a restart of it. Raises EngineError."""

    def move(self, pull: bool, layer: int, ours: list[int], theirs: list[int], size: int) -> None:
        """Move blocks, from or to offsets of both ends' memories, and wait until the engine says that it is done. Raises EngineError."""

    def facts(self) -> dict[str, Any]:
        """Return what the engine itself counted."""


def say(event: str, **values: Any) -> None:
    """Print an event."""
    sys.stdout.write(json.dumps({"event": event, **values}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


class Memory:
    """Page-aligned memory and its address."""

    def __init__(self, size: int) -> None:
        import ctypes

        self.size, self._map = size, mmap.mmap(-1, size)
        self.view = memoryview(self._map)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def crc(self, offset: int, size: int) -> int:
        """Return the checksum of a block as it is in memory now."""
        return zlib.crc32(self.view[offset : offset + size])


def content(request: int, layer: int, block: int, size: int) -> bytes:
    """Return a block's content: no two blocks have the same."""
    seed = hashlib.blake2b(f"{request}/{layer}/{block}".encode(), digest_size=64).digest()
    return (seed * (size // 64 + 1))[:size]


def fill(memory: Memory, given: Mapping[str, Any], request: int) -> list[list[int]]:
    """Fill memory with a request's blocks; the checksum of each, by layer."""
    blocks, size = given["blocks"], given["block_bytes"]
    sums = []
    for layer in range(given["layers"]):
        for block in range(blocks):
            at = (layer * blocks + block) * size
            memory.view[at : at + size] = content(request, layer, block, size)
        sums.append([memory.crc((layer * blocks + block) * size, size) for block in range(blocks)])
    return sums


def offsets(given: Mapping[str, Any], layer: int, table: list[int]) -> list[int]:
    """Return where a layer's blocks are, by a page table."""
    return [(layer * given["blocks"] + block) * given["block_bytes"] for block in table]


def wrong_blocks(memory: Memory, given: Mapping[str, Any], sums: list[list[int]], table: list[int]) -> int:
    """Count the blocks whose content is not what their checksums say."""
    size = given["block_bytes"]
    return sum(
        memory.crc(at, size) != want
        for layer, layer_sums in enumerate(sums)
        for at, want in zip(offsets(given, layer, table), layer_sums, strict=True)
    )


class Control:
    """The TCP connection between the ends: one message a line."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._file = link, link.makefile("rb")

    def send(self, **message: Any) -> None:
        """Send a message. Raises OSError."""
        self._link.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Return the next message. Raises OSError when the peer is gone."""
        line = self._file.readline(MESSAGE_MOST)
        if not line.endswith(b"\n"):
            raise ConnectionError("the other end closed the control connection")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ConnectionError("the other end does not speak our protocol")
        return message

    def ask(self, **message: Any) -> dict[str, Any]:
        """Send a message and return the answer. Raises OSError."""
        self.send(**message)
        return self.receive()

    def close(self) -> None:
        """Close it."""
        self._file.close()
        self._link.close()


def serve(engine: Engine, memory: Memory, given: Mapping[str, Any]) -> None:
    """Answer one client after another, for ever."""
    with socket.create_server((given["control"], given["tcp_port"])) as listening:
        say("ready", carrier=given["carrier"], pid=os.getpid(), engine=given["version"])
        while True:
            control = Control(listening.accept()[0])
            try:
                _answer(control, engine, memory, given)
            except (OSError, ValueError, KeyError, TypeError) as error:
                sys.stderr.write(f"control connection: {error}\n")
            control.close()


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _answer(control: Control, engine: Engine, memory: Memory, given: Mapping[str, Any]) -> None:
    while True:
        message = control.receive()
        what = message["do"]
        if what == "hello":
            control.send(incarnation=INCARNATION, **engine.describe())
        elif what == "make":  # pull: the content is made here
            control.send(sums=fill(memory, given, message["request"]))
        elif what == "check":  # push: it is compared here
            control.send(wrong=wrong_blocks(memory, given, message["sums"], message["table"]))
        else:
            return


class Client:
    """The end that decides."""

    def __init__(self, engine: Engine, memory: Memory, given: Mapping[str, Any]) -> None:
        self.engine, self.memory, self.given = engine, memory, given
        self.pull = given["mode"] == "pull"
        self.layer_bytes = given["blocks"] * given["block_bytes"]
        self.claimed = self.failed_requests = 0
        self._told = False
        self.moving_seconds = 0.0
        self._control: Control | None = None
        self._incarnation = ""

    def _wait_for_server(self) -> None:
        """Connect; the other end may still be loading its engine. Raises OSError, EngineError."""
        deadline = time.monotonic() + SERVER_SECONDS
        while True:
            try:
                self._connect()
                return
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _connect(self) -> Control:
        if self._control is None:
            link = socket.create_connection((self.given["peer_control"], self.given["tcp_port"]), 5.0)
            link.settimeout(60.0)
            self._control = Control(link)
            peer = self._control.ask(do="hello")
            self._incarnation = peer["incarnation"]
            self.engine.connect(peer)
        return self._control

    def _drop(self) -> None:
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(do="bye")
            self._control.close()
            self._control = None

    def run(self) -> int:
        """Move requests until their number or the time is reached; the exit code."""
        given = self.given
        self._wait_for_server()
        say("ready", carrier=given["carrier"], pid=os.getpid(), engine=given["version"])
        begun = time.monotonic()
        for request in self._requests(begun):
            if not self._request(request):
                self.failed_requests += 1
                break
        self._drop()
        rate = self.claimed / self.moving_seconds if self.moving_seconds else None
        say(
            "result",
            bytes=self.claimed,
            moving_seconds=round(self.moving_seconds, 6),
            bytes_per_second=rate and round(rate, 1),
            failed_requests=self.failed_requests,
            **self.engine.facts(),
        )
        return 1 if self.failed_requests else 0

    def _requests(self, begun: float) -> Iterator[int]:
        request = 0
        while True:
            over = (
                time.monotonic() - begun >= self.given["seconds"]
                if self.given["seconds"]
                else request >= self.given["requests"]
            )
            if over:
                return
            request += 1
            yield request

    def _request(self, request: int) -> bool:
        given, tries = self.given, _Tries(self.given["retries"])
        here = list(range(given["blocks"]))
        there = here[::-1]  # the page tables differ
        sums = [] if self.pull else fill(self.memory, given, request)
        layer, peer = 0, ""
        while True:
            try:
                control = self._connect()
                if peer != self._incarnation:  # it began anew, and has nothing of this request
                    layer, peer = 0, self._incarnation
                    sums = control.ask(do="make", request=request)["sums"] if self.pull else sums
                if layer == given["layers"]:
                    wrong = self._wrong(control, sums, here, there)
                    break
                self._layer(request, layer, here, there)
            except (EngineError, OSError, ValueError, KeyError) as error:
                if not tries.again(error):
                    return False
                self._drop()
                continue
            tries.worked()
            layer += 1
        blocks = given["layers"] * given["blocks"]
        say("verified", request=request, bytes=blocks * given["block_bytes"], blocks=blocks, wrong=wrong)
        return True

    def _wrong(self, control: Control, sums: list[list[int]], here: list[int], there: list[int]) -> int:
        if self.pull:
            return wrong_blocks(self.memory, self.given, [layer[::-1] for layer in sums], here)
        arrived: int = control.ask(do="check", sums=sums, table=there)["wrong"]
        return arrived + wrong_blocks(self.memory, self.given, sums, here)  # what was sent is still what it was

    def _layer(self, request: int, layer: int, here: list[int], there: list[int]) -> None:
        given, begun = self.given, time.monotonic()
        try:
            self.engine.move(
                self.pull, layer, offsets(given, layer, here), offsets(given, layer, there), given["block_bytes"]
            )
        except EngineError as error:
            error.seconds = time.monotonic() - begun  # type: ignore[attr-defined]
            raise
        seconds = time.monotonic() - begun
        self.moving_seconds += seconds
        self.claimed += self.layer_bytes
        if not self._told:
            self._told = True
            for name, value in weakest().items():
                say("metric", name=name, value=value)
        say("progress", bytes=self.claimed)
        say("layer", request=request, layer=layer, bytes=self.layer_bytes, seconds=round(seconds, 6))


class _Tries:
    """Errors in a row: told, then waited for, until there were too many."""

    def __init__(self, most: int) -> None:
        self._most, self._count, self._first = most, 0, 0.0

    def again(self, error: Exception) -> bool:
        """Tell an error; wait and say that it is tried again, or that it was the last."""
        values: dict[str, Any] = {"words": str(error)[:500] or type(error).__name__}
        if isinstance(error, EngineError):
            values["status"] = error.status
            if hasattr(error, "seconds"):
                values["seconds"] = round(error.seconds, 6)
        say("error", **values)
        self._first = self._first or time.monotonic()
        self._count += 1
        if self._count > self._most:
            return False
        time.sleep(min(DELAY_MOST, FIRST_DELAY * 2 ** (self._count - 1)))
        say("reconnect", why=f"try {self._count} of {self._most}")
        return True

    def worked(self) -> None:
        """Note that a layer went through."""
        if self._count:
            say("recovered", seconds=round(time.monotonic() - self._first, 6))
        self._count, self._first = 0, 0.0


def main(make: Any) -> None:
    """Run one end; `make(memory, settings)` gives its engine. Ends the process."""
    role, given = sys.argv[1], json.loads(sys.argv[2])
    memory = Memory(given["layers"] * given["blocks"] * given["block_bytes"])
    code = 0
    try:
        engine: Engine = make(memory, given)
        if role == "server":
            threading.Thread(target=_end_with_input, daemon=True).start()
            serve(engine, memory, given)
        else:
            code = Client(engine, memory, given).run()
    except EngineError as error:
        say("error", words=error.words, status=error.status)
        code = 1
    except OSError as error:
        say("error", words=str(error), status=error.errno or 0)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # engines' own threads and their ends are not ours to wait for
