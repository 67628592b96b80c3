"""A message is longer than the receive that it meets: ends that disagree on the size of a buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdmadiag.faults import Diagnosis, Plan, Target, Values
from rdmadiag.faults import _verbs as verbs

if TYPE_CHECKING:
    from rdmadiag.faults._pair import Pair

TITLE = "Messages are longer than the receive that was posted"
REACH = "verbs"
PARAMETERS = verbs.PARAMETERS
SIGNS = (
    "sender: WC 9 REM_INV_REQ_ERR, WC 5 for the rest; receiver: WC 1 LOC_LEN_ERR; both queue pairs in ERR (IBA vol 1, 9.7.5.2.3)",
    "rxe (6.1): WC 11 REM_OP_ERR at the sender, WC 2 LOC_QP_OP_ERR at the receiver",
    "mlx5: resp_local_length_error at the receiver; rxe counts nothing",
)
DIAGNOSIS = Diagnosis(
    ("receive-cannot-take-message", "message-longer-than-receiver-allows"),
    "Both ends log: the sender that the peer could not take its message, the receiver that its receive did not do",
)
HITS = ("REM_INV_REQ_ERR", "LOC_LEN_ERR", "REM_OP_ERR")


def plan(target: Target, values: Values) -> Plan:
    """Send 256 bytes to a receive of 64."""
    return verbs.plan(target, values, "receive_too_small", HITS, verbs.IN_ERROR)


def act(pair: Pair, values: Values) -> None:
    """Send two such messages."""
    one, two = pair.connected()
    two.qp.post_receives([(n, [two.sge(0, 64)]) for n in (11, 12)])
    one.qp.post([one.wr(two.offer().memory, n, "SEND", 256) for n in (1, 2)])
    pair.take(one, 2)
    pair.take(two, 1, 2.0)
