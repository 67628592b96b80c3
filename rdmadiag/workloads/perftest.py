"""perftest: bandwidth or latency of one verb. Its words for errors are its own, its content is not checked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rdmadiag.evidence.row import Line
from rdmadiag.sources.perftest import parse
from rdmadiag.workloads._contract import CLIENT, RDMA, SERVER, End, Note, Parameter, Setting

TITLE = "bandwidth or latency of WRITE, READ or SEND (linux-rdma/perftest)"
TESTS = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat")
PROGRAMS = {**dict.fromkeys(TESTS, "perftest"), "stdbuf": "coreutils"}
EXAMPLE = {"test": "ib_read_bw", "size": 1048576}
ENGINE = None
PARAMETERS = (
    Parameter("test", "ib_write_bw", "which program", TESTS),
    Parameter("size", 65536, "bytes of a message"),
    Parameter("seconds", 5.0, "how long, with a claim each second; 0: until it is stopped"),
    Parameter("iterations", 0, "so many messages instead, with one claim at the end"),
    Parameter("qps", 1, "queue pairs"),
    Parameter("depth", 128, "outstanding work requests (tx-depth); 0: perftest's own"),
    Parameter("mtu", 4096, "path MTU of the queue pairs"),
    Parameter("timeout", 14, "local ACK timeout, 4.096 us * 2^N"),
    Parameter("tcp_port", 18515, "TCP port on which the ends meet"),
)

_HEAD = re.compile(r"\s*#bytes\s+#iterations\s+(?P<columns>\S.*)$")
_ROW = re.compile(r"\s*\d{1,12}\s+\d{1,12}(?:\s+-?\d{1,15}(?:\.\d{1,9})?){1,8}\s*$")
_STATUS = re.compile(r"Failed status (?P<status>\d{1,3}): wr_id \d+ syndrom 0x(?P<syndrome>[0-9a-f]{1,8})")
_WAITING = re.compile(r"\* Waiting for client to connect")
_TROUBLE = re.compile(
    r"(?i)completion with error|failed|couldn't|could not|unable to|cannot|error|unexpected cm event|problems with warm up"
)


class Reader:
    """Reads what one end prints; `server` is ready when it waits, a client when its table begins.

    A row counts messages since the row before it (`--run_infinitely`), or all of them.
    """

    def __init__(self, server: bool) -> None:
        self.server, self.bytes, self.ready = server, 0, False
        self._head = ""

    def __call__(self, stream: int, line: str) -> Iterator[Note]:
        """Return the notes of a line."""
        if self.server and not self.ready and _WAITING.search(line):
            self.ready = True
            yield Note("ready", {"carrier": RDMA})
        elif _HEAD.match(line):
            self._head = line
            if not self.server:
                yield Note("ready", {"carrier": RDMA})
        elif self._head and _ROW.match(line):
            yield from self._row(line)
        elif match := _STATUS.search(line):
            status, syndrome = int(match["status"]), int(match["syndrome"], 16)
            yield Note("error", {"words": line.strip(), "status": status, "vendor_err": syndrome})
        elif _TROUBLE.search(line) and not line.lstrip().startswith(("WARNING", "Conflicting")):
            yield Note("error", {"words": line.strip()[:300], "status": None})

    def _row(self, line: str) -> Iterator[Note]:
        for row in parse([Line(1, self._head), Line(2, line)]):
            values = getattr(row, "values", {})
            size, count = values.get("size_bytes") or 0, values.get("iterations") or 0
            self.bytes += size * count
            yield Note("progress", {"bytes": self.bytes})
            for name in ("bandwidth_gbps", "latency_us", "latency_p99_us", "latency_max_us"):
                if name in values:
                    yield Note("metric", {"name": name, "value": values[name]})


def ends(setting: Setting) -> dict[str, End]:
    """Return how each end is started."""
    given = setting.parameters
    words = ["-s", str(given["size"]), "-m", str(given["mtu"]), "-u", str(given["timeout"]), "-F"]
    words += ["-p", str(given["tcp_port"])]
    latency = given["test"].endswith("_lat")
    seconds = 0.0
    if given["iterations"]:
        words += ["-n", str(given["iterations"])]
    elif latency:
        words += ["-D", str(max(1, round(given["seconds"])))]
    else:
        words += ["-D", "1", "--run_infinitely"]
        seconds = given["seconds"]
    if not latency:
        words += ["-q", str(given["qps"])]
        words += ["-t", str(given["depth"])] if given["depth"] else []
    made = {}
    for role, host, peer in ((SERVER, setting.server, []), (CLIENT, setting.client, [setting.server.plain_address])):
        # perftest's own buffer would hold READY back until its end.
        argv = ["stdbuf", "-oL", given["test"], "-d", host.device, "-i", str(host.port), "-x", str(host.gid_index)]
        stop = seconds if role == CLIENT else 0.0
        made[role] = End([*argv, *words, *peer], Reader(role == SERVER), seconds=stop)
    return made
