"""Some packets arrive behind later ones: two ways of different length, as with packet spraying."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path
from rdmadiag.lab.pattern import randomly

TITLE = "A share of packets is overtaken by later ones"
REACH = "path"
PARAMETERS = (
    Parameter("percent", 2.0, "share of packets that take the longer way", "%", 0.01, 100),
    Parameter("ms", 5.0, "by which it is longer", "ms", 0.1, 1000),
    path.SEED,
    *path.BETWEEN,
)
SIGNS = (
    "responder: out_of_seq_request and a NAK though nothing was lost, then duplicate_request: go-back-N resends what arrives late",
    "requester: rcvd_seq_err",
)
DIAGNOSIS = Diagnosis(
    ("wire-packets-overtaken",),
    "Captures at both ends have the same packets in another order",
    parameters={"percent": 10.0},
)


def plan(target: Target, values: Values) -> Plan:
    """Send the chosen packets through a delay, and all others straight on."""
    pattern = randomly(values["percent"] / 100, values["seed"])
    moves = Moves("counter", ("out_of_seq_request", "rcvd_seq_err", "out_of_sequence", "packet_seq_err"))
    qdisc = f"netem delay {values['ms']:g}ms limit 20000"
    return path.detour(target, values, qdisc, moves, values["ms"] / 1000 + 0.05, pattern=pattern)
