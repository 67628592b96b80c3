"""The way becomes narrower: a link that came up at a lower speed, a shaper, a neighbour's traffic."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path

TITLE = "Packets pass at no more than a rate"
REACH = "path"
PARAMETERS = (
    Parameter("mbit", 20.0, "rate towards each destination", "Mbit/s", 0.1, 100000),
    Parameter("queue", 262144, "bytes that may wait; more are dropped", "bytes", 10000, 1 << 30),
    *path.BETWEEN,
)
SIGNS = (
    "throughput at the rate and no more, a standing queue before it",
    "queue full: packets are dropped, as with loss",
)
DIAGNOSIS = Diagnosis(
    ("wire-path-narrow",),
    "Captures at both ends: what is sent at once comes out at a low rate, evenly",
    parameters={"mbit": 2.0},
    workload={"size": 65536},
    look_seconds=8.0,
)


def plan(target: Target, values: Values) -> Plan:
    """Shape by tbf behind a leased gate."""
    rate = int(values["mbit"] * 1e6)
    burst = max(rate // 8 // 500, 16000)  # 2 ms, and some packets of 4 KiB
    qdisc = f"tbf rate {rate}bit burst {burst} limit {values['queue']}"
    cables = target.cables_of(values["destination"]) if target.kind == "lab" else target.cables
    moves = Moves("rate", at_most=len(cables) * (rate / 8 * 1.15 + burst))
    if target.kind != "lab":
        # Where a queue stands, an echo waits for one large packet at least.
        moves = Moves("rtt", at_least=path.LARGE_BITS * 1000 / rate)
    return path.detour(target, values, qdisc, moves, min(values["queue"] / (rate / 8), 2.0))
