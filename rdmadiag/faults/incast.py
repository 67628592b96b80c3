"""Several hosts send to one at once: its switch port gets more than it can pass on, and its queue stands."""

from __future__ import annotations

import errno
import json
import sys
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rdmadiag.errors import BadInput, RdmadiagError
from rdmadiag.faults import Moves, Parameter, Plan, Refused, Target, Values, Worker
from rdmadiag.faults import _path as path

if TYPE_CHECKING:
    from rdmadiag.verbs.endpoint import Endpoint

TITLE = "Other hosts write to one at once (incast): the switch's port to it is congested"
REACH = "switch"
PARAMETERS = (
    Parameter("source", "any", "host (or hosts, with commas) that sends; any: all but the destination"),
    Parameter("destination", "h2", "host to which they send"),
    Parameter("message", 16384, "bytes of each WRITE", "bytes", 64, 1 << 20),
    Parameter("outstanding", 4, "WRITEs that each sender keeps under way", "requests", 1, 64),
    Parameter("traffic_class", 2, "of the senders' packets; its lowest two bits are ECN (0: not capable)", "", 0, 255),
)
SIGNS = (
    "everything to that host waits in the port's queue: less throughput for each, longer answers",
    "in a lab with --ecn packets are marked CE: the receiver's kernel counts InCEPkts, and the fault dcqcn slows all senders to a share",
    "without marks the queue overflows, and the port drops: out_of_seq_request, rcvd_seq_err, completer_retry_err",
)
NOT_PROVEN = "prove's lab has two hosts, and one sender alone is no incast"
TELL_SECONDS = 0.5
TRIES = 5
TIMEOUT = 21
"""A resend after 8.6 s: a sender that is cut to its least rate still gets its answers in time."""


def plan(target: Target, values: Values) -> Plan:
    """Start one process that writes from every source, over queue pairs of its own. Raises BadInput, Refused."""
    from rdmadiag.lab import packets

    if target.apart:
        raise Refused(
            f"{target.title}: one process holds both ends of its queue pairs, and each of these hosts has devices of its own; "
            "it needs a lab of one kernel"
        )
    if len(target.hosts(values["destination"])) != 1:
        raise BadInput(f"--destination {values['destination']}; wanted one host")
    to = target.cables_of(values["destination"])[0]
    sources = [
        cable for cable in target.cables_of(values["source"]) if cable.host != to.host and cable.bridge == to.bridge
    ]
    if not sources:
        raise BadInput(f"--source {values['source']} is --destination; wanted another host, one at least")
    order = {"sources": [cable.device for cable in sources], "destination": to.device, "values": dict(values)}
    worker = Worker(
        f"a process that writes from {', '.join(cable.host for cable in sources)} to {to.host}",
        argv=(*packets.python("rdmadiag.faults.incast"), json.dumps(order)),
        name="incast",
        environment=tuple(packets.environment().items()),
    )
    # What the port does to a queue is its own: it marks where it can, and drops where it cannot.
    marks = " red " in target.queue and values["traffic_class"] & 3 in (1, 2)
    moves = (
        Moves("file", ("InCEPkts",), probe=path.netstat("InCEPkts")) if marks else Moves("counter", path.RETRANSMISSION)
    )
    alone = () if len(sources) > 1 else (f"only {sources[0].host} sends: a lab with --hosts 4 has more senders",)
    return Plan(
        place="",
        netdevs=(),
        steps=(worker,),
        hits=("written",),
        moves=moves,
        notes=alone,
        devices=tuple(cable.device for cable in target.cables),
    )


class Sender:
    """A connection from one device to another, over which WRITEs are under way as long as it is asked to go on."""

    def __init__(self, device: str, to: str, values: Values) -> None:
        """Connect. Raises VerbsError."""
        self.devices, self.values = (device, to), values
        self.connect()

    def connect(self) -> None:
        """Make both ends and connect them. Raises VerbsError."""
        from rdmadiag.verbs.errors import VerbsError

        for left in reversed(range(TRIES)):
            try:
                self._connect()
            except VerbsError as error:
                # To RTR the kernel asks for the peer's link address, and gives up after a second: no time, where a port is congested.
                if error.errno != errno.ETIMEDOUT or not left:
                    raise
            else:
                return

    def _connect(self) -> None:
        from rdmadiag.verbs.attributes import RcAttributes
        from rdmadiag.verbs.endpoint import Endpoint

        made = RcAttributes(timeout=TIMEOUT, retry_cnt=6, rnr_retry=7, traffic_class=self.values["traffic_class"])
        with ExitStack() as ends:
            one, two = (
                ends.enter_context(Endpoint(name, self.values["message"], made, depth=128)) for name in self.devices
            )
            one.connect(two.offer())
            two.connect(one.offer())
            self.end: Endpoint = one
            self.memory = two.offer().memory
            self.under_way = 0
            self.stack = ends.pop_all()

    def go_on(self, counts: Counter[str]) -> None:
        """Take what completed, and post as much again; after an error connect anew. Raises VerbsError."""
        done = self.end.cq.poll()
        self.under_way -= len(done)
        counts["written"] += sum(one.ok for one in done)
        if not all(one.ok for one in done):
            counts.update(one.status for one in done if not one.ok)
            counts["reconnects"] += 1
            self.stack.close()
            self.connect()
        more = self.values["outstanding"] - self.under_way
        if more > 0:
            self.end.qp.post([self.end.wr(self.memory, n, "RDMA_WRITE", self.values["message"]) for n in range(more)])
            self.under_way += more


def main() -> int:
    """Write until the process is ended: `python -m rdmadiag.faults.incast ORDER` (JSON)."""
    order: dict[str, Any] = json.loads(sys.argv[1])
    counts: Counter[str] = Counter(written=0)
    try:
        senders = [Sender(device, order["destination"], order["values"]) for device in order["sources"]]
        told = float("-inf")
        while True:
            for sender in senders:
                sender.go_on(counts)
            if time.monotonic() - told >= TELL_SECONDS:
                told = time.monotonic()
                sys.stdout.write(json.dumps(counts) + "\n")
                sys.stdout.flush()
            time.sleep(0.002)  # an emulated processor is not kept from the devices' own work
    except RdmadiagError as error:
        sys.stderr.write(f"rdmadiag: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
