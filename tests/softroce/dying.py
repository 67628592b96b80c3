"""Faults in a lab whose injector, watchdog, disk or guest dies: how long until nothing of them is in force, and by whom.

Used by test_comes_off.py, and by tests/benchmarks/bench_revert_lab.py, which makes the table in docs/performance.md.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rdmadiag import inject as door
from rdmadiag import lab as labs
from rdmadiag.lab import Lab, Ran
from tests.softroce.conftest import ROOT, environment, our_words

MECHANISMS: dict[str, tuple[str, ...]] = {
    "table": ("blackout",),
    "detour": ("delay", "--ms", "20"),
    "process": ("flap", "--down-ms", "100", "--up-ms", "100"),
    "changer": ("rkey-rewritten",),
    "change": ("link-down",),
}
"""One fault for each means by which faults act (docs/inject.md)."""
HAVE_TABLES = ("table", "detour", "changer")
ITSELF, NEXT_START = "by itself", "at the next start"
_IP = "ip -o -batch - <<'END'\nlink show\naddr show scope global\nroute show\nEND\n"
_LOOK = f"{_IP}ip netns exec switch sh -s <<'SWITCH'\nnft list tables\ntc qdisc show\n{_IP}SWITCH\n"
"""Few processes: each takes 30 ms in an emulated guest, 300 ms in a busy one."""
_LONGEST = 120.0
_ALONE_SECONDS = 5.0
"""What is in force so long after all that watched it was killed stays so until the next start."""


class Clean(NamedTuple):
    """How long after a death nothing was in force any more [s], by whom, and after how long its table was gone, when there was one [s]."""

    seconds: float
    by: str
    table_seconds: float | None = None


def look(lab: Lab, processes: tuple[str, ...] = ()) -> list[str]:
    """Return what is in force in a lab of one kernel, as lines: in the hosts, in the switch, and which of some processes live."""
    living = "\n".join(f"if [ -e /proc/{pid} ]; then echo process {pid}; fi" for pid in processes)
    lines = lab.run(["sh", "-c", _LOOK + living]).text.splitlines()
    # A guest that boots instead of being restored gives the switch's ports other addresses.
    return [re.sub(r",NO-CARRIER|,M-DOWN| state \w+|link/ether \S+", "", line) for line in lines]


class Held:
    """A fault that a command holds in a lab."""

    def __init__(self, lab: Lab, mechanism: str, process: subprocess.Popen[str], tag: str, before: list[str]) -> None:
        self.lab, self.mechanism, self.process, self.tag, self.before = lab, mechanism, process, tag, before
        own = "for f in *.pid; do [ $f = watchdog.pid ] || { read -r pid rest < $f && echo $pid; }; done"
        self.processes = tuple(self._run(own).text.split())

    def look(self) -> list[str]:
        """Return what is in force."""
        return look(self.lab, self.processes)

    def _run(self, text: str) -> Ran:
        return self.lab.run(["sh", "-c", f"cd /run/rdmadiag-inject/{self.tag} 2>/dev/null && {text}"])

    def run(self, text: str) -> int:
        """Run a shell text in its folder on the node and return the exit code."""
        return self._run(text).code

    def kill_watchdog(self) -> None:
        """Kill the watchdog."""
        assert self.run("read -r pid rest < watchdog.pid && kill -9 $pid") == 0, "no watchdog was found"

    def is_watched(self) -> bool:
        """Tell whether the watchdog lives."""
        return self.run(". ./functions && lives watchdog.pid") == 0


@contextlib.contextmanager
def held(lab: Lab, mechanism: str, state: Path, lease: float, wrapper: tuple[str, ...] = ()) -> Iterator[Held]:
    """Hold a fault by a command of its own, whose journal is in `state`."""
    before = look(lab)
    words = our_words("inject", *MECHANISMS[mechanism], "--for", "600s", "--lease", f"{lease:g}s", "--lab", lab.name)
    process = subprocess.Popen(
        [*wrapper, *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env=environment() | {"XDG_STATE_HOME": str(state)},
    )  # fmt: skip
    assert process.stderr
    line = process.stderr.readline()
    assert line.startswith("on: "), line + process.stderr.read()
    try:
        yield Held(lab, mechanism, process, line.split()[1], before)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _both(one: Held) -> None:
    one.process.kill()
    one.kill_watchdog()


WAYS: dict[str, tuple[Callable[[Held], None], str]] = {
    "injector, kill -9": (lambda one: one.process.kill(), ""),
    "injector, SIGSTOP": (
        lambda one: one.process.send_signal(signal.SIGSTOP),
        "(the watchdog took it off: its injector gave no sign of life for",
    ),
    "injector, SIGHUP": (lambda one: one.process.send_signal(signal.SIGHUP), "(we were told to end (SIGHUP))"),
    "watchdog, kill -9": (Held.kill_watchdog, "(its watchdog is gone)"),
    "both, kill -9": (_both, ""),
}
"""Ways of dying in a lab that lives on; and what the injector, when it lives on, says of it."""


def dies(lab: Lab, mechanism: str, way: str, state: Path, lease: float) -> Clean:
    """Let a fault's keepers die, and return how long it took until nothing was in force; after it the journal knows that it is off."""
    os.environ["XDG_STATE_HOME"] = str(state)
    kill, says = WAYS[way]
    with held(lab, mechanism, state, lease) as one:
        assert one.look() != one.before, "it was not on"
        kill(one)
        found = _until_off(one, lease)
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGCONT)
        out, err = one.process.communicate(timeout=_LONGEST)
        assert says in out and "NOT OFF" not in out, out + err
    settle(lab, one.before)
    return found


def settle(lab: Lab, before: list[str]) -> None:
    """Revert twice: it is no error, nothing is left, and everybody says so."""
    for _ in range(2):
        assert [result.problems for result in door.everything() if not result.clean] == []
    assert door.status() == []
    assert (now := look(lab)) == before, sorted(set(now) ^ set(before))
    left = "ls /run/rdmadiag-inject 2>/dev/null; pgrep -a -f '[l]ink set .p down|[r]dmadiag.lab.interpose|[w]atchdog'"
    assert (said := lab.run(["sh", "-c", left]).text) == "", said


def _until_off(one: Held, lease: float) -> Clean:
    died, free = time.monotonic(), None
    had_table = one.mechanism in HAVE_TABLES
    while (now := one.look()) != one.before:
        if had_table and free is None and not any(line.startswith("table") and "rdmadiag" in line for line in now):
            free = time.monotonic() - died
        alone = one.process.poll() is not None and time.monotonic() > died + _ALONE_SECONDS
        if alone and not one.is_watched():
            if one.look() == one.before:  # the watchdog was done between the two looks
                break
            begun = time.monotonic()
            results = door.heal()
            assert [result.tag for result in results if result.clean] == [one.tag], results
            assert one.look() == one.before
            return Clean(time.monotonic() - begun, NEXT_START, free)
        assert time.monotonic() < died + lease + _LONGEST, "it did not come off"
        time.sleep(0.2)
    return Clean(time.monotonic() - died, ITSELF, free)


def on_a_full_disk(lab: Lab, mechanism: str, disk: Path, lease: float) -> Clean:
    """Fill the journal's disk while a fault is held, then kill its watchdog: it comes off, and that is recorded."""
    disk.mkdir()
    mount = f'mount -t tmpfs -o size=200k none {disk} && exec "$@"'
    with held(lab, mechanism, disk, lease, ("unshare", "-m", "sh", "-c", mount, "sh")) as one:
        inside = Path(f"/proc/{one.process.pid}/root{disk}")
        with contextlib.suppress(OSError), (inside / "full").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        entry = next((inside / "rdmadiag/inject").glob("*.json"))
        with entry.open() as written:
            one.kill_watchdog()
            found = _until_off(one, lease)
            out, err = one.process.communicate(timeout=_LONGEST)
            assert "off: the node is as it was before" in out, out + err
            assert '"state": "clean"' in written.read()
    assert look(lab) == one.before
    return found


def in_a_restart(lab: Lab, mechanism: str, state: Path, lease: float) -> tuple[Lab, Clean]:
    """Restart the guest while a fault is held; the lab that came up after it, and how long that and the journal's answer took."""
    os.environ["XDG_STATE_HOME"] = str(state)
    with held(lab, mechanism, state, lease) as one:
        died = time.monotonic()
        with contextlib.suppress(labs.LabError):
            lab.run(["sh", "-c", "echo b > /proc/sysrq-trigger"], timeout_seconds=30)
        out, err = one.process.communicate(timeout=_LONGEST)
        assert "ABORTED" in out or "NOT OFF: the node does not answer" in out, out + err
        labs.take_down(lab.name)
        again = labs.up(lab.options, lab.name)
        # The injector may have seen by itself that its node is gone.
        assert {entry["state"] for entry in door.status()} <= {"restarted"}
        assert [result.problems for result in door.heal() if not result.clean] == []
        found = Clean(time.monotonic() - died, ITSELF)
        settle(again, one.before)
        return again, found
