"""What a workload is made of: parameters, two ends, and the notes that are read from what its programs print."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rdmadiag.errors import BadInput, RdmadiagError

CLIENT, SERVER = "client", "server"
RDMA, TCP, UNKNOWN = "rdma", "tcp", "unknown"

KINDS: Mapping[str, str] = {
    "ready": "the end can be used: the server listens, the client is connected and about to transfer",
    "progress": "bytes: claimed as transferred so far, by this start of this end",
    "layer": "one part of a request is claimed as transferred: request, layer, bytes, seconds",
    "verified": "bytes, blocks, wrong: content compared by checksums at the receiving end",
    "error": "words: the program's own; status: its code or name; seconds: since what failed was begun",
    "log": "a line of the engine's own log: level (E, W, F), at, words",
    "reconnect": "the end connects again; why",
    "path": "path, state: what became of one of several ways to the peer: demoted, probation, returned, preempted",
    "recovered": "transfers work again; seconds: since the first error",
    "metric": "name, value: a number of the program's own",
    "result": "what the program says at its end; anything",
    "stopped": "by: stop, kill, freeze, thaw, restart: done to the end from outside",
    "ended": "code: exit code, 128 + N when killed by signal N, null when the place went away; problem",
}
"""Every kind of event, and the keys of its values."""


class WorkloadError(RdmadiagError):
    """A workload could not be started or used: says which end, why, and what it printed last."""


class Parameter(NamedTuple):
    """One setting of a workload; its type is the type of its default."""

    name: str
    default: int | float | str | bool
    help: str
    choices: tuple[str, ...] = ()


class Host(NamedTuple):
    """One end's host: the RDMA device to use, and the addresses at which the other end reaches it.

    `plain_address` is for control traffic; it is `address` where there is one network only.
    """

    name: str
    device: str
    gid_index: int
    netdev: str
    address: str
    plain_address: str
    port: int = 1


class Setting(NamedTuple):
    """What one run is made with."""

    parameters: Mapping[str, Any]
    client: Host
    server: Host


class Note(NamedTuple):
    """Something that a program's output says: `kind` is one of KINDS."""

    kind: str
    values: dict[str, Any]


Reader = Callable[[int, str], Iterable[Note]]
"""Reads one line of stream 1 (output) or 2 (errors); keeps what it needs between lines; never raises on garbage."""


class End(NamedTuple):
    (
        """How one end is started; `reader` is new for each start. `seconds`: it is asked to end so long after its READY (0: never),
    by closing its input when it `ends_with_input`, else by SIGTERM. `at_once`: it need not wait for the end before it.
    """
        ""
    )

    argv: list[str]
    reader: Reader
    environment: Mapping[str, str] = {}
    seconds: float = 0.0
    ends_with_input: bool = False
    at_once: bool = False


class Event(NamedTuple):
    """A note of an end and when it came: seconds since the run began."""

    seconds: float
    end: str
    kind: str
    values: dict[str, Any]


def line(event: Mapping[str, Any]) -> str:
    """Return an event as programs of ours print it: one line of JSON."""
    return json.dumps(event, separators=(",", ":"))


def checked(parameters: tuple[Parameter, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters with their values; text is turned into the type of the default. Raises BadInput."""
    known = {parameter.name: parameter for parameter in parameters}
    for name in given:
        if name not in known:
            raise BadInput(f"no parameter {name!r}; known: {', '.join(known)}")
    return {name: _value(one, given[name]) if name in given else one.default for name, one in known.items()}


def _value(parameter: Parameter, given: Any) -> Any:
    kind = type(parameter.default)
    wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[kind]
    value: Any = None
    if kind is bool:
        value = given if isinstance(given, bool) else {"true": True, "false": False}.get(str(given).lower())
    elif kind is str:
        value = given if isinstance(given, str) else None
    elif not isinstance(given, bool):
        try:
            value = kind(given)
        except (TypeError, ValueError, OverflowError):
            value = None
        if isinstance(given, float) and kind is int and value != given:
            value = None
    if value is None or (kind in (int, float) and not 0 <= value < 1 << 48):
        raise BadInput(f"{parameter.name} = {given!r}; wanted {wanted}{' from 0 on' * (kind in (int, float))}")
    if parameter.choices and value not in parameter.choices:
        raise BadInput(f"{parameter.name} = {given!r}; wanted one of {', '.join(parameter.choices)}")
    return value
