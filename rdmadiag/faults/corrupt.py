"""One byte of a packet's payload is flipped on the way, so that its ICRC is wrong: a cable or a port with bit errors."""

from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path
from rdmadiag.lab.pattern import randomly

TITLE = "A share of RoCE packets arrives with a wrong ICRC"
REACH = "path"
PARAMETERS = (
    Parameter("percent", 1.0, "share of RoCE packets that are corrupted", "%", 0.01, 100),
    path.SEED,
    *path.BETWEEN,
)
SIGNS = (
    "the receiver drops such a packet: as with loss; rxe has no counter for it, mlx5 counts rx_icrc_encapsulated",
    "data arrives intact: a wrong byte never gets through",
)
_FLIP = "@th,160,8 set @th,160,8 ^ 0x5a"  # the byte behind the BTH: of an extended header or of the payload
DIAGNOSIS = Diagnosis(
    ("wire-icrc-bad",),
    "Packets arrive with a wrong ICRC: the capture at the receiver shows it",
    parameters={"percent": 5.0},
)


def plan(target: Target, values: Values) -> Plan:
    """Change a byte that the ICRC covers; Ethernet's own check is made anew behind it, as in a switch with bad memory."""
    pattern = randomly(values["percent"] / 100, values["seed"])
    return path.table_plan(target, path.ingress(target, values, path.ROCE, _FLIP, pattern))
