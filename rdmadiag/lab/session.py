"""A command in a lab as if it ran here: this process's input, output, signals and terminal are passed through."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from rdmadiag.lab import frames
from rdmadiag.lab.client import PASSED_SIGNALS, Command
from rdmadiag.lab.places import LabError

_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def environment_for(name: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command in a lab: ours, without what only this machine has."""
    values = {
        key: value for key, value in own.items() if not key.startswith(("XDG_RUNTIME_DIR", "DBUS_", "SSH_", "DISPLAY"))
    }
    path = [part for part in values.get("PATH", "").split(os.pathsep) if part]
    values["PATH"] = os.pathsep.join([*path, *(folder for folder in _SYSTEM_FOLDERS if folder not in path)])
    values["RDMADIAG_LAB"] = name
    return values


def run(folder: Path, guest: str, argv: list[str], terminal: bool) -> int:
    """Run a command and return its exit code. Raises LabError, NotStarted among them, when it is not its own end.

    `terminal`: give the command a terminal of this one's size; needs one on standard input.
    """
    size = os.get_terminal_size(0) if terminal else None
    shape = (size.lines, size.columns) if size else None
    payload = frames.start(argv, os.getcwd(), environment_for(folder.name, os.environ), shape)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    with _signals(wake_write) as pending, _raw(terminal):
        command = Command(folder, guest, payload, _write)
        try:
            return _pump(command, wake_read, pending, terminal)
        finally:
            command.close()
            os.close(wake_read)
            os.close(wake_write)


def _write(stream: int, data: bytes) -> None:
    while data:
        data = data[os.write(stream, data) :]


def _pump(command: Command, wake: int, pending: list[int], terminal: bool) -> int:
    reading = sys.stdin is not None
    while command.code is None:
        watched: list[int] = [command.link.fileno(), wake]
        if reading and command.input_room > 0:
            watched.append(0)
        ready = select.select(watched, [], [], command.wait_seconds())[0]
        if wake in ready:
            os.read(wake, 64)
            while pending:
                number = pending.pop(0)
                if number == signal.SIGWINCH and terminal:
                    size = os.get_terminal_size(0)
                    command.resize(size.lines, size.columns)
                elif number != signal.SIGWINCH:
                    command.signal(number)
        if 0 in ready:
            try:
                data = os.read(0, min(command.input_room, 1 << 15))
            except OSError:
                data = b""
            command.write(data)
            reading = bool(data)
        if command.link.fileno() in ready:
            command.read()
    return command.code


@contextlib.contextmanager
def _signals(wake: int) -> Iterator[list[int]]:
    pending: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        pending.append(number)
        with contextlib.suppress(BlockingIOError):
            os.write(wake, b"!")

    numbers = (*PASSED_SIGNALS, signal.SIGWINCH)
    before = {number: signal.signal(number, note) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield pending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _raw(terminal: bool) -> Iterator[None]:
    if not terminal:
        yield
        return
    import termios
    import tty

    try:
        before = termios.tcgetattr(0)
    except termios.error as error:
        raise LabError(f"standard input is no terminal: {error}") from error
    tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead stays
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
