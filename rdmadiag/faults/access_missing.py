"""The peer's memory region, or its queue pair, does not allow what is asked: access flags forgotten at ibv_reg_mr or ibv_modify_qp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _verbs as verbs

if TYPE_CHECKING:
    from rdmadiag.faults._pair import Pair

TITLE = "The peer's memory region or queue pair lacks the access right"
REACH = "verbs"
PARAMETERS = (*verbs.PARAMETERS, verbs.OPERATION, Parameter("of", "mr", "what lacks it", choices=("mr", "qp")))
SIGNS = (
    "mr: WC 10 REM_ACCESS_ERR on rxe, WC 9 with vendor syndrome 0x8a on mlx5; qp: WC 9 REM_INV_REQ_ERR; both queue pairs in ERR",
    "it never worked: the first request fails, not the first after a change",
)
DIAGNOSIS = Diagnosis(
    ("refused-key-registered",),
    "The refused key is among the peer's memory regions; where a region begins and what it allows the kernel does not show",
    parameters={"every_ms": 4000.0},
)


def plan(target: Target, values: Values) -> Plan:
    """Ask for what the peer allows for everything else."""
    hits = ("REM_ACCESS_ERR", "REM_INV_REQ_ERR")
    return verbs.plan(target, values, "access_missing", hits, verbs.IN_ERROR)


def act(pair: Pair, values: Values) -> None:
    """Post a request and one behind it, to an end without the right for it."""
    from rdmadiag.verbs.mr import ALL_ACCESS

    right = {"write": "REMOTE_WRITE", "read": "REMOTE_READ", "atomic": "REMOTE_ATOMIC"}[values["operation"]]
    less = tuple(name for name in ALL_ACCESS if name != right)
    one, two = pair.ends(access=less if values["of"] == "mr" else ALL_ACCESS)
    two.access = less if values["of"] == "qp" else ALL_ACCESS  # of the queue pair, from here on
    one.connect(two.offer())
    two.connect(one.offer())
    wr = pair.request(one, two, values["operation"])
    one.qp.post([wr, wr._replace(wr_id=2)])
    pair.take(one, 2)
