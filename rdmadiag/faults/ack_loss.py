"""Only ACKs and NAKs are lost; data arrives: a way back that is worse than the way there."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path
from rdmadiag.lab.pattern import randomly

TITLE = "A share of ACKNOWLEDGE packets is lost"
REACH = "path"
PARAMETERS = (
    Parameter("percent", 20.0, "share of ACKNOWLEDGE packets that are lost", "%", 0.01, 100),
    path.SEED,
    *path.BETWEEN,
)
SIGNS = (
    "a later ACK makes up for a lost one; for the last one of a message the requester's timer ends the wait: completer_retry_err",
    "responder: duplicate_request; the data was there the first time",
    "no out_of_seq_request: nothing was missing at the responder",
)
DIAGNOSIS = Diagnosis(
    ("wire-only-answers-lost",),
    "Acknowledgements go in at one end and do not come out at the other, and all other packets do",
)


def plan(target: Target, values: Values) -> Plan:
    """Drop RC ACKNOWLEDGE (opcode 0x11) at the ingress."""
    match = f"{path.ROCE} {path.OPCODE} 0x11"
    pattern = randomly(values["percent"] / 100, values["seed"])
    moves = Moves("counter", ("duplicate_request", "completer_retry_err", "local_ack_timeout_err"))
    return path.table_plan(target, path.ingress(target, values, match, "drop", pattern), moves)
