"""Labs from outside: make one, find those that are up, run commands in one, take it down."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rdmadiag.lab import client, places, topology
from rdmadiag.lab.client import Ran
from rdmadiag.lab.options import Options, differences
from rdmadiag.lab.places import DEFAULT_NAME, LabError

BASE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
}
Progress = Callable[[str], None]
KEEPER = "rdmadiag.lab.keeper"


class State(NamedTuple):
    """What is known of a lab from its folder: `state` is up, coming-up, or dead with a reason and a console."""

    name: str
    state: str
    record: dict[str, Any]
    reason: str = ""
    console: tuple[str, ...] = ()


class Lab:
    """A lab that is up."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = places.labs_folder() / places.check_name(name)
        self.record = places.read_json(self.folder / "lab.json")
        self.options = Options.from_json(self.record.get("options", {}))

    def run(
        self,
        argv: list[str],
        *,
        host: str = "",
        stdin: bytes = b"",
        folder: str = "/",
        environment: dict[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Ran:
        """Run a command and return its output and exit code (128 + N: killed by signal N).

        `host` names a host (h1) or `switch`. Raises LabError when the lab could not run it, and when time ran out (the
        command is killed then).
        """
        guest, words = self.place(host, argv)
        values = {**BASE_ENVIRONMENT, **(environment or {})}
        if self.options.backend == "native":
            from rdmadiag.lab import native

            return native.run(words, folder, values, stdin, timeout_seconds)
        return client.run(self.folder, guest, words, folder, values, stdin, timeout_seconds)

    def place(self, host: str, argv: list[str]) -> tuple[str, list[str]]:
        """Return the guest that a host is in, and the words that run a command there. Raises BadInput."""
        from rdmadiag.errors import BadInput

        known = [*topology.host_names(self.options), topology.SWITCH]
        if host and host not in known:
            raise BadInput(f"no host {host!r} in lab {self.name}; there are {', '.join(known)}")
        if self.options.kernel_per_host:
            return host or "h1", argv
        namespace = host or "h1" if self.options.namespaces else topology.SWITCH if host == topology.SWITCH else ""
        return "", ["ip", "netns", "exec", namespace, *argv] if namespace else argv

    def request(self, **wanted: Any) -> dict[str, Any]:
        """Ask the lab's keeper. Raises LabError when it does not answer."""
        return client.request(self.folder, wanted)

    def down(self) -> None:
        """Take the lab down and wait until nothing is left of it."""
        take_down(self.name)


def labs() -> list[State]:
    """Return every lab of this user; what a killed one left behind is taken away."""
    found = (look(path.name) for path in sorted(places.labs_folder().iterdir()) if path.is_dir())
    return [state for state in found if state is not None]


def look(name: str) -> State | None:
    """Return what is known of one lab; None when there is none."""
    folder = places.labs_folder() / places.check_name(name)
    if not folder.is_dir():
        return None
    held = places.is_locked(folder)
    record, died = places.read_json(folder / "lab.json"), places.read_json(folder / "died.json")
    if held and not died:
        return State(name, "up" if record else "coming-up", record)
    if held:
        return State(name, "dead", record, str(died.get("reason")), tuple(died.get("console", ())))
    if record and not died:
        died = {"reason": "its keeper process was killed; its guests ended with it", "console": _last_lines(folder)}
    if died:
        return State(name, "dead", record, str(died.get("reason")), tuple(died.get("console", ())))
    taken = places.lock(folder)
    if taken is not None:  # killed while it came up
        clean(folder)
        os.close(taken)
    return None


def _last_lines(folder: Path) -> list[str]:
    lines: list[str] = []
    for path in sorted(folder.glob("*.console.log")):
        lines += path.read_text(errors="replace").splitlines()[-20:]
    return lines


def find(name: str = DEFAULT_NAME) -> Lab:
    """Return a lab that is up. Raises LabError: there is none, it is coming up, or it died, with its reason."""
    state = look(name)
    if state is None:
        others = ", ".join(one.name for one in labs())
        raise LabError(
            f"no lab {name!r}; `rdmadiag lab up{'' if name == DEFAULT_NAME else ' ' + name}` makes it"
            + (f" (there are: {others})" if others else "")
        )
    if state.state == "dead":
        shown = "\n".join(["", *(f"  | {line}" for line in state.console)]) if state.console else ""
        raise LabError(f"lab {name} is dead: {state.reason}; `rdmadiag lab up` makes it anew{shown}")
    if state.state == "coming-up":
        raise LabError(f"lab {name} is coming up; try again in some seconds")
    return Lab(name)


def choose_backend(options: Options) -> Options:
    """Return the options with `auto` decided: native as root on a kernel that loads rxe, else a virtual machine."""
    if options.backend != "auto":
        return options
    from rdmadiag.lab import native

    native_works = not options.apart and not options.kernel and os.geteuid() == 0 and native.why_not() == ""
    return replace(options, backend="native" if native_works else "vm")


def up(options: Options, name: str = DEFAULT_NAME, progress: Progress = lambda text: None) -> Lab:
    """Make a lab and return it, or find it running with the same options. Raises LabError."""
    folder = places.labs_folder() / places.check_name(name)
    if options.folder == "/":
        options = replace(options, folder="")
    deadline = time.monotonic() + 180
    while (taken := places.lock(folder)) is None:
        state = look(name)
        if state and state.state == "up":
            running = Lab(name)
            if differing := differences(running.options, options):
                raise LabError(
                    f"lab {name} is up with other options: {'; '.join(differing)}; `rdmadiag lab down {name}` first"
                )
            return running
        if time.monotonic() > deadline:
            raise LabError(f"lab {name} is coming up for {180} s already; `rdmadiag lab down {name}` ends it")
        time.sleep(0.1)
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, taken)
        with contextlib.ExitStack() as unless_up:
            unless_up.callback(clean, folder)
            _empty(folder)
            wanted = choose_backend(options)
            places.write_json(folder / "request.json", wanted.as_json())
            _start_keeper(folder, taken, progress)
            unless_up.pop_all()
    return Lab(name)


def _empty(folder: Path) -> None:
    # Of a dead lab of this name; the lock file stays, for it is held.
    options = Options.from_json(places.read_json(folder / "request.json"))
    if options.backend == "native":
        from rdmadiag.lab import native

        native.tear_down(options, folder)
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name != "lock":
            entry.unlink()


def _start_keeper(folder: Path, taken: int, progress: Progress) -> None:
    # The standard library first: a queue.py in the folder in which somebody runs us must not take its place.
    own = os.path.dirname(os.__file__)
    paths = sorted(filter(None, sys.path), key=lambda path: not path.startswith(own))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    log = os.open(folder / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    keeper = subprocess.Popen(
        [sys.executable, "-m", KEEPER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        pass_fds=(taken,),
        start_new_session=True,
        cwd="/",
        env=environment,
    )
    os.close(log)
    assert keeper.stdout and keeper.stdin
    strange = ""
    try:
        for line in keeper.stdout:
            told = _told(line)
            if "step" in told:
                progress(told["step"])
            elif "failed" in told:
                keeper.wait()
                raise LabError(f"lab {folder.name}: {told['failed']}")
            elif "ready" in told:
                return
            else:
                strange += line.decode(errors="replace")  # of a module that prints when it is imported
        keeper.wait()
        strange += (folder / "keeper.log").read_text(errors="replace") if folder.is_dir() else ""
        said = strange.strip()[-1000:]
        raise LabError(
            f"lab {folder.name}: its keeper ended with exit code {keeper.returncode} while it came up{': ' * bool(said)}{said}"
        )
    except KeyboardInterrupt:
        keeper.stdin.close()
        keeper.wait()
        raise
    finally:
        keeper.stdout.close()
        keeper.stdin.close()
        keeper.returncode = (
            keeper.returncode if keeper.returncode is not None else 0
        )  # it lives on, not ours to wait for


def _told(line: bytes) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def take_down(name: str, seconds: float = 20.0) -> bool:
    """End a lab in whatever state it is; return whether there was one. Raises LabError when it does not end."""
    folder = places.labs_folder() / places.check_name(name)
    if look(name) is None:
        return False
    ask = time.monotonic()
    by_force, give_up = ask + seconds, ask + 2 * seconds
    while folder.is_dir():
        taken = places.lock(folder)
        if taken is not None:
            clean(folder)
            os.close(taken)
            break
        now = time.monotonic()
        if now > give_up:
            raise LabError(f"lab {name} does not end: something holds {folder}/lock; `fuser {folder}/lock` names it")
        if now >= ask:
            ask = now + 1.0  # again: its keeper may only be starting, or have come up meanwhile
            _end_keeper(folder, now > by_force)
        time.sleep(0.02)
    left = _keepers(folder)
    while left and time.monotonic() < by_force:
        time.sleep(0.02)  # its files go before it does
        left = [pid for pid in left if _is_keeper(pid, folder)]
    return True


def _keepers(folder: Path) -> list[int]:
    # Found by their words: what is coming up has written no process number yet.
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in numbers if _is_keeper(pid, folder)]


def _is_keeper(pid: int, folder: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return {KEEPER.encode(), os.fsencode(folder)} <= set(words)


def _end_keeper(folder: Path, by_force: bool) -> None:
    if not by_force:
        try:
            client.request(folder, {"do": "down"}, seconds=5.0)
            return
        except LabError:
            pass  # not up, or it stands still
    for pid in _keepers(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if by_force else signal.SIGTERM)


def clean(folder: Path) -> None:
    """Take away what a lab whose keeper is gone has left; the caller holds its lock."""
    _empty(folder)
    places.remove(folder)
