"""A request whose PSN is not the one that is due: a sender that lost count, or a stale packet of an older connection."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _packets as packets

TITLE = "Forged SENDs with a PSN ahead of, or behind, the one that is due"
REACH = "switch"
PARAMETERS = (
    packets.victim("h1"),
    Parameter("by", 1000, "PSNs ahead; negative: behind", "", -(2**22), 2**22),
    packets.RATE,
    packets.MOST,
)
SIGNS = (
    "ahead: out_of_seq_request and one NAK 0x60 with the PSN that is due; the requester resends from there",
    "behind: duplicate_request and an ACK",
)
DIAGNOSIS = Diagnosis(
    ("wire-psn-never-sent",),
    "Requests come with PSNs that are far off, and the requester's capture does not have them",
    parameters={"victim": "h2"},
)


def plan(target: Target, values: Values) -> Plan:
    """Send one behind a request that goes to the host."""
    return packets.plan(
        target, values, "psn-jump", {"by": values["by"]}, Moves("counter", ("out_of_seq_request", "duplicate_request"))
    )
