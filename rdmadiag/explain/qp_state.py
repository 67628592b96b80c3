"""One QP state: what may be posted, what happens to work requests and packets, how a QP got there.

IBA vol 1, 10.3.1; transitions: rdmadiag.explain.qp_states.
"""

from __future__ import annotations

from typing import Any

from rdmadiag.explain import qp_states
from rdmadiag.explain._words import refuse

HELP = "QP state by name or number: what works in it and how a QP gets there"
EXAMPLES = (("ERR",), ("RTR",), ("3",), ("SQE",))

# state: meaning, post receive, post send, outstanding work requests, incoming packets, how it got there, causes, next
_ROWS: dict[str, tuple[str, str, str, str, str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "RESET": (
        "created or reset; nothing works yet",
        "no (error, or dropped)",
        "no (error, or dropped)",
        "none: those that were there are gone without a completion",
        "dropped silently",
        ("ibv_create_qp", "ibv_modify_qp to RESET"),
        ("stuck here: the handshake never began, or the QP was recycled",),
        ("RESET -> INIT", "a peer that sends to it sees RETRY_EXC_ERR"),
    ),
    "INIT": (
        "port and permissions are set; receives may be posted, nothing moves",
        "yes, kept until RTR",
        "no",
        "receives wait",
        "dropped silently",
        ("RESET -> INIT",),
        ("stuck here: the peer's address, QPN or GID never came",),
        ("check the out-of-band exchange; then INIT -> RTR",),
    ),
    "RTR": (
        "ready to receive: answers requests, sends none of its own",
        "yes",
        "no",
        "receives complete; nothing is sent but acknowledgements",
        "accepted and answered",
        ("INIT -> RTR",),
        ("stuck here for long: the other end never finished its handshake",),
        ("RTR -> RTS; a passive side may stay here until the first message",),
    ),
    "RTS": (
        "ready to send and receive: the working state",
        "yes",
        "yes",
        "processed in order",
        "accepted and answered",
        ("RTR -> RTS", "SQD -> RTS", "SQE -> RTS"),
        (),
        ("nothing to do",),
    ),
    "SQD": (
        "send queue drained: what was begun is finished, no new send starts",
        "yes",
        "yes, kept until RTS",
        "sends that were begun finish; the others wait",
        "accepted and answered",
        ("RTS -> SQD, by the program, to change attributes",),
        ("forgotten here after a path change",),
        ("wait for IBV_EVENT_SQ_DRAINED, then SQD -> RTS",),
    ),
    "SQE": (
        "send queue error: a send failed; receiving goes on (UD, UC, SMI and GSI)",
        "yes",
        "yes, flushed",
        "the failed send has the true status, later ones WR_FLUSH_ERR; receives go on",
        "accepted",
        ("a send completed with error on a UD, UC, SMI or GSI QP",),
        ("bad address handle or lkey in a send",),
        ("read the first send completion that is not 5", "SQE -> RTS once the cause is gone"),
    ),
    "ERR": (
        "error: every work request, old and new, comes back with WR_FLUSH_ERR; the QP cannot work again from here",
        "yes, flushed",
        "yes, flushed",
        "the one that failed has the true status; all others complete with WR_FLUSH_ERR (5)",
        "dropped silently, so the peer sees RETRY_EXC_ERR (12) after its timeout",
        (
            "a work request failed (RC)",
            "the peer's request was refused with NAK invalid request or remote access",
            "ibv_modify_qp to ERR: the program closes it",
            "device or port fatal event",
        ),
        (
            "RETRY_EXC_ERR: no answer from the peer",
            "RNR_RETRY_EXC_ERR: the peer posts no receives",
            "REM_ACCESS_ERR, REM_INV_REQ_ERR, LOC_PROT_ERR: a wrong key, range or permission",
        ),
        (
            "find the first completion on this QP that is not 5: it names the fault",
            "drain the CQ, then ERR -> RESET and a new handshake with new PSNs, on both ends",
            "`rdma res show qp` names the process that owns it",
        ),
    ),
}


def decode(*words: str) -> dict[str, Any]:
    """Decode a state. Raises BadInput, listing the known names, for anything else."""
    if not words:
        raise refuse("QP state", "", "a name or 0 to 6", qp_states.STATES)
    name = qp_states.state(" ".join(words))
    meaning, post_recv, post_send, outstanding, incoming, entered, causes, steps = _ROWS[name]
    return {
        "name": name,
        "number": qp_states.STATES.index(name),
        "meaning": meaning,
        "side": "local" if name != "ERR" else "local or remote: the first completion that is not a flush tells",
        "causes": list(causes),
        "next": list(steps),
        "post_recv": post_recv,
        "post_send": post_send,
        "outstanding": outstanding,
        "incoming_packets": incoming,
        "entered_by": list(entered),
        "next_states": qp_states.following(name),
        "sources": ["IBA vol 1, 10.3.1 (QP states)", "kernel drivers/infiniband/core/verbs.c (qp_state_table)"],
    }
