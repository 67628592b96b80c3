"""Packets changed on their way through a lab's switch, under any workload: `with changes(lab, [...]) as running: ...`.

A change is a match and an action (rdmadiag.lab.changes); the first one that meets a packet acts on it, those that the kernel
does (drop, mark_ce without state) before the others. It is changed between the sender's cable and the receiver's port: neither
host, nor what runs on it, is touched.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.lab import changes as data
from rdmadiag.lab import packets, topology
from rdmadiag.lab.lab import Lab
from rdmadiag.lab.places import LabError

ANSWER_SECONDS = 90.0


class Running:
    """Changes at work. `pid` is the program's process number in the switch."""

    def __init__(self, lab: Lab, wanted: Sequence[dict[str, Any]], accept: Sequence[str] = ()) -> None:
        """Start the program and wait until its rules hold. Raises BadInput for changes that are none, LabError."""
        self.lab = lab
        read = data.read(list(wanted), accept)
        cables = [cable for cable in topology.links(lab.options) if cable.device]
        known = [cable.host for cable in cables]
        for change in read:
            for host in (change.match.source, change.match.target):
                if host and host not in known:
                    raise BadInput(
                        f"in-flight change {change.name!r}: no host {host!r}; there are {', '.join(sorted(set(known)))}"
                    )
        plan = {
            "changes": [data.as_json(change) for change in read],
            "accept": list(accept),
            "links": [{"host": c.host, "port": c.port, "mac": c.mac} for c in cables],
        }
        words = [f"{name}={value}" for name, value in packets.environment().items()]
        inside = ["env", *words, *packets.python("rdmadiag.lab.interpose")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rdmadiag", "lab", "exec", lab.name, "--host", topology.SWITCH, "--", *inside],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is for us; it ends when its input does
        )
        self._last: dict[str, Any] | None = None
        self._rest = b""
        with contextlib.ExitStack() as unless_running:
            unless_running.callback(self._end)
            unless_running.callback(self._process.kill)
            self.pid = int(self._ask(plan)["pid"])
            unless_running.pop_all()

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout and self._process.stderr
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # what it said last tells why
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout and self._process.stderr
        deadline = time.monotonic() + ANSWER_SECONDS
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise LabError(f"lab {self.lab.name}: in-flight changes gave no answer within {ANSWER_SECONDS:g} s")
            part = self._process.stdout.read1(65536)  # type: ignore[attr-defined]
            if not part:
                said = self._process.stderr.read().decode(errors="replace").strip()[-500:]
                raise LabError(
                    f"lab {self.lab.name}: the program of the in-flight changes ended{': ' * bool(said)}{said}"
                )
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LabError(f"lab {self.lab.name}: in-flight changes: {answer['error']}")
        return answer

    def counts(self) -> dict[str, Any]:
        """Return what was done so far, or after the end what was done at all: `rdmadiag.inflight/1`.

        Of each change: `seen` packets that met its conditions, `matched` chosen of them, `done`, `missed` (no such field), `bytes`
        of the matched; `where` it is done. Of the program: packets that `visited` it, `sent` on, not taken by a full queue of the
        port (`queue_full`), `lost` because it was too slow.
        """
        return self._last if self._last is not None else self._ask({"do": "counts"})

    def count(self, name: str) -> dict[str, Any]:
        """Return the counts of one change."""
        for entry in self.counts()["changes"]:
            if entry["name"] == name:
                return dict(entry)
        raise BadInput(f"no in-flight change {name!r}")

    def release(self, name: str = "") -> dict[str, Any]:
        """Send what `hold` kept back, of one change or of all, and hold no more. Returns the counts."""
        return self._ask({"do": "release", "name": name})

    def stop(self) -> dict[str, Any]:
        """Take the changes away and return the last counts; may be called twice. Raises LabError when the program had died."""
        if self._last is None:
            assert self._process.stdin
            try:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
                self._last = self._answer()
            finally:
                self._end()
        return self._last

    def _end(self) -> None:
        assert self._process.stdout and self._process.stderr and self._process.stdin
        try:
            self._process.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@contextlib.contextmanager
def changes(lab: Lab, wanted: Sequence[dict[str, Any]], accept: Sequence[str] = ()) -> Iterator[Running]:
    """Hold changes in a lab's switch for the length of a block; afterwards `counts` still answers."""
    running = Running(lab, wanted, accept)

    def give_up() -> None:
        with contextlib.suppress(LabError):  # the block's own error says more
            running.stop()

    with contextlib.ExitStack() as unless_whole:
        unless_whole.callback(give_up)
        yield running
        unless_whole.pop_all()
    running.stop()
