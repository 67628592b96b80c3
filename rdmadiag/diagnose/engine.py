"""Evaluate rules: each is a query, run read-only and bounded; its rows are answers yes, no or unknown."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag.diagnose.rulebook import Rule, Rulebook
from rdmadiag.errors import BadFile, HostRefused
from rdmadiag.evidence import aside
from rdmadiag.evidence.store import MADE_OF, VIEWS, Evidence, table_names
from rdmadiag.patterns import late

KEYS = ("node", "device", "port", "qpn", "netdev", "bdf", "pid", "peer")
"""Columns that say what a row is about; `explains` joins on those that both sides have."""

SINCE_SECONDS = 86400.0
"""How old an event may be [s], unless the run says otherwise; rules see it as :since_seconds."""
RULE_SECONDS = 2.0
"""Longest time that one rule's query may take [s]."""
HEAP_BYTES = 512 << 20
"""Memory that SQLite may take in this process, the evidence included [bytes]; once set it cannot be raised."""
TEXT_BYTES = 16 << 20
"""Longest text that a query may make [bytes] (Python 3.11 on)."""
ROW_LIMIT = 10_000
"""Rows kept of one query; more are counted, not kept."""
SHARED_FROM = 64
"""From this many queries of shipped rules on, a child asks some of them."""
TOGETHER = 4
"""Rules asked in one go, by the one or the other."""

FUNCTIONS = frozenset(
    [
        "abs",
        "as_hex",
        "avg",
        "coalesce",
        "count",
        "glob",
        "group_concat",
        "hex",
        "ifnull",
        "iif",
        "instr",
        "length",
        "like",
        "lower",
        "ltrim",
        "max",
        "min",
        "nullif",
        "round",
        "rtrim",
        "sign",
        "substr",
        "substring",
        "sum",
        "total",
        "trim",
        "typeof",
        "unicode",
        "upper",
        "row_number",
        "rank",
        "dense_rank",
        "lag",
        "lead",
        "first_value",
        "last_value",
        "json_extract",
        "json_array_length",
        "unlikely",
        "likely",
        "cast",
        "replace",
    ]
)
"""SQL functions that rules and `query` may call."""

_ACTION_READ, _ACTION_FUNCTION, _ACTION_SELECT, _ACTION_RECURSIVE = 20, 31, 21, 33


class Answer(NamedTuple):
    """One row of a rule's query. `wrong`: 1 yes, 0 no, None unknown. `row`: all columns of the query."""

    rule: Rule
    wrong: int | None
    subject: dict[str, Any]
    row: dict[str, Any]
    about: dict[str, Any]
    """The subject with the other names of its adapter (device, netdev, bdf), where the evidence knows them: what is joined."""
    reason: str = ""
    how: str = ""


class Result(NamedTuple):
    """What one rule said: its answers, the tables it reads, the rows beyond ROW_LIMIT, and what it cost [s]."""

    rule: Rule
    answers: list[Answer]
    reads: frozenset[str]
    left_out: int
    seconds: float


class Known(NamedTuple):
    """What is known of a rule's query before it is run: what it reads, and the tables and views that it yields no row without.

    `needed`: while all of them are empty there is no row, with the shipped parameters; none where there may be one anyway.
    `joined`: while one of them is empty there is no row, whatever the parameters.
    """

    reads: frozenset[str]
    needed: frozenset[str]
    joined: frozenset[str] = frozenset()

    def yields_nothing(self, empty: frozenset[str], shipped: bool) -> bool:
        """Tell whether there is no row while these tables and views have none; `shipped`: with the shipped parameters."""
        return not self.joined.isdisjoint(empty) or (shipped and bool(self.needed) and self.needed <= empty)


class Guard:
    """A database in which, within the `with` block, only bounded reading is possible.

    A query may read the evidence tables and call FUNCTIONS; it ends at its deadline, and so does the growth of its memory.
    `reads`: what each query that is run here reads, by its text, as a guard saw it before: none of them is asked for again.
    """

    def __init__(self, db: sqlite3.Connection, reads: Mapping[str, frozenset[str]] | None = None) -> None:
        self.db = db
        self._asks = reads is None
        self._read: set[str | None] = set()
        self._reads_of = dict(reads or {})  # nor is one that is prepared already
        self._refused = ""
        self._deadline = float("inf")
        self._known = {*table_names(), *VIEWS}

    def _authorize(self, action: int, first: str | None, second: str | None, _: str | None, view: str | None) -> int:
        if action == _ACTION_READ:
            self._read.update((first, view, f"{first}.{second}"))
            if first is not None and first.startswith(("sqlite_", "pragma_")):
                return self._refuse(f"table {first} may not be read")
            return sqlite3.SQLITE_OK
        if action in (_ACTION_SELECT, _ACTION_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action != _ACTION_FUNCTION:
            return self._refuse("only SELECT is allowed")
        if (second or "").lower() in FUNCTIONS:
            return sqlite3.SQLITE_OK
        return self._refuse(f"function {second}() may not be called")

    def _refuse(self, why: str) -> int:
        self._refused = self._refused or why
        return sqlite3.SQLITE_DENY

    def __enter__(self) -> Guard:
        self.db.execute(f"PRAGMA hard_heap_limit = {HEAP_BYTES}")
        if hasattr(self.db, "setlimit"):
            self.db.setlimit(0, TEXT_BYTES)  # SQLITE_LIMIT_LENGTH
        if self._asks:
            self.db.set_authorizer(self._authorize)
        self.db.set_progress_handler(lambda: 1 if time.monotonic() > self._deadline else 0, 20_000)
        return self

    def __exit__(self, *_: object) -> None:
        self.db.set_authorizer(None)
        self.db.set_progress_handler(None, 0)

    def run(
        self, sql: str, parameters: Mapping[str, Any], seconds: float
    ) -> tuple[list[str], list[tuple[Any, ...]], int, frozenset[str]]:
        """Run one query. Returns columns, at most ROW_LIMIT rows, how many more there were, and the tables, views and columns read.

        What a table is made of is read too.
        Raises sqlite3.Error (not authorized, bad SQL, interrupted) or MemoryError, with what was refused as its text.
        """
        self._read, self._refused = set(), ""
        self._deadline = time.monotonic() + seconds
        try:
            cursor = self.db.execute(sql, parameters)
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchmany(ROW_LIMIT)
            left_out = sum(1 for _ in cursor) if len(rows) == ROW_LIMIT else 0
        except sqlite3.Error as error:
            if self._refused:
                raise sqlite3.DatabaseError(self._refused) from error
            if "interrupted" in str(error):
                raise sqlite3.OperationalError(f"took longer than {seconds:g} s") from error
            raise
        if sql not in self._reads_of:
            reads = {name for name in self._read if name and name.partition(".")[0] in self._known}
            self._reads_of[sql] = frozenset(reads.union(*(MADE_OF.get(name, ()) for name in reads)))
        return names, rows, left_out, self._reads_of[sql]


def run(
    db: sqlite3.Connection, sql: str, parameters: Mapping[str, Any], seconds: float
) -> tuple[list[str], list[tuple[Any, ...]], int, frozenset[str]]:
    """Run somebody's own query, as Guard.run does, in a child: one call of a function can outlast the guard's deadline."""

    def work() -> tuple[list[str], list[tuple[Any, ...]], int, frozenset[str]] | Exception:
        try:
            with Guard(db) as guard:
                return guard.run(sql, parameters, seconds)
        except (sqlite3.Error, sqlite3.Warning, MemoryError) as error:
            return error

    try:
        outcome = aside.Aside(work, seconds + 1).result()
    except TimeoutError:
        raise sqlite3.OperationalError(f"took longer than {seconds:g} s") from None
    except HostRefused as error:
        raise MemoryError("its process died (out of memory?)") from error
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def bound(rule: Rule, site: Mapping[str, Any] | None = None, since_seconds: float = SINCE_SECONDS) -> dict[str, Any]:
    """Return the values that a rule's query sees."""
    return {"rule": rule.id, "since_seconds": since_seconds, **rule.parameters, **(site or {})}


def prepare(db: sqlite3.Connection, rule: Rule) -> list[str]:
    """Run a rule on empty evidence: what SQLite refuses is a fault of the rule. Returns its columns. Raises BadFile."""
    try:
        names, _, _, _ = run(db, rule.query, bound(rule), RULE_SECONDS)
    except (sqlite3.Error, sqlite3.Warning, MemoryError) as error:
        raise BadFile(rule.path, "/query", str(error) or "out of memory") from error
    for wanted in ("wrong", "node"):
        if wanted not in names:
            raise BadFile(rule.path, "/query", f"has no column {wanted!r}; it has {', '.join(names)}")
    return names


def evaluate(
    evidence: Evidence,
    book: Rulebook,
    site: Mapping[str, Mapping[str, Any]] | None = None,
    since_seconds: float = SINCE_SECONDS,
    known: Mapping[str, Known] | None = None,
) -> dict[str, Result]:
    """Run every rule. A rule whose tables have a gap and that has no row for a node answers unknown for it.

    `known`: what is known of rules (with their shipped parameters).
    """
    known = known or {}
    gaps = _gaps(evidence)
    nodes = evidence.nodes()
    adapters = _adapters(evidence)
    empty = evidence.empty_tables() if known else frozenset()
    reads = {rule.query: known[rule.id].reads for rule in book if rule.id in known}

    def values(rule: Rule) -> dict[str, Any]:
        return bound(rule, (site or {}).get(rule.id), since_seconds)

    silent, shipped = [], []
    for rule in book:
        values_as_shipped = rule.id not in (site or {}) and since_seconds == SINCE_SECONDS
        if rule.id in known and known[rule.id].yields_nothing(empty, values_as_shipped):
            silent.append(rule)
        elif not rule.own:
            shipped.append(rule)
    all_known = all(rule.query in reads for rule in shipped)
    with Guard(evidence.db, reads if all_known else None) as guard, contextlib.ExitStack() as at_end:
        together = TOGETHER if all_known and len(shipped) >= SHARED_FROM and aside.spare_processor() else len(book)
        pieces = [shipped[place : place + together] for place in range(0, len(shipped), together)]

        def some(piece: int) -> list[_Asked]:
            return [_ask(guard.run, rule, values(rule)) for rule in pieces[piece]]

        done: Mapping[int, list[_Asked]] = {}
        if (
            len(pieces) > 1
        ):  # preparing a query takes longer than running it: a child asks some, of a copy of the evidence
            shared = aside.Shared(len(pieces), lambda piece: [told._replace(reads=None) for told in some(piece)])
            at_end.enter_context(contextlib.closing(shared))
        results = [_result(rule, [], known[rule.id].reads, 0, 0.0, gaps, nodes) for rule in silent]
        if len(pieces) > 1:
            done, _ = shared.results()
        asked = [
            pair
            for place, rules in enumerate(pieces)
            for pair in zip(rules, done.get(place) or some(place), strict=True)  # none where the child was killed
        ]
        asked += [(rule, _ask(functools.partial(run, evidence.db), rule, values(rule))) for rule in book if rule.own]
        results += [_answered(rule, told, reads, gaps, nodes, adapters) for rule, told in asked]
    by_id = {result.rule.id: result for result in results}
    return {rule.id: by_id[rule.id] for rule in book}


class _Asked(NamedTuple):
    """What a rule's query gave: columns, rows, how many more, what it reads (None: as known); or why it failed. Its cost [s]."""

    names: list[str]
    rows: list[tuple[Any, ...]]
    left_out: int
    reads: frozenset[str] | None
    failed: str
    seconds: float


_Run = Callable[[str, Mapping[str, Any], float], tuple[list[str], list[tuple[Any, ...]], int, frozenset[str]]]


def _ask(run: _Run, rule: Rule, values: Mapping[str, Any]) -> _Asked:
    start = time.perf_counter()
    try:
        return _Asked(*run(rule.query, values, RULE_SECONDS), "", time.perf_counter() - start)
    except (sqlite3.Error, MemoryError) as error:
        return _Asked([], [], 0, frozenset(), str(error) or "out of memory", time.perf_counter() - start)


_Adapters = dict[tuple[str, str, str], dict[str, str]]


def _adapters(evidence: Evidence) -> _Adapters:
    # Every name of an adapter (node, kind of name, name) to all of its names.
    known: _Adapters = {}
    rows = evidence.db.execute(
        "SELECT d.node, d.device, d.bdf, p.netdev FROM device d"
        " LEFT JOIN port p ON p.node = d.node AND p.device = d.device WHERE d.device IS NOT NULL"
    )
    for node, *names in rows:
        all_names = {kind: name for kind, name in zip(("device", "bdf", "netdev"), names, strict=True) if name}
        for kind, name in all_names.items():
            known.setdefault((node, kind, name), {}).update(all_names)
    return known


def _about(subject: dict[str, Any], adapters: _Adapters) -> dict[str, Any]:
    more: dict[str, str] = {}
    for kind in ("device", "netdev", "bdf"):
        if kind in subject:
            more = adapters.get((subject.get("node", ""), kind, subject[kind]), more)
    return {**more, **subject}


_Gaps = dict[tuple[str | None, str], tuple[int, dict[str, Any]]]


def _gaps(evidence: Evidence) -> _Gaps:
    # The first gap of each node and table, with its place among all.
    cursor = evidence.db.execute(
        """SELECT node, "table", source, subject, kind, reason, how FROM gap WHERE kind <> 'assumed'"""
    )
    names = [column[0] for column in cursor.description]
    found: _Gaps = {}
    for place, row in enumerate(cursor):
        found.setdefault((row[0], row[1]), (place, dict(zip(names, row, strict=True))))
    return found


def _answered(
    rule: Rule,
    asked: _Asked,
    reads: Mapping[str, frozenset[str]],
    gaps: _Gaps,
    nodes: Sequence[str],
    adapters: _Adapters,
) -> Result:
    if asked.failed:
        reason = f"the rule's query failed: {asked.failed}"
        answers = [
            Answer(rule, None, {"node": node}, {}, {"node": node}, reason, f"rdmadiag check --explain {rule.id}")
            for node in nodes
        ]
        return Result(rule, answers, frozenset(), 0, asked.seconds)
    answers = []
    for values in asked.rows:
        row = dict(zip(asked.names, values, strict=True))
        wrong = row.pop("wrong")
        subject = {key: row[key] for key in KEYS if row.get(key) is not None}
        about = _about(subject, adapters)
        if about.get("peer") in nodes:  # --peer names a node; a log names the same end by an address
            del about["peer"]
        answers.append(Answer(rule, None if wrong is None else int(bool(wrong)), subject, row, about))
    what = reads[rule.query] if asked.reads is None else asked.reads
    return _result(rule, answers, what, asked.left_out, asked.seconds, gaps, nodes)


def _result(
    rule: Rule,
    answers: list[Answer],
    reads: frozenset[str],
    left_out: int,
    seconds: float,
    gaps: _Gaps,
    nodes: Sequence[str],
) -> Result:
    # A node without an answer, and with a gap in a table that the rule reads, is unknown.
    answered = {answer.subject.get("node") for answer in answers}
    for node in nodes if None not in answered else ():
        if node in answered:
            continue
        here = [gaps[one, table] for one in (None, node) for table in reads if (one, table) in gaps]
        if here:
            _, gap = min(here, key=lambda pair: pair[0])
            subject = {"node": node}
            answers.append(Answer(rule, None, subject, {}, subject, _reason(gap), gap["how"] or ""))
    return Result(rule, answers, reads, left_out, seconds)


WORDS = {
    "addr": "addresses (ip addr)",
    "app_event": "a log of the application",
    "cgroup_rdma": "limits of RDMA objects (rdma.max of the control group)",
    "benchmark": "results of a test (perftest, nccl-tests, fio)",
    "chardev": "device files (ls -l /dev/infiniband)",
    "cm_id": "objects that processes hold (rdma resource show)",
    "command": "the command line of the program",
    "completion": "completion errors in a log",
    "counter": "counters (rdma statistic, /sys/class/infiniband)",
    "context": "objects that processes hold (rdma resource show)",
    "cpu_governor": "processor frequency settings (cpupower frequency-info)",
    "cq": "completion queues (rdma resource show cq)",
    "device": "RDMA devices (ibv_devinfo)",
    "env": "the program's environment",
    "firewall": "the packet filter's rules (sudo nft -j list ruleset)",
    "fabric_provider": "what libfabric offers (fi_info)",
    "fw_image": "firmware images (mstflint -d BDF query)",
    "fw_setting": "firmware settings (sudo mlxconfig -d BDF -e query)",
    "gid": "GID tables (show_gids)",
    "gpu": "GPUs (nvidia-smi -q)",
    "gpu_path": "ways between GPUs and adapters (nvidia-smi topo -m)",
    "hugepage": "huge pages (grep Huge /proc/meminfo)",
    "idle_state": "idle states of processors",
    "irq": "interrupts of adapters (/proc/interrupts)",
    "kernel_event": "the kernel log (dmesg -T)",
    "link": "the physical link (sudo mlxlink -d DEVICE -m -c)",
    **dict.fromkeys(
        ("kv_transfer", "kv_request", "kv_operation", "kv_goodput", "kv_event", "kv_route", "kv_path", "kv_job"),
        "KV-cache transfers (rdmadiag kv run --output FILE)",
    ),
    "kv_cache": "a KV block store",
    "module": "kernel modules (lsmod)",
    "module_parameter": "module parameters (/etc/modprobe.d, /sys/module)",
    "mst": "names of adapters in the firmware tools (mst status -v)",
    "mr": "memory regions (rdma resource show mr)",
    "neighbour": "neighbours and policy rules (ip neigh, ip rule)",
    "netdev": "network devices (ip -d link)",
    "netdev_setting": "settings of network devices (ethtool -a, -g, --show-fec)",
    "optics": "modules and their light (sudo ethtool -m)",
    "pd": "objects that processes hold (rdma resource show)",
    "package": "packages (dpkg -l, rpm -qa, ofed_info -s)",
    "pci": "PCI functions (sudo lspci -vvv)",
    "peering": "the other end (--peer)",
    "pkey": "partition keys (/sys/class/infiniband/*/ports/*/pkeys)",
    "port": "RDMA ports (ibstat)",
    "process": "processes that use RDMA",
    "process_limit": "limits (ulimit -a in the job)",
    "policy_rule": "neighbours and policy rules (ip neigh, ip rule)",
    "qos": "PFC, trust and ECN of network devices (mlnx_qos -i, dcb)",
    "qos_buffer": "PFC, trust and ECN of network devices (mlnx_qos -i, dcb)",
    "qos_dscp": "PFC, trust and ECN of network devices (mlnx_qos -i, dcb)",
    "qos_priority": "PFC, trust and ECN of network devices (mlnx_qos -i, dcb)",
    "qos_tc": "PFC, trust and ECN of network devices (mlnx_qos -i, dcb)",
    "qp": "queue pairs (rdma -d resource show qp)",
    "register": "registers of an adapter (mlxreg --get)",
    "resource": "counts of objects (rdma resource show)",
    "roce_setting": "what marks RoCE traffic (cma_roce_tos, tc/1/traffic_class)",
    "route": "routes (ip route)",
    "service": "services that run (systemctl)",
    "sysctl": "kernel settings (sysctl -a)",
    "verbs_list": "what libibverbs lists (ibv_devices)",
}
"""What a table holds, in the words of somebody who is to give it."""


def _reason(gap: Mapping[str, Any]) -> str:
    if gap["kind"] == "not_given":
        return f"{WORDS.get(gap['table'], gap['table'])} not given"
    subject = f" ({gap['subject']})" if gap["subject"] else ""
    return f"{WORDS.get(gap['table'], gap['table'])}: {gap['reason']}{subject}"


_FIELD = late(r"\{(\w+)\}")


def fill(template: str, row: Mapping[str, Any], names: bool = False) -> str:
    """Fill {column} places of a message from a row. No other syntax has a meaning.

    A NULL or absent one reads '?', or with `names` as the name in capitals, as manuals write what is to be put in (`ethtool NETDEV`).
    """
    return _FIELD.sub(lambda match: _word(row.get(match[1]), match[1].upper() if names else "?"), template)


def _word(value: Any, missing: str) -> str:
    if value is None:
        return missing
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
