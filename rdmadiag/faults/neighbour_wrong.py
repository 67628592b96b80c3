"""A host believes that its peer has another MAC address: a stale neighbour entry after a failover, a duplicate address."""

from rdmadiag.errors import BadInput
from rdmadiag.faults import Change, Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _host as host

TITLE = "The host's neighbour entry of its peer is wrong"
REACH = "netdev"
PARAMETERS = (host.HOST, Parameter("peer", "", "IPv4 address of the peer; empty: the first other host of the lab"))
EXAMPLE = {"peer": "192.0.2.9"}
SIGNS = (
    "all that the host sends to the peer goes nowhere: completer_retry_err, then WC 12; what it receives still arrives",
    "`ip neigh` shows a MAC address that the peer does not have",
)
_MAC = "02:00:de:ad:be:ef"
DIAGNOSIS = Diagnosis(
    ("neighbour-address-wrong",),
    "The neighbour table has a MAC address that the peer, whose own addresses are in the evidence, does not have",
)


def plan(target: Target, values: Values) -> Plan:
    """Put a permanent entry with a MAC address that nobody has in the place of the learned one; a permanent one of others is left alone."""
    cable = host.cable(target, values)
    others = [one.address for one in target.cables if one.host != cable.host]
    peer = values["peer"].strip() or (others[0] if others else "")
    if not peer or not all(part.isdecimal() for part in peer.split(".")) or peer.count(".") != 3:
        raise BadInput(f"--peer {peer!r}; wanted an IPv4 address")
    name, here = cable.netdev, f"ip neigh show {peer} dev {cable.netdev}"
    change = Change(
        f"neighbour {peer} of {name} at {_MAC}",
        doing=f"if {here} | grep -E 'PERMANENT|NOARP' >&2; then false; fi\nip neigh replace {peer} lladdr {_MAC} nud permanent dev {name}",
        undoing=f"ip neigh del {peer} dev {name}",
        test=f"{here} | grep -q '{_MAC} PERMANENT'",
    )
    return host.plan(target, values, (change,), host.SILENCE, (name,))
