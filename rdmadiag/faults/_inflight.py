"""What faults share that change chosen packets on their way: the program of `rdmadiag lab change`, held as a step of an injection.

Its rules are an nft table owned by that program, inactive 10 s after it stood still (rdmadiag/lab/switch_rules.py); so they go with it,
whatever ends it. A second program, which knows nothing of the first, sees packets come and leave: the witness of what was changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.faults._contract import Moves, Parameter, Plan, Values
from rdmadiag.faults._steps import Restore, Worker
from rdmadiag.faults._target import Target
from rdmadiag.lab import packets

FROM = Parameter("source", "any", "host whose packets are hit: one, or any")
TO = Parameter("destination", "any", "host to which the packets go: one, or any")
NTH = Parameter(
    "nth", 1, "the first of the packets concerned that is hit, counted from the fault's beginning", "", 1, 10**9
)
TIMES = Parameter("times", 1, "how many one after another are hit from there on", "packets", 1, 10**9)
WRITES = (0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B)
SENDS = (0x00, 0x01, 0x02, 0x03, 0x04, 0x05)
READ_ANSWERS = (0x0D, 0x0E, 0x0F, 0x10)
REQUESTS = (*SENDS, *WRITES, 0x0C, 0x13, 0x14, 0x16, 0x17)
CHANGED = Moves(
    "step", ("changed",), probe="sed -n '$s/.*\"changed\": \\([0-9]*\\).*/probe changed \\1/p' compare.out 2>/dev/null"
)
"""The second proof: packets left the switch with a valid ICRC and other bytes than they came with."""


@dataclass(frozen=True)
class Changer(Worker):
    """The program that changes packets; told to end first, so that it sends on what it has in hand."""

    def undo(self) -> str:
        """End it."""
        told = f"if lives {self.name}.pid; then kill -TERM $pid || :; limit=; while lives {self.name}.pid && soon 5; do :; done; fi"
        return f"{told}\n{super().undo()}"


def _host(target: Target, name: str, word: str) -> str:
    hosts = target.hosts(word)
    if word != "any" and len(hosts) != 1:
        raise BadInput(f"--{name} {word}; wanted one host, or any")
    return "" if word == "any" else hosts[0]


def plan(
    target: Target,
    values: Values,
    match: Mapping[str, Any],
    action: Mapping[str, Any],
    what: str,
    moves: Moves = CHANGED,
    notes: tuple[str, ...] = (),
) -> Plan:
    """Return the plan of one in-flight change (rdmadiag.lab.changes); `what` it does to packets, in words."""
    source, destination = (_host(target, name, values[name]) for name in ("source", "destination"))
    if source and source == destination:
        raise BadInput(f"--source {source} and --destination {destination} leave no two hosts in {target.title}")
    ends = {"from": source, "to": destination}
    netdev = f"rdi{target.tag}"
    order = {
        "netdev": netdev,
        "changes": [{"name": "it", "match": {**{k: v for k, v in ends.items() if v}, **match}, "action": dict(action)}],
        "links": [{"host": cable.host, "port": cable.port, "mac": cable.mac} for cable in target.cables],
    }
    environment = tuple(packets.environment().items())
    ports = [cable.port for cable in target.cables]
    back = Restore(
        f"{netdev}, by which packets visit a program, is gone in the end",
        check="echo probe changed 0 > before",
        restore=f"if ip -o link show dev {netdev} >/dev/null 2>&1; then ip link del {netdev}; fi",
    )
    changer = Changer(
        f"a process that {what}",
        argv=(*packets.python("rdmadiag.lab.interpose"), json.dumps(order)),
        name="change",
        environment=environment,
    )
    witness = Worker(
        f"a process that compares packets as they come to {', '.join(ports)} and leave",
        argv=(*packets.python("rdmadiag.lab.compare"), *ports),
        name="compare",
        environment=environment,
    )
    # The witness first: what is changed at once shall be seen.
    steps: tuple[Restore | Worker, ...] = (back, witness, changer) if moves is CHANGED else (back, changer)
    return Plan(
        place="switch",
        netdevs=tuple(cable.port for cable in target.cables if source in ("", cable.host)),
        steps=steps,
        hits=("done",),
        moves=moves,
        notes=notes,
        devices=tuple(cable.device for cable in target.cables),
    )


def from_nth(values: Values) -> list[int]:
    """Return which of the packets concerned are hit, as a range (first, last)."""
    return [values["nth"], values["nth"] + values["times"] - 1]
