"""A request with a key that the peer has not given: a stale rkey after a restart, a mixed-up table of buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdmadiag.faults import Diagnosis, Plan, Target, Values
from rdmadiag.faults import _verbs as verbs

if TYPE_CHECKING:
    from rdmadiag.faults._pair import Pair

TITLE = "Requests carry an rkey that the peer does not have"
REACH = "verbs"
PARAMETERS = (*verbs.PARAMETERS, verbs.OPERATION)
SIGNS = (
    "requester: WC 10 REM_ACCESS_ERR, WC 5 for the rest; both queue pairs in ERR; the peer's memory is untouched",
    "mlx5: req_remote_access_errors, vendor syndrome 0x88; rxe has no counter for it",
    "address-out-of-range, mr-deregistered and access-missing look the same",
)
DIAGNOSIS = Diagnosis(
    ("refused-key-not-registered",),
    "A capture has the key of the refused request, and the peer's kernel lists its memory regions: none has it",
    parameters={"every_ms": 4000.0},
)


def plan(target: Target, values: Values) -> Plan:
    """Ask with a key that is one bit off."""
    return verbs.plan(target, values, "bad_rkey", ("REM_ACCESS_ERR",), verbs.IN_ERROR)


def act(pair: Pair, values: Values) -> None:
    """Post such a request and one behind it."""
    one, two = pair.connected()
    wr = pair.request(one, two, values["operation"])
    one.qp.post([wr._replace(rkey=wr.rkey ^ 0x40), wr._replace(wr_id=2)])
    pair.take(one, 2)
