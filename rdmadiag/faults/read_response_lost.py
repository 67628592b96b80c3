"""Only the answers to RDMA READs are lost: a way back that is worse than the way there, for a transfer that pulls."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path
from rdmadiag.lab.pattern import randomly

TITLE = "A share of RDMA READ responses is lost"
REACH = "path"
PARAMETERS = (
    Parameter("percent", 5.0, "share of READ response packets that are lost", "%", 0.01, 100),
    path.SEED,
    *path.BETWEEN,
)
SIGNS = (
    "the requester asks again from the first byte that is missing: a READ request with PSN and address advanced, not the first one again",
    "requester: completer_retry_err (mlx5: implied_nak_seq_err); responder: duplicate_request",
    "no out_of_seq_request and no NAK: every request arrived",
)
DIAGNOSIS = Diagnosis(
    ("wire-only-read-answers-lost",),
    "Captures at both ends: of all packets only READ answers are lost",
    parameters={"percent": 20.0},
)


def plan(target: Target, values: Values) -> Plan:
    """Drop RC READ responses (opcodes 0x0d to 0x10) at the ingress."""
    match = f"{path.ROCE} {path.OPCODE} {{ 0x0d, 0x0e, 0x0f, 0x10 }}"
    moves = Moves("counter", ("completer_retry_err", "duplicate_request", "local_ack_timeout_err"))
    pattern = randomly(values["percent"] / 100, values["seed"])
    return path.table_plan(target, path.ingress(target, values, match, "drop", pattern), moves)
