"""A switch port has next to no buffer: bursts that it took before now overflow."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path

TITLE = "A switch port's queue is short; what does not fit is dropped"
REACH = "switch"
PARAMETERS = (
    Parameter("bytes", 16000, "bytes that may wait at each port", "bytes", 4300, 1 << 30),
    *path.BETWEEN,
)
SIGNS = (
    "loss only while bursts arrive faster than the port sends: out_of_seq_request, rcvd_seq_err, completer_retry_err",
    "the port counts what it dropped; at a low rate nothing is lost",
)
DIAGNOSIS = Diagnosis(
    (
        "wire-tap-loss",
        "packet-loss-on-path",
    ),
    "Packets are lost between the ends; that a short queue threw them away only its device knows",
    parameters={"bytes": 9000},
)


def plan(target: Target, values: Values) -> Plan:
    """Put a short queue in place of the port's own, for packets that the leased gate sends there."""
    qdisc = f"bfifo limit {values['bytes']}"
    return path.detour(target, values, qdisc, Moves("counter", path.RETRANSMISSION), 0.1, hits=("dropped",))
