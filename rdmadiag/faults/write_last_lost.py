"""The last packet of a chosen RDMA WRITE is lost: nothing behind it shows the gap, unless more follows."""

from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _inflight as inflight
from rdmadiag.faults import _path as path

TITLE = "The last packet of the n-th RDMA WRITE is lost"
REACH = "path"
PARAMETERS = (
    inflight.NTH,
    Parameter("times", 1, "how many one after another are lost from there on", "packets", 1, 2000),
    *path.BETWEEN,
)
SIGNS = (
    "another request behind it: out_of_seq_request and a NAK, and the WRITE's last packet again",
    "nothing behind it: no NAK; the requester's timer ends the wait: completer_retry_err (local_ack_timeout_err)",
    "the data up to there is in the responder's memory meanwhile; nobody there was told",
)
DIAGNOSIS = Diagnosis(
    ("wire-only-last-packets-lost",),
    "Captures at both ends: of all packets only the last ones of WRITEs are lost",
    parameters={"times": 4},
)
_NEVER_AGAIN = 4294967295


def plan(target: Target, values: Values) -> Plan:
    """Drop RDMA WRITE LAST (0x08, with immediate 0x09) by its number at the ingress; sent again it is the next number."""
    first = values["nth"] - 1
    pattern = (_NEVER_AGAIN, list(range(first, first + values["times"])))
    match = f"{path.ROCE} {path.OPCODE} {{ 0x08, 0x09 }}"
    return path.table_plan(target, path.ingress(target, values, match, "drop", pattern))
