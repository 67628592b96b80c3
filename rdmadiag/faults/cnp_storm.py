"""Congestion notifications without congestion: a broken switch or adapter that slows a sender down."""

from rdmadiag.faults import Diagnosis, Moves, Plan, Target, Values
from rdmadiag.faults import _packets as packets

TITLE = "Forged CNPs to a sender"
REACH = "switch"
PARAMETERS = (packets.victim("h2"), packets.RATE, packets.MOST)
SIGNS = (
    "an adapter counts rp_cnp_handled and sends more slowly; it recovers some time after the storm",
    "rxe drops opcode 0x81 and counts nothing: with the lab's agents (fault dcqcn) a storm slows a sender, without them it does not",
    "the host's kernel counts InECT0Pkts: CNPs are ECN-capable",
)
_PROBE = """names=
while read -r key rest; do
if [ "$key" = IpExt: ] && [ -z "$names" ]; then names=$rest
elif [ "$key" = IpExt: ]; then set -- $rest; for n in $names; do [ $n = InECT0Pkts ] && echo "probe InECT0Pkts $1"; shift; done; fi
done < /proc/net/netstat"""
DIAGNOSIS = Diagnosis(
    ("wire-cnp-never-sent",),
    "CNPs come to the sender that its peer never sent, as the captures of both ends show",
    parameters={"victim": "h1"},
)


def plan(target: Target, values: Values) -> Plan:
    """Send CNPs to the QP numbers that ACKs to the host name."""
    return packets.plan(target, values, "cnp", {}, Moves("file", ("InECT0Pkts", "rp_cnp_handled"), probe=_PROBE))
