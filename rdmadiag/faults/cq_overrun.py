"""A completion queue that is too small for the work posted to it, and is not polled: completions are lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _verbs as verbs

if TYPE_CHECKING:
    from rdmadiag.faults._pair import Pair

TITLE = "A completion queue overflows"
REACH = "verbs"
PARAMETERS = (
    *verbs.PARAMETERS,
    Parameter("cqe", 4, "entries asked for", "entries", 1, 1024),
    Parameter("requests", 60, "requests posted before the queue is polled", "requests", 2, 1024),
)
SIGNS = (
    "async event CQ_ERR; completions of work that was done are missing for ever",
    "mlx5: CQ error on CQN, syndrome 0x1 in the kernel log, all queue pairs on it in ERR; rxe: nothing but the event, queue pairs stay RTS",
)
DIAGNOSIS = Diagnosis(
    ("cq-overrun",),
    "The program logs the asynchronous event of its completion queue",
)


def plan(target: Target, values: Values) -> Plan:
    """Post more than it holds."""
    moves = Moves(
        "step", ("cq_err_events",), probe="[ -s events ] && read -r n < events && echo probe cq_err_events $n"
    )
    return verbs.plan(target, values, "cq_overrun", ("lost",), moves)


def act(pair: Pair, values: Values) -> None:
    """Post WRITEs to a small queue, wait until they are done at the peer, and then only poll."""
    from pathlib import Path

    from rdmadiag.faults._pair import ATTRIBUTES
    from rdmadiag.verbs.cq import Cq
    from rdmadiag.verbs.device import Device, Pd
    from rdmadiag.verbs.mr import Mr
    from rdmadiag.verbs.posting import Sge, Wr
    from rdmadiag.verbs.qp import Peer, Qp

    _, two = pair.ends()
    device = pair.keep(Device(pair.devices[0]))
    pd, cq = pair.keep(Pd(device)), pair.keep(Cq(device, values["cqe"]))
    mr, qp = pair.keep(Mr(pd, 64)), pair.keep(Qp(pd, cq, send_depth=values["requests"]))
    gid = device.gid()
    qp.connect(0, two.offer().peer(0), ATTRIBUTES, gid.gid_index)
    two.qp.connect(
        two.psns[0],
        Peer(qp.qpn, 0, gid.gid, device.port().active_mtu, device.port().lid),
        ATTRIBUTES,
        two.gid.gid_index,
    )
    memory = two.offer().memory
    qp.post(
        [
            Wr(n, "RDMA_WRITE", (Sge(mr.address, 8, mr.lkey),), memory.address + 8 * n, memory.rkey)
            for n in range(values["requests"])
        ]
    )
    events = 0
    while event := device.event(3.0 if not events else 0.1):
        if event.name == "CQ_ERR":  # rxe sends one for each completion that is lost
            events += 1
    if events:
        pair.log(f"Async event on {device.name}: CQ error")
    time.sleep(0.2)
    polled = sum(len(some) for some in iter(cq.poll, []))
    pair.counts["lost"] += values["requests"] - polled
    told = Path("events")
    told.write_text(f"{events + (int(told.read_text()) if told.exists() else 0)}\n")
