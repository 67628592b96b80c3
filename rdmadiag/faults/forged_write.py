"""A WRITE with a bad rkey that the requester never sent: it kills the connection at the responder."""

from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _packets as packets

TITLE = "Forged RDMA WRITEs with a bad rkey to a responder"
REACH = "switch"
PARAMETERS = (
    packets.victim("h1"),
    Parameter("rkey", 0xBAD0BAD, "rkey in it", "", 0, 2**32 - 1),
    Parameter("va", 0, "address in it", "", 0, 2**64 - 1),
    packets.RATE,
    packets.MOST,
)
SIGNS = (
    "responder: its QP goes to ERR and is silent; the requester's QP stays RTS and gets no answer: completer_retry_err, then WC 12",
    "with retry_cnt 7 on rxe the requester resends without end",
    "memory is untouched: the rkey is no good",
)
DIAGNOSIS = Diagnosis(
    ("wire-request-never-sent",),
    "Requests come to the responder that its peer never sent, as the captures of both ends show",
    parameters={"victim": "h2"},
)


def plan(target: Target, values: Values) -> Plan:
    """Send a WRITE with the PSN that is due, behind a request that goes to the host."""
    return packets.plan(target, values, "write", {"rkey": values["rkey"], "va": values["va"]}, packets.ERRORS)
