"""A host's IP address goes, and with it the RoCE v2 GID made from it: a DHCP lease that ended, a manager that reconfigured."""

from rdmadiag.faults import Change, Diagnosis, Moves, Plan, Refused, Target, Values
from rdmadiag.faults import _host as host

TITLE = "The host's IP address, and so its GID, is removed"
REACH = "host"
PARAMETERS = (host.HOST,)
SIGNS = (
    "the GID table has a hole: event GID_CHANGE; a new queue pair with that gid_index cannot be made (EINVAL)",
    "the peer's packets are not for this host any more: completer_retry_err, then WC 12 on the peer",
)
DIAGNOSIS = Diagnosis(
    ("no-routable-gid",), "The netdev of the RDMA device has no address any more: the node says so itself"
)


def plan(target: Target, values: Values) -> Plan:
    """Delete the address; its prefix and broadcast address are written down before."""
    cable = host.cable(target, values)
    if not cable.address:
        raise Refused(f"netdev {cable.netdev} has no IPv4 address")
    name, word = cable.netdev, f" inet {cable.address}/"
    here = f"ip -o -4 addr show dev {name}"
    change = Change(
        f"{cable.address} off {name}",
        doing=f"""{host.write_address_down(name, cable.address)}
read -r index netdev family address rest < address
ip addr del $address dev {name}""",
        undoing=host.add_address_again(name),
        test=f"[ -s address ] && ! {here} | grep -q '{word}'",
    )
    probe = """n=0
for f in /sys/class/infiniband/*/ports/*/gids/*; do
read -r g 2>/dev/null < $f && [ $g != 0000:0000:0000:0000:0000:0000:0000:0000 ] && n=$((n+1))
done
echo probe gids $n"""
    return host.plan(target, values, (change,), Moves("file", ("gids",), probe=probe), (name,))
