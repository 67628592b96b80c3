"""Packets are marked "congestion experienced" though there is no congestion: a switch with a threshold set too low."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path
from rdmadiag.lab.pattern import randomly

TITLE = "A share of ECN-capable packets is marked CE"
REACH = "path"
PARAMETERS = (
    Parameter("percent", 10.0, "share of ECN-capable RoCE packets that are marked", "%", 0.01, 100),
    path.SEED,
    *path.BETWEEN,
)
SIGNS = (
    "the receiver's kernel counts InCEPkts; an adapter counts np_ecn_marked_roce_packets and sends CNPs",
    "rxe itself knows no CNP and does not slow down (the fault dcqcn brings the two agents)",
    "only queue pairs with an ECN-capable traffic class (lowest two bits 1 or 2) are met",
)
DIAGNOSIS = Diagnosis(
    ("wire-marked-without-cnp",),
    "Packets are marked on the way, and the receiver, whose device knows no CNP, does not answer them",
    parameters={"percent": 50.0},
    workload={"rc": "timeout=17,retry_cnt=4,rnr_retry=7,min_rnr_timer=12,traffic_class=2"},
)


def plan(target: Target, values: Values) -> Plan:
    """Set the ECN bits at the ingress; the ICRC does not cover them."""
    match = f"{path.ROCE} ip ecn {{ ect0, ect1 }}"
    pattern = randomly(values["percent"] / 100, values["seed"])
    table = path.ingress(target, values, match, "ip ecn set ce", pattern)
    return path.table_plan(target, table, Moves("file", ("InCEPkts",), probe=path.netstat("InCEPkts")))
