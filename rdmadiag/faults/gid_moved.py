"""A host's GID gets another index: its address went and came back while the old entry of the table was taken or still held."""

from rdmadiag.faults import Change, Diagnosis, Moves, Plan, Refused, Target, Values
from rdmadiag.faults import _host as host

TITLE = "The host's GID moves to another index of the GID table"
REACH = "host"
PARAMETERS = (host.HOST,)
SIGNS = (
    "GID_CHANGE events; the GID is in the table, under another index",
    "a program with the old index pinned (NCCL_IB_GID_INDEX, MC_GID_INDEX, ib_write_bw -x): EINVAL, or another address's GID",
    "queue pairs that are there answer nobody while the address is away",
    "SoftRoCE's that wait it out go on: it looks for the GID, not for its index",
)
DIAGNOSIS = Diagnosis(
    ("gid-moved-since", "gid-index-differs-between-nics"),
    "The GID is under another index than in the bundle from before, and than on the node's other adapters",
)
SPARE = "192.0.2.91"
"""Takes the free entry meanwhile; of TEST-NET-1 (RFC 5737), which nobody has."""


def plan(target: Target, values: Values) -> Plan:
    """Take the address off, let another one have its entry, and put it back; to undo it, the same until it has its index again."""
    cable = host.cable(target, values)
    if not cable.address:
        raise Refused(f"netdev {cable.netdev} has no IPv4 address")
    name, here = cable.netdev, f"ip -o -4 addr show dev {cable.netdev}"
    octets = ":".join(f"{a:02x}{b:02x}" for a, b in _pairs(cable.address))
    gid = f"0000:0000:0000:0000:0000:ffff:{octets}"
    index = f"""at() {{
for f in /sys/class/infiniband/{cable.device}/ports/*/gids/*; do
read -r g 2>/dev/null < $f && [ $g = {gid} ] && echo ${{f##*/}} && return
done
true
}}
wait_for() {{
n=0
until at=$(at); [ -n "$at" ] && [ $at $1 $(cat index) ]; do n=$((n+1)); [ $n -le $2 ] || return 1; sleep 0.1; done
}}
"""
    again = host.add_address_again(name)
    away = f"read -r number netdev family address rest < address\nip addr del $address dev {name}"
    change = Change(
        f"{cable.address} off {name} and on again, behind {SPARE}: its GID gets another index",
        doing=f"""{index}{host.write_address_down(name, cable.address)}
at > index
[ -s index ] || {{ echo '{cable.address} has no GID' >&2; false; }}
{away}
ip addr add {SPARE}/32 dev {name}
{again}
wait_for -ne 50 || {{ echo "the GID came back under index $(cat index)" >&2; false; }}
ip addr del {SPARE}/32 dev {name}""",
        undoing=f"""{index}ip addr del {SPARE}/32 dev {name} 2>/dev/null || true
tries=0
until {here} | grep -q ' inet {cable.address}/' && wait_for -eq 10; do
tries=$((tries+1)); [ $tries -le 15 ] || {{ echo "index $(cat index) is still held by queue pairs from before" >&2; false; }}
{{ {away}
}} 2>/dev/null || true
{again}
done""",
        test=f"{index}[ -s index ] && ! wait_for -eq 1",  # without its GID it is not as it was, either
    )
    probe = f"{index}echo probe index $(at)"
    return host.plan(target, values, (change,), Moves("file", ("index",), probe=probe), (name,))


def _pairs(address: str) -> list[tuple[int, int]]:
    numbers = [int(word) for word in address.split(".")]
    return [(numbers[0], numbers[1]), (numbers[2], numbers[3])]
