"""A packet filter on the host drops RoCE: UDP port 4791 is not on the list of what may come in."""

from rdmadiag.faults import Diagnosis, Plan, Table, Target, Values
from rdmadiag.faults import _host as host

TITLE = "The host's packet filter drops UDP 4791"
REACH = "netdev"
PARAMETERS = (host.HOST,)
SIGNS = (
    "connections over TCP work, RDMA does not: completer_retry_err, then WC 12 on the peer",
    "`nft list ruleset` shows the rule, and its counter grows",
)
DIAGNOSIS = Diagnosis(("udp-4791-filtered",), "The host's own packet filter drops UDP 4791: its rules say so")


def plan(target: Target, values: Values) -> Plan:
    """Drop by a table owned by a process, in the input hook of the netdev."""
    name = host.cable(target, values).netdev
    rules = """counter hit { }
chain hit {
counter name hit drop
}
chain in {
type filter hook input priority 0;
iifname @lease udp dport 4791 goto hit
}"""
    table = Table(
        f"nft table {target.table}, owned by a process, in the input of {name}", target.table, rules, (name,), "inet"
    )
    return host.plan(target, values, (table,), host.SILENCE, (name,), hits=("hit",))
