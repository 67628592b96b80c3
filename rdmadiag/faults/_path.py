"""What faults on the packets' path share: between which hosts, and the two means, a leased nft table and a leased detour.

A table in the ingress of the switch's ports (or of a software device's netdev) drops, marks and edits. What needs a queue
(delay, rates) goes to the second band of a prio qdisc below the port's shaper; only packets that the leased table sends there
enter it, so that a left-over qdisc is idle once the lease is over.
"""

from __future__ import annotations

from rdmadiag.errors import BadInput
from rdmadiag.faults._contract import Moves, Parameter, Plan, Refused, Values
from rdmadiag.faults._steps import Change, Step, Table
from rdmadiag.faults._target import Cable, Target
from rdmadiag.lab.pattern import select

FROM = Parameter("source", "any", "host (or hosts, with commas) whose packets are hit")
TO = Parameter("destination", "any", "host (or hosts) to which the packets go")
SEED = Parameter("seed", 1, "seed of the choice of packets", least=0, most=2**31)
BETWEEN = (FROM, TO)
ROCE = "udp dport 4791"
OPCODE = "@th,64,8"  # of the BTH, behind the UDP header
RETRANSMISSION = (
    "out_of_seq_request",
    "rcvd_seq_err",
    "duplicate_request",
    "completer_retry_err",
    "packet_seq_err",
    "out_of_sequence",
)
LARGE_BITS = 4200 * 8
"""A packet of path MTU 4096 on the wire [bits]."""
_NETSTAT = """names=
while read -r key rest; do
if [ "$key" = IpExt: ] && [ -z "$names" ]; then names=$rest
elif [ "$key" = IpExt: ]; then set -- $rest; for n in $names; do [ $n = NAME ] && echo "probe NAME $1"; shift; done; fi
done < /proc/net/netstat"""
_HANDLE, _MAJOR = "6d1a:", 0x6D1A


def netstat(name: str) -> str:
    """Return the probe (see Moves) that prints one of the kernel's counters of IP packets (/proc/net/netstat, IpExt)."""
    return _NETSTAT.replace("NAME", name)


def _ends(target: Target, values: Values) -> tuple[list[Cable], list[Cable]]:
    sources, destinations = target.cables_of(values["source"]), target.cables_of(values["destination"])
    if not any(a.host != b.host for a in sources for b in destinations):
        raise BadInput(
            f"--source {values['source']} and --destination {values['destination']} leave no two hosts in {target.title}"
        )
    return sources, destinations


def ingress(
    target: Target, values: Values, match: str, action: str, pattern: tuple[int, list[int]] | None = None
) -> Table:
    """Return the table that does `action` (nft statements) to the packets that `match` and the pattern choose, at ingress."""
    statement = select(*pattern) if pattern else "goto hit"
    if target.kind != "lab":
        here = target.cables[0].netdev
        if not here:
            raise Refused(f"{target.title} has no netdev, so no packets to meet")
        netdevs: tuple[str, ...] = (here,)
        where = ""
    else:
        sources, destinations = _ends(target, values)
        netdevs = tuple(cable.port for cable in sources)
        where = _to(target, destinations)
    names = ", ".join(netdevs)
    rules = f"""counter seen {{ }}
counter hit {{ }}
chain hit {{
counter name hit {action}
}}
chain in {{
type filter hook ingress devices = {{ {names} }} priority 0;
iifname @lease {where} {match} counter name seen {statement}
}}"""
    what = f"nft table {target.table}, owned by a process, at the ingress of {names}"
    return Table(what, target.table, rules, netdevs)


def table_plan(target: Target, table: Table, moves: Moves | None = None, notes: tuple[str, ...] = ()) -> Plan:
    """Return the plan of a fault that is one table."""
    return Plan(
        place="switch" if target.kind == "lab" else "",
        netdevs=table.netdevs,
        steps=(table,),
        hits=("hit",),
        moves=moves or Moves("counter", RETRANSMISSION),
        notes=notes,
        devices=tuple(cable.device for cable in target.cables),
    )


def detour(
    target: Target,
    values: Values,
    qdisc: str,
    moves: Moves,
    drain_seconds: float,
    notes: tuple[str, ...] = (),
    pattern: tuple[int, list[int]] | None = None,
    hits: tuple[str, ...] = ("detoured",),
) -> Plan:
    """Return the plan of a fault that is a qdisc (`tc` words), at the egress of the ports to the destinations.

    A pattern chooses which packets go there; else all do.
    """
    if target.kind == "lab":
        sources, destinations = _ends(target, values)
        steps: list[Step] = [_band(cable.port, qdisc, target.queue.format(port=cable.port)) for cable in destinations]
        gate = _gate(target, sources, destinations, pattern)
        netdevs = tuple(dict.fromkeys([*gate.netdevs, *(cable.port for cable in destinations)]))
    else:
        here = target.cables[0].netdev
        if not here:
            raise Refused(f"{target.title} has no netdev, so no packets to meet")
        gate = _egress_gate(target, here, pattern, echo=moves.kind == "rtt")
        steps, netdevs = [_root_band(here, qdisc)], (here,)
    return Plan(
        place="switch" if target.kind == "lab" else "",
        netdevs=netdevs,
        steps=(*steps, gate),
        hits=hits,
        moves=moves,
        notes=notes,
        drain_seconds=drain_seconds,
        devices=tuple(cable.device for cable in target.cables),
    )


_SEND_THERE = f"""counter detoured {{ }}
chain hit {{
counter name detoured meta priority set {_MAJOR << 16 | 2:#x}
}}"""


def _gate(
    target: Target, sources: list[Cable], destinations: list[Cable], pattern: tuple[int, list[int]] | None
) -> Table:
    netdevs = tuple(cable.port for cable in sources)
    rules = f"""{_SEND_THERE}
chain in {{
type filter hook ingress devices = {{ {", ".join(netdevs)} }} priority 0;
iifname @lease {_to(target, destinations)} {select(*pattern) if pattern else "goto hit"}
}}"""
    what = f"nft table {target.table}, owned by a process: sends packets from {', '.join(netdevs)} there"
    return Table(what, target.table, rules, netdevs)


def _to(target: Target, destinations: list[Cable]) -> str:
    if len(destinations) == len(target.cables):
        return ""
    return f"ether daddr {{ {', '.join(cable.mac for cable in destinations)} }}"


def _egress_gate(target: Target, netdev: str, pattern: tuple[int, list[int]] | None, echo: bool) -> Table:
    # The name of the way out, as key of the lease, is what differs from a switch's port. An echo that is to prove it must meet it.
    asked = "\noifname @lease icmp type echo-request goto hit" if echo else ""
    rules = f"""{_SEND_THERE}
chain out {{
type filter hook postrouting priority 300;
oifname @lease {ROCE} {select(*pattern) if pattern else "goto hit"}{asked}
}}"""
    what = f"nft table {target.table}, owned by a process: sends RoCE packets{' and ICMP echoes' if echo else ''} out of {netdev} there"
    return Table(what, target.table, rules, (netdev,), family="inet")


_DROPPED = r" 6d1b: parent .*\n Sent \d+ bytes \d+ pkts? \((?P<name>dropped) (?P<value>\d+)"


def _band(port: str, qdisc: str, queue: str) -> Change:
    """Put a prio qdisc below a lab port's shaper: the first band is the port's queue as it was, the second is the fault."""
    here = f"tc qdisc show dev {port}"
    first = queue.replace("parent 1:1 handle 10:", f"parent {_HANDLE}1 handle 6d1c:").replace("replace", "add")
    words = queue.split()
    kind = words[words.index("handle") + 2]
    lines = [
        # Only what the lab itself has put there is taken aside.
        f"{here} | grep -q '^qdisc tbf 1: root ' || {{ echo 'foreign root qdisc, left alone:' >&2; {here} >&2; false; }}",
        f"{here} | grep -q '^qdisc {kind} 10: parent 1:1 ' || {{ echo 'foreign qdisc, left alone:' >&2; {here} >&2; false; }}",
        f"tc qdisc replace dev {port} parent 1:1 handle {_HANDLE} prio bands 2 priomap {'0 ' * 16}",
        f"tc {first}",
        f"tc qdisc add dev {port} parent {_HANDLE}2 handle 6d1b: {qdisc}",
    ]
    return Change(
        f"{qdisc} in a second band of {port}'s egress",
        doing="\n".join(lines),
        undoing=f"tc {queue}",
        test=f"{here} | grep -q '^qdisc prio {_HANDLE} parent 1:1 '",
        counting=f"tc -s qdisc show dev {port}",
        pattern=_DROPPED,
    )


def _root_band(netdev: str, qdisc: str) -> Change:
    """Put a prio qdisc at the root of a software device's netdev, where the kernel's default qdisc is."""
    here = f"tc qdisc show dev {netdev}"
    lines = [
        f"! {here} | grep -v ' 0: ' | grep -q . || {{ echo 'foreign root qdisc, left alone:' >&2; {here} >&2; false; }}",
        f"! {here} | grep -q '^qdisc mq ' || {{ echo 'a multi-queue root qdisc, left alone' >&2; false; }}",
        f"tc qdisc add dev {netdev} root handle {_HANDLE} prio bands 2 priomap {'0 ' * 16}",
        f"tc qdisc add dev {netdev} parent {_HANDLE}1 handle 6d1c: pfifo limit 1000",
        f"tc qdisc add dev {netdev} parent {_HANDLE}2 handle 6d1b: {qdisc}",
    ]
    return Change(
        f"{qdisc} in a second band of {netdev}'s egress",
        doing="\n".join(lines),
        undoing=f"tc qdisc del dev {netdev} root handle {_HANDLE}",
        test=f"{here} | grep -q '^qdisc prio {_HANDLE} root '",
        counting=f"tc -s qdisc show dev {netdev}",
        pattern=_DROPPED,
    )
