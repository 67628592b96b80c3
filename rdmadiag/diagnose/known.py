"""What is known of the queries of shipped rules before they are run: preparing them takes longer than all else.

A rule has nothing to say while the tables that it reads are empty, and SQLite need not be asked again what it reads. That a
query is fit to run, which tables it reads and that it yields no row from empty ones is seen by running it once; it is kept
with all that it depends on: the rules, the schema, and the release of SQLite.
"""

from __future__ import annotations

import marshal
import sqlite3
from collections.abc import Iterator

from rdmadiag import cache
from rdmadiag.diagnose.engine import RULE_SECONDS, Known, bound
from rdmadiag.diagnose.guard import Guard
from rdmadiag.diagnose.rulebook import Rulebook, extra_log_columns
from rdmadiag.evidence.store import MADE_OF, VIEWS, Evidence, schema


def known(book: Rulebook) -> dict[str, Known]:
    """Return what is known of each shipped rule, by id; loaded where that is kept. Nothing of a rule that cannot be run."""
    key = "\0".join((sqlite3.sqlite_version, schema(), repr((MADE_OF, Known._fields)), book.stamp)).encode()
    kept = cache.load("known", key) if book.stamp else None
    if kept is not None:
        return {name: Known(*told) for name, *told in marshal.loads(kept)}
    found = _find(book)
    if book.stamp:
        cache.save("known", key, marshal.dumps([(name, *told) for name, told in found.items()]))
    return found


def _find(book: Rulebook) -> dict[str, Known]:
    from rdmadiag.diagnose import reachable  # not wanted where what is known is kept

    columns = extra_log_columns(book)
    apart = Evidence(columns)
    for view in VIEWS:  # as tables: so SQLite tells who reads only some of the rows of the table below
        apart.db.executescript(f"DROP VIEW {view}; CREATE TABLE {view} AS SELECT * FROM log LIMIT 0")
    needed = {name: frozenset(n for n in reads if "." not in n) for name, reads, rows in _run(apart, book) if not rows}
    none: frozenset[str] = frozenset()
    return {
        name: Known(
            reads,
            none if rows else needed.get(name, none),
            reachable.needed(apart.db, book[name].query, bound(book[name])),
        )
        for name, reads, rows in _run(Evidence(columns), book)
    }


def _run(evidence: Evidence, book: Rulebook) -> Iterator[tuple[str, frozenset[str], bool]]:
    # What each rule reads, and whether it yields a row.
    with Guard(evidence.db) as guard:
        for rule in book:
            try:
                _, rows, _, reads = guard.run(rule.query, bound(rule), RULE_SECONDS)
            except (sqlite3.Error, MemoryError):
                continue
            yield rule.id, reads, bool(rows)
