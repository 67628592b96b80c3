"""A port stops sending again and again, and loses nothing: what a storm of PFC pause frames does to its peer's port."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path

TITLE = "A switch port's egress stops in pulses, without loss"
REACH = "switch"
PARAMETERS = (
    Parameter("ms", 50.0, "length of each stop", "ms", 1, 5000),
    Parameter("bytes", 65536, "bytes that pass between two stops", "bytes", 4300, 1 << 30),
    Parameter("limit", 20000, "packets that may wait meanwhile", "packets", 10, 1000000),
    *path.BETWEEN,
)
SIGNS = (
    "throughput falls to bytes in each length; an ICMP echo takes up to a whole stop longer",
    "nothing is lost: no out_of_seq_request; stops longer than the QP's timeout give completer_retry_err and duplicate_request",
    "there are no real pause frames here, so no pause counter moves",
)
DIAGNOSIS = Diagnosis(
    ("wire-path-stops",),
    "Captures at both ends: what is sent together comes out in pulses, and none is lost",
    parameters={"ms": 100.0, "bytes": 10000},
    look_seconds=8.0,
)


def plan(target: Target, values: Values) -> Plan:
    """Stop by the slots of netem: after so many bytes nothing leaves for so long."""
    ms = values["ms"]
    qdisc = f"netem slot {ms:g}ms {ms:g}ms bytes {values['bytes']} limit {values['limit']}"
    cables = target.cables_of(values["destination"])
    most = len(cables) * (values["bytes"] + 9000) / (ms / 1000) * 1.25
    return path.detour(target, values, qdisc, Moves("rate", at_most=most), min(ms / 500, 2.0))
