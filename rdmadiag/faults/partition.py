"""Two groups of hosts do not hear each other, while each hears all others: a split between leaves or pods."""

from rdmadiag.errors import BadInput
from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Table, Target, Values
from rdmadiag.faults import _path as path

TITLE = "Chosen hosts do not reach each other, on any network"
REACH = "switch"
PARAMETERS = (
    Parameter("one", "h1", "hosts of one side"),
    Parameter("other", "h2", "hosts of the other side"),
    Parameter("networks", "all", "the RDMA rails only, or the plain network too", choices=("all", "rdma")),
)
SIGNS = (
    "both sides: completer_retry_err, then retry_exceeded_err and WC 12, as with a blackout; TCP between them times out, too",
    "traffic with third hosts goes on",
)
DIAGNOSIS = Diagnosis(("wire-path-cut",), "As with blackout: between these two hosts nothing passes")


def plan(target: Target, values: Values) -> Plan:
    """Drop frames from one side's ports to the other side's MAC addresses, both ways."""
    sides = [target.hosts(values[name]) for name in ("one", "other")]
    if set(sides[0]) & set(sides[1]):
        raise BadInput(f"--one {values['one']} and --other {values['other']} have hosts in common")
    cables = [*target.cables, *(target.plain if values["networks"] == "all" else ())]
    rules = ["counter hit { }", "chain hit {", "counter name hit drop", "}", "chain in {"]
    ports = tuple(cable.port for cable in cables if cable.host in (*sides[0], *sides[1]))
    rules.append(f"type filter hook ingress devices = {{ {', '.join(ports)} }} priority 0;")
    for here, there in (sides, sides[::-1]):
        from_ports = ", ".join(cable.port for cable in cables if cable.host in here)
        macs = ", ".join(cable.mac for cable in cables if cable.host in there)
        rules.append(f"iifname @lease iifname {{ {from_ports} }} ether daddr {{ {macs} }} goto hit")
    table = Table(
        f"nft table {target.table}, owned by a process, at the ingress of {', '.join(ports)}",
        target.table,
        "\n".join([*rules, "}"]),
        ports,
    )
    return path.table_plan(target, table, Moves("counter", ("completer_retry_err", "retry_exceeded_err"), silent=True))
