"""Fill the evidence: run every source over a live node, a captured tree, or read what was pasted."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from rdmadiag.errors import BadFile, HostRefused, NotGiven, NotPresent
from rdmadiag.evidence import given, paste
from rdmadiag.evidence.row import Gap, Printed, Row, Rows
from rdmadiag.evidence.store import Evidence, table_names
from rdmadiag.host import CapturedHost, Host

SOURCE_SECONDS = 2.0
"""Time limit of one source's `read` [s], unless its module has SECONDS."""
_BATCH_SECONDS = 0.02

Item = Row | Rows | Gap | Printed
Batch = tuple[str, list[Item], float | None, float]


class Options(NamedTuple):
    """How to look: window between the samples [s], budget of the run [s], how old a log line may be [s]."""

    window: float = 1.0
    budget: float = 10.0
    since: float = 86400.0


class Timing(NamedTuple):
    """What one source cost [s], for `--timing`."""

    source: str
    seconds: float
    items: int


def library(
    modules: dict[str, ModuleType], patterns: Sequence[tuple[str, int, str, str]], cached: bool = True
) -> paste.Library:
    """Make the library of known texts and patterns for this run."""
    texts = [(name, text) for name, module in modules.items() for text in getattr(module, "TEXTS", ())]
    return paste.Library(texts, patterns, cached)


def run_source(name: str, module: ModuleType, host: Host, skip: frozenset[str] = frozenset()) -> Iterator[Item]:
    """Yield what one source reads; what it may not or cannot read is a gap, and a crash of it too."""
    tables = tuple(module.TABLES)
    try:
        yield from module.read(host, skip) if getattr(module, "SAMPLED", False) else module.read(host)
    except NotPresent:
        return
    except HostRefused as refused:
        kind = "not_given" if isinstance(refused, NotGiven) else "not_permitted" if refused.how else "unreadable"
        yield Gap(tables, refused.reason, kind, refused.how, refused.what)
    except Exception as error:  # noqa: BLE001  # the one broad except: a source that crashes is a gap, not the end of the run
        yield Gap(tables, f"source {name} crashed: {type(error).__name__}: {error}", "crash", "report this", name)


def live(
    evidence: Evidence, host: Host, modules: dict[str, ModuleType], texts: paste.Library, options: Options
) -> list[Timing]:
    """Look at this node. Sources run in a child process, so that one that hangs in the kernel holds nobody up."""
    node = host.name
    with_read = [name for name, module in modules.items() if hasattr(module, "read")]
    sampled = [name for name in with_read if getattr(modules[name], "SAMPLED", False)]
    plan: list[tuple[str, str]] = [(name, "first") for name in sampled if options.window > 0]
    plan += [(name, "once") for name in with_read if name not in sampled]
    plan += [(name, "last") for name in sampled]
    deadline = time.monotonic() + options.budget
    timings: list[Timing] = []
    skip: set[str] = set()
    started: float | None = None
    for name, phase, items, clock, seconds in _in_children(plan, modules, host, skip, options, deadline):
        started = clock if started is None else started
        timings.append(Timing(name, seconds, len(items)))
        for item in items:
            if isinstance(item, Gap) and item.kind == "restricted":
                skip.add(item.subject)
            if isinstance(item, Printed):
                for source, _, inner in paste.read_printed(texts, item, options.since):
                    evidence.add_item(node, source, inner, item.at)
            elif isinstance(item, Row) and item.table == "counter":
                if phase == "first":
                    evidence.sample(node, item, clock)
                else:
                    evidence.add_counter(node, item, clock)
            elif phase != "first" or not isinstance(item, Gap):
                evidence.add_item(node, name, item)
        if not any(isinstance(item, Gap) for item in items) and phase != "first":
            evidence.add(node, {"source": name, "complete": 1, "seconds": seconds}, "reading", "live")
    return timings


def _in_children(
    plan: list[tuple[str, str]],
    modules: dict[str, ModuleType],
    host: Host,
    skip: set[str],
    options: Options,
    deadline: float,
) -> Iterator[tuple[str, str, list[Item], float, float]]:
    # One child does the whole plan; only when a source hangs is the child killed, and another one goes on behind it.
    first_sample = time.monotonic()
    while plan:
        reader, pid = _fork(plan, modules, host, frozenset(skip), options.window, first_sample)
        try:
            with os.fdopen(reader, "rb") as pipe:
                while plan:
                    name, phase = plan[0]
                    limit = float(getattr(modules[name], "SECONDS", SOURCE_SECONDS))
                    wait = limit + (options.window if phase == "last" else 0.0)
                    items, clock, seconds, ended = _receive(pipe, min(wait, max(0.0, deadline - time.monotonic())))
                    plan.pop(0)
                    if not ended:
                        why = (
                            f"took longer than {limit:g} s"
                            if time.monotonic() < deadline
                            else f"the budget of {options.budget:g} s was used up"
                        )
                        items.append(
                            Gap(
                                tuple(modules[name].TABLES),
                                f"source {name}: {why}",
                                "timeout",
                                "raise --budget, or look why the kernel does not answer",
                                name,
                            )
                        )
                    yield name, phase, items, clock, seconds
                    if not ended:
                        break
        finally:
            os.kill(pid, signal.SIGKILL)
            _reap(pid)
        if plan and time.monotonic() >= deadline:
            for name, _ in plan:
                yield (
                    name,
                    "last",
                    [
                        Gap(
                            tuple(modules[name].TABLES),
                            f"the budget of {options.budget:g} s was used up",
                            "timeout",
                            "raise --budget",
                            name,
                        )
                    ],
                    0.0,
                    0.0,
                )
            return


def _reap(pid: int) -> None:
    # A child stuck in the kernel cannot be waited for; it goes when the kernel lets it.
    for _ in range(20):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.005)


def _fork(
    plan: list[tuple[str, str]],
    modules: dict[str, ModuleType],
    host: Host,
    skip: frozenset[str],
    window: float,
    first: float,
) -> tuple[int, int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return reader, pid
    try:  # the child: it never returns
        os.close(reader)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with os.fdopen(writer, "wb") as pipe:
            refused = set(skip)
            for name, phase in plan:
                if phase == "last" and window > 0:
                    time.sleep(max(0.0, first + window - time.monotonic()))
                _send_source(pipe, name, modules[name], host, refused)
    finally:
        os._exit(0)


def _send_source(pipe: Any, name: str, module: ModuleType, host: Host, refused: set[str]) -> None:
    start = last = time.monotonic()
    clock = host.clock()
    batch: list[Item] = []
    for item in run_source(name, module, host, frozenset(refused)):
        if isinstance(item, Gap) and item.kind == "restricted":
            refused.add(item.subject)
        batch.append(item._replace(tuples=list(item.tuples)) if isinstance(item, Rows) else item)
        now = time.monotonic()
        if now - last > _BATCH_SECONDS:
            _send(pipe, (batch, clock, now - start, False))
            batch, last = [], now
    _send(pipe, (batch, clock, time.monotonic() - start, True))


def _send(pipe: Any, message: tuple[list[Item], float, float, bool]) -> None:
    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(len(content).to_bytes(8, "little") + content)
    pipe.flush()


def _receive(pipe: Any, seconds: float) -> tuple[list[Item], float, float, bool]:
    # Collect one source's batches until its last one, or until its time is up.
    deadline = time.monotonic() + seconds
    items: list[Item] = []
    clock = took = 0.0
    while True:
        head = _exactly(pipe, 8, deadline)
        body = _exactly(pipe, int.from_bytes(head, "little"), deadline) if head else None
        if body is None:
            return items, clock, took or seconds, False
        batch, clock, took, ended = pickle.loads(body)  # from our own child
        items += batch
        if ended:
            return items, clock, took, True


def _exactly(pipe: Any, size: int, deadline: float) -> bytes | None:
    parts: list[bytes] = []
    while size:
        wait = deadline - time.monotonic()
        if wait <= 0 or not select.select([pipe], [], [], wait)[0]:
            return None
        part = os.read(pipe.fileno(), min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def tree(evidence: Evidence, part: given.GivenTree, node: str, modules: dict[str, ModuleType]) -> None:
    """Look at a captured tree; with an earlier sample of its counters where there is one."""
    host = CapturedHost(part.tree, node, part.seconds)
    before = CapturedHost(part.before, node, part.before_seconds) if part.before is not None else None
    for name, module in modules.items():
        if not hasattr(module, "read"):
            continue
        if before is not None and getattr(module, "SAMPLED", False):
            for item in run_source(name, module, before):
                if isinstance(item, Row) and item.table == "counter":
                    evidence.sample(node, item, before.seconds)
        gaps = False
        for item in run_source(name, module, host):
            if isinstance(item, Row) and item.table == "counter":
                evidence.add_counter(node, item, host.seconds, part.path)
            elif isinstance(item, Gap) and item.kind == "not_given":
                gaps = True  # said once for all that was given, at the end
            elif not isinstance(item, Printed):
                gaps = gaps or isinstance(item, Gap)
                evidence.add_item(node, name, item, part.path)
        if not gaps:
            evidence.add(node, {"source": name, "complete": 1}, "reading", part.path)


def from_paths(
    evidence: Evidence,
    specs: Sequence[str],
    modules: dict[str, ModuleType],
    texts: paste.Library,
    options: Options,
    progress: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Read all that `--from` names, never the live node. Returns the paths of texts that no tool or pattern knew.

    Raises BadFile when a value is nothing that can be read; parts of folders and archives that cannot be are gaps.
    """
    deadline = time.monotonic() + options.budget
    reads: list[paste.Read] = []
    trees: list[given.GivenTree] = []
    for spec in specs:
        found = False
        for part in given.expand(spec):
            found = True
            if isinstance(part, given.Refused):
                evidence.gap(None, "given", Gap(("reading",), part.reason, part.kind, "", part.path))
            elif isinstance(part, given.GivenTree):
                trees.append(part)
            elif time.monotonic() > deadline:
                evidence.gap(
                    None,
                    "given",
                    Gap(
                        ("reading",),
                        f"the budget of {options.budget:g} s was used up",
                        "truncated",
                        "raise --budget",
                        part.path,
                    ),
                )
            else:
                progress(part.path)
                _read_part(
                    evidence, texts, part, deadline, options, reads, alone=part.path in (spec, spec.partition("=")[2])
                )
        if not found:
            raise BadFile(spec, "", "an empty folder or archive; wanted texts or a captured tree")
    tree_nodes = {part.group: _tree_node(part) for part in trees}
    for part in trees:
        tree(evidence, part, tree_nodes[part.group], modules)
    reads = [read._replace(node=read.node or tree_nodes.get(read.group)) for read in reads]
    for node, source, place, item in paste.assign(reads, _default_node):
        evidence.add_item(node, source, item, place)
    _not_given(evidence, modules)
    return [
        read.path
        for read in reads
        if not read.tools
        and not any(item for _, _, item in read.items if not isinstance(item, Row) or item.table != "reading")
    ]


def _read_part(
    evidence: Evidence,
    texts: paste.Library,
    part: given.GivenText,
    deadline: float,
    options: Options,
    reads: list[paste.Read],
    alone: bool,
) -> None:
    try:
        reads.append(paste.read_text(texts, part, deadline, options.since))
    except BadFile as error:
        if alone:
            raise
        evidence.gap(None, "given", Gap(("reading",), error.wanted, "unreadable", "", part.path))


def _tree_node(part: given.GivenTree) -> str:
    if part.node:
        return part.node
    try:
        return CapturedHost(part.tree).read("/proc/sys/kernel/hostname")
    except (NotPresent, HostRefused):
        return os.path.basename(part.group.rstrip("/")) or "node"


def _default_node(read: paste.Read) -> str:
    if read.path == "-":
        return "stdin"
    name = os.path.basename(read.group.rstrip("/:")) if read.group not in (".", "-", "") else ""
    stem = os.path.basename(read.path).partition(".")[0]
    return name or stem or "node"


def _not_given(evidence: Evidence, modules: dict[str, ModuleType]) -> None:
    # With --from, a table that nothing given could fill for a node is a gap; logs by kind, since rules read them by kind.
    skipped = {"node", "gap", "reading", "log", "expect", "counter_meaning"}
    tables = [name for name in table_names() if name not in skipped]
    filled: dict[str, set[str]] = {name: evidence.nodes_of(name) for name in tables}
    for node, source in evidence.db.execute("SELECT node, source FROM reading WHERE complete").fetchall():
        for table in modules[source].TABLES if source in modules else ():
            filled.setdefault(table, set()).add(node)
    for log, view in (("kernel", "kernel_event"), ("application", "app_event")):
        rows = evidence.db.execute("SELECT node FROM reading WHERE log = ?", (log,))
        filled[view] = {row[0] for row in rows}
    evidence.db.execute(
        "DELETE FROM gap WHERE kind = 'not_given' AND EXISTS"
        " (SELECT 1 FROM reading r WHERE r.node = gap.node AND r.source = gap.source AND r.complete)"
    )  # an excerpt beside the whole of it
    nodes = set().union(*filled.values(), evidence.nodes_of("reading"))
    for node in sorted(name for name in nodes if name):
        missing = tuple(table for table, having in filled.items() if node not in having)
        if missing:
            evidence.gap(
                node,
                "given",
                Gap(missing, "not given", "not_given", "add it with --from, or run rdmadiag check on the node"),
            )
