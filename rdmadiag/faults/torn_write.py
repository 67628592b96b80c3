"""The first packets of a WRITE are written, its last one is refused: the receiver's memory holds half of it."""

from rdmadiag.faults import Diagnosis, Plan, Target, Values
from rdmadiag.faults import _inflight as inflight

TITLE = "A WRITE of several packets stays torn: all but its last packet arrive, that one is refused"
REACH = "switch"
PARAMETERS = (inflight.NTH, inflight.TIMES, inflight.FROM, inflight.TO)
SIGNS = (
    "responder: NAK 0x61 (invalid request: a SEND in the middle of a WRITE), its QP in ERR; the WRITE's first packets are in its memory",
    "requester: WC 9 REM_INV_REQ_ERR, WC 5 for the rest, QP in ERR; mlx5: req_remote_invalid_request",
    "rxe counts none of it; only whoever compares contents sees that the data is torn",
)
DIAGNOSIS = Diagnosis(
    ("wire-opcode-rewritten",),
    "Captures at both ends: the same packet has another opcode when it comes",
    parameters={"times": 20},
)


def plan(target: Target, values: Values) -> Plan:
    """Make a SEND LAST of the n-th WRITE LAST: the same headers, out of turn (IBA vol 1, 9.7.4.1.2)."""
    match = {"opcode": [0x08], "occurrence": inflight.from_nth(values)}
    return inflight.plan(
        target, values, match, {"do": "rewrite", "set": {"opcode": 0x02}}, "makes a SEND LAST of a WRITE LAST"
    )
