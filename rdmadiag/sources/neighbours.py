"""Neighbours and policy rules: rtnetlink, and the texts of ip neigh and ip rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.row import Gap, Json, Line, Row, Text
from rdmadiag.host import Host
from rdmadiag.patterns import late
from rdmadiag.sources.devices import known, whole

TABLES = ("neighbour", "policy_rule")
ADDRESS = r"[0-9a-fA-F:.]{2,45}"


def read(host: Host) -> Iterator[Row | Gap]:
    """Read both by netlink."""
    parsers: tuple[tuple[str, str, Callable[[list[dict[str, Any]]], Iterator[Row]]], ...] = (
        ("neighbour", "ip neigh", parse_neighbours_json),
        ("policy_rule", "ip rule", parse_rules_json),
    )
    for table, command, parse in parsers:
        try:
            objects = host.objects(command)
        except NotPresent:
            continue
        except HostRefused as error:
            kind = "not_given" if isinstance(error, NotGiven) else "unreadable"
            yield Gap((table,), error.reason, kind, error.how, command)
            continue
        for row in parse(objects):
            yield row._replace(at=f"netlink: {command}")


# --- ip -j ---


def parse_neighbours_json(objects: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """Parse `ip -j neigh`."""
    for entry in objects:
        state = entry.get("state")
        word = state[0] if isinstance(state, list) and state else state
        if isinstance(entry.get("dst"), str) and isinstance(entry.get("dev"), str):
            values = {"netdev": entry["dev"], "address": entry["dst"], "lladdr": _word(entry.get("lladdr"))}
            yield Row("neighbour", known({**values, "state": _word(word)}), 1)


def parse_rules_json(objects: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """Parse `ip -j rule`."""
    for entry in objects:
        if whole(entry.get("priority")) is not None and isinstance(entry.get("src"), str):
            ends = {end: entry[end] + _bits(entry.get(f"{end}len")) for end in ("src", "dst") if _word(entry.get(end))}
            names = {key: _word(entry.get(key)) for key in ("family", "iif", "oif", "table", "action")}
            yield Row("policy_rule", known({"priority": whole(entry["priority"]), **ends, **names}), 1)


def _bits(value: object) -> str:
    return f"/{value}" if isinstance(value, int) else ""


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None


# --- ip neigh, ip rule ---

_STATES = "REACHABLE|STALE|DELAY|PROBE|FAILED|INCOMPLETE|PERMANENT|NOARP|NONE"
_NEIGHBOUR = late(
    rf"(?P<address>{ADDRESS}) dev (?P<netdev>\S+)(?: lladdr (?P<lladdr>[0-9a-f:]{{11,59}}))?"
    rf"(?: router| proxy| extern_learn)* +(?P<state>{_STATES})\b"
)
_RULE = late(r"(?P<priority>\d{1,10}):\s+from (?P<src>\S+)(?P<rest>.*)")


def parse_neighbours(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ip neigh`."""
    for number, text in lines:
        if match := _NEIGHBOUR.match(text.strip()):
            yield Row("neighbour", known(match.groupdict()), number)


def parse_rules(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ip rule`."""
    for number, text in lines:
        if match := _RULE.match(text.strip()):
            rest = match["rest"]
            values = {key: _group(rf" {word} (\S+)", rest) for key, word in _RULE_WORDS.items()}
            action = _group(r" (blackhole|unreachable|prohibit)\b", rest)
            row = {"priority": whole(match["priority"]), "src": match["src"], **values, "action": action}
            yield Row("policy_rule", known(row), number)


_RULE_WORDS = {"dst": "to", "iif": "iif", "oif": "oif", "table": "lookup"}


def _group(pattern: str, text: str) -> str | None:
    match = late(pattern).search(text)
    return match[1] if match else None


TEXTS: tuple[Text | Json, ...] = (
    Text("ip neigh", (rf"^[0-9a-f.:]+ dev \S+ .*({_STATES})",), parse_neighbours),
    Text("ip rule", (r"^[0-9]+:\s+from \S+ .*lookup \S+",), parse_rules),
    Json("ip -j neigh", (("dst", "dev", "state"),), parse_neighbours_json),
    Json("ip -j rule", (("priority", "src", "table"),), parse_rules_json),
)
