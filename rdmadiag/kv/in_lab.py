"""A transfer between two hosts of a lab: RDMA by their devices, the control channel and the TCP path by the lab's plain network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import rdmadiag
from rdmadiag.errors import BadInput
from rdmadiag.kv.run import PROGRAM, serving, shape_named, window_for
from rdmadiag.lab import find, topology
from rdmadiag.lab.options import bits_per_second

RTT = "10ms"
"""Round trip that the window is made for: in an emulated guest a packet waits for the processor, not for the wire."""
SENDER, LISTENER = "h1", "h2"


def program(lab: str, host: str) -> list[str]:
    """Return the words that run rdmadiag on a host of a lab. With -S, since an emulated Python takes seconds for `site` alone."""
    return [*PROGRAM, "lab", "exec", lab, "--host", host, "--", sys.executable, "-S", "-m", "rdmadiag"]


def environment() -> dict[str, str]:
    """Return the environment in which that Python finds what this one has."""
    own = os.path.dirname(os.path.dirname(rdmadiag.__file__))
    packages = [path for path in sys.path if path.endswith("-packages")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([own, *packages])}


def ends(lab: str) -> dict[str, dict[str, Any]]:
    """Return for each host its RDMA devices, rail after rail, and netdev and address on the plain network. Raises LabError."""
    found: dict[str, dict[str, Any]] = {}
    for link in topology.links(find(lab).options):
        end = found.setdefault(link.host, {"devices": [], "netdev": "", "address": ""})
        if link.device:
            end["devices"].append(link.device)
        else:
            end |= {"netdev": link.netdev, "address": link.address}
    return found


def listen_words(end: Mapping[str, Any]) -> list[str]:
    """Return the options of `kv serve` for a host."""
    devices = [word for device in end["devices"] for word in ("--device", device)]
    return ["--host", end["address"], "--bind", end["netdev"], *devices]


def send_words(end: Mapping[str, Any]) -> list[str]:
    """Return the options of `kv send` for a host."""
    return ["--bind", end["netdev"], *(word for device in end["devices"] for word in ("--device", device))]


def run(lab: str, listening: list[str], given: Mapping[str, Any]) -> list[str]:
    """Run both ends; the lines of the result. `given` are options of `kv send` by name. Progress goes to standard error.

    Raises BadInput, LabError.
    """
    there = ends(lab)
    options = dict(given)
    if options["mode"] == "dual":
        rate = bits_per_second(find(lab).options.rate) // 1000
        options["path_rates"] = f"{rate}kbit,{max(1000, rate // 10)}kbit"
    if not options.get("rate"):
        # What the window holds must fit the switch's queue, or it is lost there.
        made = find(lab).options
        shape = shape_named(options["shape"], options.get("layers"))
        options["merge_bytes"] = max(shape.piece_bytes, min(options["merge_bytes"], made.queue_bytes // 32))
        fits = made.queue_bytes // 2 // options["merge_bytes"] // options["qps"]
        options["window"] = max(1, min(window_for(made.rate, RTT, shape, options["qps"]), fits))
        options["signal_every"] = min(options["signal_every"], options["window"])
    with serving([*listening, *listen_words(there[LISTENER])], program(lab, LISTENER), environment()) as (address, _):
        words = [
            f"{address[0]}:{address[1]}",
            *_words(options),
            *send_words(there[SENDER]),
            "--progress",
            "--format",
            "records",
        ]
        command = [*program(lab, SENDER), "kv", "send", *words]
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment(), check=False
        )
    if ran.returncode:
        raise BadInput(f"the sending side ended with exit code {ran.returncode}; its words are above")
    return ran.stdout.splitlines()


def _words(options: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in options.items():
        word = f"--{name.replace('_', '-')}"
        found += [word] if value is True else [word, str(value)]
    return found
