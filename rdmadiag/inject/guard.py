"""The staging guard: outside a lab a fault needs a mark on the host that allows it, and keeps within what the mark allows."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdmadiag.errors import BadFile
from rdmadiag.faults import Parameter, Plan, Refused
from rdmadiag.inject.target import Aim, protected_netdevs

MARK = "/etc/rdmadiag/staging.json"
_KEYS: dict[str, type | tuple[type, ...]] = {
    "schema": str,
    "faults": list,
    "netdevs": list,
    "max_seconds": (int, float),
    "max_percent": (int, float),
    "max_packets_per_second": (int, float),
}


@dataclass(frozen=True)
class Mark:
    """What a host's staging mark allows."""

    faults: tuple[str, ...]
    netdevs: tuple[str, ...]
    max_seconds: float
    max_percent: float
    max_packets_per_second: float


def read_mark(path: str = MARK) -> Mark:
    """Read a staging mark. Raises Refused where there is none, BadFile for one that is wrong or that others may write."""
    try:
        info = os.lstat(path)
        text = Path(path).read_text()
    except FileNotFoundError:
        raise Refused(
            f"this host is not marked for fault injection: no {path}. On a staging host (never one in production) root makes it: "
            '{"schema": "rdmadiag.staging/1", "faults": ["loss"], "netdevs": ["eth1"], "max_seconds": 60, "max_percent": 10, '
            '"max_packets_per_second": 1000}; or use a lab (--lab)'
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(path, "", f"cannot be read: {error}") from error
    if not stat.S_ISREG(info.st_mode) or info.st_uid != 0 or info.st_mode & 0o022:
        raise BadFile(path, "", "wanted a file of root's that nobody else may write (chown root, chmod 644)")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFile(path, str(error), "wanted JSON") from None
    if not isinstance(values, dict) or set(values) != set(_KEYS):
        raise BadFile(path, "", f"wanted an object with the keys {', '.join(_KEYS)}")
    for key, kind in _KEYS.items():
        if not isinstance(values[key], kind) or isinstance(values[key], bool):
            raise BadFile(path, key, f"wanted a {'number' if isinstance(kind, tuple) else kind.__name__}")
    if values["schema"] != "rdmadiag.staging/1":
        raise BadFile(path, "schema", "wanted rdmadiag.staging/1")
    limits = (float(values[key]) for key in ("max_seconds", "max_percent", "max_packets_per_second"))
    return Mark(tuple(map(str, values["faults"])), tuple(map(str, values["netdevs"])), *limits)


def check(
    aim: Aim, fault: str, parameters: tuple[Parameter, ...], values: Mapping[str, Any], plan: Plan, for_seconds: float
) -> None:
    """Let a plan pass, or raise Refused, saying which limit it exceeds. In a lab everything may be done."""
    if aim.target.kind == "lab":
        return
    mark = read_mark()
    if fault not in mark.faults:
        raise Refused(f"{MARK} does not allow the fault {fault}; it allows: {', '.join(mark.faults) or 'none'}")
    if for_seconds > mark.max_seconds:
        raise Refused(f"{for_seconds:g} s is more than the {mark.max_seconds:g} s that {MARK} allows")
    touched = {*plan.netdevs, *(cable.netdev for cable in aim.target.cables if cable.netdev)}
    for netdev in sorted(touched):
        if netdev not in mark.netdevs:
            raise Refused(f"{MARK} does not allow netdev {netdev}; it allows: {', '.join(mark.netdevs) or 'none'}")
    for netdev, reason in protected_netdevs().items():
        if netdev in touched:
            raise Refused(f"netdev {netdev} is not touched: {reason}")
    for parameter in parameters:
        value = values.get(parameter.name)
        if parameter.unit == "%" and isinstance(value, (int, float)) and value > mark.max_percent:
            raise Refused(f"{parameter.option} {value:g} is more than the {mark.max_percent:g} % that {MARK} allows")
    if plan.packets_per_second > mark.max_packets_per_second:
        raise Refused(
            f"{plan.packets_per_second:g} packets/s are more than the {mark.max_packets_per_second:g} that {MARK} allows"
        )
