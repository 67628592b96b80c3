"""The only door through which a node is changed: shell texts, run on this host, or on a place of a lab."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Protocol

from rdmadiag.errors import RdmadiagError
from rdmadiag.lab import Lab, LabError, Ran

SECONDS = 180.0


class NodeGone(RdmadiagError):
    """The node does not answer: a lab that is down or dead."""


class Node(Protocol):
    """One place of a node: `instance` differs after each restart of it."""

    instance: str

    def run(self, text: str, seconds: float = SECONDS) -> Ran:
        """Run a shell text and return output and exit code. Raises NodeGone."""


class LabNode:
    """A host, or the switch, of a lab."""

    def __init__(self, lab: Lab, place: str) -> None:
        self.lab, self.place = lab, place
        self.instance = f"{lab.record.get('pid')}-{lab.record.get('since')}"

    def run(self, text: str, seconds: float = SECONDS) -> Ran:
        """Run a shell text there."""
        try:
            return self.lab.run(["sh"], host=self.place, stdin=_whole(text), timeout_seconds=seconds)
        except LabError as error:
            raise NodeGone(str(error)) from error


class ThisNode:
    """This host."""

    def __init__(self) -> None:
        self.instance = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def run(self, text: str, seconds: float = SECONDS) -> Ran:
        """Run a shell text here."""
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
        home = os.environ.get("HOME", "/root")
        try:
            result = subprocess.run(
                ["sh"],
                input=_whole(text),
                capture_output=True,
                timeout=seconds,
                check=False,
                cwd="/",
                env={**environment, "HOME": home},
            )
        except subprocess.TimeoutExpired as error:
            raise NodeGone(f"a step did not end within {seconds:g} s and was killed") from error
        return Ran(result.returncode, result.stdout, result.stderr)


def _whole(text: str) -> bytes:
    # Read as one before any of it runs, so that no command in it eats the rest as its input.
    return f"{{\n{text}\n}} </dev/null\n".encode()
