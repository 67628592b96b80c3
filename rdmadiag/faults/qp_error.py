"""A queue pair is taken to ERR by its own program, with work under way: an error path taken by mistake, a watchdog of the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _verbs as verbs

if TYPE_CHECKING:
    from rdmadiag.faults._pair import Pair

TITLE = "A queue pair is forced to ERR while work is under way"
REACH = "verbs"
PARAMETERS = (
    *verbs.PARAMETERS,
    Parameter("end", "requester", "whose queue pair", choices=("requester", "responder")),
)
SIGNS = (
    "requester: WC 5 WR_FLUSH_ERR for all that was outstanding, and no other status before it; the peer's queue pair stays RTS",
    "responder: the requester gets no answer: completer_retry_err, then WC 12 RETRY_EXC_ERR (without end at retry_cnt 7 on rxe)",
)
DIAGNOSIS = Diagnosis(
    ("qp-taken-to-error",),
    "The program's log has flushed requests alone, and on the wire nothing was refused and nothing ran out",
)


def plan(target: Target, values: Values) -> Plan:
    """Modify it to ERR."""
    hits = ("WR_FLUSH_ERR",) if values["end"] == "requester" else ("RETRY_EXC_ERR",)
    return verbs.plan(target, values, "qp_error", hits, verbs.IN_ERROR)


def act(pair: Pair, values: Values) -> None:
    """Post four SENDs that wait for receives, or four WRITEs to a queue pair that is dead."""
    from rdmadiag.faults._pair import ATTRIBUTES, SOON

    mine = values["end"] == "requester"
    one, two = pair.connected(ATTRIBUTES._replace(rnr_retry=7) if mine else SOON, ATTRIBUTES._replace(min_rnr_timer=0))
    if not mine:
        two.qp.error()
    one.qp.post([one.wr(two.offer().memory, n, "SEND" if mine else "RDMA_WRITE", 64) for n in range(1, 5)])
    if mine:
        one.qp.error()
    pair.take(one, 4)
