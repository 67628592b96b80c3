"""A host's link is taken down by its own kernel: `ip link set down`, a driver that gives up, a bond that fails over."""

from rdmadiag.faults import Change, Diagnosis, Plan, Target, Values
from rdmadiag.faults import _host as host

TITLE = "The host's netdev is down"
REACH = "netdev"
PARAMETERS = (host.HOST,)
SIGNS = (
    "the RDMA port is DOWN: event PORT_ERR, link_downed on rxe; the GIDs stay",
    "work in flight: completer_retry_err or send_err, then WC 12",
)
DIAGNOSIS = Diagnosis(("port-not-active", "carrier-lost-now", "link-downed"), "The port says itself that it is down")


def plan(target: Target, values: Values) -> Plan:
    """Take the netdev down; what the kernel drops with it (routes, IPv6 addresses) is written down before and put back."""
    name = host.cable(target, values).netdev
    is_up = f"ip -o link show dev {name} | grep -q '[<,]UP[,>]'"
    change = Change(
        f"{name} down",
        doing=f"""{is_up} || {{ echo '{name} is down already' >&2; false; }}
{host.no_foreign_routes(name)}
for f in 4 6; do ip -$f route show dev {name} > routes$f; done
ip -o -6 addr show dev {name} scope global > addresses6
ip link set {name} down""",
        undoing=f"""ip link set {name} up
while read -r index netdev family address rest; do ip -6 addr add $address dev {name} nodad 2>/dev/null || true; done < addresses6
for f in 4 6; do while read -r route; do ip -$f route append ${{route% linkdown}} dev {name} 2>/dev/null || true; done < routes$f; done""",
        test=f"! {is_up}",
    )
    return host.plan(target, values, (change,), host.SILENCE, (name,))
