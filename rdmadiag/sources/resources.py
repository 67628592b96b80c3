"""Queue pairs, memory regions, completion queues, and how many objects of each kind there are: `rdma resource show`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.row import Gap, Json, Line, Row, Rows, Text
from rdmadiag.host import Host
from rdmadiag.sources.devices import LARGEST, whole

TABLES = ("qp", "mr", "cq", "resource")

Object = dict[str, Any]

# Columns of each table, each with the key of the tool's JSON; `text` and `hex` are strings, the rest are numbers.
_COLUMNS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "qp": (
        ("device", "ifname", "text"),
        ("port", "port", "number"),
        ("qpn", "lqpn", "number"),
        ("rqpn", "rqpn", "number"),
        ("type", "type", "text"),
        ("state", "state", "text"),
        ("rq_psn", "rq-psn", "number"),
        ("sq_psn", "sq-psn", "number"),
        ("path_mig_state", "path-mig-state", "text"),
        ("pdn", "pdn", "number"),
        ("pid", "pid", "number"),
        ("comm", "comm", "owner"),
    ),
    "mr": (
        ("device", "ifname", "text"),
        ("mrn", "mrn", "number"),
        ("rkey", "rkey", "hex"),
        ("lkey", "lkey", "hex"),
        ("iova", "iova", "hex"),
        ("mrlen_bytes", "mrlen", "number"),
        ("pdn", "pdn", "number"),
        ("pid", "pid", "number"),
        ("comm", "comm", "owner"),
    ),
    "cq": (
        ("device", "ifname", "text"),
        ("cqn", "cqn", "number"),
        ("cqe", "cqe", "number"),
        ("users", "users", "number"),
        ("poll_ctx", "poll-ctx", "text"),
        ("pid", "pid", "number"),
        ("comm", "comm", "owner"),
    ),
}
_SUMMARY = ("pd", "cq", "qp", "cm_id", "mr", "ctx", "srq")
_NUMBERS = {int, type(None)}
_TEXTS = {str, type(None)}


# --- reading a node ---


def read(host: Host) -> Iterator[Row | Rows | Gap]:
    """Read a live node by netlink; each kind of object that cannot be read is its own gap."""
    for table, command in (
        ("resource", "rdma res show"),
        ("qp", "rdma res show qp"),
        ("mr", "rdma res show mr"),
        ("cq", "rdma res show cq"),
    ):
        try:
            objects = host.objects(command)
        except NotPresent:
            continue
        except HostRefused as error:
            how = error.how or f"add the output of rdma -d -j {command[5:]}"
            kind = "not_given" if isinstance(error, NotGiven) else "unreadable"
            yield Gap((table,), error.reason, kind, how, command)
            continue
        if table == "resource":
            yield from summary_rows(objects, command)
        else:
            yield rows(table, objects, command)


# --- objects (JSON, netlink) ---


def rows(table: str, objects: list[Object], at: str | int = 1) -> Rows:
    """Turn the objects of `rdma -d -j res show qp`, `mr` or `cq` into rows; by the column, for there may be 100,000."""
    getters = [entry.get for entry in objects]
    columns: list[list[Any]] = []
    for _, key, kind in _COLUMNS[table]:
        values: list[Any] = [get(key) for get in getters]
        if kind == "owner":
            values = [
                name if pid is not None or name is None else f"[{str(name).strip('[]')}]"
                for name, pid in zip(values, columns[-1], strict=True)
            ]
        columns.append(_clean(values, kind))
    return Rows(table, [name for name, _, _ in _COLUMNS[table]], list(zip(*columns, strict=True)), at)


def _clean(values: list[Any], kind: str) -> list[Any]:
    # The common case is found by the set of types; what a tool never prints is made NULL, or fitted to the evidence.
    if kind == "number":
        fits = set(map(type, values)) <= _NUMBERS and max(map(abs, filter(None, values)), default=0) < LARGEST
        return values if fits else [whole(value) for value in values]
    if kind == "hex":
        return [_hex(value) if value is not None else None for value in values]
    if set(map(type, values)) <= _TEXTS:
        return values
    return [value if isinstance(value, str) else None for value in values]


def _hex(value: Any) -> str | None:
    # JSON has hex digits without 0x (iproute2 4.20 and later) or with it; never a prefix that a second one would hide.
    if isinstance(value, str):
        return value if value[:2] == "0x" else f"0x{value}"
    return hex(value) if isinstance(value, int) else None


def summary_rows(objects: list[Object], at: str | int = 1) -> Iterator[Row]:
    """Turn the objects of `rdma -j res show` into one row a device and kind of object."""
    for entry in objects:
        for name in _SUMMARY:
            current = whole(entry.get(name))
            if current is not None and isinstance(entry.get("ifname"), str):
                yield Row("resource", {"device": entry["ifname"], "name": name, "current": current}, at)


def _parse_objects(table: str) -> Callable[[list[Object]], Iterable[Row | Rows]]:
    def parse(objects: list[Object]) -> Iterable[Row | Rows]:
        return [rows(table, [entry for entry in objects if "cntn" not in entry])]

    return parse


def _count_objects(name: str) -> Callable[[list[Object]], Iterable[Row]]:
    # No table holds single connections or protection domains: what matters is how many there are.
    def parse(objects: list[Object]) -> Iterable[Row]:
        counts = Counter(entry["ifname"] for entry in objects if isinstance(entry.get("ifname"), str))
        return [Row("resource", {"device": device, "name": name, "current": n}, 1) for device, n in counts.items()]

    return parse


# --- text ---

_PLACE = re.compile(r"(?:link ([^\s/]+)/([0-9]+|-)?|dev (\S+)|(?:ifindex [0-9]+ )?ifname (\S+)) ?(.*)")
_SUMMARY_LINE = re.compile(r"(?:[0-9]+: )?([^\s:]+): ((?:(?:pd|cq|qp|cm_id|mr|ctx|srq) [0-9]+ ?)+)$")
_SUMMARY_PAIR = re.compile(r"(pd|cq|qp|cm_id|mr|ctx|srq) ([0-9]+)")
_TABLE_OF_KEY = (("lqpn", "qp"), ("mrn", "mr"), ("mrlen", "mr"), ("cqn", "cq"), ("cqe", "cq"))


def parse_text(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `rdma resource show [qp|mr|cq]` as text: `link D/P lqpn ...`, `dev D mrn ...`, `0: D: pd 1 cq 2 ...`."""
    for line in lines:
        text = line.text.strip()
        if match := _PLACE.match(text):
            yield from _parse_object(match, line.number)
        elif match := _SUMMARY_LINE.match(text):
            for name, count in _SUMMARY_PAIR.findall(match[2]):
                yield Row("resource", {"device": match[1], "name": name, "current": whole(count)}, line.number)


def _parse_object(match: re.Match[str], number: int) -> Iterator[Row]:
    # The owner's name comes last and may hold spaces.
    words, _, comm = match[5].partition("comm ")
    parts = words.split()
    found: Object = dict(zip(parts[::2], parts[1::2], strict=False))
    table = next((table for key, table in _TABLE_OF_KEY if key in found), None)
    if table is None or (table == "qp" and "type" not in found):  # a cm_id, a counter set
        return
    found |= {"ifname": match[1] or match[3] or match[4], "port": match[2], "comm": comm.strip() or None}
    values: Object = {}
    for column, key, kind in _COLUMNS[table]:
        text = found.get(key)
        if text is not None:
            value = whole(text) if kind == "number" else _hex(text) if kind == "hex" else text
            if kind == "owner" and "pid" not in values:
                value = f"[{text.strip('[]')}]"
            if value is not None:
                values[column] = value
    yield Row(table, values, number)


TEXTS: tuple[Text | Json, ...] = (
    Json("rdma res show qp", (("ifname", "lqpn", "type", "state"),), _parse_objects("qp")),
    Json("rdma res show mr", (("ifname", "mrlen"), ("ifname", "mrn")), _parse_objects("mr")),
    Json("rdma res show cq", (("ifname", "cqn", "cqe"), ("ifname", "cqe", "poll-ctx")), _parse_objects("cq")),
    Json("rdma res show cm_id", (("ifname", "cm-idn"), ("ifname", "ps", "state")), _count_objects("cm_id")),
    Json("rdma res show pd", (("ifname", "pdn", "local_dma_lkey"), ("ifname", "pdn", "users")), _count_objects("pd")),
    Json("rdma res show", (("ifname", "qp", "cq", "mr"), ("ifname", "qp", "cq", "pd")), summary_rows),
    Text(
        "rdma res show",
        (
            r"^link [^ /]+/[0-9-]+ lqpn [0-9]+ (rqpn [0-9]+ )?type [A-Z_]+ ",
            r"^link [^ /]+/lqpn [0-9]+ ",
            r"^(dev|ifindex [0-9]+ ifname) [^ ]+ (mrn|mrlen|cqn|cqe) [0-9]+ ",
            r"^([0-9]+: )?[^ :]+: (pd|qp|cq) [0-9]+ (pd|cq|qp|cm_id|mr) [0-9]+ ",
        ),
        parse_text,
    ),
)
