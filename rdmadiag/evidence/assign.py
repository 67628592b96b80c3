"""Which node each pasted text is about."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rdmadiag.evidence.row import Gap, Row, Rows
from rdmadiag.patterns import late

_SEVERAL_OF_ONE_NODE = {
    "command line",
    "environment",
    "environment in a log",
    "completion errors",
    "limits",
    "dmesg (boot)",
}

NODES_ASSUMED = 4
"""A text that names no host is taken to be about each node of its folder, if there are not more than these."""

_COMMON_WORDS = {
    "log",
    "txt",
    "json",
    "out",
    "output",
    "stdout",
    "stderr",
    "kern",
    "kernel",
    "syslog",
    "messages",
    "all",
}

Item = Row | Rows | Gap


class Read(NamedTuple):
    """What one text held, before it is known which node it is about. Items: source, host that it names itself, item."""

    path: str
    group: str
    node: str | None
    hosts: list[str]
    items: list[tuple[str, str | None, Item]]
    tools: list[str]
    recognised: bool


def assign(reads: Sequence[Read]) -> Iterator[tuple[str, str, str, Item]]:
    """Yield (node, source, place, item) of all texts: which node each item is about.

    In order: the name that was given; the host that the line or prompt names; the one host that the text names; the host in the
    file's name; the one host that its folder's texts name; else all hosts of the folder (up to four), the file's name where two
    texts of a folder come from one tool, or the folder's name. The last four are gaps of kind 'assumed', unless a text stands alone.
    """
    groups: dict[str, list[Read]] = {}
    for read in reads:
        groups.setdefault(read.group, []).append(read)
    for group in groups.values():
        tools = Counter(tool for read in group for tool in set(read.tools) - _SEVERAL_OF_ONE_NODE)
        about = _Group(
            list(dict.fromkeys(host for read in group for host in read.hosts)),
            len(group) == 1,
            max(tools.values(), default=0) > 1,
        )
        guesses: dict[tuple[str, ...], list[str]] = {}
        for read in group:
            nodes, assumed = ([read.node], False) if read.node else _nodes_of(read, about)
            if assumed and read.recognised and not all(host for _, host, item in read.items if not _is_reading(item)):
                guesses.setdefault(tuple(nodes), []).append(read.path)
            for source, host, item in read.items:
                for node in [host] if host and not read.node else nodes:
                    yield node, source, read.path, item
        for names, paths in guesses.items():
            yield names[0], "text", paths[0], _guess(names, paths)


class _Group(NamedTuple):
    """Texts of one folder: the hosts that they name, whether it is one text, whether two come from one tool."""

    hosts: list[str]
    alone: bool
    twins: bool


def _is_reading(item: Item) -> bool:
    return not isinstance(item, Gap) and item.table == "reading"


def _guess(nodes: Sequence[str], paths: Sequence[str]) -> Gap:
    texts = paths[0] if len(paths) == 1 else f"{len(paths)} texts ({', '.join(map(os.path.basename, paths[:4]))}"
    texts += "" if len(paths) == 1 else ", ...)" if len(paths) > 4 else ")"
    verb = "names" if len(paths) == 1 else "name"
    about = f"one node, {nodes[0]}" if len(nodes) == 1 else " and ".join(nodes)
    reason = f"{texts} {verb} no host: taken to be about {about}"
    return Gap(("node",), reason, "assumed", "name it: --from NODE=PATH", paths[0])


def _nodes_of(read: Read, group: _Group) -> tuple[list[str], bool]:
    if len(read.hosts) == 1:
        return list(read.hosts), False
    name = os.path.basename(read.path).lower()
    named = [host for host in group.hosts if host.lower() in name]
    if len(named) == 1:
        return named, False
    if len(group.hosts) == 1:
        return group.hosts, not group.alone
    if group.hosts and len(group.hosts) <= NODES_ASSUMED:
        return group.hosts, True
    if group.twins:
        return [_own_part(read) or _stem(read.path)], True
    return [_stem(read.path) if group.alone else _folder(read.group)], not group.alone


def _own_part(read: Read) -> str:
    # The part of a file's name that is not its tool's: node-a of node-a-ibstat.txt, '' of ibstat.txt.
    words = {word for tool in read.tools for word in late(r"\W+").split(tool) if word}
    name = os.path.splitext(os.path.basename(read.path.rpartition(":")[2]))[0]
    parts = late(r"([-_. ]+)").split(name)
    kept = [part for part in parts if part.lower() not in words | _COMMON_WORDS]
    return "".join(kept).strip("-_. ")


def _stem(path: str) -> str:
    return "stdin" if path == "-" else os.path.splitext(os.path.basename(path.rpartition(":")[2] or path))[0] or "node"


def _folder(group: str) -> str:
    return os.path.basename(os.path.abspath(group.replace(":", "/"))) or "node"
