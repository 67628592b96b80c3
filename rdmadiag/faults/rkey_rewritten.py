"""A requester sends the right rkey, and another one arrives: what a stale or damaged key looks like at the peer."""

from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _inflight as inflight

TITLE = "The rkey of a WRITE or READ is another one when it arrives (valid ICRC)"
REACH = "switch"
PARAMETERS = (
    Parameter("rkey", 0xBAD0BAD, "rkey with which it arrives", "", 0, 2**32 - 1),
    inflight.NTH,
    inflight.TIMES,
    inflight.FROM,
    inflight.TO,
)
SIGNS = (
    "responder: NAK 0x62 (remote access), its QP in ERR, memory untouched; rxe counts none of it",
    "requester: WC 10 REM_ACCESS_ERR, WC 5 for the rest, QP in ERR; mlx5: req_remote_access_errors",
    "the path is fine: no retry, no timer; a capture at the requester shows the right rkey",
)
DIAGNOSIS = Diagnosis(
    ("wire-key-rewritten",),
    "Captures at both ends: the same request has another R_Key when it comes",
    parameters={"times": 20},
)


def plan(target: Target, values: Values) -> Plan:
    """Rewrite the RETH of the n-th WRITE FIRST, WRITE ONLY or READ request, and make the ICRC valid again."""
    match = {"opcode": [0x06, 0x0A, 0x0B, 0x0C], "occurrence": inflight.from_nth(values)}
    action = {"do": "rewrite", "set": {"rkey": values["rkey"]}}
    return inflight.plan(target, values, match, action, "rewrites the rkey of requests")
