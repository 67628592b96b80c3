"""Rules that have nothing to say while the tables that they read are empty: preparing their queries takes longer than all else.

Which tables a query reads only SQLite can tell, and that it yields no row from empty ones is seen by running it. Both
are kept with all that they depend on: the schema, the query with its parameters, and the release of SQLite.
"""

from __future__ import annotations

import marshal
import sqlite3
from collections.abc import Iterable, Iterator

from rdmadiag import cache
from rdmadiag.diagnose.engine import RULE_SECONDS, Guard, Silence, bound
from rdmadiag.diagnose.rulebook import Rule
from rdmadiag.evidence.store import VIEWS, Evidence, schema


def silences(rules: Iterable[Rule]) -> dict[str, Silence]:
    """Return the silence of each shipped rule that has one, by id; loaded where that is kept."""
    rules = list(rules)
    said = "\0".join(f"{rule.id}\0{rule.query}\0{bound(rule)}" for rule in rules)
    key = "\0".join((sqlite3.sqlite_version, schema(), said)).encode()
    kept = cache.load("silent", key)
    if kept is None:
        found = _find(rules)
        cache.save("silent", key, marshal.dumps([(name, *silence) for name, silence in found.items()]))
        return found
    return {name: Silence(reads, tables) for name, reads, tables in marshal.loads(kept)}


def _find(rules: list[Rule]) -> dict[str, Silence]:
    reads = dict(_reads(Evidence(), rules))
    apart = Evidence()
    for view in VIEWS:  # as tables: so SQLite tells who reads only some of the rows of the table below
        apart.db.executescript(f"DROP VIEW {view}; CREATE TABLE {view} AS SELECT * FROM log LIMIT 0")
    tables = {name: _tables(read) for name, read in _reads(apart, rules)}
    return {name: Silence(reads[name], tables[name]) for name in reads if tables.get(name)}


def _tables(read: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in read if "." not in name)


def _reads(evidence: Evidence, rules: list[Rule]) -> Iterator[tuple[str, frozenset[str]]]:
    # What each rule reads that yields no row.
    with Guard(evidence.db) as guard:
        for rule in rules:
            try:
                _, rows, _, reads = guard.run(rule.query, bound(rule), RULE_SECONDS)
            except (sqlite3.Error, MemoryError):
                continue
            if not rows:
                yield rule.id, frozenset(reads)
