"""The witness of each kernel of a lab, started, read, and asked for bundles (rdmadiag/scenario/witness.py runs there)."""

from __future__ import annotations

import base64
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rdmadiag.lab import Lab, LabError
from rdmadiag.workloads import InLab
from rdmadiag.workloads._place import Process, package_path

SAMPLE_SECONDS = 0.25
START_SECONDS = 60.0
BUNDLE_SECONDS = 120.0


class Watch:
    """One witness; its samples come by a thread, `at` is time.monotonic() here. `place` is a host, or empty in a lab of one kernel."""

    def __init__(self, lab: Lab, place: str, every_seconds: float = SAMPLE_SECONDS) -> None:
        self.lab, self.place = lab, place
        self.samples: list[dict[str, Any]] = []
        self.warnings: list[dict[str, Any]] = []
        self.hello: dict[str, Any] = {}
        self.problems: list[str] = []
        self._fifo = f"/run/rdmadiag-witness-{secrets.token_hex(4)}"
        self._parts: dict[str, list[str]] = {}
        self._bundles: dict[str, bytes | None] = {}
        self._said: list[str] = []
        self._changed = threading.Condition()
        argv = [sys.executable, "-m", "rdmadiag.scenario.witness", str(every_seconds), self._fifo]
        door = InLab(lab)
        self._process = Process(lambda take: door.start(place, argv, package_path(), take), self._line, self._ended)

    def _line(self, stream: int, text: str) -> None:
        at = time.monotonic()
        try:
            said = json.loads(text) if stream == 1 else None
        except ValueError:
            said = None
        with self._changed:
            if not isinstance(said, dict):
                self._said.append(text)
                return
            if "sample" in said:
                self.samples.append({"at": at, "node": self.hello.get("node"), **said["sample"]})
            elif "kernel" in said:
                self.warnings.append({"at": at, "node": self.hello.get("node"), "text": said["kernel"]})
            elif "hello" in said:
                self.hello = said["hello"]
            elif "problem" in said:
                self._bundles[said["bundle"]] = None
            elif "bundle" in said:
                parts = self._parts.setdefault(said["bundle"], [])
                parts.append(said["data"])
                if not said["more"]:
                    self._bundles[said["bundle"]] = base64.b64decode("".join(self._parts.pop(said["bundle"])))
            self._changed.notify_all()

    def _ended(self, code: int | None, problem: str) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wait(self, what: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        with self._changed:
            while not what():
                left = deadline - time.monotonic()
                if left <= 0 or self._process.ended.is_set():
                    return what()
                self._changed.wait(min(left, 1.0))
        return True

    def started(self) -> bool:
        """Wait until it watches; tell whether it does."""
        return self._wait(lambda: bool(self.samples), START_SECONDS)

    def why_not(self) -> str:
        """Return what it printed last."""
        return " | ".join(line for line in self._said[-3:] if line.strip()) or "it printed nothing"

    def ask(self, *orders: str) -> None:
        """Order bundles (`collect PHASE`) and captures (`record NETDEV`, `recorded NETDEV`); what is ordered comes later."""
        words = ["sh", "-c", f'printf "%s\\n" "$@" > {self._fifo}', "sh", *orders]
        try:
            self.lab.run(words, host=self.place, timeout_seconds=20)
        except LabError as error:
            self.problems.append(f"evidence ({', '.join(orders)}): {error}")

    def came(self, name: str) -> bool:
        """Tell whether nothing more is to be waited for of the bundle or capture that was ordered: it is here, or cannot come any more."""
        return name in self._bundles or self._process.ended.is_set()

    def take(self, name: str, path: Path) -> None:
        """Wait for the bundle or capture that was ordered, and write it to a file."""
        self._wait(lambda: name in self._bundles, BUNDLE_SECONDS)
        data = self._bundles.get(name)
        if data is None:
            where = self.place or "the lab"
            self.problems.append(f"evidence from {name} of {where} could not be collected: {self.why_not()}")
        else:
            path.write_bytes(data)

    def forget(self, name: str) -> None:
        """Forget what came under a name, so that it can be ordered again."""
        with self._changed:
            self._bundles.pop(name, None)

    @property
    def node(self) -> str:
        """The node's name."""
        return self.hello.get("node") or "node"

    def close(self) -> None:
        """End it."""
        self._process.end_input()
        self._process.wait(5.0)
        self._process.close()
