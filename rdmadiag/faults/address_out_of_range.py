"""A request that begins inside of the peer's memory region and ends behind it: a wrong length, a buffer registered in part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdmadiag.faults import Diagnosis, Plan, Target, Values
from rdmadiag.faults import _verbs as verbs

if TYPE_CHECKING:
    from rdmadiag.faults._pair import Pair

TITLE = "Requests reach beyond the end of the peer's memory region"
REACH = "verbs"
PARAMETERS = (*verbs.PARAMETERS, verbs.OPERATION)
SIGNS = (
    "requester: WC 10 REM_ACCESS_ERR, WC 5 for the rest; both queue pairs in ERR",
    "a WRITE of several packets may leave the first of them written: torn data with an error",
    "bad-rkey, mr-deregistered and access-missing look the same",
)
DIAGNOSIS = Diagnosis(
    ("refused-key-registered",),
    "As with access-missing: the key is registered, and the request is refused",
    parameters={"every_ms": 4000.0},
)


def plan(target: Target, values: Values) -> Plan:
    """Ask for memory of which only the first bytes are registered."""
    return verbs.plan(target, values, "address_out_of_range", ("REM_ACCESS_ERR",), verbs.IN_ERROR)


def act(pair: Pair, values: Values) -> None:
    """Post such a request and one behind it; 8 bytes of an atomic lie behind the end, for its address must be aligned."""
    one, two = pair.connected()
    wr = pair.request(one, two, values["operation"])
    end = wr.remote_address + two.mr.length
    one.qp.post([wr._replace(remote_address=end if values["operation"] == "atomic" else end - 8), wr._replace(wr_id=2)])
    pair.take(one, 2)
