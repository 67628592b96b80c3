"""A receiver that has no receive posted when a message comes: a consumer that is late, stuck, or has too few receives."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _verbs as verbs

if TYPE_CHECKING:
    from rdmadiag.faults._pair import Pair

TITLE = "Messages meet no posted receive (RNR)"
REACH = "verbs"
PARAMETERS = (
    *verbs.PARAMETERS,
    Parameter(
        "kind",
        "exhausted",
        "transient: the receive comes in the end; exhausted: rnr_retry 2 runs out; stall: rnr_retry 7, and none ever comes",
        choices=("transient", "exhausted", "stall"),
    ),
    Parameter("late_ms", 300.0, "transient: how late the receive is", "ms", 1, 10000),
)
SIGNS = (
    "transient: the SEND succeeds, late; rcvd_rnr_err here, send_rnr_err at the receiver on rxe (rnr_nak_retry_err, out_of_buffer on mlx5)",
    "exhausted: WC 13 RNR_RETRY_EXC_ERR, WC 5 for the rest, the sender's queue pair in ERR, the receiver's in RTS; retry_rnr_exceeded_err",
    "stall: no completion at all, the queue pairs stay RTS; rcvd_rnr_err goes on (every 655 ms with min_rnr_timer 0)",
)
DIAGNOSIS = Diagnosis(
    ("rnr-retries-exhausted",),
    "The sender logs status 13, and its counter of RNR retries that ran out moves",
)
_HITS = {"transient": "late", "exhausted": "RNR_RETRY_EXC_ERR", "stall": "stalled"}
_EXCEEDED = ("retry_rnr_exceeded_err", "req_rnr_retries_exceeded")
_NAKS = ("rcvd_rnr_err", "send_rnr_err", "rnr_nak_retry_err", "out_of_buffer")
STALL_SECONDS = 1.5
"""No completion for so long counts as one that does not come: two RNR waits of 655 ms."""


def plan(target: Target, values: Values) -> Plan:
    """Send to a queue pair without receives."""
    kind = values["kind"]
    moves = Moves("counter", _EXCEEDED if kind == "exhausted" else _NAKS)
    return verbs.plan(target, values, "receiver_not_ready", (_HITS[kind],), moves)


def act(pair: Pair, values: Values) -> None:
    """Send once; see what comes of it."""
    from rdmadiag.faults._pair import ATTRIBUTES

    kind = values["kind"]
    # rxe takes 7 for ever in both retry counts; an adapter does so in rnr_retry only, and RNR NAKs do not use up retry_cnt.
    attributes = ATTRIBUTES._replace(rnr_retry=2 if kind == "exhausted" else 7, retry_cnt=7)
    one, two = pair.connected(attributes, attributes._replace(min_rnr_timer=0 if kind == "stall" else 1))
    one.qp.post([one.wr(two.offer().memory, n, "SEND", 64) for n in (1, 2)])
    if kind == "exhausted":
        pair.take(one, 2)
    elif kind == "transient":
        time.sleep(values["late_ms"] / 1000)
        two.qp.post_receives([(n, [two.sge(0, 64)]) for n in (1, 2)])
        pair.counts["late"] += sum(done.ok for done in pair.take(one, 2))
    elif not pair.take(one, 1, STALL_SECONDS):
        pair.counts["stalled"] += 1
        pair.log(f"{one.device.name}: QP {one.qp.qpn}: no completion within {STALL_SECONDS:g} s")
