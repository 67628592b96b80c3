"""RNR NAKs that the responder never sent: a requester waits though receives are there."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _packets as packets

TITLE = "Forged RNR NAKs to a requester"
REACH = "switch"
PARAMETERS = (
    packets.victim("h2"),
    Parameter("timer", 14, "code of the time to wait (IBA vol 1, table 45)", "", 0, 31),
    packets.RATE,
    packets.MOST,
)
SIGNS = (
    "requester: rcvd_rnr_err, and more than rnr_retry of them: retry_rnr_exceeded_err, WC 13, QP in ERR",
    "responder: no send_rnr_err, for it sent none",
)
DIAGNOSIS = Diagnosis(
    ("wire-rnr-never-sent",),
    "RNR NAKs come to the requester that its peer never sent, as the captures of both ends show",
    parameters={"victim": "h1"},
)


def plan(target: Target, values: Values) -> Plan:
    """Send an RNR NAK behind an ACK that goes to the host."""
    moves = Moves("counter", ("rcvd_rnr_err", "retry_rnr_exceeded_err", "rnr_nak_retry_err"))
    return packets.plan(target, values, "rnr-nak", {"timer": values["timer"]}, moves)
