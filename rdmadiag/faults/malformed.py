"""Packets with something wrong in their headers: broken senders, bit errors behind a check."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _packets as packets
from rdmadiag.roce.forge import MALFORMED

TITLE = "Malformed packets to a responder"
REACH = "switch"
PARAMETERS = (
    packets.victim("h1"),
    Parameter("kind", "middle-first", "what is wrong in them", choices=tuple(MALFORMED)),
    packets.RATE,
    packets.MOST,
)
SIGNS = tuple(f"{kind}: {told}" for kind, (told, _) in MALFORMED.items())
_SILENT = ("icrc", "tver", "reserved-opcode", "other-transport", "short-bth", "short-reth", "udp-length", "pad-count")
_DROPS = """n=0
while read -r key rest; do [ "$key" = Udp: ] && n=$rest; done < /proc/net/snmp
set -- $n
while read -r key rest; do [ "$key" = Ip: ] && ip=$rest; done < /proc/net/snmp
echo probe udp_in_errors $3
set -- $ip
echo probe ip_in_header_errors $4
for f in /sys/class/net/*/statistics/rx_packets; do d=${f#/sys/class/net/}; read -r p < $f && echo probe ${d%%/*}_rx_packets $p; done"""
DIAGNOSIS = Diagnosis(
    (
        "wire-broken-request-never-sent",
        "wire-opcode-order",
        "wire-malformed",
    ),
    "The capture at the responder shows requests that no requester may send so, and the requester's own does not have them",
    parameters={"victim": "h2"},
)


def plan(target: Target, values: Values) -> Plan:
    """Send one with the PSN that is due, behind a request that goes to the host."""
    moves = packets.ERRORS
    if values["kind"] in _SILENT:  # the receiver counts nothing; that packets came in is all there is to see
        moves = Moves("file", ("udp_in_errors",), probe=_DROPS)
    return packets.plan(target, values, "malformed", {"kind": values["kind"]}, moves)
