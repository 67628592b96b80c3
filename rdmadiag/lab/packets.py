"""Frames made by us, sent in a lab: out of a switch port towards a host, as if another host had sent them.

`send(lab, frames, ...)` runs rdmadiag.roce.send in the lab's switch, with a permit for that lab's own addresses.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path as File
from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.lab import topology
from rdmadiag.lab.lab import Lab
from rdmadiag.lab.places import LabError
from rdmadiag.roce.packet import Path
from rdmadiag.roce.send import Permit, Sent

PACKAGE = File(__file__).parent.parent.parent


def python(module: str) -> list[str]:
    """Return the words that run a module of ours, which needs the standard library only, in a lab."""
    return [sys.executable, "-S", "-m", module]


def environment() -> dict[str, str]:
    """Return what such a module needs: without site packages it starts in half the time in an emulated guest."""
    return {"PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}


def link(lab: Lab, name: str) -> topology.Link:
    """Return the cable of a host (h1: on the first rail), netdev, port or RDMA device. Raises BadInput."""
    cables = topology.links(lab.options)
    for cable in cables:
        if name in (cable.host, cable.netdev, cable.port, cable.device):
            return cable
    known = ", ".join(cable.device or cable.netdev for cable in cables)
    raise BadInput(f"no host, netdev, port or device {name!r} in lab {lab.name}; there are {known}")


def path(lab: Lab, source: str, target: str) -> Path:
    """Return the path of packets from one host (netdev, device) to another, with the UDP source port and TOS of an rxe device."""
    one, two = link(lab, source), link(lab, target)
    if one.bridge != two.bridge:
        raise BadInput(f"{source} and {target} are not on one network of lab {lab.name}")
    return Path(one.address, two.address, one.mac, two.mac)


def permit(lab: Lab, port: str) -> Permit:
    """Return the permit to send to this lab's hosts by one of its switch ports."""
    return Permit(port, tuple(cable.address for cable in topology.links(lab.options)), f"lab {lab.name}")


def send(
    lab: Lab,
    to: str,
    frames: Sequence[dict[str, Any]],
    *,
    count: int,
    seconds: float,
    rate: float | None = None,
    accept: Sequence[str] = (),
) -> Sent:
    """Send frames to a host out of its switch port, and return what the kernel took.

    `frames`, sent in turn: {"name": a builder of rdmadiag.roce.forge, "parameters": {...}, "changes": [{"field": "psn", "start": 5}]}.
    Raises BadInput for what cannot be built or is dangerous and not accepted, LabError for what failed in the lab.
    """
    port = link(lab, to).port
    plan = {
        "permit": permit(lab, port)._asdict(),
        "frames": [
            {**frame, "parameters": {k: _plain(v) for k, v in frame.get("parameters", {}).items()}} for frame in frames
        ],
        "count": count,
        "seconds": seconds,
        "rate": rate,
        "accept": list(accept),
    }
    ran = lab.run(
        python("rdmadiag.roce.send"),
        host=topology.SWITCH,
        stdin=json.dumps(plan).encode(),
        environment=environment(),
        timeout_seconds=seconds + 60,
    )
    if ran.code:
        said = ran.err.decode(errors="replace").strip().removeprefix("rdmadiag: ")
        raise (BadInput if said.startswith("BadInput: ") else LabError)(said.removeprefix("BadInput: "))
    answer = json.loads(ran.out)
    del answer["schema"]
    return Sent(**answer)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return value._asdict()
    return value.hex() if isinstance(value, bytes) else value
