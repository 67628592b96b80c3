"""PCI errors that the kernel counted of adapters, GPUs and the bridges above them: aer_dev_* and aer_rootport_* (two samples)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rdmadiag.errors import HostRefused, NotPresent
from rdmadiag.evidence.row import Gap, Row
from rdmadiag.host import Host
from rdmadiag.patterns import late
from rdmadiag.sources import pci
from rdmadiag.sources._pci_ids import role_of

TABLES = ("counter",)
SAMPLED = True

FILES = ("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
ROOT_FILES = ("aer_rootport_total_err_cor", "aer_rootport_total_err_nonfatal", "aer_rootport_total_err_fatal")
"""Of a root port: all messages that it got, also from devices below it that cannot count (Linux drivers/pci/pcie/aer.c)."""


def read(host: Host, skip: frozenset[str] = frozenset()) -> Iterable[Row | Gap]:
    """Read the counters of each function that matters; a function without AER, and a kernel without it, has none."""
    try:
        names = host.ls(pci.ROOT)
    except NotPresent:
        return
    for bdf in _functions(host, names):
        if bdf in skip:
            continue
        try:
            yield from _counters(host, bdf)
        except HostRefused as error:
            yield Gap(("counter.bdf",), error.reason, "unreadable", error.how, bdf)


def _functions(host: Host, names: Iterable[str]) -> list[str]:
    wanted: dict[str, None] = {}
    for bdf in names:
        function = pci.function_of(host, bdf)
        if function and role_of(function.vendor, function.device, function.code) in ("rdma", "gpu"):
            wanted.update(dict.fromkeys((bdf, *pci.bridges_above(host, bdf))))
    return list(wanted)


def _counters(host: Host, bdf: str) -> Iterator[Row]:
    for name in FILES:
        path = f"{pci.ROOT}/{bdf}/{name}"
        try:
            text = host.read(path)
        except NotPresent:
            return
        for kind, count in parse(text).items():
            yield _row(bdf, f"{name}/{kind}", count, path)
    for name in ROOT_FILES:
        path = f"{pci.ROOT}/{bdf}/{name}"
        try:
            text = host.read(path)
        except NotPresent:
            return
        if late(r"\d{1,18}").fullmatch(text):
            yield _row(bdf, name, int(text), path)


def _row(bdf: str, counter: str, value: int, path: str) -> Row:
    return Row("counter", {"bdf": bdf, "kind": "aer", "counter": counter, "value": value}, path)


def parse(text: str) -> dict[str, int]:
    """Parse lines `RxErr 0`, `TOTAL_ERR_COR 2`: count of each kind of error; passes over others, never raises."""
    return {match[1]: int(match[2]) for match in late(r"^(\w{1,40}) (\d{1,18})$", re.M).finditer(text)}
