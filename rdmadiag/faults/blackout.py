"""Nothing passes any more, while every link stays up: a switch that blackholes."""

from rdmadiag.faults import Diagnosis, Moves, Plan, Target, Values
from rdmadiag.faults import _path as path

TITLE = "All packets are lost; links stay up"
REACH = "path"
PARAMETERS = path.BETWEEN
SIGNS = (
    "requester: completer_retry_err, then retry_exceeded_err, WC 12 RETRY_EXC and WC 5 for the rest, QP in ERR",
    "retry_cnt 7 on rxe: resends without end, nothing but completer_retry_err",
    "shorter than the retry budget: work goes on after it by itself",
)
DIAGNOSIS = Diagnosis(
    ("wire-path-cut",),
    "Captures at both ends show that from some moment on nothing that one sends comes to the other; what cut it lies between",
)


def plan(target: Target, values: Values) -> Plan:
    """Drop everything at the ingress."""
    moves = Moves("counter", ("completer_retry_err", "retry_exceeded_err", "local_ack_timeout_err"), silent=True)
    return path.table_plan(target, path.ingress(target, values, "", "drop"), moves)
