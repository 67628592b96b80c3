"""Any program as a workload: what it prints becomes events, by lines of JSON or by patterns with named groups."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.workloads._contract import (
    CLIENT,
    RDMA,
    SERVER,
    TCP,
    UNKNOWN,
    End,
    Host,
    Note,
    Parameter,
    Setting,
)

TITLE = "any program; its numbers from lines of JSON or by patterns"
PROGRAMS: dict[str, str] = {}
EXAMPLE = {"server": "rping -s -a {address} -C 5", "client": "rping -c -a {peer_address} -C 5"}
ENGINE = None
PARAMETERS = (
    Parameter("client", "", "the command, in a shell's words; {device}, {address}, {peer_address} ... are filled in"),
    Parameter("server", "", "a command that is started before it on the other host; none: no server"),
    Parameter("ready", "", "pattern of the line by which an end says READY; none: ready when started"),
    Parameter(
        "patterns", "", "patterns with named groups, one a line: bytes, layer, error, status, or a metric's name"
    ),
    Parameter("carrier", UNKNOWN, "what it says its bytes go by", (RDMA, TCP, UNKNOWN)),
    Parameter("unit_bytes", 1, "bytes that a number of the group `bytes` stands for"),
    Parameter("seconds", 0.0, "stop it so long after READY; 0: never"),
)
STARTED = "rdmadiag: started"

_SAID: Mapping[str, tuple[str, ...]] = {
    "ready": (),
    "progress": ("bytes",),
    "layer": ("layer",),
    "verified": ("bytes", "blocks", "wrong"),
    "error": ("words",),
    "reconnect": (),
    "path": ("path", "state"),
    "recovered": (),
    "metric": ("name", "value"),
    "result": (),
}
"""The events that a program may print, and what each must have."""
_PATTERN_MOST = 500

Patterns = tuple[re.Pattern[str], ...]


def _compiled(name: str, text: str) -> re.Pattern[str]:
    try:
        if len(text) > _PATTERN_MOST:
            raise re.error(f"longer than {_PATTERN_MOST} characters")
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadInput(f"{name} {text[:80]!r}: no regular expression: {error}") from error


class Reader:
    """Reads one end's lines: `{"event": KIND, ...}` is an event, other JSON objects are metrics, patterns come after."""

    def __init__(
        self, ready: re.Pattern[str] | None = None, patterns: Patterns = (), unit_bytes: int = 1, carrier: str = UNKNOWN
    ) -> None:
        self.pattern, self.patterns, self.unit_bytes, self.carrier = ready, patterns, unit_bytes, carrier
        self.ready = False

    def __call__(self, stream: int, line: str) -> Iterator[Note]:
        """Return the notes of a line."""
        if not self.ready and (self.pattern.search(line) if self.pattern else line == STARTED):
            self.ready = True
            yield Note("ready", {"carrier": self.carrier})
        text = line.strip()
        if text[:1] == "{":
            try:
                said = json.loads(text)
            except (ValueError, RecursionError):
                said = None
            if isinstance(said, dict):
                yield from self._said(said)
                return
        for pattern in self.patterns:
            if match := pattern.search(line):
                yield from self._groups(match.groupdict(), line)

    def _said(self, said: dict[str, Any]) -> Iterator[Note]:
        kind = said.get("event")
        if not isinstance(kind, str) or kind not in _SAID:
            yield from (Note("metric", {"name": name[:80], "value": v}) for name, v in said.items() if _is_number(v))
            return
        values = {name: value for name, value in said.items() if name != "event"}
        if kind == "ready":
            if self.ready:
                return
            self.ready = True
            values = {"carrier": self.carrier, **values}
        if all(name in values for name in _SAID[kind]) and not any(_is_wrong(*item) for item in values.items()):
            yield Note(kind, values)

    def _groups(self, groups: Mapping[str, str | None], line: str) -> Iterator[Note]:
        status = groups.get("status")
        if groups.get("error") is not None:
            yield Note("error", {"words": str(groups["error"]).strip() or line.strip(), "status": status})
        for name, text in groups.items():
            if text is None or name in ("error", "status"):
                continue
            value = _number(text)
            if name == "bytes" and value is not None and value >= 0:
                yield Note("progress", {"bytes": int(value * self.unit_bytes)})
            elif name == "layer":
                yield Note("layer", {"layer": value if value is not None else text})
            elif value is not None:
                yield Note("metric", {"name": name, "value": value})


def _is_wrong(name: str, value: Any) -> bool:
    if name in ("bytes", "blocks", "wrong", "seconds"):
        return not _is_number(value) or value < 0
    return (name == "name" and not isinstance(value, str)) or (name == "value" and not _is_number(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _number(text: str) -> float | int | None:
    try:
        value = float(text.replace(",", "")) if not text.isdecimal() else int(text[:18])
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _words(name: str, text: str, host: Host, peer: Host) -> list[str]:
    known = {**host._asdict(), **{f"peer_{key}": value for key, value in peer._asdict().items()}}
    try:
        words = shlex.split(text)
        return [re.sub(r"\{(\w+)\}", lambda match: str(known[match[1]]), word) for word in words]
    except ValueError as error:
        raise BadInput(f"{name} = {text[:80]!r}: {error}; wanted a command in a shell's words") from error
    except KeyError as error:
        raise BadInput(f"{name}: {{{error.args[0]}}} is not known; known: {', '.join(sorted(known))}") from error


def ends(setting: Setting) -> dict[str, End]:
    """Return how each end is started. Raises BadInput."""
    given = setting.parameters
    if not given["client"].strip():
        raise BadInput("client: wanted a command, for example --set client='rping -c -a {peer_address} -C 5'")
    ready = _compiled("ready", given["ready"]) if given["ready"] else None
    patterns = tuple(_compiled("patterns", line) for line in given["patterns"].splitlines() if line.strip())
    made = {}
    for role, host, peer in ((SERVER, setting.server, setting.client), (CLIENT, setting.client, setting.server)):
        words = _words(role, given[role], host, peer)
        if words:
            started = [] if ready else ["sh", "-c", f'echo "{STARTED}"; exec "$@"', "sh"]
            reader = Reader(ready, patterns, given["unit_bytes"], given["carrier"])
            made[role] = End([*started, *words], reader, seconds=given["seconds"] if role == CLIENT else 0.0)
    return made
