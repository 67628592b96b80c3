"""Packets arrive later: a longer way, or a queue somewhere."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path

TITLE = "Packets are delayed"
REACH = "path"
PARAMETERS = (
    Parameter("ms", 10.0, "time added to each packet", "ms", 0.1, 10000),
    Parameter("limit", 20000, "packets that may wait; more are dropped", "packets", 10, 1000000),
    *path.BETWEEN,
)
SIGNS = (
    "throughput of a window-limited sender falls; an ICMP echo takes longer by it",
    "longer than the QP's timeout: completer_retry_err at the requester, duplicate_request at the responder, no loss",
)
DIAGNOSIS = Diagnosis(
    ("wire-path-slow",),
    "Captures at both ends show that packets take milliseconds between them, all about as many, and none is lost",
    look_seconds=8.0,
)


def plan(target: Target, values: Values) -> Plan:
    """Delay by netem behind a leased gate."""
    ms = values["ms"]
    qdisc = f"netem delay {ms:g}ms limit {values['limit']}"
    return path.detour(target, values, qdisc, Moves("rtt", at_least=ms / 2), ms / 1000 + 0.05)
