"""Results of KV-cache transfers: the lines of JSON that a run of `rdmadiag kv` writes (schema rdmadiag.kv/1)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from rdmadiag.evidence.row import Gap, Line, Row, Text

TABLES = (
    "kv_transfer", "kv_request", "kv_operation", "kv_goodput", "kv_event", "kv_route", "kv_path", "kv_job", "kv_cache",
)  # fmt: skip
SCHEMA = "rdmadiag.kv/1"
_MOST = 1 << 63


@cache
def _columns() -> dict[str, dict[str, str]]:
    from rdmadiag.evidence import store

    known = store.tables()
    return {
        table: {c.name: c.type for c in known[table].columns if c.name not in ("node", "origin")} for table in TABLES
    }


def parse(lines: Sequence[Line]) -> Iterable[Row | Gap]:
    """Parse the lines of a result; passes over other lines, and over values of another type than their column."""
    damaged = 0
    for line in lines:
        if f'"{SCHEMA}"' not in line.text:
            continue
        try:
            values = json.loads(line.text)
        except (ValueError, RecursionError):
            damaged += 1
            continue
        table = f"kv_{values.get('record')}" if isinstance(values, dict) and values.get("schema") == SCHEMA else ""
        if table not in TABLES:
            continue
        columns = _columns()[table]
        row = {name: fitting for name, kind in columns.items() if (fitting := _fit(values.get(name), kind)) is not None}
        yield Row(table, row, line.number)
    if damaged:
        reason = f"{damaged} lines of a KV-transfer result are cut off or damaged"
        yield Gap(TABLES, reason, "truncated", "give the whole file that the run wrote")


def _fit(value: Any, kind: str) -> Any:
    """Return a value that fits a column; None for what does not."""
    if isinstance(value, bool):
        value = int(value)
    if kind == "TEXT":
        return value if isinstance(value, str) else None
    if isinstance(value, int):
        return value if -_MOST <= value < _MOST else None
    if kind == "REAL" and isinstance(value, float):
        return value if abs(value) < 1e300 else None
    return None


TEXTS = (Text("rdmadiag kv", (r'"schema": ?"rdmadiag\.kv/1"',), parse),)
