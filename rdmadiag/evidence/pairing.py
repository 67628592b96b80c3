"""Pair GPUs with RDMA devices: the way between them by the PCI tree and NUMA nodes, or as the GPU driver reports it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Nearest first, as nvidia-smi names them."""

_LEVELS = 32
"""Bridges followed upwards; real trees have five."""


class Place(NamedTuple):
    """Where a function sits: the bridges above it, nearest first, its NUMA node, and whether the last bridge is a root port."""

    bdf: str
    bridges: tuple[str, ...]
    numa_node: int | None
    whole: bool = True


class Nic(NamedTuple):
    """An RDMA device: its names, and the rate of its fastest port [Gbit/s], 0 unknown."""

    device: str
    bdf: str | None = None
    netdev: str | None = None
    rate_gbps: float = 0.0


def path_between(one: Place, other: Place) -> str | None:
    """Return the way between two functions: PIX one switch, PXB several, PHB one host bridge, NODE, SYS; None unknown.

    Two ports of one switch share its upstream port; with no shared bridge the way leads through the root complex.
    """
    shared = [bridge for bridge in one.bridges if bridge in other.bridges]
    if shared:
        steps = max(one.bridges.index(shared[0]), other.bridges.index(shared[0]))
        return "PIX" if steps <= 1 else "PXB"
    if not (one.bridges and other.bridges and one.whole and other.whole):  # what is above them was not seen
        return "SYS" if _between_nodes(one, other) == "SYS" else None
    if one.bridges[-1].rpartition(":")[0] == other.bridges[-1].rpartition(":")[0]:  # root ports of one bus
        return "PHB"
    return _between_nodes(one, other)


def _between_nodes(one: Place, other: Place) -> str | None:
    if one.numa_node is None or other.numa_node is None:
        return None
    return "NODE" if one.numa_node == other.numa_node else "SYS"


def pair(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """Return the rows of table gpu_nic for all nodes."""
    nodes = [row[0] for row in db.execute("SELECT node FROM pci WHERE role = 'gpu' UNION SELECT node FROM gpu_path")]
    return [row for node in nodes for row in _pairs(db, node)]


def _pairs(db: sqlite3.Connection, node: str) -> Iterator[tuple[Any, ...]]:
    places, origins = _places(db, node)
    known = dict(db.execute("SELECT bdf, gpu FROM gpu WHERE node = ? AND bdf IS NOT NULL AND gpu IS NOT NULL", (node,)))
    found = [row[0] for row in db.execute("SELECT bdf FROM pci WHERE node = ? AND role = 'gpu' ORDER BY bdf", (node,))]
    gpus: dict[int, str | None] = {known.get(bdf, number): bdf for number, bdf in enumerate(filter(None, found))}
    gpus.update({number: bdf for bdf, number in known.items()})
    told = {
        (gpu, device): (path, origin)
        for gpu, device, path, origin in db.execute(
            "SELECT gpu, device, path, origin FROM gpu_path WHERE node = ?", (node,)
        )
    }
    nics = _nics(db, node, {device for _, device in told})
    for gpu in {gpu for gpu, _ in told} - gpus.keys():
        gpus[gpu] = None
    ways: dict[tuple[int, str], tuple[str | None, str | None]] = {}
    for gpu, gpu_bdf in gpus.items():
        for device, bdf, *_ in nics:
            way = told.get((gpu, device))
            if way is None and gpu_bdf in places and bdf in places:
                way = (path_between(places[gpu_bdf], places[bdf]), origins.get(gpu_bdf))
            ways[gpu, device] = way or (None, None)
    nearest = _nearest(ways, gpus)
    rails = _rails(nics, nearest, gpus)
    for gpu, gpu_bdf in sorted(gpus.items()):
        for device, bdf, netdev, _ in nics:
            path, origin = ways[gpu, device]
            best = None if path is None else int((gpu, device) in nearest)
            yield (node, gpu, gpu_bdf, device, bdf, netdev, path, best, rails.get(device), origin)


def _nearest(
    ways: Mapping[tuple[int, str], tuple[str | None, str | None]], gpus: Mapping[int, Any]
) -> set[tuple[int, str]]:
    best = {
        gpu: min((PATHS.index(path) for (g, _), (path, _) in ways.items() if g == gpu and path in PATHS), default=None)
        for gpu in gpus
    }
    return {key for key, (path, _) in ways.items() if path in PATHS and PATHS.index(path) == best[key[0]]}


def _rails(nics: Sequence[Nic], nearest: set[tuple[int, str]], gpus: Mapping[int, Any]) -> dict[str, int]:
    # Beside its adapter a GPU may have slower ones for storage below the same switch: the fastest is its rail.
    chosen = set()
    for gpu in gpus:
        near = [nic for nic in nics if (gpu, nic.device) in nearest]
        if near:
            chosen.add(min(near, key=lambda nic: (-nic.rate_gbps, nic.bdf or "", nic.device)))
    order = sorted(chosen, key=lambda nic: (nic.bdf is None, nic.bdf or "", nic.device))
    return {nic.device: number for number, nic in enumerate(order)}


def _places(db: sqlite3.Connection, node: str) -> tuple[dict[str | None, Place], dict[str | None, str]]:
    rows = db.execute(
        "SELECT bdf, parent_bdf, numa_node, role, origin FROM pci WHERE node = ? AND bdf IS NOT NULL", (node,)
    ).fetchall()
    parents = {bdf: parent for bdf, parent, *_ in rows}
    places: dict[str | None, Place] = {}
    for bdf, _, numa_node, role, _ in rows:
        if role in ("gpu", "rdma"):
            bridges = _chain(parents, bdf)
            places[bdf] = Place(bdf, bridges, numa_node, bool(bridges) and bridges[-1] in parents)
    return places, {row[0]: row[4] for row in rows}


def _chain(parents: Mapping[str, str | None], bdf: str) -> tuple[str, ...]:
    bridges: list[str] = []
    parent = parents.get(bdf)
    while parent and len(bridges) < _LEVELS:
        bridges.append(parent)
        parent = parents.get(parent)
    return tuple(bridges)


def _nics(db: sqlite3.Connection, node: str, named: set[str]) -> Sequence[Nic]:
    rows = db.execute(
        "SELECT d.device, d.bdf, min(p.netdev), coalesce(max(p.rate_gbps), 0) FROM device d"
        " LEFT JOIN port p ON p.node = d.node AND p.device = d.device"
        " WHERE d.node = ? AND d.device IS NOT NULL AND (d.driver IS NULL OR d.driver NOT IN ('rxe', 'siw'))"
        " GROUP BY d.device ORDER BY d.device",
        (node,),
    ).fetchall()
    nics = [Nic(*row) for row in rows]
    return [*nics, *(Nic(device) for device in sorted(named - {nic.device for nic in nics}))]
