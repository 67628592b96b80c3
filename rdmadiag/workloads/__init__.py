"""Workloads: programs that move data between two hosts, as one kind of thing, one file each.

A file of this package that does not begin with `_` is a workload under its file name. It has

    TITLE        one line
    PARAMETERS   what can be set (name, default, help, choices)
    EXAMPLE      parameters of a short run
    PROGRAMS     what must be in the PATH of the hosts, and the packages that bring it
    ENGINE       what `rdmadiag workload install` installs for it, or None
    ends(setting) -> {"server": End, "client": End}    how each end is started, in this order; a lone client may do

and a reader for each end that turns lines of output into notes (`KINDS`). `start` starts both ends on the hosts of a lab or
of this machine and returns a `Run`: its events as they come, stop, kill, freeze, thaw and restart of an end, and a result.

    with workloads.start("perftest", workloads.InLab(lab), {"seconds": 5}) as run:
        for event in run.follow(30):
            ...
        print(run.finish(10)["ok"])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from rdmadiag import registry
from rdmadiag.workloads._contract import (
    CLIENT,
    KINDS,
    SERVER,
    End,
    Event,
    Host,
    Note,
    Parameter,
    Setting,
    WorkloadError,
    checked,
    line,
)
from rdmadiag.workloads._install import Engine, folder, install, installed, remove
from rdmadiag.workloads._place import InLab, OnThisMachine, Place
from rdmadiag.workloads._run import Run

__all__ = [
    "CLIENT",
    "KINDS",
    "SERVER",
    "End",
    "Engine",
    "Event",
    "Host",
    "InLab",
    "Note",
    "OnThisMachine",
    "Parameter",
    "Place",
    "Run",
    "Setting",
    "WorkloadError",
    "folder",
    "install",
    "installed",
    "line",
    "load",
    "names",
    "remove",
    "start",
]


def names() -> list[str]:
    """Return the names of all workloads."""
    import rdmadiag.workloads

    return registry.names(rdmadiag.workloads)


def load(name: str) -> ModuleType:
    """Return one workload's module. Raises BadInput, listing the known names."""
    import rdmadiag.workloads

    return registry.load(rdmadiag.workloads, name)


def start(
    name: str,
    place: Place,
    parameters: Mapping[str, Any] | None = None,
    hosts: tuple[str, str] = ("h1", "h2"),
    ready: Callable[[str], None] = lambda role: None,
) -> Run:
    """Start a workload with its client on the first host and its server on the second; returns when both said READY.

    Raises BadInput for a wrong name, parameter or host; WorkloadError and LabError when it does not start: nothing is left then.
    """
    from rdmadiag.workloads import _run

    adapter = load(name)
    values = checked(adapter.PARAMETERS, parameters or {})
    setting = Setting(values, place.host(hosts[0]), place.host(hosts[1]))
    _needs(name, adapter, place, hosts)
    return _run.start(name, adapter, place, setting, ready)


def _needs(name: str, adapter: ModuleType, place: Place, hosts: tuple[str, str]) -> None:
    if adapter.ENGINE is not None and not installed(name):
        package = adapter.ENGINE.package
        raise WorkloadError(f"{name} is not installed: `rdmadiag workload install {name}` fetches {package} from PyPI")
    if not adapter.PROGRAMS:
        return
    look = 'for p in "$@"; do command -v "$p" > /dev/null || echo "$p"; done'
    for host in dict.fromkeys(hosts):
        missing = place.run(host, ["sh", "-c", look, "sh", *adapter.PROGRAMS], 30.0).text.split()
        if missing:
            packages = " ".join(dict.fromkeys(adapter.PROGRAMS.get(one, one) for one in missing))
            raise WorkloadError(f"{host} has no {', '.join(missing)}: apt-get install {packages}")
