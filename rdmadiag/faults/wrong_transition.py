"""A program takes a queue pair from one state to another that cannot follow it: a step left out, an order mixed up."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _verbs as verbs

if TYPE_CHECKING:
    from rdmadiag.faults._pair import Pair

TITLE = "A queue pair is modified to a state that cannot follow its own"
REACH = "verbs"
PARAMETERS = (
    *verbs.PARAMETERS,
    Parameter(
        "step", "init-rts", "from which state to which", choices=("reset-rtr", "init-rts", "rtr-init", "rts-rtr")
    ),
)
SIGNS = (
    "ibv_modify_qp fails with EINVAL; the queue pair stays where it was, before RTS for most of them",
    "no packet is sent, no counter moves; the peer waits",
)
DIAGNOSIS = Diagnosis(
    ("qp-transition-not-allowed",),
    "The program logs from which state to which it went, and no queue pair can go that way",
)


def plan(target: Target, values: Values) -> Plan:
    """Ask the kernel for it, past our own check of transitions."""
    return verbs.plan(
        target, values, "wrong_transition", ("refused",), verbs.in_state(values["step"].partition("-")[0].upper())
    )


def act(pair: Pair, values: Values) -> None:
    """Bring a queue pair to the first state and ask for the other, with the attributes that this state wants."""
    from rdmadiag.explain import qp_states
    from rdmadiag.verbs import library
    from rdmadiag.verbs.errors import VerbsError

    old, _, new = values["step"].upper().partition("-")
    one, two = pair.ends()
    peer = two.offer().peer(0)
    for state in ("INIT", "RTR", "RTS")[: ("RESET", "INIT", "RTR", "RTS").index(old)]:
        if state == "INIT":
            one.qp.to_init()
        elif state == "RTR":
            one.qp.to_rtr(peer, one.attributes, one.gid.gid_index)
        else:
            one.qp.to_rts(one.psns[0], one.attributes)
    wanted = library.module("qp").QPAttr()
    wanted.qp_state = qp_states.STATES.index(new)
    try:
        with library.calling(f"ibv_modify_qp {one.qp.qpn} {old} to {new} with mask {qp_states.BITS['STATE']:#x}"):
            one.qp.qp.modify(wanted, qp_states.BITS["STATE"])
    except VerbsError as error:
        if error.errno != errno.EINVAL:
            raise
        pair.refused(error)
