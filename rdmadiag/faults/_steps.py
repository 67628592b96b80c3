"""The kinds of steps that faults are made of, strongest first: each knows how to do, undo, and see itself, in shell.

Every text is for `sh` on the node, run in the injection's own folder there; `undo` may run twice, or before `do`, and touches
nothing but what `do` made. What `holds` tests is the exit code: 0 when the step is in force.
"""

from __future__ import annotations

import json
import re
import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass

LEASE_SECONDS = 20


@dataclass(frozen=True)
class Step(ABC):
    """One change of the node."""

    what: str

    @abstractmethod
    def do(self) -> str:
        """Return the text that makes the change."""

    @abstractmethod
    def undo(self) -> str:
        """Return the text that takes it back."""

    @abstractmethod
    def holds(self) -> str:
        """Return the test that it is in force."""

    def count(self) -> str:
        """Return the text that prints what it has counted; empty when it counts nothing."""
        return ""

    def read(self, text: str) -> dict[str, int]:
        """Return the numbers in what `count` printed."""
        return {}


@dataclass(frozen=True)
class Table(Step):
    """An nft table owned by a process: the kernel removes it when that process ends, whatever ended it.

    Rules hold only for netdevs in its set `lease`, whose entries the kernel drops after LEASE_SECONDS when nobody renews them.
    """

    name: str = ""
    rules: str = ""
    netdevs: tuple[str, ...] = ()
    family: str = "netdev"

    def text(self) -> str:
        """Return the table as nft reads it."""
        lease = "set lease { type ifname; flags timeout; }" if self.netdevs else ""
        return f"table {self.family} {self.name} {{\nflags owner;\n{lease}\n{self.rules}\n}}\n"

    def renewal(self) -> str:
        """Return the line by which the lease is renewed."""
        entries = ", ".join(f"{name} timeout {LEASE_SECONDS}s" for name in self.netdevs)
        where = f"{self.family} {self.name} lease"
        return f"flush set {where}; add element {where} {{ {entries} }}" if entries else ""

    def do(self) -> str:
        """Hand the table to the process that owns it, which reads the fifo `nft`."""
        lines = [f"cat > rules.nft <<'END'\n{self.text()}END", "echo 'include \"./rules.nft\"' >> nft"]
        if self.netdevs:
            lines += [f"echo '{self.renewal()}' > renew", "cat renew >> nft"]
        return "\n".join([*lines, f"{{ {self.count()}; }} > listed || {{ head -c 600 nft.log >&2; false; }}"])

    def undo(self) -> str:
        """End the owner; the table goes with it."""
        return "end_owner"

    def holds(self) -> str:
        """Test that its owner lives, who has shown it."""
        return "[ -s listed ] && lives owner.pid"

    def count(self) -> str:
        """Print the table's counters."""
        return f"ask_owner 'list counters table {self.family} {self.name}'"

    def read(self, text: str) -> dict[str, int]:
        """Read the packets of each counter."""
        return {name: int(n) for name, n in re.findall(r"counter (\w+) \{\s*packets (\d+)", text)}


@dataclass(frozen=True)
class Change(Step):
    """A change that lives in the kernel by itself: the watchdog takes it back, or the next start of the injector."""

    doing: str = ""
    undoing: str = ""
    test: str = ""
    counting: str = ""
    pattern: str = r"(?m)^(?P<name>in_force) (?P<value>\d)$"  # of what `counting` prints

    def do(self) -> str:
        """Return the text that makes the change."""
        return self.doing

    def undo(self) -> str:
        """Take it back, when it is there."""
        return f"if {self.test}; then\n{self.undoing}\nfi\ngone {shlex.quote(self.test)}"

    def holds(self) -> str:
        """Test that it is there."""
        return self.test

    def count(self) -> str:
        """Print what it counted, else that it is in force."""
        return self.counting or f"if {self.test}; then echo in_force 1; else echo in_force 0; fi"

    def read(self, text: str) -> dict[str, int]:
        """Read names and numbers."""
        return {match["name"]: int(match["value"]) for match in re.finditer(self.pattern, text)}


@dataclass(frozen=True)
class Restore(Step):
    """What must be as it was in the end, whatever a later step is doing to it when it is ended; changes nothing itself.

    At most one a plan: what tells that the check was passed is one file.
    """

    check: str = "true"  # that it is so now
    restore: str = ""

    def do(self) -> str:
        """Return the check."""
        return f"{self.check}\n: > checked"

    def undo(self) -> str:
        """Bring it back; harmless when it is so already, and not done when it was not so before."""
        return f"if [ -e checked ]; then\n{self.restore}\nfi"

    def holds(self) -> str:
        """Return what is always so."""
        return "true"


@dataclass(frozen=True)
class Worker(Step):
    """A process that is the fault, as long as it lives; it ends itself, and the watchdog ends it.

    It prints lines of JSON objects: the last one's whole numbers are what it has counted.
    """

    argv: tuple[str, ...] = ()
    name: str = "worker"
    environment: tuple[tuple[str, str], ...] = ()

    def do(self) -> str:
        """Start it in a session of its own and wait for its first line; it ends with the watchdog, and a minute after its time."""
        words = " ".join(map(shlex.quote, self.argv))
        values = " ".join(f"{key}={shlex.quote(value)}" for key, value in self.environment)
        limit = "timeout -s KILL $most"
        guard = f". ./functions; while lives watchdog.pid; do sleep 2; done; end_session {self.name}.pid"
        return (
            f"{values} setsid {limit} {words} </dev/null >{self.name}.out 2>{self.name}.err 3>&- &\n"
            f"remember $! {self.name}.pid\n"
            f"setsid sh -c {shlex.quote(guard)} </dev/null >/dev/null 2>&1 3>&- &\n"
            f"wait_for '[ -s {self.name}.out ] || ! lives {self.name}.pid' || echo 'it said nothing in time' >&2\n"
            f"[ -s {self.name}.out ] || {{ tail -c 800 {self.name}.err >&2; false; }}"
        )

    def undo(self) -> str:
        """End its whole session."""
        return f"end_session {self.name}.pid"

    def holds(self) -> str:
        """Test that it lives."""
        return f"lives {self.name}.pid"

    def count(self) -> str:
        """Print its last lines."""
        return f"tail -n 2 {self.name}.out 2>/dev/null"

    def read(self, text: str) -> dict[str, int]:
        """Read the last whole line."""
        for line in reversed(text.splitlines()):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                return {key: value for key, value in found.items() if type(value) is int}
        return {}
