"""Some packets arrive twice: a loop for a moment, a switch that resends."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path
from rdmadiag.lab.pattern import randomly

TITLE = "A share of packets arrives twice"
REACH = "path"
PARAMETERS = (
    Parameter("percent", 5.0, "share of packets that arrive twice", "%", 0.01, 100),
    path.SEED,
    *path.BETWEEN,
)
SIGNS = (
    "responder: duplicate_request, and one more ACK for each",
    "a SEND or an atomic takes effect once; nothing is slower",
)
DIAGNOSIS = Diagnosis(
    ("wire-packets-twice",),
    "The receiver's capture has packets twice, one behind the other, that the sender's has once",
    parameters={"percent": 10.0},
)


def plan(target: Target, values: Values) -> Plan:
    """Send the chosen packets through a netem that duplicates all it gets."""
    pattern = randomly(values["percent"] / 100, values["seed"])
    return path.detour(
        target,
        values,
        "netem duplicate 100% limit 20000",
        Moves("counter", ("duplicate_request",)),
        0.05,
        pattern=pattern,
    )
