"""Packets arrive later, each by another time: queues along the way that fill and empty."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path

TITLE = "Packets are delayed by times that vary"
REACH = "path"
PARAMETERS = (
    Parameter("ms", 10.0, "mean of the time added to each packet", "ms", 0.1, 10000),
    Parameter("vary", 3.0, "most that one packet's time differs from the mean", "ms", 0.01, 10000),
    Parameter("limit", 20000, "packets that may wait; more are dropped", "packets", 10, 1000000),
    *path.BETWEEN,
)
SIGNS = (
    "an ICMP echo takes longer, and not always the same",
    "no packet overtakes another (that is the fault reorder), so there is no NAK",
)
DIAGNOSIS = Diagnosis(
    ("wire-delay-varies",),
    "Captures at both ends: packets take milliseconds between them, each another time, and none is lost",
    parameters={"vary": 9.0},
    look_seconds=8.0,
)


def plan(target: Target, values: Values) -> Plan:
    """Delay by netem behind a leased gate; its rate keeps packets in their order (sch_netem: a packet waits for the one before)."""
    ms, vary = values["ms"], min(values["vary"], values["ms"])
    qdisc = f"netem delay {ms:g}ms {vary:g}ms limit {values['limit']} rate 100gbit"
    return path.detour(target, values, qdisc, Moves("rtt", at_least=(ms - vary) / 2), (ms + vary) / 1000 + 0.05)
