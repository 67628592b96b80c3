"""Interrupts of RDMA adapters and the processors that take them: msi_irqs of the function, /proc/irq, /proc/interrupts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.host import Host, names_in, text_of
from rdmadiag.patterns import late
from rdmadiag.sources import pci
from rdmadiag.sources._pci_ids import role_of

TABLES = ("irq",)

FUNCTION_IRQS = 256
"""Interrupts read of one function; an adapter has one a processor, at most 255 or so."""
LINE_CHARACTERS = 64 << 10
CPUS = 8192


def read(host: Host) -> Iterable[Row | Gap]:
    """Read the interrupts of each RDMA adapter, with who may take them and who does."""
    try:
        names = host.ls(pci.ROOT)
    except NotPresent:
        return
    counts: Mapping[int, Count] = {}
    looked = False
    for bdf in names:
        function = pci.function_of(host, bdf)
        if not function or role_of(function.vendor, function.device, function.code) != "rdma":
            continue
        numbers = [name for name in names_in(host, f"{pci.ROOT}/{bdf}/msi_irqs") if name.isdecimal()][:FUNCTION_IRQS]
        if numbers and not looked:
            looked, counts = True, _counts(host)
        local = cpu_list(text_of(host, f"{pci.ROOT}/{bdf}/local_cpulist"))
        try:
            for number in numbers:
                yield _row(host, bdf, int(number), local, counts.get(int(number)))
        except HostRefused as error:
            kind = "not_given" if isinstance(error, NotGiven) else "unreadable"
            yield Gap(TABLES, error.reason, kind, error.how, error.what)


def _row(host: Host, bdf: str, number: int, local: frozenset[int], count: Count | None) -> Row:
    folder = f"/proc/irq/{number}"
    # /proc/irq/N has a folder named after the handler, beside files of fixed names.
    named = [name for name in names_in(host, folder) if name not in _FILES]
    may, does = text_of(host, f"{folder}/smp_affinity_list"), text_of(host, f"{folder}/effective_affinity_list")
    name = count.name if count and count.name else named[0] if named else None
    values: dict[str, Any] = {"irq": number, "bdf": bdf, "name": name, "cpus": may, "effective_cpus": does}
    takers = cpu_list(does or may)
    if local and takers:
        values["local"] = int(bool(takers & local))
    if name:
        values["completion"] = is_completion(name)
    if count:
        values.update(count=count.total, busiest_cpu=count.busiest)
    return Row("irq", {key: value for key, value in values.items() if value not in (None, "")}, folder)


_FILES = frozenset(
    (
        "affinity_hint",
        "effective_affinity",
        "effective_affinity_list",
        "node",
        "smp_affinity",
        "smp_affinity_list",
        "spurious",
    )
)
_NOT_COMPLETION = late(r"async|cmd|pages|ctrl|misc|aeq|-OICR|mbx|mgmt", re.I)


def is_completion(name: str) -> int:
    """Tell by a handler's name whether it serves completions (1), or commands and events (0)."""
    return int(not _NOT_COMPLETION.search(name))


def cpu_list(text: str) -> frozenset[int]:
    """Return the processors of a list such as `0-55,112-167`; empty for another text."""
    found: set[int] = set()
    for part in text.strip().split(","):
        match = late(r"(\d{1,5})(?:-(\d{1,5}))?").fullmatch(part)
        if match is None:
            return frozenset()
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first > CPUS:
            return frozenset()
        found.update(range(first, last + 1))
    return frozenset(found)


# --- /proc/interrupts ---


class Count(NamedTuple):
    """How often an interrupt came, the processor that took most of them, and the function and handler it belongs to."""

    total: int
    busiest: int | None
    name: str
    bdf: str | None


def _counts(host: Host) -> Mapping[int, Count]:
    try:
        text = host.read("/proc/interrupts")
    except (NotPresent, HostRefused):
        return {}
    lines = [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]
    return {irq: count for _, irq, count in _table(lines)}


_HEAD = late(r"\s+CPU(\d{1,5})\s")
_FUNCTION = late(r"\b([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b")
_HANDLER = late(r"(?:mlx[45]|bnxt|irdma|ice|i40e|efa|hns|ionic|erdma|mana|cxgb4|qed)[\w@:.-]*")


def _table(lines: Sequence[Line]) -> Iterator[tuple[int, int, Count]]:
    # Number of the line, number of the interrupt, and its count; only of lines that name a PCI function or an adapter's handler.
    cpus: list[int] = []
    for number, text in lines:
        if len(text) > LINE_CHARACTERS:
            continue
        if _HEAD.match(f"{text} "):
            cpus = [int(word[3:]) for word in text.split() if late(r"CPU\d{1,5}").fullmatch(word)]
            continue
        irq, colon, rest = text.strip().partition(":")
        function = _FUNCTION.search(rest)
        words = rest.split()
        if not (cpus and colon and irq.isdecimal() and len(irq) < 10 and len(words) > len(cpus)):
            continue
        if not all(word.isdecimal() and len(word) < 16 for word in words[: len(cpus)]):
            continue
        name = " ".join(words[len(cpus) :]).rpartition(" ")[2]
        if function or _HANDLER.match(name):
            each = [int(word) for word in words[: len(cpus)]]
            total = sum(each)
            busiest = cpus[each.index(max(each))] if total else None
            yield number, int(irq), Count(total, busiest, name, function[1] if function else None)


def parse(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse /proc/interrupts: lines of adapters that can do RDMA, as their handlers' names tell."""
    for number, irq, count in _table(lines):
        if _HANDLER.match(count.name):
            values = {
                "irq": irq,
                "bdf": count.bdf,
                "name": count.name,
                "count": count.total,
                "busiest_cpu": count.busiest,
                "completion": is_completion(count.name),
            }
            yield Row("irq", {key: value for key, value in values.items() if value is not None}, number)


TEXTS = (Text("/proc/interrupts", (r"^ +CPU[0-9]+ ",), parse),)
