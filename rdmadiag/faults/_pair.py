"""The process that is a verbs fault: `python -m rdmadiag.faults._pair ORDER` (JSON), in the injection's folder on the node.

It prints one JSON object a misuse: how many there were, completions by status, and what the fault itself counts. `own.pid` and `before`
are for the second proof, `verbs.log` is what any program would have logged of the same.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from rdmadiag.errors import RdmadiagError
from rdmadiag.faults._verbs import LOG, OPCODES
from rdmadiag.verbs.attributes import RcAttributes
from rdmadiag.verbs.cq import Completion
from rdmadiag.verbs.endpoint import Endpoint
from rdmadiag.verbs.errors import VerbsError
from rdmadiag.verbs.mr import ALL_ACCESS
from rdmadiag.verbs.posting import Wr

LENGTH = 1 << 16
"""Memory of each end [bytes]."""
ATTRIBUTES = RcAttributes(timeout=18, retry_cnt=6, rnr_retry=6)
"""A resend here takes 1 s: answers come first, also on a busy emulated host."""
SOON = RcAttributes(timeout=10, retry_cnt=2, rnr_retry=6)
"""Gives up on a peer that does not answer after some milliseconds (on rxe: tens of them)."""
_Made = TypeVar("_Made", bound=AbstractContextManager[Any])


class Pair:
    """Two devices; each misuse makes its own ends on them, which live until the next one has acted."""

    def __init__(self, devices: tuple[str, str]) -> None:
        self.devices = devices
        self.counts: Counter[str] = Counter(misuses=0)
        self._kept, self._log = contextlib.ExitStack(), Path(LOG)

    def again(self, act: Any, values: Mapping[str, Any]) -> None:
        """Misuse once; then what the time before has left is closed."""
        old, self._kept = self._kept, contextlib.ExitStack()
        with old:
            act(self, values)
        self.counts["misuses"] += 1

    def keep(self, made: _Made) -> _Made:
        """Keep something open until the next misuse has acted."""
        self._kept.push(made)
        return made

    # --- ends ---

    def ends(
        self,
        attributes: RcAttributes = ATTRIBUTES,
        theirs: RcAttributes | None = None,
        access: tuple[str, ...] = ALL_ACCESS,
    ) -> tuple[Endpoint, Endpoint]:
        """Return the sending and the other end, not connected; `theirs` and `access` are the other one's."""
        one = self.keep(Endpoint(self.devices[0], LENGTH, attributes, depth=64))
        two = self.keep(Endpoint(self.devices[1], LENGTH, theirs or attributes, depth=64, access=access))
        return one, two

    def connected(
        self, attributes: RcAttributes = ATTRIBUTES, theirs: RcAttributes | None = None
    ) -> tuple[Endpoint, Endpoint]:
        """Return two connected ends."""
        one, two = self.ends(attributes, theirs)
        one.connect(two.offer())
        two.connect(one.offer())
        return one, two

    def request(self, one: Endpoint, two: Endpoint, operation: str, length: int = 64) -> Wr:
        """Return a request of one end to the other's memory, as it should be."""
        return one.wr(two.offer().memory, 1, OPCODES[operation], 8 if operation == "atomic" else length)

    # --- what came of it ---

    def take(self, end: Endpoint, count: int = 1, seconds: float = 20.0) -> list[Completion]:
        """Wait for completions, count them by status and log those that failed; return what came in time."""
        found: list[Completion] = []
        limit = time.monotonic() + seconds
        while len(found) < count and time.monotonic() < limit:
            found += end.cq.wait(max(0.0, limit - time.monotonic()))
        for one in found:
            self.counts[one.status] += 1
            if not one.ok:
                name = f"{end.device.name}: QP {one.qpn}: work request {one.wr_id}"
                self.log(f"{name} ended with {one.status}, vendor syndrome {one.vendor_err:#x}")
        return found

    def refused(self, error: VerbsError) -> None:
        """Count and log a call that was refused."""
        self.counts["refused"] += 1
        self.log(str(error))

    def log(self, text: str) -> None:
        """Log a line, as any program would."""
        with self._log.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")

    def tell(self) -> None:
        """Print what was counted so far."""
        sys.stdout.write(json.dumps(self.counts) + "\n")
        sys.stdout.flush()


def main() -> int:
    """Misuse until the process is ended."""
    order = json.loads(sys.argv[1])
    module = importlib.import_module(f"rdmadiag.faults.{order['fault']}")
    values, pair = order["values"], Pair(tuple(order["devices"]))
    Path("own.pid").write_text(f"{os.getpid()}\n")
    Path("before").write_text("".join(f"probe {name} 0\n" for name in order["probes"]))
    try:
        pair.again(module.act, values)
    except RdmadiagError as error:  # before the first line, so that the fault is not in force
        sys.stderr.write(f"rdmadiag: {error}\n")
        return 2
    said = ""
    while True:
        pair.tell()
        time.sleep(values["every_ms"] / 1000)
        try:
            pair.again(module.act, values)
        except RdmadiagError as error:
            # The path may be broken meanwhile, by another fault or by itself; what is new is logged once.
            pair.counts["not_done"] += 1
            if str(error) != said:
                said = str(error)
                pair.log(said)


if __name__ == "__main__":
    sys.exit(main())
