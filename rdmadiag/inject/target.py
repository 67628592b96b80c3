"""Finds what a fault is aimed at: a lab, or an RDMA device of this host; and the node doors to it."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from rdmadiag import lab as labs
from rdmadiag.errors import BadInput
from rdmadiag.faults import Cable, Refused, Target
from rdmadiag.inject.node import LabNode, Node, ThisNode
from rdmadiag.lab import Lab, topology

_SYS = Path("/sys/class/infiniband")


class Aim(NamedTuple):
    """A target and its doors; `key` finds it again from the journal."""

    target: Target
    key: dict[str, str]

    def node(self, place: str) -> Node:
        """Return the door to one of its places."""
        return door(self.key, place)

    def places(self) -> list[str]:
        """Return the places where its hosts' counters are read."""
        target = self.target
        return [""] if not target.apart else target.hosts("any")


def door(key: dict[str, str], place: str) -> Node:
    """Return the door to a place of a target in the journal. Raises LabError when its lab is not up."""
    return LabNode(labs.find(key["lab"]), place) if "lab" in key else ThisNode()


def new_tag() -> str:
    """Return a name for an injection: short, for it is part of names on the node."""
    return secrets.token_hex(4)


def in_lab(lab: Lab | str = "lab") -> Aim:
    """Aim at a lab that is up. Raises LabError."""
    found = labs.find(lab) if isinstance(lab, str) else lab
    options = found.options
    cables = [
        Cable(c.host, c.netdev, c.device, c.address, c.mac, c.mtu, c.port, c.bridge) for c in topology.links(options)
    ]
    shape = topology.shape(options)
    queue = topology.qdiscs("{port}", shape)[1].replace("qdisc add", "qdisc replace")
    target = Target(
        kind="lab",
        title=f"lab {found.name}",
        tag=new_tag(),
        cables=tuple(cable for cable in cables if cable.device),
        plain=tuple(cable for cable in cables if not cable.device),
        one_kernel=not options.kernel_per_host,
        namespaces=options.namespaces,
        queue=queue,
        rate=shape.rate,
    )
    return Aim(target, {"lab": found.name})


def on_device(name: str) -> Aim:
    """Aim at an RDMA device of this host, with the netdev of its first port. Raises BadInput, Refused."""
    if "/" in name or not (_SYS / name).is_dir():
        there = ", ".join(sorted(path.name for path in _SYS.iterdir())) if _SYS.is_dir() else ""
        raise BadInput(f"no RDMA device {name!r} on this host; there {'are ' + there if there else 'is none'}")
    if os.geteuid() != 0:
        raise Refused("changing a node needs root; run it with sudo, or in a lab (--lab)")
    device = _SYS / name
    node_type = _read(device / "node_type")
    software = "/virtual/" in os.path.realpath(device)
    netdev = next((text for path in sorted(device.glob("ports/1/gid_attrs/ndevs/*")) if (text := _read(path))), "")
    links = _ip("-j", "-d", "addr", "show", "dev", netdev) if netdev else []
    link: dict[str, Any] = links[0] if links else {}
    addresses = [entry["local"] for entry in link.get("addr_info", ()) if entry.get("family") == "inet"]
    if software and "RNIC" in node_type:
        raise Refused(f"{name} is iWARP over TCP (siw), not RoCE; these faults act on RoCE devices")
    cable = Cable(
        "here", netdev, name, addresses[0] if addresses else "", link.get("address", ""), int(link.get("mtu", 0))
    )
    target = Target(
        kind="software" if software else "hardware",
        title=f"device {name} of this host",
        tag=new_tag(),
        cables=(cable,),
        root_qdisc=str(link.get("qdisc", "")),
    )
    return Aim(target, {"device": name})


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _ip(*words: str) -> list[dict[str, Any]]:
    ran = ThisNode().run(f"ip {' '.join(words)}")
    try:
        found = json.loads(ran.text or "[]")
    except ValueError:
        return []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def protected_netdevs() -> dict[str, str]:
    """Return this host's netdevs that may not be touched, each with the reason: the default route's, the SSH peer's."""
    found = {}
    for family in ("-4", "-6"):
        for route in _ip("-j", family, "route", "show", "default"):
            for hop in [route, *route.get("nexthops", [])]:
                if hop.get("dev"):
                    found[str(hop["dev"])] = "it carries the default route"
    for peer in ssh_peers():
        for route in _ip("-j", "route", "get", peer):
            if route.get("dev"):
                found[str(route["dev"])] = f"it carries the SSH connection from {peer}"
    return found


def ssh_peers() -> list[str]:
    """Return the addresses at the other end of SSH sessions: of our own, and of every one that this host has."""
    peers = {os.environ.get("SSH_CONNECTION", "").split(" ")[0]}
    ran = ThisNode().run("ss -Htn state established '( sport = :22 )' 2>/dev/null")
    for line in ran.text.splitlines():
        words = line.split()
        if len(words) >= 4:
            peers.add(words[3].rpartition(":")[0].strip("[]").removeprefix("::ffff:"))
    return sorted(peer for peer in peers if peer and all(c in "0123456789abcdefABCDEF.:" for c in peer))
