"""Services that bear on RDMA: which of them run, and the locked-memory limit that those which start jobs hand on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.host import Host
from rdmadiag.patterns import late

TABLES = ("service",)

SCAN_SECONDS = 0.5
"""Longest that the names of processes are read."""

SERVICES = {
    "irqbalance": "irqbalance",
    "tuned": "tuned",
    "lldpad": "lldpad",
    "opensm": "opensm",
    "ibacm": "ibacm",
    "nvidia-persiste": "nvidia-persistenced",
    "nv-fabricmanage": "nvidia-fabricmanager",
    "nvidia-imex": "nvidia-imex",
    "containerd": "containerd",
    "dockerd": "dockerd",
    "crio": "crio",
    "kubelet": "kubelet",
    "slurmd": "slurmd",
    "firewalld": "firewalld",
}
"""Names as /proc/PID/comm has them (15 characters), and of the service."""

LAUNCHERS = ("containerd", "dockerd", "crio", "slurmd")
"""Services whose limits jobs inherit."""

LINE_CHARACTERS = 1000
_INIT = frozenset(("systemd", "init", "runit", "openrc-init"))


def read(host: Host) -> Iterable[Row | Gap]:
    """Look through the names of all processes; what is not among them does not run, where this is the whole machine."""
    names = [name for name in host.ls("/proc") if name.isdecimal()]
    found: dict[str, int] = {}
    end, left = host.clock() + SCAN_SECONDS, 0
    for place, pid in enumerate(sorted(names, key=int)):
        if host.clock() > end:
            left = len(names) - place
            break
        try:
            comm = host.read(f"/proc/{pid}/comm")
        except (NotPresent, HostRefused):
            continue  # it has ended, or belongs to somebody else (hidepid)
        if service := SERVICES.get(comm):
            found.setdefault(service, int(pid))
    for service, number in found.items():
        values = {"service": service, "running": 1, "pid": number, **_limit(host, service, number)}
        yield Row("service", values, f"/proc/{number}")
    if left:
        reason = f"the names of {left} of {len(names)} processes were not read within {SCAN_SECONDS} s"
        yield Gap(TABLES, reason, "timeout", "systemctl list-units --type=service", "/proc/PID/comm")
    elif host.live and _is_whole(host):
        for service in SERVICES.values():
            if service not in found:
                yield Row("service", {"service": service, "running": 0}, "/proc")


def _limit(host: Host, service: str, pid: int) -> dict[str, Any]:
    if service not in LAUNCHERS:
        return {}
    try:
        text = host.read(f"/proc/{pid}/limits")
    except (NotPresent, HostRefused):
        return {}
    match = late(r"^Max locked memory +(unlimited|\d{1,19}) ", re.M).search(text)
    return {"memlock_bytes": _amount(match[1])} if match else {}


def _is_whole(host: Host) -> bool:
    # In a container, process 1 is the container's own.
    try:
        return host.read("/proc/1/comm") in _INIT
    except (NotPresent, NotGiven, HostRefused):
        return False


def _amount(text: str) -> int:
    value = -1 if text in ("unlimited", "infinity") else int(text)
    return -1 if value >= 1 << 63 else value


# --- texts ---

_UNIT = late(r"\s*(?:[●○×*] )?(?P<unit>[a-z][\w-]{1,40})\.service\s+(?:- |loaded\s+)(?P<rest>.*)")
_ACTIVE = late(r"\s+Active: (?P<state>active \(running\)|inactive \(dead\)|failed)")
_LISTED = late(r"(?P<state>active\s+running|inactive\s+dead|failed\s+failed)\b")
_SHOWN = late(r"(?P<key>Id|LimitMEMLOCK|ActiveState)=(?P<value>\S+)\s*$")
_NAMES = frozenset(SERVICES.values())


def parse_systemctl(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `systemctl status UNIT`, `systemctl list-units`, and `systemctl show -p Id -p ActiveState -p LimitMEMLOCK UNIT`."""
    unit = ""
    shown: dict[str, Any] = {}
    start = 0
    for number, text in lines:
        text = text[:LINE_CHARACTERS]
        if match := _SHOWN.match(text):
            if match["key"] in shown or not shown:
                yield from _shown_row(shown, start)
                shown, start = {}, number
            shown[match["key"]] = match["value"]
            continue
        if match := _UNIT.match(text):
            unit = match["unit"]
            state = _LISTED.match(match["rest"])
        else:
            state = _ACTIVE.match(text) if unit else None
        if state and unit in _NAMES:
            yield Row("service", {"service": unit, "running": int(state["state"].startswith("active"))}, number)
            unit = ""
    yield from _shown_row(shown, start)


def _shown_row(shown: dict[str, Any], number: int) -> Iterator[Row]:
    service = str(shown.get("Id", "")).removesuffix(".service")
    service = {"docker": "dockerd"}.get(service, service)
    if service not in _NAMES:
        return
    values: dict[str, Any] = {"service": service}
    if "ActiveState" in shown:
        values["running"] = int(shown["ActiveState"] == "active")
    if late(r"infinity|\d{1,20}").fullmatch(limit := str(shown.get("LimitMEMLOCK", ""))):
        values["memlock_bytes"] = _amount(limit)
    yield Row("service", values, number)


TEXTS = (
    Text(
        "systemctl",
        (
            r"^[ \t]*Active: (active \(running\)|inactive \(dead\)|failed)",
            r"^[ ●]*[a-z][a-z-]+\.service +loaded +(active +running|inactive +dead|failed)",
            r"^Id=[a-z-]+\.service$",
        ),
        parse_systemctl,
        ("systemctl",),
    ),
)
