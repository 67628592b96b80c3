"""Congestion notifications without congestion: a broken switch or adapter that slows a sender down."""

from rdmadiag.faults import Diagnosis, Moves, Plan, Target, Values
from rdmadiag.faults import _packets as packets
from rdmadiag.faults import _path as path

TITLE = "Forged CNPs to a sender"
REACH = "switch"
PARAMETERS = (packets.victim("h2"), packets.RATE, packets.MOST)
SIGNS = (
    "an adapter counts rp_cnp_handled and sends more slowly; it recovers some time after the storm",
    "rxe drops opcode 0x81 and counts nothing: with the lab's agents (fault dcqcn) a storm slows a sender, without them it does not",
    "the host's kernel counts InECT0Pkts: CNPs are ECN-capable",
)
DIAGNOSIS = Diagnosis(
    ("wire-cnp-never-sent",),
    "CNPs come to the sender that its peer never sent, as the captures of both ends show",
    parameters={"victim": "h1"},
)


def plan(target: Target, values: Values) -> Plan:
    """Send CNPs to the QP numbers that ACKs to the host name."""
    return packets.plan(
        target, values, "cnp", {}, Moves("file", ("InECT0Pkts", "rp_cnp_handled"), probe=path.netstat("InECT0Pkts"))
    )
