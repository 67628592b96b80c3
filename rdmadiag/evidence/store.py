"""The evidence database: takes rows and gaps, merges rows of one thing, finishes what spans tables."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from rdmadiag import cache
from rdmadiag.evidence import pairing
from rdmadiag.evidence.row import Gap, Row, Rows
from rdmadiag.explain import _fw_releases, _meanings, _requirements, counters
from rdmadiag.patterns import late

SCHEMA_FILE = os.path.join(os.path.dirname(__file__), "schema.sql")


MANY_NODES = 8
"""From this many nodes on, every table is indexed by node."""
SHIPPED = ("counter_meaning", "fw_release", "requirement")
"""Tables of facts that come with the program and are about no node."""
MADE_OF = {"signal": ("counter", "device"), "qp_group": ("qp",), "gpu_nic": ("pci", "device")}
"""Tables that `finish` makes of others: who reads one has read those."""


VIEWS = ("kernel_event", "app_event")
"""Views of table log."""


class Column(NamedTuple):
    """One documented column."""

    name: str
    type: str
    meaning: str


class Table(NamedTuple):
    """One documented table or view."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    view: bool


@functools.cache
def schema() -> str:
    """Return the text of schema.sql."""
    with open(SCHEMA_FILE, encoding="utf-8") as file:
        return file.read()


_TABLE = late(r"(?P<comment>(?:--[^\n]*\n)+)CREATE (?P<view>TABLE|VIEW) \"?(?P<name>\w+)\"?(?P<body>.*?);\n", re.S)
_VIEW = late(r"CREATE VIEW (?P<name>\w+) AS SELECT \* FROM (?P<table>\w+) [^;]*;")
_COLUMN = late(r'^  "?(?P<name>\w+)"?(?: (?P<type>TEXT|INTEGER|REAL))?[^,-]*,?\s*-- (?P<meaning>.*)$', re.M)
_KEY = late(r"UNIQUE \(([^)]*)\)")


def tables() -> dict[str, Table]:
    """Return every table and view with the meaning, unit and source of each column, as schema.sql states them."""
    text = schema()
    found: dict[str, Table] = {}
    for match in _TABLE.finditer(text):
        columns = tuple(Column(c["name"], c["type"] or "any", c["meaning"]) for c in _COLUMN.finditer(match["body"]))
        key = _KEY.search(match["body"])
        meaning = " ".join(line[2:].strip() for line in match["comment"].strip().splitlines())
        names = tuple(part.strip().strip('"') for part in key[1].split(",")) if key else ()
        found[match["name"]] = Table(match["name"], meaning, columns, names, match["view"] == "VIEW")
    log = found["log"]
    for match in _VIEW.finditer(text):
        found[match["name"]] = Table(match["name"], f"{log.meaning} Only lines within --since.", log.columns, (), True)
    return found


_LISTED = ("qp", "mr", "cq")
_OF_ADAPTERS = ("mst", "link", "fw_setting", "fw_image", "register")
_ADAPTER = """
UPDATE TABLE SET bdf = (SELECT m.bdf FROM mst m WHERE m.node = TABLE.node AND m.mst = TABLE.mst) WHERE bdf IS NULL;
UPDATE TABLE SET device = (SELECT m.device FROM mst m WHERE m.node = TABLE.node AND m.mst = TABLE.mst) WHERE device IS NULL;
UPDATE TABLE SET device = (SELECT d.device FROM device d WHERE d.node = TABLE.node AND d.bdf = TABLE.bdf) WHERE device IS NULL;
UPDATE TABLE SET bdf = (SELECT d.bdf FROM device d WHERE d.node = TABLE.node AND d.device = TABLE.device) WHERE bdf IS NULL;
"""
"""Firmware tools name an adapter in one of three ways: fill in the other two where the evidence knows them."""
_QP_OWNER = ("device", "port", "type", "state", "pid", "comm")


class Evidence:
    """All that is known about the nodes of one run, in one in-memory SQLite database (`db`).

    `keep_qps` False: queue pairs are counted into qp_group, and table qp stays empty, since no query of this run names it.
    """

    def __init__(self, extra_log_columns: Iterable[str] = (), *, keep_qps: bool = True) -> None:
        self._extra_log_columns = tuple(extra_log_columns)
        self._columns: dict[str, list[str]] = {}
        self._statements: dict[tuple[str, tuple[str, ...]], str] = {}
        self._listings: dict[tuple[str, str, Any], str] = {}
        self._groups: dict[tuple[Any, ...], list[Any]] = {}
        self._keep_qps = keep_qps
        self.peers: frozenset[str] = frozenset()
        """Nodes at the other end (--peer)."""
        self.left_out = 0
        """Log lines older than --since, once `finish` was called [count]."""
        self._previous: dict[tuple[Any, ...], tuple[Any, float]] = {}

    @functools.cached_property
    def db(self) -> sqlite3.Connection:
        """The database, made when it is first used: by then a child reads already."""
        db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;")
        if hasattr(db, "deserialize"):  # from Python 3.11 on
            _copy_kept(db)
        else:
            _make(db)
        db.create_function("as_hex", 1, _as_hex, deterministic=True)
        for column in self._extra_log_columns:
            db.execute(f'ALTER TABLE log ADD COLUMN "{column}" TEXT')
        return db

    def __del__(self) -> None:
        # Nobody else holds the database; an unclosed one is a warning from Python 3.13 on.
        if (db := self.__dict__.get("db")) is not None:
            db.close()

    def columns(self, table: str) -> list[str]:
        """Return a table's column names; empty for a table that does not exist."""
        if table not in self._columns:
            self._columns[table] = [row[1] for row in self.db.execute(f'PRAGMA table_info("{table}")')]
        return self._columns[table]

    def _statement(self, table: str, names: tuple[str, ...]) -> str:
        known = self._statements.get((table, names))
        if known is None:
            unknown = [name for name in names if name not in self.columns(table)]
            if unknown:
                raise ValueError(f"table {table!r} has no column {', '.join(unknown)}")
            key = _keys()[table]
            target = ", ".join(_COUNTER_KEY if table == "counter" else (f'"{name}"' for name in key))
            quoted = ", ".join(f'"{name}"' for name in names)
            known = f'INSERT INTO "{table}" ({quoted}) VALUES ({", ".join("?" * len(names))})'
            if key and (set(key) <= set(names) or table == "counter"):
                fills = [
                    f'"{n}" = coalesce("{table}"."{n}", excluded."{n}")'
                    for n in names
                    if n not in key and n != "origin"
                ]
                if "origin" in names:
                    fills.append(_ORIGINS.format(table))
                known += f" ON CONFLICT ({target}) DO " + (f"UPDATE SET {', '.join(fills)}" if fills else "NOTHING")
            elif key:
                known = known.replace("INSERT", "INSERT OR IGNORE", 1)
            self._statements[table, names] = known
        return known

    def add(self, node: str, values: Mapping[str, Any], table: str, origin: str) -> None:
        """Add one row; one of the same key is merged (a known value fills a NULL, the first known value stays)."""
        if table in _LISTED and not self._listed(node, table, values.get("device"), origin):
            return
        if table == "qp":
            self._count(node, [tuple(map(values.get, _QP_OWNER))], [values.get("qpn")], origin)
            if not self._keep_qps:
                return
        row = {"node": node, **values, "origin": origin}
        if "origin" not in self.columns(table):
            del row["origin"]
        try:
            self.db.execute(self._statement(table, tuple(row)), tuple(row.values()))
        except UnicodeEncodeError:  # half a surrogate pair, out of JSON in a log line
            whole = [v.encode(errors="replace").decode() if isinstance(v, str) else v for v in row.values()]
            self.db.execute(self._statement(table, tuple(row)), whole)

    def add_item(self, node: str, source: str, item: Row | Rows | Gap, place: str = "") -> None:
        """Add what a source yielded. `place` is the file of a text, '' for a live or captured node."""
        if isinstance(item, Gap):
            self.gap(node, source, item)
            return
        origin = f"{place}:{item.at}" if isinstance(item.at, int) else (f"{place}:{item.at}" if place else item.at)
        if isinstance(item, Row):
            self.add(node, item.values, item.table, origin)
            return
        names = ("node", *item.columns, "origin")
        tuples: Iterable[Sequence[Any]] = item.tuples
        if item.table in _LISTED:
            device = list(item.columns).index("device")
            tuples = list(tuples)
            devices = {values[device] for values in tuples}
            known = {name for name in devices if self._listed(node, item.table, name, origin)}
            if known != devices:
                tuples = [values for values in tuples if values[device] in known]
        if item.table == "qp":
            owner, qpn = map(list(item.columns).index, _QP_OWNER), list(item.columns).index("qpn")
            self._count(node, map(itemgetter(*owner), tuples), map(itemgetter(qpn), tuples), origin)
            if not self._keep_qps:
                return
        if _keys()[item.table]:
            self.db.executemany(self._statement(item.table, names), ((node, *values, origin) for values in tuples))
            return
        ends = [f"'{text}'" for text in (node.replace("'", "''"), origin.replace("'", "''"))]
        marks = ", ".join(
            [ends[0], *["?"] * len(item.columns), ends[1]]
        )  # the same in each row: not handed over 100,000 times
        columns = ", ".join(f'"{name}"' for name in names)
        self.db.executemany(f'INSERT INTO "{item.table}" ({columns}) VALUES ({marks})', tuples)

    def _listed(self, node: str, table: str, device: Any, origin: str) -> bool:
        # Of a device's objects the first listing counts: the same one as JSON and as text must not count twice.
        place = origin.rpartition(":")[0] or origin
        return self._listings.setdefault((table, node, device), place) == place

    def _count(self, node: str, owners: Iterable[tuple[Any, ...]], numbers: Iterable[Any], origin: str) -> None:
        found: defaultdict[tuple[Any, ...], list[Any]] = defaultdict(list)
        for owner, qpn in zip(owners, numbers, strict=True):
            found[owner].append(qpn)
        for key, qpns in found.items():
            group = self._groups.setdefault((node, *key), [0, None, None, origin])
            group[0] += len(qpns)
            known = [qpn for qpn in (group[1], group[2], *qpns) if qpn is not None]
            if known:
                group[1:3] = min(known), max(known)

    def gap(self, node: str | None, source: str, gap: Gap) -> None:
        """Note what could not be seen."""
        self.db.executemany(
            "INSERT INTO gap VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(node, source, table, gap.subject or None, gap.kind, gap.reason, gap.how) for table in gap.tables],
        )

    def sample(self, node: str, row: Row, seconds: float) -> None:
        """Note a counter's first sample, taken at `seconds` on the node's monotonic clock."""
        self._previous[self._sample_key(node, row)] = (row.values.get("value"), seconds)

    @staticmethod
    def _sample_key(node: str, row: Row) -> tuple[Any, ...]:
        return (node, *(row.values.get(name) for name in ("device", "port", "netdev", "bdf", "kind", "counter")))

    def add_counter(self, node: str, row: Row, seconds: float, place: str = "") -> None:
        """Add a counter's last sample, with its delta against the first one where that says anything."""
        value = row.values.get("value")
        before, since = self._previous.get(self._sample_key(node, row), (None, seconds))
        values = {**row.values, **_judge(row.values, value, before, seconds - since)}
        self.add(node, values, "counter", f"{place}:{row.at}" if place else str(row.at))

    def compare(self, node: str, before: Mapping[tuple[Any, ...], int], seconds: float | None, state: str = "") -> None:
        """Count a node's counters from earlier values, taken `seconds` [s] before.

        `before`: values by device, port, netdev, kind and counter. With a `state` ('other boot', 'boot unknown') no delta says
        anything. One counter that went back tells that all of its port were set to 0, unless it wrapped at 32 bits.
        """
        names = ("device", "port", "netdev", "kind", "counter")
        rows = self.db.execute(
            f"SELECT rowid, value, {', '.join(names)} FROM counter WHERE node = ?", (node,)
        ).fetchall()
        judged: list[tuple[int, tuple[Any, ...], dict[str, Any]]] = []
        reset = set()
        for rowid, value, *key in rows:
            first = before.get(tuple(key))
            told = _judge(dict(zip(names, key, strict=True)), value, first, seconds or 1.0)
            if state and told["state"] in ("two samples", "reset"):
                told = {"previous": first, "state": state}
            elif told["state"] == "reset" and first is not None and _may_have_wrapped(first, value):
                told["state"] = "wrapped"
            elif told["state"] == "reset":
                reset.add(tuple(key[:4]))
            judged.append((rowid, tuple(key[:4]), told))
        for rowid, port, told in judged:
            if told["state"] == "two samples" and port in reset:
                told = {"previous": told["previous"], "state": "reset"}
            self.db.execute(
                "UPDATE counter SET previous = ?, delta = ?, seconds = ?, per_second = ?, state = ? WHERE rowid = ?",
                (*(told.get(name) for name in ("previous", "delta", "seconds", "per_second", "state")), rowid),
            )

    def finish(self) -> None:
        """Leave out completions older than --since; fill what spans tables: devices of PCI addresses in logs, first errors, nodes."""
        self.left_out = self.db.execute(_LINES_LEFT_OUT).fetchone()[0]
        self.db.execute("DELETE FROM completion WHERE recent = 0")
        self.db.executescript(
            """
            UPDATE device SET driver = substr(device, 1, instr(device || '_', '_') - 1)
              WHERE driver IS NULL AND device LIKE 'mlx_\\_%' ESCAPE '\\';
            DELETE FROM signal;
            INSERT INTO signal
              SELECT c.node, c.device, c.port, coalesce(c.netdev, p.netdev), m.signal, c.counter, c.value, c.delta, c.seconds,
                     c.per_second, c.state, m.terminal, m.benign, m.side, coalesce(d.driver, c.named), c.origin
                FROM (SELECT c.node, coalesce(c.device, p.device) AS device, coalesce(c.port, p.port) AS port, c.netdev, c.kind, c.counter,
                             c.value, c.delta, c.seconds, c.per_second, c.state, c.origin,
                             CASE WHEN c.device GLOB 'mlx[45]_[0-9]*' THEN substr(c.device, 1, 4)
                                  WHEN c.device GLOB 'bnxt_re[0-9]*' THEN 'bnxt_re'
                                  WHEN c.device GLOB 'irdma[0-9]*' THEN 'irdma' END AS named
                        FROM counter c
                        LEFT JOIN (SELECT node, netdev, min(device) AS device, min(port) AS port FROM port
                                    WHERE netdev IS NOT NULL GROUP BY node, netdev HAVING count(*) = 1) p
                               ON c.device IS NULL AND p.node = c.node AND p.netdev = c.netdev) c
                LEFT JOIN device d ON d.node = c.node AND d.device = c.device
                LEFT JOIN port p ON p.node = c.node AND p.device = c.device AND p.port = c.port
                JOIN counter_meaning m ON m.counter = c.counter AND m.driver =
                     CASE c.kind WHEN 'counters' THEN 'pma' WHEN 'ethtool' THEN iif(d.driver = 'bnxt_re', 'bnxt_en', 'ethtool')
                                 WHEN 'hw_counters' THEN coalesce(d.driver, c.named) ELSE c.kind END;
            DELETE FROM qp_group;
            CREATE INDEX IF NOT EXISTS signal_name ON signal (name);
            CREATE INDEX IF NOT EXISTS log_rule ON log (rule);
            UPDATE log SET device = (SELECT d.device FROM device d WHERE d.node = log.node AND d.bdf = log.bdf)
              WHERE device IS NULL AND bdf IS NOT NULL;
            UPDATE log SET bdf = (SELECT d.bdf FROM device d WHERE d.node = log.node AND d.device = log.device)
              WHERE bdf IS NULL AND device IS NOT NULL;
            UPDATE log SET device = (SELECT p.device FROM port p WHERE p.node = log.node AND p.netdev = log.netdev)
              WHERE device IS NULL AND netdev IS NOT NULL;
            UPDATE log SET netdev = (SELECT p.netdev FROM port p WHERE p.node = log.node AND p.device = log.device)
              WHERE netdev IS NULL AND device IS NOT NULL;
            UPDATE completion SET first = 0;
            UPDATE completion SET first = 1 WHERE rowid IN
              (SELECT min(rowid) FROM completion WHERE NOT coalesce(flush, 0) GROUP BY node, program);
            """
        )
        filled = [table for table in _OF_ADAPTERS if self.nodes_of(table)]
        self.db.executescript("".join(_ADAPTER.replace("TABLE", table) for table in filled))
        self.db.executemany(
            f"INSERT INTO qp_group VALUES ({', '.join('?' * 11)})",
            [(*key, *group) for key, group in self._groups.items()],
        )
        self.db.execute("DELETE FROM gpu_nic")
        self.db.executemany(f"INSERT INTO gpu_nic VALUES ({', '.join('?' * 10)})", pairing.pair(self.db))
        named = self.named()
        self.db.executemany("INSERT OR IGNORE INTO node (node) VALUES (?)", [(name,) for name in sorted(named)])
        if len(named) >= MANY_NODES:  # rules join all on the node, and tables without a key are gone through for each
            for name in _keys():
                if "node" in self.columns(name):
                    self.db.execute(f'CREATE INDEX IF NOT EXISTS "{name}_of_node" ON "{name}" (node)')

    def named(self) -> set[str]:
        """Return the nodes that any table has rows of."""
        return set().union(*(self.nodes_of(name) for name in _keys() if name not in ("gap", *SHIPPED)))

    def empty_tables(self) -> frozenset[str]:
        """Return the names of the tables and views that hold no row."""
        ask = " UNION ALL ".join(f"SELECT '{n}' WHERE NOT EXISTS (SELECT 1 FROM \"{n}\")" for n in (*_keys(), *VIEWS))
        return frozenset(row[0] for row in self.db.execute(ask))

    def nodes(self) -> list[str]:
        """Return the names of the nodes."""
        return [row[0] for row in self.db.execute("SELECT node FROM node ORDER BY node")]

    def nodes_of(self, table: str) -> set[str]:
        """Return the nodes that a table has rows of (qp: of which queue pairs were seen)."""
        if table == "qp":
            return {node for node, *_ in self._groups}
        return {row[0] for row in self.db.execute(f'SELECT DISTINCT node FROM "{table}"') if row[0] is not None}


def _copy_kept(db: Any) -> None:
    # Making the empty database takes six times as long as copying one that is kept, with all that it depends on.
    files = [os.stat(module.__file__ or "") for module in (counters, _meanings, _requirements, _fw_releases)]
    versions = [(file.st_mtime_ns, file.st_size) for file in files]
    key = "\0".join((sqlite3.sqlite_version, repr((versions, _COUNTER_KEY)), schema())).encode()
    kept = cache.load("evidence", key)
    if kept is None:
        _make(db)
        cache.save("evidence", key, db.serialize())
        return
    source: Any
    with contextlib.closing(sqlite3.connect(":memory:")) as source:
        source.deserialize(kept)
        source.backup(db)


def _make(db: sqlite3.Connection) -> None:
    db.executescript(schema())
    # A counter of a device has no netdev, and to UNIQUE no NULL is like another.
    db.execute(f"CREATE UNIQUE INDEX counter_key ON counter ({', '.join(_COUNTER_KEY)})")
    db.executemany(
        "INSERT OR IGNORE INTO counter_meaning VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row[:7] for row in counters.expanded()),
    )
    db.executemany("INSERT INTO requirement VALUES (?, ?, ?, ?, ?)", _requirements.REQUIREMENTS)
    db.executemany("INSERT INTO fw_release VALUES (?, ?, ?, ?)", _fw_releases.rows())


_LINES_LEFT_OUT = """
    SELECT count(*) FROM (SELECT rowid, 'log' FROM log WHERE recent = 0 UNION ALL
                          SELECT rowid, 'completion' FROM completion c WHERE recent = 0
                             AND NOT EXISTS (SELECT 1 FROM log l WHERE l.recent = 0 AND l.origin = c.origin))"""


def _as_hex(value: Any) -> str | None:
    return f"0x{value:x}" if isinstance(value, int) else None


_COUNTER_KEY = (
    "node",
    "ifnull(device, '')",
    "ifnull(port, -1)",
    "ifnull(netdev, '')",
    "ifnull(bdf, '')",
    "kind",
    "counter",
)
_ORIGINS = (  # those that are not there yet; a row that thousands of lines fill names the first
    "origin = CASE WHEN length(\"{0}\".origin) > 200 OR instr(', ' || \"{0}\".origin || ', ', ', ' || excluded.origin || ', ')"
    ' THEN "{0}".origin ELSE "{0}".origin || \', \' || excluded.origin END'
)
_GAUGES = frozenset(row[1] for row in counters.COUNTERS if row[7] == "gauge")
_PMA_BITS: dict[str, int] = {row[1]: row[4] for row in counters.COUNTERS if row[0] == "pma"}


def _may_have_wrapped(before: int, value: int) -> bool:
    return 3 << 30 <= before < 1 << 32 and value < 1 << 30


def _judge(values: Mapping[str, Any], value: Any, before: Any, seconds: float) -> dict[str, Any]:
    result: dict[str, Any] = {"previous": before}
    if value is None:
        return {**result, "state": "unreadable"}
    width = _PMA_BITS.get(values.get("counter", "")) if values.get("kind") == "counters" else None
    if width is not None and width < 64 and value >= (1 << width) - 1:
        return {**result, "state": "saturated", "seconds": seconds or None}
    if values.get("counter") in _GAUGES or before is None or seconds <= 0:
        return {**result, "state": "one sample"}
    if value < before:
        return {**result, "state": "reset", "seconds": seconds}
    delta = value - before
    return {**result, "state": "two samples", "seconds": seconds, "delta": delta, "per_second": delta / seconds}


_KEYS: dict[str, tuple[str, ...]] = {}


def _keys() -> dict[str, tuple[str, ...]]:
    # Only names and keys: the full parse of comments in tables() is for people, this for every run.
    if not _KEYS:
        for part in schema().split("\nCREATE TABLE ")[1:]:
            body = part[: part.index("\n);")]
            key = _KEY.search(body)
            name = body.partition(" (")[0].strip('"')
            _KEYS[name] = tuple(n.strip().strip('"') for n in key[1].split(",")) if key else ()
    return _KEYS


def table_names() -> Sequence[str]:
    """Return the names of all tables (not views)."""
    return list(_keys())


def log_columns() -> set[str]:
    """Return the columns of table log."""
    part = schema().split("\nCREATE TABLE log (")[1].partition("\n);")[0]
    return set(late(r"^  (\w+) ", re.M).findall(part))
