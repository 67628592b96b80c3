"""What control groups of RDMA processes may use, and how long they waited for it; limits of RDMA objects (rdma.max, rdma.current)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rdmadiag.errors import HostRefused, NotPresent
from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.host import Host, names_in, text_of
from rdmadiag.patterns import late
from rdmadiag.sources.limits import rdma_processes
from rdmadiag.sources.pressure import parse_pressure

TABLES = ("cgroup_rdma", "cgroup_use")
ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/rdma")
"""Unified hierarchy, and the rdma controller of version 1."""
GROUPS = 64
LINE_CHARACTERS = 1000


def read(host: Host) -> Iterable[Row | Gap]:
    """Read the groups of all processes that use RDMA, our own, and those above them: the tightest limit counts."""
    yield from _rdma(host)
    if text_of(host, f"{ROOTS[0]}/cgroup.controllers"):
        for group in list(_groups(host, ROOTS[0]))[:GROUPS]:
            yield from _use(host, group)


def _rdma(host: Host) -> Iterator[Row]:
    root = next((path for path in ROOTS if _has_controller(host, path)), None)
    if root is None:
        return
    for group in list(_groups(host, root))[:GROUPS]:
        folder = f"{root}{group}".rstrip("/")
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for file, column in (("rdma.max", "most"), ("rdma.current", "current")):
            for device, kind, amount in parse_amounts(text_of(host, f"{folder}/{file}")):
                rows.setdefault((device, kind), {})[column] = amount
        for (device, kind), amounts in rows.items():
            if amounts.get("most", -1) >= 0:
                yield Row("cgroup_rdma", {"cgroup": group, "device": device, "kind": kind, **amounts}, folder)


def _use(host: Host, group: str) -> Iterator[Row]:
    folder = f"{ROOTS[0]}{group}"
    values = parse_use({file: text_of(host, f"{folder}/{file}") for file in _FILES})
    if values:
        yield Row("cgroup_use", {"cgroup": group, **values}, folder)


_NUMBER = late(r"\d{1,18}$")
_NAMED = {  # file: key of a line, column
    "cpu.stat": {"nr_periods": "periods", "nr_throttled": "throttled"},
    "memory.events": {"high": "memory_high_events", "max": "memory_max_events"},
}
_PLAIN = {"memory.high": "memory_high_bytes", "memory.max": "memory_max_bytes", "memory.current": "memory_bytes"}
_RESOURCES = ("cpu", "memory")
_FILES = ("cpu.max", *_NAMED, *_PLAIN, *(f"{name}.pressure" for name in _RESOURCES))


def parse_use(files: Mapping[str, str]) -> dict[str, Any]:
    """Return columns of cgroup_use from the texts of a group's files, by file name (Documentation/admin-guide/cgroup-v2.rst)."""
    found: dict[str, Any] = {}
    quota, _, period = files.get("cpu.max", "").strip().partition(" ")
    if quota == "max":
        found["cpu_most"] = -1.0
    elif _NUMBER.match(quota) and _NUMBER.match(period) and int(period):
        found["cpu_most"] = round(int(quota) / int(period), 4)
    for file, keys in _NAMED.items():
        for line in files.get(file, "").splitlines()[:100]:
            key, _, value = line.partition(" ")
            if key in keys and _NUMBER.match(value):
                found[keys[key]] = int(value)
    for file, column in _PLAIN.items():
        value = files.get(file, "").strip()
        if value == "max" or _NUMBER.match(value):
            found[column] = -1 if value == "max" else int(value)
    for resource in _RESOURCES:
        found |= parse_pressure(resource, files.get(f"{resource}.pressure", ""))
    return found


def _has_controller(host: Host, root: str) -> bool:
    if root.endswith("/rdma"):
        return bool(names_in(host, root))
    return "rdma" in text_of(host, f"{root}/cgroup.controllers").split()


def _groups(host: Host, root: str) -> dict[str, None]:
    found: dict[str, None] = {}
    try:
        pids = rdma_processes(host)
    except (NotPresent, HostRefused):
        pids = []
    for pid in ("self", *map(str, pids)):
        for line in text_of(host, f"/proc/{pid}/cgroup").splitlines():
            _, controllers, path = [*line.split(":", 2), "", ""][:3]
            wanted = "rdma" in controllers.split(",") if root.endswith("/rdma") else not controllers
            while wanted and path.strip("/"):
                found.setdefault(path)
                path = path.rpartition("/")[0]
    return found


_AMOUNTS = late(r"(?P<device>[A-Za-z][\w.-]{1,62}) (?P<rest>hca_\w+=\S+(?: hca_\w+=\S+)*)\s*$")
_AMOUNT = late(r"(hca_handle|hca_object)=(max|\d{1,10})(?:\s|$)")


def parse_amounts(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield device, kind and amount of lines `mlx5_0 hca_handle=2 hca_object=2000`; `max` is -1."""
    for line in text.splitlines():
        if match := _AMOUNTS.match(line[:LINE_CHARACTERS]):
            for kind, amount in _AMOUNT.findall(match["rest"]):
                yield match["device"], kind, -1 if amount == "max" else min(int(amount), 1 << 31)


_FILE = late(r"(?P<path>\S*/)?rdma\.(?P<file>max|current)(?::(?P<rest>\S.*))?$")


def parse(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse rdma.max and rdma.current, each after its prompt line or behind its file name (`grep . rdma.*`)."""
    column, group = "", ""
    for number, text in lines:
        text = text[:LINE_CHARACTERS]
        words = (prompt_command(text) or text).split()
        match = _FILE.match(words[-1]) if words and prompt_command(text) else _FILE.match(text)
        if match:
            column = "most" if match["file"] == "max" else "current"
            group = late(r"^/sys/fs/cgroup(?:/rdma)?|/$").sub("", match["path"] or "")
            text = match["rest"] or ""
        for device, kind, amount in parse_amounts(text):
            if column:
                yield Row("cgroup_rdma", {"cgroup": group, "device": device, "kind": kind, column: amount}, number)


TEXTS = (
    Text(
        "rdma.max", (r"^([^ ]*rdma\.(max|current):)?[a-z][A-Za-z0-9_.-]+ hca_handle=(max|[0-9]+) hca_object=",), parse
    ),
)
