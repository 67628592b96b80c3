"""Where the ends of a workload run: the hosts of a lab, or this machine; and their programs, read by a thread each."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import rdmadiag
from rdmadiag.errors import BadInput
from rdmadiag.lab import Lab, LabError, Ran, client, frames, topology
from rdmadiag.lab.lab import BASE_ENVIRONMENT
from rdmadiag.workloads._contract import Host

Take = Callable[[int, bytes], None]
OnLine = Callable[[int, str], None]
OnEnd = Callable[["int | None", str], None]
LINE_MOST = 1 << 16
"""A line that is longer is cut into such pieces."""


class Program(Protocol):
    """A program that was started: what to wait for, and what to do with it."""

    @property
    def code(self) -> int | None:
        """Return the exit code; None while it runs."""

    def watched(self) -> list[int]:
        """Return the files that are readable when there is something to take."""

    def take(self) -> None:
        """Take what has come. Raises LabError when the place went away."""

    def wait_seconds(self) -> float | None:
        """Return how long to wait at most. Raises LabError."""

    def signal(self, number: int) -> None:
        """Send a signal to the program and its children."""

    def write(self, data: bytes) -> None:
        """Write to its standard input; a few lines, not a stream."""

    def end_input(self) -> None:
        """Close its standard input."""

    def close(self) -> None:
        """Let go; it may be killed by this."""


class Place(Protocol):
    """Hosts on which programs run."""

    name: str

    def host(self, name: str) -> Host:
        """Return a host by name. Raises BadInput."""

    def run(self, host: str, argv: list[str], seconds: float) -> Ran:
        """Run a command to its end. Raises LabError."""

    def start(self, host: str, argv: list[str], environment: Mapping[str, str], take: Take) -> Program:
        """Start a program. Raises LabError."""


class InLab:
    """The hosts of a lab that is up; `rail` chooses the device."""

    def __init__(self, lab: Lab, rail: int = 1) -> None:
        self.lab, self.rail, self.name = lab, rail, f"lab {lab.name}"

    def host(self, name: str) -> Host:
        """Return a host of the lab. Raises BadInput."""
        cables = [link for link in topology.links(self.lab.options) if link.host == name]
        rails = [link for link in cables if link.device]
        if not rails:
            known = ", ".join(topology.host_names(self.lab.options))
            raise BadInput(f"no host {name!r} in {self.name}; there are {known}")
        if not 1 <= self.rail <= len(rails):
            raise BadInput(f"no rail {self.rail} in {self.name}; wanted 1 to {len(rails)}")
        own, plain = rails[self.rail - 1], next(link for link in cables if not link.device)
        return Host(name, own.device, topology.GID_INDEX, own.netdev, own.address, plain.address)

    def run(self, host: str, argv: list[str], seconds: float) -> Ran:
        """Run a command on a host. Raises LabError."""
        return self.lab.run(argv, host=host, timeout_seconds=seconds)

    def start(self, host: str, argv: list[str], environment: Mapping[str, str], take: Take) -> Program:
        """Start a program on a host. Raises LabError."""
        guest, words = self.lab.place(host, argv)
        values = {**BASE_ENVIRONMENT, **environment}
        if self.lab.options.backend == "native":
            return _Here(words, values, take)
        return _InGuest(self.lab, guest, frames.start(words, "/", values), take)


class OnThisMachine:
    """This machine's own devices, each a host named in the call."""

    name = "this machine"

    def __init__(self, hosts: list[Host]) -> None:
        self._hosts = {host.name: host for host in hosts}

    def host(self, name: str) -> Host:
        """Return a host by name. Raises BadInput."""
        if name not in self._hosts:
            raise BadInput(f"no host {name!r}; there are {', '.join(self._hosts)}")
        return self._hosts[name]

    def run(self, host: str, argv: list[str], seconds: float) -> Ran:
        """Run a command here. Raises LabError."""
        from rdmadiag.lab import native

        return native.run(argv, "/", {**BASE_ENVIRONMENT, **os.environ}, b"", seconds)

    def start(self, host: str, argv: list[str], environment: Mapping[str, str], take: Take) -> Program:
        """Start a program here. Raises LabError."""
        return _Here(argv, {**BASE_ENVIRONMENT, **os.environ, **environment}, take)


def package_path() -> dict[str, str]:
    """Return the environment in which Python finds this package, in a lab too."""
    return {"PYTHONPATH": str(Path(rdmadiag.__file__).parent.parent), "PYTHONUNBUFFERED": "1"}


class _InGuest:
    def __init__(self, lab: Lab, guest: str, payload: bytes, take: Take) -> None:
        self._command = client.Command(lab.folder, guest, payload, take)
        self._input_open = True

    @property
    def code(self) -> int | None:
        return self._command.code

    def watched(self) -> list[int]:
        return [self._command.link.fileno()]

    def take(self) -> None:
        self._command.read()

    def wait_seconds(self) -> float | None:
        return self._command.wait_seconds()

    def signal(self, number: int) -> None:
        self._command.signal(number)

    def write(self, data: bytes) -> None:
        self._command.write(data)

    def end_input(self) -> None:
        if self._input_open:
            self._input_open = False
            self._command.write(b"")

    def close(self) -> None:
        self._command.close()


class _Here:
    def __init__(self, argv: list[str], environment: dict[str, str], take: Take) -> None:
        self.code: int | None = None
        self._take = take
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise LabError(f"{argv[0]}: {error.strerror}") from error
        assert self._process.stdout and self._process.stderr
        self._files = {self._process.stdout.fileno(): 1, self._process.stderr.fileno(): 2}

    def watched(self) -> list[int]:
        return list(self._files)

    def take(self) -> None:
        for file in select.select(list(self._files), [], [], 0)[0]:
            data = os.read(file, 1 << 16)
            if data:
                self._take(self._files[file], data)
            else:
                del self._files[file]
        if not self._files:
            self.code = self._process.wait()
            self.code = self.code if self.code >= 0 else 128 - self.code

    def wait_seconds(self) -> float | None:
        return None

    def signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass

    def write(self, data: bytes) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, or will be seen to

    def end_input(self) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass

    def close(self) -> None:
        if self.code is None:
            self.signal(signal.SIGKILL)
            self._process.wait()
        self.end_input()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe
            pipe.close()


class Process:
    """A program whose lines and end are passed on by a thread of its own; may be signalled from any thread."""

    def __init__(self, start: Callable[[Take], Program], on_line: OnLine, on_end: OnEnd) -> None:
        self._on_line, self._on_end = on_line, on_end
        self._parts = {1: b"", 2: b""}
        self._todo: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        with contextlib.ExitStack() as unless_started:
            unless_started.callback(os.close, self._wake_read)
            unless_started.callback(os.close, self._wake_write)
            self._program = start(self._take)
            unless_started.pop_all()
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._thread.start()

    def _take(self, stream: int, data: bytes) -> None:
        *lines, rest = (self._parts[stream] + data).split(b"\n")
        while len(rest) > LINE_MOST:
            lines.append(rest[:LINE_MOST])
            rest = rest[LINE_MOST:]
        self._parts[stream] = rest
        for line in lines:
            self._on_line(stream, line.decode(errors="replace").rstrip("\r"))

    def _pump(self) -> None:
        program, problem, let_go = self._program, "", False
        try:
            while program.code is None and not let_go:
                ready = select.select([*program.watched(), self._wake_read], [], [], program.wait_seconds())[0]
                if self._wake_read in ready:
                    os.read(self._wake_read, 1)
                    let_go = self._todo.get()() == "let go"
                if set(ready) - {self._wake_read}:
                    program.take()
        except LabError as error:
            problem = str(error)
        finally:
            program.close()
            for stream, rest in self._parts.items():
                if rest:
                    self._on_line(stream, rest.decode(errors="replace"))
            self._on_end(program.code, problem)
            self.ended.set()

    def _do(self, what: Callable[[], Any]) -> None:
        if not self.ended.is_set():
            self._todo.put(what)
            os.write(self._wake_write, b"!")

    def signal(self, number: int) -> None:
        """Send a signal to the program and its children."""
        self._do(lambda: self._program.signal(number))

    def write(self, data: bytes) -> None:
        """Write to its standard input; a few lines, not a stream."""
        self._do(lambda: self._program.write(data))

    def end_input(self) -> None:
        """Close its standard input."""
        self._do(self._program.end_input)

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended; tell whether it has."""
        return self.ended.wait(seconds)

    def close(self) -> None:
        """Kill it if it still runs, and end the thread."""
        self.signal(signal.SIGKILL)
        if not self.wait(5.0):
            self._do(lambda: "let go")
        self._thread.join(10.0)
        if not self._thread.is_alive():
            os.close(self._wake_read)
            os.close(self._wake_write)
