"""The write-ahead journal: one file an injection, on disk before anything is changed, closed when the node was seen clean.

It lies where a restart of a lab's guest does not reach: $XDG_STATE_HOME/rdmadiag/inject, else /var/lib/rdmadiag/inject for root,
else ~/.local/state/rdmadiag/inject. Room for the last lines is reserved with the first, so a disk that fills up meanwhile
cannot keep an end from being written. Beside them lies audit.log: who, what, where, when, how it ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rdmadiag.errors import RdmadiagError

ROOM = 16384  # bytes reserved for what follows the first line
LAST = 256  # of them for its end alone


class JournalError(RdmadiagError):
    """The journal cannot be written, so nothing may be changed."""


def folder() -> Path:
    """Return the journal's folder, made when missing. Raises JournalError."""
    state = os.environ.get("XDG_STATE_HOME")
    if not state:
        state = "/var/lib" if os.geteuid() == 0 else os.path.expanduser("~/.local/state")
    path = Path(state, "rdmadiag", "inject")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise JournalError(
            f"{path}: {error.strerror}; nothing was changed. XDG_STATE_HOME names another place"
        ) from error
    return path


def who() -> str:
    """Return who runs this: the login behind sudo, too."""
    with contextlib.suppress(KeyError):
        name = pwd.getpwuid(os.getuid()).pw_name
        sudo = os.environ.get("SUDO_USER")
        return f"{name} ({sudo})" if sudo and sudo != name else name
    return str(os.getuid())


def start_ticks(pid: int) -> int:
    """Return the start time of a process in ticks since boot; 0 when it is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if words[0] == "Z" else int(words[19])


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass
class Entry:
    """One injection in the journal: `intent` is its first line, `lines` the later ones."""

    path: Path
    intent: dict[str, Any]
    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tag(self) -> str:
        """Return its name."""
        return str(self.intent.get("tag", self.path.stem))

    @property
    def open(self) -> bool:
        """Tell whether the node has not been seen clean since."""
        return not any(line.get("state") == "clean" for line in self.lines)

    @property
    def injector_lives(self) -> bool:
        """Tell whether the process that made it is still there (it may be stopped)."""
        made_by = self.intent.get("injector", {})
        pid, ticks = made_by.get("pid"), made_by.get("start_ticks")
        return bool(pid) and made_by.get("boot_id") == _boot_id() and start_ticks(pid) == ticks

    def add(self, **values: Any) -> None:
        """Write one more line, into the room reserved. Raises JournalError."""
        used = sum(len(_line(one)) for one in (self.intent, *self.lines))
        end = len(_line(self.intent)) + ROOM
        line = {"at": time.time(), **values}
        if used + len(_line(line)) > end - LAST:
            if values.get("state") != "clean" or used > end - LAST:
                return  # the last room is for the end, and once is enough
            line = {"at": line["at"], "state": "clean"}
        self.lines.append(line)
        _write(self.path, _line(line), used)


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values).encode() + b"\n"


def _write(path: Path, data: bytes, place: int) -> None:
    create = place == 0
    try:
        file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
        try:
            if create:
                data += b" " * ROOM + b"\n"
            while data:
                done = os.pwrite(file, data, place)
                data, place = data[done:], place + done
            os.fsync(file)
        finally:
            os.close(file)
        if create:
            parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            os.fsync(parent)
            os.close(parent)
    except OSError as error:
        if create:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise JournalError(
            f"{path}: {error.strerror}; {'nothing was changed' if create else 'its end is not recorded'}"
        ) from error


def begin(intent: dict[str, Any]) -> Entry:
    """Write what is about to be done, and wait until it is on disk. Raises JournalError: nothing may be changed then."""
    path = folder() / f"{intent['tag']}.json"
    made_by = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "boot_id": _boot_id(), "who": who()}
    whole = {"schema": "rdmadiag.injection/1", "at": time.time(), "injector": made_by, **intent}
    _write(path, _line(whole), 0)
    return Entry(path, whole)


def entries() -> Iterator[Entry]:
    """Yield all injections in the journal, oldest first; a file that is no journal is left out."""
    found = []
    for path in folder().glob("*.json"):
        lines = []
        with contextlib.suppress(OSError, UnicodeDecodeError):
            for text in path.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    value = json.loads(text)
                    if isinstance(value, dict):
                        lines.append(value)
        if lines and lines[0].get("schema") == "rdmadiag.injection/1":
            found.append(Entry(path, lines[0], lines[1:]))
    yield from sorted(found, key=lambda entry: float(entry.intent.get("at", 0)))


def drop_old(keep: int = 200) -> None:
    """Take closed entries away beyond the newest `keep`."""
    closed = [entry for entry in entries() if not entry.open]
    for entry in closed[: max(len(closed) - keep, 0)]:
        entry.path.unlink(missing_ok=True)


def audit(text: str) -> None:
    """Add a line to audit.log; a disk that is full must not keep a fault from being taken off, so failure is not an error."""
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {who()} {text}\n"
    with contextlib.suppress(OSError, JournalError):
        file = os.open(folder() / "audit.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)
