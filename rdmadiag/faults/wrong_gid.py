"""A queue pair is given a GID that does not lead to its peer: of a host that is gone, its own, or an empty entry of its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Refused, Target, Values
from rdmadiag.faults import _verbs as verbs

if TYPE_CHECKING:
    from rdmadiag.faults._pair import Pair

TITLE = "A queue pair is connected to a wrong GID"
REACH = "verbs"
PARAMETERS = (
    *verbs.PARAMETERS,
    Parameter(
        "kind",
        "nobody",
        "nobody: a GID of the network that no host has; own: the sender's own GID; index: an entry of its table that is empty",
        choices=("nobody", "own", "index"),
    ),
)
SIGNS = (
    "nobody: ibv_modify_qp to RTR fails after some seconds (no link-layer address is found); the queue pair stays in INIT",
    "index: ibv_modify_qp to RTR fails at once; the queue pair stays in INIT",
    "own: it connects; packets never reach the peer: completer_retry_err, then WC 12 RETRY_EXC_ERR",
)
DIAGNOSIS = Diagnosis(
    ("peer-gid-answers-nobody",),
    "The step to RTR times out, and the neighbour table has an address that nobody answers for",
)


def plan(target: Target, values: Values) -> Plan:
    """Connect to it."""
    if values["kind"] == "own":
        moves, hits = (
            Moves("counter", ("retry_exceeded_err", "req_transport_retries_exceeded", "local_ack_timeout_err")),
            ("RETRY_EXC_ERR",),
        )
    else:
        moves, hits = verbs.in_state("INIT"), ("refused",)
    made = verbs.plan(target, values, "wrong_gid", hits, moves)
    if values["kind"] == "own" and len(made.devices) < 2:
        raise Refused(
            f"wrong-gid --kind own needs two devices: on {made.devices[0]} alone its own GID is the peer's; --kind nobody or index"
        )
    return made


def act(pair: Pair, values: Values) -> None:
    """Connect, and WRITE where that is possible."""
    from rdmadiag.faults._pair import SOON
    from rdmadiag.verbs.errors import VerbsError

    one, two = pair.ends(SOON)
    offer, index = two.offer(), one.gid.gid_index
    if values["kind"] == "own":
        offer = offer._replace(gid=one.gid.gid)
    elif values["kind"] == "nobody":
        offer = offer._replace(gid=f"{offer.gid[:-2]}fb")  # 10.0.0.251
    else:
        index = max(entry.gid_index for entry in one.device.gids()) + 1
    two.connect(one.offer())
    one.qp.to_init()
    try:
        one.qp.to_rtr(offer.peer(0), one.attributes, index)
    except VerbsError as error:
        pair.refused(error)
        return
    one.qp.to_rts(one.psns[0], one.attributes)
    one.qp.post([one.wr(two.offer().memory, 1, "RDMA_WRITE", 64)])
    pair.take(one, 1, 10.0)
