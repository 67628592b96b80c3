"""Run sources in a child process, with a time limit each and a budget for all: one that hangs in the kernel holds nobody up."""

from __future__ import annotations

import itertools
import os
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

from rdmadiag import patterns
from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.row import Gap, Printed, Row, Rows
from rdmadiag.host import Host

SOURCE_SECONDS = 2.0
"""Time limit of one source's `read` [s], unless its module has SECONDS."""
ITEMS, TUPLES = 100_000, 1_000_000
"""Most items, and most rows of one `Rows`, that are taken from one source."""
_BATCH_SECONDS = 0.02
_REAP_SECONDS = 0.1

Item = Row | Rows | Gap | Printed


class Step(NamedTuple):
    """One source to run. `phase`: 'first' sample, 'last' sample, or 'once'."""

    source: str
    phase: str


class Looked(NamedTuple):
    """What one step yielded, the node's clock when it began [s], and what it took [s]."""

    step: Step
    items: list[Item]
    clock: float
    seconds: float


class _Message(NamedTuple):
    items: list[Item]
    clock: float
    seconds: float
    last: bool


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


def look(
    steps: Sequence[Step], modules: Mapping[str, ModuleType], host: Host, window: float, budget: float
) -> Iterator[Looked]:
    """Run the steps in order; 'last' steps begin `window` seconds after the first one, and all end within budget + window [s].

    A step that was cut off, and what died or was not begun, yields a gap. Adapters that a gap of kind 'restricted' names
    are handed to later steps as `skip`.
    """
    begin = time.monotonic()
    deadline = begin + budget + window
    left = list(steps)
    skip: set[str] = set()
    why = _used_up(budget)
    while left and time.monotonic() < deadline:
        try:
            child = _Child(left, modules, host, skip, begin + window)
        except OSError as error:
            why = f"cannot start a process to look with: {error.strerror}"
            break
        with child:
            while left:
                step = left.pop(0)
                limit = float(getattr(modules[step.source], "SECONDS", SOURCE_SECONDS))
                wait = limit + (max(0.0, begin + window - time.monotonic()) if step.phase == "last" else 0.0)
                looked, end = child.receive(step, min(time.monotonic() + wait, deadline))
                if not end:
                    skip |= _restricted(looked.items)
                    yield looked
                    continue
                if end == _LATE:
                    over = time.monotonic() >= deadline
                    end = _used_up(budget) if over else f"source {step.source} took longer than {limit:g} s"
                left = [
                    other for other in left if other.source != step.source
                ]  # its second sample would end the same way
                looked.items.append(_gap(step.source, modules, end))
                yield looked._replace(step=Step(step.source, "last"))
                break
    for name in dict.fromkeys(step.source for step in left):
        yield Looked(Step(name, "last"), [_gap(name, modules, why)], 0.0, 0.0)


_LATE = "late"


def _used_up(budget: float) -> str:
    return f"the budget of {budget:g} s was used up"


def _gap(name: str, modules: Mapping[str, ModuleType], why: str) -> Gap:
    kind = "crash" if why.startswith(_DIED) else "timeout"
    how = "report this" if kind == "crash" else "raise --budget, or look why the kernel does not answer"
    return Gap(tuple(modules[name].TABLES), why, kind, how, name)


def _restricted(items: Sequence[Item]) -> set[str]:
    return {item.subject for item in items if isinstance(item, Gap) and item.kind == "restricted"}


_DIED = "its process died"


class _Child:
    """A child process that runs steps and sends what they yield through a pipe; it is gone when the block ends."""

    def __init__(
        self,
        steps: Sequence[Step],
        modules: Mapping[str, ModuleType],
        host: Host,
        skip: set[str],
        second_sample: float,
    ) -> None:
        self._reader, writer = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            os.close(self._reader)
            os.close(writer)
            raise
        if self._pid == 0:
            _run(writer, steps, modules, host, set(skip), second_sample)
        os.close(writer)
        self._ready = select.poll()
        self._ready.register(self._reader, select.POLLIN)

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._reader)
        os.kill(self._pid, 9)  # SIGKILL
        end = time.monotonic() + _REAP_SECONDS
        while not os.waitpid(self._pid, os.WNOHANG)[0] and time.monotonic() < end:
            time.sleep(0.001)  # one that is stuck in the kernel cannot be waited for; it goes when the kernel lets it

    def receive(self, step: Step, deadline: float) -> tuple[Looked, str]:
        """Return what a step yielded, and '' or why it did not end."""
        import pickle

        begin = time.monotonic()
        items: list[Item] = []
        clock = 0.0
        while True:
            head, why = self._exactly(8, deadline)
            body, why = self._exactly(int.from_bytes(head, "little"), deadline) if not why else (b"", why)
            if why:
                return Looked(step, items, clock, time.monotonic() - begin), why
            message: _Message = pickle.loads(body)  # from our own child
            items += message.items
            clock = message.clock
            if message.last:
                return Looked(step, items, clock, message.seconds), ""

    def _exactly(self, size: int, deadline: float) -> tuple[bytes, str]:
        parts: list[bytes] = []
        while size:
            wait = deadline - time.monotonic()
            if wait <= 0 or not self._ready.poll(wait * 1000):
                return b"", _LATE
            part = os.read(self._reader, min(size, 1 << 20))
            if not part:
                return b"", f"{_DIED} while it looked"
            parts.append(part)
            size -= len(part)
        return b"".join(parts), ""


def _run(
    writer: int,
    steps: Sequence[Step],
    modules: Mapping[str, ModuleType],
    host: Host,
    skip: set[str],
    second_sample: float,
) -> None:
    # In the child; never returns.
    import signal

    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sampled = not any(step.phase == "first" for step in steps)  # a later child: what was sampled, another one knows
        for step in steps:
            if step.phase == "last" and sampled:  # without any counter there is nothing to wait for
                time.sleep(max(0.0, second_sample - time.monotonic()))
            counters = _run_step(writer, step, modules[step.source], host, skip)
            sampled = sampled or (step.phase == "first" and counters)
        patterns.keep()
    finally:
        os._exit(0)


def _run_step(writer: int, step: Step, module: ModuleType, host: Host, skip: set[str]) -> bool:
    # Returns whether a counter was read.
    begin = sent = time.monotonic()
    clock = host.clock()
    batch: list[Item] = []
    counters = False
    found = run_source(step.source, module, host, frozenset(skip))
    for item in _bounded(found, step.source, module):
        batch.append(item)
        counters = counters or (isinstance(item, Row) and item.table == "counter")
        now = time.monotonic()
        if now - sent > _BATCH_SECONDS:
            _send(writer, _Message(batch, clock, now - begin, False))
            skip |= _restricted(batch)
            batch, sent = [], now
    skip |= _restricted(batch)
    _send(writer, _Message(batch, clock, time.monotonic() - begin, True))
    return counters


def _bounded(items: Iterator[Item], name: str, module: ModuleType) -> Iterator[Item]:
    for count, item in enumerate(items):
        if count == ITEMS:
            yield _flood(name, module, ITEMS)
            return
        if isinstance(item, Rows):
            tuples = list(itertools.islice(item.tuples, TUPLES + 1))
            if len(tuples) > TUPLES:
                yield _flood(name, module, TUPLES)
            item = item._replace(tuples=tuples[:TUPLES])
        yield item


def _flood(name: str, module: ModuleType, most: int) -> Gap:
    return Gap(
        tuple(module.TABLES), f"source {name}: more than {most} rows; the rest was not read", "truncated", "", name
    )


def _send(writer: int, message: _Message) -> None:
    import pickle

    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    left = memoryview(len(content).to_bytes(8, "little") + content)
    while left:
        left = left[os.write(writer, left) :]
