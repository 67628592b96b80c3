"""Limits of RDMA objects by control group: rdma.max and rdma.current of the groups that RDMA processes are in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rdmadiag.errors import HostRefused, NotPresent
from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.host import Host, names_in, text_of
from rdmadiag.patterns import late
from rdmadiag.sources.limits import rdma_processes

TABLES = ("cgroup_rdma",)
ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/rdma")
"""Unified hierarchy, and the rdma controller of version 1."""
GROUPS = 64
LINE_CHARACTERS = 1000


def read(host: Host) -> Iterable[Row | Gap]:
    """Read the groups of all processes that use RDMA, our own, and those above them: the tightest limit counts."""
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
