"""Fill the evidence: run every source over a live node or a captured tree, or read what was pasted."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

from rdmadiag.errors import BadFile, HostRefused, NotPresent
from rdmadiag.evidence import archive, aside, assign, children, given, paste
from rdmadiag.evidence.children import Step, run_source
from rdmadiag.evidence.row import Gap, Printed, Row, Rows
from rdmadiag.evidence.store import MADE_OF, SHIPPED, Evidence, table_names
from rdmadiag.evidence.texts import Library
from rdmadiag.host import Host
from rdmadiag.host.captured import CapturedHost
from rdmadiag.patterns import late

__all__ = ["Options", "Timing", "from_paths", "library", "live", "run_source", "tree"]


class Options(NamedTuple):
    """How to look: window between the samples [s], budget of the run beside the window [s], how old a log line may be [s]."""

    window: float = 1.0
    budget: float = 10.0
    since: float = 86400.0


class Timing(NamedTuple):
    """What one source cost [s], for `--timing`."""

    source: str
    seconds: float
    items: int


def library(
    modules: Mapping[str, ModuleType], patterns: Sequence[tuple[str, int, str, str]], cached: bool = True
) -> Library:
    """Make the library of known texts and patterns for this run."""
    texts = [(name, text) for name, module in modules.items() for text in getattr(module, "TEXTS", ())]
    return Library(texts, patterns, cached)


def live(
    evidence: Evidence, host: Host, modules: Mapping[str, ModuleType], texts: Library, options: Options
) -> list[Timing]:
    """Look at this node. Sources run in a child process, so that one that hangs in the kernel holds nobody up."""
    timings: list[Timing] = []
    gapped: set[str] = set()
    for step, items, clock, seconds in children.look(
        _steps(modules, options.window), modules, host, options.window, options.budget
    ):
        timings.append(Timing(step.source, seconds, len(items)))
        for item in items:
            if isinstance(item, Gap):
                if step.phase == "first" and item.kind != "restricted":
                    continue  # the last sample says it again, but leaves out the adapters that are set aside
                gapped.add(step.source)
            _take(evidence, host.name, step, item, clock, texts, options.since)
        if step.phase != "first" and step.source not in gapped:
            evidence.add(host.name, {"source": step.source, "complete": 1, "seconds": seconds}, "reading", "live")
    return timings


def _steps(modules: Mapping[str, ModuleType], window: float) -> list[Step]:
    # The first samples, then all that is read once while the window passes, then the last samples.
    names = [name for name, module in modules.items() if hasattr(module, "read")]
    sampled = [name for name in names if getattr(modules[name], "SAMPLED", False)]
    steps = [Step(name, "first") for name in sampled if window > 0]
    steps += [Step(name, "once") for name in names if name not in sampled]
    return steps + [Step(name, "last") for name in sampled]


def _take(
    evidence: Evidence, node: str, step: Step, item: children.Item, clock: float, texts: Library, since: float
) -> None:
    if isinstance(item, Printed):
        for source, _, inner in paste.read_printed(texts, item, since):
            evidence.add_item(node, source, inner, item.at)
    elif isinstance(item, Row) and item.table == "counter":
        if step.phase == "first":
            evidence.sample(node, item, clock)
        else:
            evidence.add_counter(node, item, clock)
    elif step.phase != "first" or isinstance(item, Gap):
        evidence.add_item(node, step.source, item)


def tree(
    evidence: Evidence,
    part: given.GivenTree,
    node: str,
    modules: Mapping[str, ModuleType],
    texts: Library,
    since: float,
) -> set[str]:
    """Look at a captured tree; with an earlier sample of its counters where there is one.

    Returns the tables that the tree does not hold: not gaps yet, for a text beside it may. What a bundle does not hold is
    one: it was made by looking at all that this program asks a node.
    """
    host = CapturedHost(part.tree, node, part.seconds)
    skip: frozenset[str] = frozenset()
    if part.before is not None:
        skip = _first_samples(evidence, CapturedHost(part.before, node, part.before_seconds), modules)
    lost = {source for source, _ in part.manifest.gaps} if part.manifest else set()
    for source, gap in part.manifest.gaps if part.manifest else ():
        evidence.gap(node, source, gap._replace(tables=tuple(name for name in gap.tables if name in table_names())))
    missing: set[str] = set()
    for name, module in modules.items():
        if not hasattr(module, "read"):
            continue
        gaps = False
        for item in run_source(name, module, host, skip):
            if isinstance(item, Row) and item.table == "counter":
                evidence.add_counter(node, item, host.seconds, part.path)
            elif isinstance(item, Printed):
                for source, _, inner in paste.read_printed(texts, item, since):
                    evidence.add_item(node, source, inner, f"{part.path}:{item.at}")
            elif isinstance(item, Gap):
                gaps = True
                if item.kind == "not_given" and (part.manifest is None or name in lost):
                    missing.update(item.tables)
                else:
                    evidence.gap(node, name, item)
            elif isinstance(item, Rows) or (
                isinstance(item, Row) and (part.tree.whole or item.values.get("present") != 0)
            ):
                evidence.add_item(node, name, item, part.path)
        if not gaps and part.tree.whole:
            evidence.add(node, {"source": name, "complete": 1}, "reading", part.path)
    if not part.tree.whole:
        tables = tuple(
            sorted({table for module in modules.values() for table in module.TABLES} - {"app_event", "completion"})
        )
        why = f"the captured tree is cut off (its last line has no end, or it is longer than {given.TREE_BYTES >> 20} MiB)"
        evidence.gap(node, "given", Gap(tables, why, "truncated", "capture it again", part.path))
    return missing


def _first_samples(evidence: Evidence, host: CapturedHost, modules: Mapping[str, ModuleType]) -> frozenset[str]:
    # Returns the adapters to set aside, as the live node's second sample does.
    skip: set[str] = set()
    for name, module in modules.items():
        if getattr(module, "SAMPLED", False):
            for item in run_source(name, module, host):
                if isinstance(item, Row) and item.table == "counter":
                    evidence.sample(host.name, item, host.seconds)
                elif isinstance(item, Gap) and item.kind == "restricted":
                    evidence.gap(host.name, name, item)
                    skip.add(item.subject)
    return frozenset(skip)


def from_paths(
    evidence: Evidence,
    specs: Sequence[str],
    modules: Mapping[str, ModuleType],
    texts: Library,
    options: Options,
    progress: Callable[[str], None] = lambda text: None,
    known: frozenset[str] = frozenset(),
) -> list[str]:
    """Read all that `--from` names, never the live node. Returns the paths of texts that no tool or pattern knew.

    `known`: nodes that were looked at before, for which nothing is missing here.

    Raises BadFile when a value is nothing that can be read; parts of folders and archives that cannot be are gaps.
    """
    with _no_garbage_collection(), contextlib.ExitStack() as at_end:
        return _from_paths(evidence, specs, modules, texts, options, progress, known, at_end)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # Nothing here makes cycles, and looking for them among the objects of 100,000 QPs takes a quarter of the time.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _from_paths(
    evidence: Evidence,
    specs: Sequence[str],
    modules: Mapping[str, ModuleType],
    texts: Library,
    options: Options,
    progress: Callable[[str], None],
    known: frozenset[str],
    at_end: contextlib.ExitStack,
) -> list[str]:
    typed = "-" in specs and sys.stdin is not None and sys.stdin.isatty()  # a person who types has no time limit
    deadline = math.inf if typed else time.monotonic() + options.budget
    reads = _Reads(evidence, texts, deadline, options.since)
    at_end.callback(reads.abandon)
    held: list[given.GivenTree | given.TreeText] = []
    captured: set[str] = set()
    for spec in specs:
        for part in given.expand(spec, deadline):
            if isinstance(part, given.Refused):
                evidence.gap(None, "given", Gap(("reading",), part.reason, part.kind, "", part.path))
            elif isinstance(part, (given.GivenTree, given.TreeText)):
                held.append(part)
            elif isinstance(part, given.GivenCapture):
                progress(part.path)
                captured.add(_captured(evidence, part, modules, given.split(spec)[1]))
            elif time.monotonic() > deadline:
                part.stream.close()
                reason = "was not read to its end in time"
                evidence.gap(None, "given", Gap(("reading",), reason, "truncated", "raise --budget", given.shown(spec)))
                break
            else:
                progress(part.path)
                reads.add(part, alone=given.split(spec)[1])
    reads.begin()
    trees = [part.parsed() if isinstance(part, given.TreeText) else part for part in held]
    nodes = {part.group: _tree_node(part) for part in trees}
    missing: dict[str, set[str]] = {}
    for part in trees:
        missing.setdefault(nodes[part.group], set()).update(
            tree(evidence, part, nodes[part.group], modules, texts, options.since)
        )
    found = [read._replace(node=read.node or _tree_above(read.group, nodes)) for read in reads.finish()]
    for node, source, place, item in assign.assign(_with_standard_input(found)):
        evidence.add_item(node, source, item, place)
    bundles = {nodes[part.group] for part in trees if part.manifest}
    _not_given(evidence, modules, missing, known | bundles, captured)
    return [read.path for read in found if not read.recognised]


def capture_name(path: str) -> str:
    """Return what a capture is called that no node is named for."""
    name = late(r"(\.(pcap|pcapng|cap))?(\.(gz|zst|xz|bz2))?$").sub("", os.path.basename(path))
    return "capture" if path == "-" else name or "capture"


def _captured(evidence: Evidence, part: given.GivenCapture, modules: Mapping[str, ModuleType], alone: str) -> str:
    # Reads a packet capture; returns the node that it is about: the one named, else the file's name.
    node = part.node or capture_name(part.path)
    complete = True
    try:
        for item in modules["captures"].capture(part.stream, part.path):
            evidence.add_item(node, "captures", item)
            complete = complete and not isinstance(item, Gap)
        evidence.add(node, {"source": "captures", "complete": int(complete) or None}, "reading", part.path)
    except BadFile as error:
        if error.path == given.shown(alone):
            raise
        evidence.gap(None, "given", Gap(("reading",), f"{error.place}: {error.wanted}", "unreadable", "", error.path))
    finally:
        part.stream.close()
    return node


class _Done(NamedTuple):
    """A text that was read, or why it could not be: file, place, what was wanted."""

    read: assign.Read | None
    refused: tuple[str, str, str] = ("", "", "")


LONG_BYTES = 1 << 20
"""From this much text on, a child takes its share of the texts that are no JSON."""
TOGETHER = 16
"""Most files held open to be read together."""


class _Waiting(NamedTuple):
    """A text to be read: its place among all, the path that the user named, and whether it may be JSON."""

    slot: int
    alone: str
    part: given.GivenText
    bytes: int
    json: bool


class _Reads:
    """The texts of one run, in the order in which they were given; where they are long, a child takes its share."""

    def __init__(self, evidence: Evidence, texts: Library, deadline: float, since: float) -> None:
        self._evidence, self._texts, self._deadline, self._since = evidence, texts, deadline, since
        self._slots: list[assign.Read | None] = []
        self._waiting: list[_Waiting] = []
        self._shared: list[_Waiting] = []
        self._child: aside.Shared[_Done] | None = None

    def add(self, part: given.GivenText, alone: str) -> None:
        """Take a text, which is read now or soon. Raises BadFile when it is all that `alone` names and cannot be read."""
        stream = part.stream
        size = stream.length() if isinstance(stream, archive.Incoming) else 0
        json = isinstance(stream, archive.Incoming) and size > 0 and paste.may_be_json(stream.head())
        self._waiting.append(_Waiting(len(self._slots), alone, part, size, json))
        self._slots.append(None)
        if not size or len(self._waiting) == TOGETHER:
            self.begin()

    def begin(self) -> None:
        """Read what waits here, or share it with a child when it is long and no JSON (whose rows are many)."""
        here, self._waiting = self._waiting, []
        long = [one for one in here if one.bytes and not one.json]
        if self._child is None and sum(one.bytes for one in long) >= LONG_BYTES and aside.spare_processor():
            here = [one for one in here if one not in long]
            self._shared = shared = sorted(long, key=lambda one: -one.bytes)
            self._child = aside.Shared(len(shared), lambda index: self._read(shared[index].part))
        for one in here:
            self._take(one, self._read(one.part))

    def finish(self) -> list[assign.Read]:
        """Read what the child has not begun, and wait for it. Returns what was read, in order."""
        if self._child is not None:
            done, died = self._child.results()
            for index, one in enumerate(self._shared):
                self._take(one, done.get(index) or _Done(None, (one.part.path, "", died)))
        return [read for read in self._slots if read is not None]

    def abandon(self) -> None:
        """End the child, when nobody waits for it any more, and close what is left open."""
        for one in (*self._waiting, *self._shared):
            one.part.stream.close()
        if self._child is not None:
            self._child.close()

    def _read(self, part: given.GivenText) -> _Done:
        try:
            return _Done(paste.read_text(self._texts, part, self._deadline, self._since))
        except BadFile as error:
            return _Done(None, (error.path, error.place, error.wanted))

    def _take(self, one: _Waiting, done: _Done) -> None:
        # What cannot be read is the user's mistake when exactly that file was named, else a gap.
        self._slots[one.slot] = done.read
        if done.read is not None:
            return
        path, place, wanted = done.refused
        if path == given.shown(one.alone):
            raise BadFile(path, place, wanted)
        gap = Gap(("reading",), f"{place}: {wanted}" if place else wanted, "unreadable", "", path)
        self._evidence.gap(None, "given", gap)


def _tree_node(part: given.GivenTree) -> str:
    if part.node:
        return part.node
    try:
        name = CapturedHost(part.tree).read("/proc/sys/kernel/hostname")
    except (NotPresent, HostRefused):
        name = ""
    return name or os.path.basename(os.path.abspath(part.group.rpartition(":")[2] or part.group)) or "node"


def _tree_above(group: str, nodes: Mapping[str, str]) -> str | None:
    # Texts in a folder below a captured tree's are about its node too.
    while group and group not in nodes:
        group = group[: max(group.rfind("/"), group.rfind(":"), 0)]
    return nodes.get(group)


def _with_standard_input(reads: list[assign.Read]) -> list[assign.Read]:
    # What comes through a pipe is about the same node as the files beside it, when those are of one folder.
    groups = {read.group for read in reads} - {"-"}
    if len(groups) != 1:
        return reads
    return [read._replace(group=next(iter(groups))) for read in reads]


def _not_given(
    evidence: Evidence,
    modules: Mapping[str, ModuleType],
    missing: Mapping[str, set[str]],
    known: frozenset[str],
    captured: set[str],
) -> None:
    # A capture is about the wire: nothing of a node is wanted beside it, and of a node no capture is.
    # With --from, a table that nothing given could fill for a node is a gap; logs by kind, since rules read them by kind.
    evidence.db.execute(
        "DELETE FROM gap WHERE kind = 'not_given' AND EXISTS"
        " (SELECT 1 FROM reading r WHERE r.node = gap.node AND r.source = gap.source AND r.complete)"
    )  # an excerpt beside the whole of it
    skipped = {"peering", "node", "gap", "reading", "log", "expect", *SHIPPED, *MADE_OF, *_NOT_OF_EVERY_NODE}
    skipped |= set(modules["captures"].TABLES) if "captures" in modules else set()
    filled = {name: evidence.nodes_of(name) for name in table_names() if name not in skipped}
    for node, source in evidence.db.execute("SELECT node, source FROM reading WHERE complete").fetchall():
        for table in modules[source].TABLES if source in modules else ():
            if table not in missing.get(node, ()):
                filled.setdefault(table, set()).add(node)
    kernel: dict[str, int] = dict(evidence.db.execute(_KERNEL_LOGS).fetchall())
    filled["kernel_event"] = {node for node, whole in kernel.items() if whole}
    filled["app_event"] = {row[0] for row in evidence.db.execute("SELECT node FROM reading WHERE log = 'application'")}
    filled["completion"] |= filled["app_event"]  # a log without one is an answer
    read = {row[0] for row in evidence.db.execute("SELECT node FROM reading WHERE source <> 'captures'")}
    nodes = set().union(*filled.values(), kernel, evidence.nodes_of("reading")) - (captured - read)
    how = "add it with --from, or run rdmadiag check on the node"
    for node in sorted(name for name in nodes - known if name):
        lacking = [table for table, having in filled.items() if node not in having]
        if "kernel_event" in lacking and node in kernel:
            lacking.remove("kernel_event")
            reason = "only an excerpt of the kernel log was given, which rules nothing out"
            evidence.gap(node, "given", Gap(("kernel_event",), reason, "not_given", "add all that dmesg prints"))
        if lacking:
            evidence.gap(node, "given", Gap(tuple(lacking), "not given", "not_given", how))


_NOT_OF_EVERY_NODE = ("switch_setting", "switch_counter", "lldp", "bond", "bond_slave", "qp_counter")
"""Tables of switches, and of what a node need not have: that nothing fills them says nothing."""
_KERNEL_LOGS = "SELECT node, max(coalesce(complete, 0)) FROM reading WHERE log = 'kernel' GROUP BY node"
