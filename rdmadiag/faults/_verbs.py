"""What faults of the verbs API share: queue pairs of our own, misused by a process that is the fault and whose end undoes all.

Such a fault file has, beside its plan, `act(pair, values)`, which misuses a pair once; on the node `_pair` calls it again and again.
"""

from __future__ import annotations

import json

from rdmadiag.errors import BadInput
from rdmadiag.faults._contract import Moves, Parameter, Plan, Values
from rdmadiag.faults._steps import Worker
from rdmadiag.faults._target import Target

PARAMETERS = (
    Parameter("source", "h1", "host whose queue pair sends (with --dev: both are on the device)"),
    Parameter("destination", "h2", "host of the other queue pair"),
    Parameter(
        "every_ms", 1000.0, "time from one misuse to the next, each with queue pairs of its own", "ms", 100, 600000
    ),
)
OPERATION = Parameter("operation", "write", "what is asked of the peer", choices=("write", "read", "atomic"))
OPCODES = {"write": "RDMA_WRITE", "read": "RDMA_READ", "atomic": "ATOMIC_FETCH_AND_ADD"}
LOG = "verbs.log"
# Of the process's own queue pairs only: others' come and go.
_OWN = 'read -r pid < own.pid; rdma res show qp 2>/dev/null | grep " pid $pid "'


def in_state(state: str) -> Moves:
    """Return the second proof that the kernel shows queue pairs of the process in a state (netlink)."""
    name = f"qps_in_{state.lower()}"
    return Moves("step", (name,), probe=f"[ -s own.pid ] && echo probe {name} $({_OWN} | grep -c 'state {state} ')")


IN_ERROR = in_state("ERR")


def plan(target: Target, values: Values, name: str, hits: tuple[str, ...], moves: Moves) -> Plan:
    """Return the plan of a verbs fault: one process, where its source is. Raises BadInput."""
    from rdmadiag.lab import packets

    notes: tuple[str, ...] = ("its queue pairs are its own: those of other programs are not touched, and are watched",)
    place = ""
    if target.kind == "lab" and not target.apart:
        ends = [target.cables_of(values[end])[0] for end in ("source", "destination")]
        if any(len(target.hosts(values[end])) != 1 for end in ("source", "destination")):
            raise BadInput(f"--source {values['source']} --destination {values['destination']}; wanted one host each")
        devices = [cable.device for cable in ends]
    else:
        here = target.cables[0] if target.kind != "lab" else target.cables_of(values["source"])[0]
        devices = [here.device, here.device]
        place = here.host if target.kind == "lab" else ""
        notes += (
            f"both queue pairs are on {here.device}, for a process sees the devices of one host: the device loops their packets back",
        )
    probes = list(moves.names) if moves.kind == "step" else []
    order = {"fault": name, "devices": devices, "values": dict(values), "probes": probes}
    worker = Worker(
        f"a process that misuses queue pairs of its own between {' and '.join(devices)}",
        argv=(*packets.python("rdmadiag.faults._pair"), json.dumps(order)),
        name="verbs",
        environment=tuple(packets.environment().items()),
    )
    return Plan(
        place=place,
        netdevs=(),
        steps=(worker,),
        hits=hits,
        moves=moves,
        notes=notes,
        devices=tuple(dict.fromkeys(devices)),
        own=True,
        logs=(LOG,),
    )
