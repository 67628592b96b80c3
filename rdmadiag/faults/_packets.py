"""What faults made of forged packets share: a process in the switch that hears a flow and sends what its peer never sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.faults._contract import Moves, Parameter, Plan, Values
from rdmadiag.faults._steps import Worker
from rdmadiag.faults._target import Target
from rdmadiag.lab import packets

RATE = Parameter("rate", 100.0, "forged packets a second, at most", "packets/s", 0.01, 100000)
MOST = Parameter("most", 1000000, "forged packets in all, at most", "packets", 1, 10**9)
ERRORS = Moves(
    "file",
    ("completer_retry_err", "retry_exceeded_err"),
    probe="echo probe qps_in_error $(rdma res show qp 2>/dev/null | grep -c 'state ERR')",
    grows=True,
)


def victim(default: str) -> Parameter:
    """Return the parameter that names the host to which the forged packets go."""
    return Parameter("victim", default, "host to which the forged packets go, as if from its peer")


def plan(target: Target, values: Values, kind: str, made_with: Mapping[str, Any], moves: Moves) -> Plan:
    """Return the plan of one kind of forgery (rdmadiag.roce.forger.KINDS)."""
    if len(target.hosts(values["victim"])) != 1:
        raise BadInput(f"--victim {values['victim']}; wanted one host")
    cables = target.cables_of(values["victim"])
    steps = []
    for cable in cables:
        order = {
            "kind": kind,
            "netdev": cable.port,
            "addresses": [cable.address],
            "rate": values["rate"],
            "most": values["most"],
            "values": dict(made_with),
        }
        steps.append(
            Worker(
                f"a process that sends {kind} packets to {cable.host} out of {cable.port}",
                argv=(*packets.python("rdmadiag.roce.forger"), json.dumps(order)),
                name=f"forger-{cable.port}",
                environment=tuple(packets.environment().items()),
            )
        )
    return Plan(
        place="switch",
        netdevs=(),
        steps=tuple(steps),
        hits=("sent",),
        moves=moves,
        packets_per_second=values["rate"] * len(steps),
        devices=tuple(cable.device for cable in target.cables),
    )
