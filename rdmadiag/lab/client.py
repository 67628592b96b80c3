"""A client of a lab's keeper: one command a connection, its input, output, signals and terminal size passed on."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rdmadiag.lab import frames
from rdmadiag.lab.places import LabError

ANSWER_SECONDS = 20.0
PASSED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Ran(NamedTuple):
    """What a command printed and its exit code."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode(errors="replace")


class NotStarted(LabError):
    """The guest did not start a command; `code` is what a shell would end with: 126, 127, else 125."""

    def __init__(self, message: str, code: int) -> None:
        self.code = code
        super().__init__(message)


def connect(folder: Path) -> socket.socket:
    """Connect to a lab's keeper. Raises LabError when it is gone."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.connect(str(folder / "socket"))
    except OSError as error:
        link.close()
        raise LabError(
            f"lab {folder.name}: its keeper does not answer ({error.strerror}); `rdmadiag lab status`"
        ) from error
    return link


def request(folder: Path, wanted: dict[str, Any], seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    """Ask a lab's keeper one thing in a connection of its own. Raises LabError."""
    with connect(folder) as link:
        return _ask(link, frames.Splitter(), wanted, folder.name, seconds)


def _ask(
    link: socket.socket, splitter: frames.Splitter, wanted: dict[str, Any], name: str, seconds: float
) -> dict[str, Any]:
    link.settimeout(seconds)
    try:
        link.sendall(frames.frame(b"J", 0, json.dumps(wanted).encode()))
        while data := link.recv(1 << 16):
            for kind, _number, payload in splitter.feed(data):
                if kind == b"J":
                    answer: dict[str, Any] = json.loads(payload)
                    return answer
    except OSError as error:
        raise LabError(f"lab {name}: its keeper gave no answer ({error})") from error
    raise LabError(f"lab {name}: its keeper closed the connection; `rdmadiag lab status {name}` says why")


class Command:
    """A command that runs in a guest; `take(stream, data)` gets its output, stream 1 or 2."""

    def __init__(self, folder: Path, guest: str, payload: bytes, take: Callable[[int, bytes], None]) -> None:
        self.lab, self.take = folder.name, take
        self.code: int | None = None
        self.input_room = frames.INPUT_WINDOW
        self._started = False
        self._splitter = frames.Splitter()
        self.link = connect(folder)
        answer = _ask(self.link, self._splitter, {"do": "job", "guest": guest}, self.lab, ANSWER_SECONDS)
        if "problem" in answer:
            raise LabError(f"lab {self.lab}: {answer['problem']}")
        self.link.settimeout(ANSWER_SECONDS)
        self._send(b"X", payload)
        self._deadline = time.monotonic() + ANSWER_SECONDS

    def _send(self, kind: bytes, payload: bytes = b"") -> None:
        try:
            self.link.sendall(frames.frame(kind, 0, payload))
        except OSError as error:
            raise LabError(f"lab {self.lab} went away: {error}; `rdmadiag lab status {self.lab}` says why") from error

    def write(self, data: bytes) -> None:
        """Pass input on, at most `input_room` bytes; no bytes are its end."""
        self.input_room -= len(data)
        self._send(b"I", data)

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group."""
        self._send(b"S", struct.pack("<I", number))

    def resize(self, rows: int, columns: int) -> None:
        """Tell the command's terminal its size."""
        self._send(b"W", struct.pack("<HH", rows, columns))

    def read(self) -> None:
        """Take what has come; sets `code` at the end. Raises LabError when the lab or the command fails to be there."""
        try:
            data = self.link.recv(1 << 18)
        except OSError as error:
            raise LabError(f"lab {self.lab} went away: {error}") from error
        if not data:
            raise LabError(f"lab {self.lab} ended while the command ran; `rdmadiag lab status {self.lab}` says why")
        for kind, _number, payload in self._splitter.feed(data):
            if kind == b"A":
                self._started = True
            elif kind in (b"O", b"E"):
                self.take(1 if kind == b"O" else 2, payload)
                self._send(b"C", struct.pack("<I", len(payload)))
            elif kind == b"C":
                self.input_room += struct.unpack_from("<i", payload)[0]
            elif kind == b"R":
                self._result(payload)

    def _result(self, payload: bytes) -> None:
        code = struct.unpack_from("<i", payload)[0]
        if code >= 0:
            self.code = code
            return
        step = struct.unpack_from("<i", payload, 4)[0]
        if len(payload) > 8:
            raise LabError(f"lab {self.lab}: {payload[8:].decode(errors='replace')}")
        what = {frames.STEP_FOLDER: "the working folder is not in the guest", frames.STEP_EXEC: "the command"}
        word = os.strerror(-code)
        shell = {2: 127}.get(-code, 126) if step == frames.STEP_EXEC else 125
        raise NotStarted(f"lab {self.lab}: {what.get(step, 'the guest could not start it')}: {word}", shell)

    def wait_seconds(self) -> float | None:
        """Return how long to wait for the next frame at most. Raises LabError when the start was never acknowledged."""
        if self._started:
            return None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise LabError(
                f"lab {self.lab}: the guest gave no answer within {ANSWER_SECONDS:g} s; `rdmadiag lab status {self.lab}`"
            )
        return left

    def close(self) -> None:
        """Let go; a command that still runs gets SIGHUP, and SIGKILL later."""
        self.link.close()


def run(
    folder: Path,
    guest: str,
    argv: list[str],
    at: str,
    environment: dict[str, str],
    stdin: bytes,
    timeout_seconds: float | None,
) -> Ran:
    """Run a command with all its input given, and return all its output. Raises LabError."""
    output = {1: bytearray(), 2: bytearray()}
    command = Command(
        folder, guest, frames.start(argv, at, environment), lambda stream, data: output[stream].extend(data)
    )
    deadline = time.monotonic() + timeout_seconds if timeout_seconds else None
    place, ended = 0, False
    try:
        while command.code is None:
            if not ended and command.input_room > 0:
                part = stdin[place : place + min(command.input_room, 1 << 15)]
                command.write(part)
                place, ended = place + len(part), not part
                if not ended:
                    continue
            waits = [t for t in (command.wait_seconds(), deadline and deadline - time.monotonic()) if t is not None]
            if not select.select([command.link], [], [], max(min(waits), 0) if waits else None)[0]:
                if deadline and time.monotonic() >= deadline:
                    command.signal(signal.SIGKILL)
                    raise LabError(
                        f"lab {command.lab}: {argv[0]} did not end within {timeout_seconds:g} s and was killed"
                    )
                continue
            command.read()
    finally:
        command.close()
    return Ran(command.code, bytes(output[1]), bytes(output[2]))
