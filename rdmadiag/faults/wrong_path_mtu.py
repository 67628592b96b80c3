"""The ends agree on different path MTUs: one reads its port's active MTU, the other a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdmadiag.errors import BadInput
from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _verbs as verbs

if TYPE_CHECKING:
    from rdmadiag.faults._pair import Pair

TITLE = "The sender's path MTU is larger than its peer's"
REACH = "verbs"
PARAMETERS = (
    *verbs.PARAMETERS,
    Parameter("mtu", "1024", "path MTU of the peer's queue pair [bytes]", choices=("256", "512", "1024", "2048")),
)
SIGNS = (
    "messages of up to the smaller MTU pass; longer ones: NAK 0x61, WC 9 REM_INV_REQ_ERR, WC 5 for the rest, both queue pairs in ERR",
    "path_mtu in ibv_query_qp differs between the ends; active_mtu of the ports need not",
)
DIAGNOSIS = Diagnosis(
    ("wire-packets-above-peer-path-mtu",),
    "A capture shows that what fits one packet passes on a queue pair, and the first of several is refused as invalid",
)


def plan(target: Target, values: Values) -> Plan:
    """Connect with two path MTUs."""
    return verbs.plan(target, values, "wrong_path_mtu", ("REM_INV_REQ_ERR",), verbs.IN_ERROR)


def act(pair: Pair, values: Values) -> None:
    """WRITE a small message, then one longer than the peer's MTU."""
    from rdmadiag.faults._pair import ATTRIBUTES

    less = int(values["mtu"])
    one, two = pair.connected(ATTRIBUTES, ATTRIBUTES._replace(path_mtu=less))
    mtu = one.device.port().active_mtu
    if mtu <= less:
        raise BadInput(f"--mtu {less}; wanted less than the active MTU of {one.device.name}, {mtu} bytes")
    memory = two.offer().memory
    one.qp.post([one.wr(memory, 1, "RDMA_WRITE", less)])
    pair.take(one)
    one.qp.post([one.wr(memory, n, "RDMA_WRITE", 2 * mtu) for n in (2, 3)])
    pair.take(one, 2)
