"""Queue pairs, memory regions, completion queues, connections, protection domains, contexts and their numbers: `rdma resource show`.

Also counter sets that queue pairs are bound to (`rdma statistic qp show`) and the mode of network namespaces (`rdma system`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.row import Gap, Json, Line, Row, Rows, Text
from rdmadiag.host import Host
from rdmadiag.patterns import late
from rdmadiag.sources.devices import LARGEST, whole

TABLES = ("qp", "mr", "cq", "resource", "cm_id", "pd", "context", "qp_counter")

Object = dict[str, Any]

# Columns of each table, each with the key of the tool's JSON and what its values are.
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
        ("comm", "comm", "text"),
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
        ("comm", "comm", "text"),
    ),
    "cq": (
        ("device", "ifname", "text"),
        ("cqn", "cqn", "number"),
        ("cqe", "cqe", "number"),
        ("users", "users", "number"),
        ("poll_ctx", "poll-ctx", "text"),
        ("pid", "pid", "number"),
        ("comm", "comm", "text"),
    ),
    "cm_id": (
        ("device", "ifname", "text"),
        ("port", "port", "number"),
        ("cm_idn", "cm-idn", "number"),
        ("qpn", "lqpn", "number"),
        ("qp_type", "qp-type", "text"),
        ("state", "state", "text"),
        ("ps", "ps", "text"),
        ("src", "src-addr", "text"),
        ("dst", "dst-addr", "text"),
        ("pid", "pid", "number"),
        ("comm", "comm", "text"),
    ),
    "pd": (
        ("device", "ifname", "text"),
        ("pdn", "pdn", "number"),
        ("users", "users", "number"),
        ("ctxn", "ctxn", "number"),
        ("pid", "pid", "number"),
        ("comm", "comm", "text"),
    ),
    "context": (
        ("device", "ifname", "text"),
        ("ctxn", "ctxn", "number"),
        ("pid", "pid", "number"),
        ("comm", "comm", "text"),
    ),
}
_PID, _COMM = -2, -1
_SUMMARY = ("pd", "cq", "qp", "cm_id", "mr", "ctx", "srq")
# --- reading a node ---


def read(host: Host) -> Iterator[Row | Rows | Gap]:
    """Read a live node by netlink; each kind of object that cannot be read is its own gap."""
    for table, command in (
        ("resource", "rdma res show"),
        ("qp", "rdma res show qp"),
        ("mr", "rdma res show mr"),
        ("cq", "rdma res show cq"),
        ("cm_id", "rdma res show cm_id"),
        ("pd", "rdma res show pd"),
        ("context", "rdma res show ctx"),
        ("qp_counter", "rdma statistic qp show"),
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
        elif table == "qp_counter":
            yield from counter_set_rows(objects, command)
        else:
            yield rows(table, objects, command)
    yield from _system(host)


def _system(host: Host) -> Iterator[Row]:
    try:
        objects = host.objects("rdma system show")
    except (NotPresent, HostRefused):  # optional: kernels before 5.1 have one mode only
        return
    for entry in objects:
        if entry.get("netns") in ("shared", "exclusive"):
            yield Row("node", {"rdma_netns": entry["netns"]}, "rdma system show")


# --- objects (JSON, netlink) ---


def rows(table: str, objects: list[Object], at: str | int = 1) -> Rows:
    """Turn objects of `rdma -d -j res show qp`, `mr` or `cq` into rows; quickly, for there may be 100,000."""
    return _rows_of(table, _tuples(table, objects), at)


def _rows_of(table: str, found: list[tuple[Any, ...]], at: str | int = 1) -> Rows:
    if None in map(itemgetter(_PID), found):
        found = [row if row[_PID] is not None else (*row[:_COMM], _kernel(row[_COMM])) for row in found]
    return Rows(table, [name for name, _, _ in _COLUMNS[table]], found, at)


def _tuples(table: str, objects: list[Object]) -> list[tuple[Any, ...]]:
    keys = [key for _, key, _ in _COLUMNS[table]]
    try:
        found: list[tuple[Any, ...]] = list(map(itemgetter(*keys), objects))
    except KeyError:  # a kernel owner, a QP of a kind that has no peer
        found = [tuple(map(entry.get, keys)) for entry in objects]
    return found


def _kernel(comm: Any) -> str | None:
    return f"[{comm.strip('[]')}]" if isinstance(comm, str) else None


def _hex(value: Any) -> str | None:
    # JSON has the digits only; text and old releases have 0x before them.
    if isinstance(value, str):
        return value.removeprefix("0x")
    return f"{value:x}" if isinstance(value, int) else None


def _fit(block: Rows) -> Rows:
    """Make NULL what the tool never prints: a JSON text may hold anything."""
    kinds = [kind for _, _, kind in _COLUMNS[block.table]]
    columns = list(zip(*block.tuples, strict=True))
    fitting = [_fit_column(values, kind) for values, kind in zip(columns, kinds, strict=False)]
    if all(new is old for new, old in zip(fitting, columns, strict=False)):
        return block
    return block._replace(tuples=list(zip(*fitting, strict=True)))


def _fit_column(values: Sequence[Any], kind: str) -> Sequence[Any]:
    types = set(map(type, values))
    if kind == "number":
        if not types <= {int, type(None)}:
            return [whole(value) for value in values]
        numbers = values if types == {int} else [value for value in values if value]
        if max(numbers, default=0) < LARGEST and min(numbers, default=0) > -LARGEST:
            return values
        return [whole(value) for value in values]
    if kind == "hex":
        return [_hex(value) for value in values]
    return values if types <= {str, type(None)} else [value if isinstance(value, str) else None for value in values]


def summary_rows(objects: list[Object], at: str | int = 1) -> Iterator[Row]:
    """Turn the objects of `rdma -j res show` into one row a device and kind of object."""
    for entry in objects:
        for name in _SUMMARY:
            current = whole(entry.get(name))
            if current is not None and isinstance(entry.get("ifname"), str):
                yield Row("resource", {"device": entry["ifname"], "name": name, "current": current}, at)


def _objects(table: str, *forms: tuple[str, ...]) -> Json:
    return Json(
        f"rdma res show {table}",
        forms,
        lambda objects: [_fit(rows(table, objects))],
        columns=tuple(key for _, key, _ in _COLUMNS[table]),
        parse_columns=lambda found: [_fit(_rows_of(table, found))],
    )


def _and_counts(table: str, name: str) -> Callable[[list[Object]], Iterable[Row | Rows]]:
    # A listing also tells how many there are, where nobody gave the summary.
    def parse(objects: list[Object]) -> Iterable[Row | Rows]:
        counts = Counter(entry["ifname"] for entry in objects if isinstance(entry.get("ifname"), str))
        found = [Row("resource", {"device": device, "name": name, "current": n}, 1) for device, n in counts.items()]
        return [_fit(rows(table, objects)), *found]

    return parse


_SET_KEYS = {"ifindex", "ifname", "port", "cntn", "qp-type", "pid", "comm", "lqpn"}


def counter_set_rows(objects: list[Object], at: str | int = 1) -> Iterator[Row]:
    """Turn the objects of `rdma -j statistic qp show` into one row a counter of a set."""
    for entry in objects:
        device, number = entry.get("ifname"), whole(entry.get("cntn"))
        if not isinstance(device, str) or number is None:
            continue
        numbers = (
            [str(qpn) for qpn in entry.get("lqpn") or () if isinstance(qpn, int)]
            if isinstance(entry.get("lqpn"), list)
            else []
        )
        place = {
            "device": device,
            "port": whole(entry.get("port")),
            "cntn": number,
            "qp_type": entry.get("qp-type") if isinstance(entry.get("qp-type"), str) else None,
            "qpns": ",".join(numbers[:32]) or None,
            "pid": whole(entry.get("pid")),
            "comm": entry.get("comm") if isinstance(entry.get("comm"), str) else None,
        }
        for name, value in entry.items():
            if name not in _SET_KEYS and isinstance(value, int) and not isinstance(value, bool):
                yield Row("qp_counter", {**place, "counter": name, "value": whole(value)}, at)


# --- text ---

_PLACE = late(r"(?:link ([^\s/]+)/([0-9]+|-)?|dev (\S+)|(?:ifindex [0-9]+ )?ifname (\S+)) ?(.*)")
_SUMMARY_LINE = late(r"(?:[0-9]+: )?([^\s:]+): ((?:(?:pd|cq|qp|cm_id|mr|ctx|srq) [0-9]+ ?)+)$")
_SUMMARY_PAIR = late(r"(pd|cq|qp|cm_id|mr|ctx|srq) ([0-9]+)")
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


def _parse_object(match: re.Match[str], at: int) -> Iterator[Row]:
    # The owner's name comes last and may hold spaces.
    link, port, device, name, rest = match.groups()
    words, _, comm = rest.partition("comm ")
    parts = words.split()
    found: Object = dict(zip(parts[::2], parts[1::2], strict=False))
    table = next((table for key, table in _TABLE_OF_KEY if key in found), None)
    if table is None or (table == "qp" and "type" not in found):  # a cm_id, a counter set
        return
    found["ifname"], found["port"] = link or device or name, port
    if comm := comm.strip():
        found["comm"] = comm if "pid" in found else _kernel(comm)
    values: Object = {}
    for column, key, kind in _COLUMNS[table]:
        if (text := found.get(key)) is not None:
            value = text if kind == "text" else whole(text) if kind == "number" else _hex(text)
            if value is not None:
                values[column] = value
    yield Row(table, values, at)


def parse_system(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `rdma system show`: the mode of network namespaces."""
    for line in lines:
        if match := late(r"\s*netns (shared|exclusive)\b").match(line.text):
            yield Row("node", {"rdma_netns": match[1]}, line.number)


TEXTS: tuple[Text | Json, ...] = (
    Text("rdma system", (r"^netns (shared|exclusive)\b",), parse_system),
    _objects("qp", ("ifname", "lqpn", "type", "state")),
    _objects("mr", ("ifname", "mrlen"), ("ifname", "mrn")),
    _objects("cq", ("ifname", "cqn", "cqe"), ("ifname", "cqe", "poll-ctx")),
    Json("rdma res show cm_id", (("ifname", "cm-idn"), ("ifname", "ps", "state")), _and_counts("cm_id", "cm_id")),
    Json(
        "rdma res show pd", (("ifname", "pdn", "local_dma_lkey"), ("ifname", "pdn", "users")), _and_counts("pd", "pd")
    ),
    Json("rdma statistic qp show", (("ifname", "cntn"),), counter_set_rows),
    Json("rdma res show ctx", (("ifname", "ctxn", "pid"),), _and_counts("context", "ctx")),
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
