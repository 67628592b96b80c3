"""A switch port has next to no buffer: bursts that it took before now overflow."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path

TITLE = "A switch port's queue is short; what does not fit is dropped"
REACH = "switch"
PARAMETERS = (
    Parameter("bytes", 16000, "bytes that may wait at each port", "bytes", 4300, 1 << 30),
    Parameter("mbit", 0.0, "rate at which the port sends meanwhile; 0: its own", "Mbit/s", 0, 100000),
    *path.BETWEEN,
)
SIGNS = (
    "loss only while bursts arrive faster than the port sends: out_of_seq_request, rcvd_seq_err, completer_retry_err",
    "an emulated sender hardly ever does (125 Mbit/s in a burst, the port 200): --mbit",
    "the port counts what it dropped; at a low rate nothing is lost",
)
LARGEST = 4300
"""A bucket that lets one packet of path MTU 4096 pass [bytes]."""
DIAGNOSIS = Diagnosis(
    ("wire-queue-overflows",),
    "Captures at both ends: several packets in a row are lost, and those that pass have waited",
    # An emulated sender's bursts come at 125 Mbit/s: the port's own 200 never make them wait, and nothing would be dropped.
    parameters={"bytes": 9000, "mbit": 40.0},
    workload={"size": 65536},
    look_seconds=8.0,
)


def plan(target: Target, values: Values) -> Plan:
    """Put a short queue in place of the port's own, for packets that the leased gate sends there."""
    qdisc = f"bfifo limit {values['bytes']}"
    if values["mbit"]:
        qdisc = f"tbf rate {int(values['mbit'] * 1e6)}bit burst {LARGEST} limit {values['bytes']}"
    return path.detour(target, values, qdisc, Moves("counter", path.RETRANSMISSION), 0.1, hits=("dropped",))
