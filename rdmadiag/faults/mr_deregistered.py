"""The peer has deregistered the memory that its rkey was for, and the key is still used: a buffer freed too early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdmadiag.faults import Diagnosis, Plan, Target, Values
from rdmadiag.faults import _verbs as verbs

if TYPE_CHECKING:
    from rdmadiag.faults._pair import Pair

TITLE = "Requests meet a memory region that the peer has deregistered"
REACH = "verbs"
PARAMETERS = (*verbs.PARAMETERS, verbs.OPERATION)
SIGNS = (
    "first requests succeed; after the deregistration WC 10 REM_ACCESS_ERR, WC 5 for the rest, both queue pairs in ERR",
    "rdma resource show mr at the peer: the region is gone",
    "bad-rkey, address-out-of-range and access-missing look the same",
)
DIAGNOSIS = Diagnosis(
    ("wire-memory-deregistered",),
    "A capture has both: the request for that memory that was served, and the same one that was refused",
    parameters={"every_ms": 4000.0},
)


def plan(target: Target, values: Values) -> Plan:
    """Ask before and after the region is gone."""
    return verbs.plan(target, values, "mr_deregistered", ("REM_ACCESS_ERR",), verbs.IN_ERROR)


def act(pair: Pair, values: Values) -> None:
    """A request that succeeds, the deregistration, then two more."""
    one, two = pair.connected()
    wr = pair.request(one, two, values["operation"])
    one.qp.post([wr])
    pair.take(one)
    two.mr.close()
    one.qp.post([wr._replace(wr_id=2), wr._replace(wr_id=3)])
    pair.take(one, 2)
