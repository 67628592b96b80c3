"""Queries that can only read the evidence, and only so much of it: what a rule or a person asks may be anything."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from typing import Any

from rdmadiag.errors import HostRefused
from rdmadiag.evidence import aside
from rdmadiag.evidence.store import MADE_OF, VIEWS, table_names

HEAP_BYTES = 512 << 20
"""Memory that SQLite may take in this process, the evidence included [bytes]; once set it cannot be raised."""
TEXT_BYTES = 16 << 20
"""Longest text that a query may make [bytes] (Python 3.11 on)."""
ROW_LIMIT = 10_000
"""Rows kept of one query; more are counted, not kept."""

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
