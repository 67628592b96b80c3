"""Packets lost in bursts, by the Gilbert-Elliott model: a link with moments of errors, a buffer that overflows now and then."""

from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path
from rdmadiag.lab.pattern import in_bursts

TITLE = "Packets are lost in bursts (Gilbert-Elliott)"
REACH = "path"
PARAMETERS = (
    Parameter("enter", 0.5, "chance, for each packet, to go to the bad state", "%", 0.01, 100),
    Parameter("leave", 20.0, "chance, for each packet, to go back", "%", 0.1, 100),
    Parameter("bad_loss", 100.0, "share of packets lost in the bad state", "%", 0.1, 100),
    Parameter("good_loss", 0.0, "share of packets lost in the good state", "%", 0, 100),
    path.SEED,
    *path.BETWEEN,
)
SIGNS = (
    "as with loss, but in groups: several resends of one window, then none for a while",
    "a burst longer than what a NAK can tell of: the requester's timer ends the wait",
)
DIAGNOSIS = Diagnosis(
    ("wire-lost-in-bursts",),
    "Captures at both ends: packets are lost many in a row, several times",
    # A burst begins with one packet of 200: fewer packets than these see one or two.
    workload={"size": 65536},
    look_seconds=8.0,
)


def plan(target: Target, values: Values) -> Plan:
    """Drop the packets that a two-state Markov chain chooses."""
    enter, leave, bad, good = (values[name] / 100 for name in ("enter", "leave", "bad_loss", "good_loss"))
    pattern = in_bursts(enter, leave, bad, good, values["seed"])
    return path.table_plan(target, path.ingress(target, values, "", "drop", pattern))
