"""Requests arrive a second time, later: what an attacker or a loop in the network does."""

from rdmadiag.faults import Diagnosis, Moves, Plan, Target, Values
from rdmadiag.faults import _packets as packets

TITLE = "Requests to a responder are sent again, bit by bit"
REACH = "switch"
PARAMETERS = (packets.victim("h1"), packets.RATE, packets.MOST)
SIGNS = (
    "responder: duplicate_request, an ACK for each; memory is written once and atomics take effect once",
    "nothing is slower, no completion fails",
)
DIAGNOSIS = Diagnosis(
    ("wire-packets-replayed",),
    "The receiver's capture has packets again, milliseconds later, that the sender's has once",
    parameters={"victim": "h2"},
)


def plan(target: Target, values: Values) -> Plan:
    """Send again what has just gone to the host."""
    return packets.plan(target, values, "replay", {}, Moves("counter", ("duplicate_request",)))
