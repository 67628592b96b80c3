"""What `--previous` names, a bundle, a captured node or a JSON report: counters count from its values, and GIDs that moved are seen."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from rdmadiag.diagnose import report
from rdmadiag.errors import BadFile
from rdmadiag.evidence import collect
from rdmadiag.evidence.store import Evidence
from rdmadiag.evidence.texts import Library

_KEY = ("device", "port", "netdev", "kind", "counter")
_SOURCE_TABLES = {"counter", "node", "gid"}


class Earlier(NamedTuple):
    """One node as it was: its boot, its time since then [s], its counters, and the index of each GID (a report has none)."""

    boot_id: str | None
    uptime: float | None
    values: dict[tuple[Any, ...], int]
    gids: Sequence[tuple[Any, ...]] = ()


def read(path: str, modules: Mapping[str, ModuleType], texts: Library, options: collect.Options) -> dict[str, Earlier]:
    """Read what was seen before, by node. Raises BadFile when it is nothing that can be read, or has no counters."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such name can be"
        raise BadFile(path, "", f"cannot be read: {reason}; wanted an earlier bundle, capture or report") from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise BadFile(path, "", "not a regular file or folder; wanted an earlier bundle, capture or report")
    found = _of_report(path) if stat.S_ISREG(mode) and _is_report(path) else _of_evidence(path, modules, texts, options)
    if not found:
        raise BadFile(path, "", "has no counters in it; wanted an earlier bundle, capture or report of this node")
    return found


def _is_report(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"rdmadiag.report/" in file.read(200)
    except OSError as error:
        raise BadFile(path, "", f"cannot be read: {error.strerror}") from error


def _of_report(path: str) -> dict[str, Earlier]:
    data = report.read(path)
    nodes = {str(node.get("node")): node for node in data["nodes"]}
    found: dict[str, Earlier] = {}
    entries = data.get("counters", [])
    for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
        values = entry.get("values") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(values, dict):
            raise BadFile(path, f"/counters/{number}", "wanted an object with node, device, port, kind and values")
        name = str(entry.get("node"))
        node = nodes.get(name, {})
        boot_id, uptime = node.get("boot_id"), node.get("uptime_seconds")
        number_known = isinstance(uptime, (int, float)) and not isinstance(uptime, bool)
        earlier = found.setdefault(
            name, Earlier(boot_id if isinstance(boot_id, str) else None, uptime if number_known else None, {})
        )
        port = tuple(entry.get(key) for key in _KEY[:4])
        for counter, value in values.items():
            if isinstance(value, int) and 0 <= value < 1 << 63:
                key = (*port, counter)
                earlier.values[key] = value
    return found


def _of_evidence(
    path: str, modules: Mapping[str, ModuleType], texts: Library, options: collect.Options
) -> dict[str, Earlier]:
    evidence = Evidence()
    sampled = {name: module for name, module in modules.items() if _SOURCE_TABLES & set(module.TABLES)}
    collect.from_paths(evidence, (path,), sampled, texts, options)
    found: dict[str, Earlier] = {}
    for name in evidence.nodes_of("counter"):
        known = evidence.db.execute("SELECT boot_id, uptime_seconds FROM node WHERE node = ?", (name,)).fetchone()
        boot_id, uptime = known or (None, None)
        gids = evidence.db.execute(
            "SELECT gid_index, device, port, gid, type FROM gid WHERE node = ? AND kind IN ('ipv4', 'ipv6')", (name,)
        ).fetchall()
        found[name] = Earlier(boot_id, uptime, {}, gids)
        rows = evidence.db.execute(
            f"SELECT value, {', '.join(_KEY)} FROM counter WHERE node = ? AND value IS NOT NULL", (name,)
        )
        found[name].values.update({tuple(key): value for value, *key in rows})
    return found


def compare(evidence: Evidence, earlier: Mapping[str, Earlier], path: str) -> None:
    """Count the counters of each node from what they were. Raises BadFile when that was another node, or later."""
    here = evidence.nodes_of("counter")
    if here and not here & earlier.keys():
        raise BadFile(path, "", f"is about {', '.join(sorted(earlier)[:3])}, not about {', '.join(sorted(here)[:3])}")
    for name in here & earlier.keys():
        before = earlier[name]
        known = evidence.db.execute("SELECT boot_id, uptime_seconds FROM node WHERE node = ?", (name,)).fetchone()
        boot_id, uptime = known or (None, None)
        if boot_id is None or before.boot_id is None or uptime is None or before.uptime is None:
            evidence.compare(name, before.values, None, "boot unknown")
        elif boot_id != before.boot_id:
            evidence.compare(name, before.values, None, "other boot")
        elif uptime <= before.uptime:
            raise BadFile(
                path,
                "",
                f"was taken at or after what is looked at now ({name} is up {uptime:.0f} s, and there {before.uptime:.0f} s)",
            )
        else:
            evidence.compare(name, before.values, uptime - before.uptime)
            evidence.db.executemany(
                "UPDATE gid SET index_before = ? WHERE device = ? AND port = ? AND gid = ? AND type = ? AND node = ?",
                [(*gid, name) for gid in before.gids],
            )
