"""A host loses its routes over one netdev, while the address stays: a routing daemon's mistake."""

from rdmadiag.faults import Change, Diagnosis, Plan, Target, Values
from rdmadiag.faults import _host as host

TITLE = "The host's IPv4 routes over its RDMA netdev are gone"
REACH = "netdev"
PARAMETERS = (host.HOST,)
SIGNS = (
    "rxe finds no way to send: work in flight ends with WC 2 (LOC_QP_OP_ERR) or 12, send_err; a new connection cannot resolve",
    "the netdev, its address and the GID are there: only the routing table tells",
)
DIAGNOSIS = Diagnosis(
    ("connected-route-missing",), "The netdev has an address, and the routing table has no way over it"
)


def plan(target: Target, values: Values) -> Plan:
    """Delete the routes; the list is written down before, and put back from the last to the first."""
    name = host.cable(target, values).netdev
    here = f"ip -4 route show dev {name}"
    change = Change(
        f"IPv4 routes over {name} gone",
        doing=f"{host.no_foreign_routes(name)}\n{here} > routes4\n[ -s routes4 ]\nip -4 route flush dev {name} table main",
        undoing=f"while read -r route; do ip -4 route append ${{route% linkdown}} dev {name} 2>/dev/null || true; done < routes4",
        test=f"[ -s routes4 ] && [ $({here} | wc -l) -lt $(wc -l < routes4) ]",
    )
    return host.plan(target, values, (change,), host.SILENCE, (name,))
