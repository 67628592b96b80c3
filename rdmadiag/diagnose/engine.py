"""Evaluate rules: each is a query, run read-only and bounded; its rows are answers yes, no or unknown."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag.diagnose import words
from rdmadiag.diagnose.guard import Guard, run
from rdmadiag.diagnose.rulebook import Rule, Rulebook
from rdmadiag.errors import BadFile
from rdmadiag.evidence import aside
from rdmadiag.evidence.store import Evidence

KEYS = ("node", "device", "port", "qpn", "netdev", "bdf", "pid", "peer")
"""Columns that say what a row is about; `explains` joins on those that both sides have."""

SINCE_SECONDS = 86400.0
"""How old an event may be [s], unless the run says otherwise; rules see it as :since_seconds."""
RULE_SECONDS = 2.0
"""Longest time that one rule's query may take [s]."""
SHARED_FROM = 64
"""From this many queries of shipped rules on, a child asks some of them."""
TOGETHER = 4
"""Rules asked in one go, by the one or the other."""


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
    # Each of these has a guard and a child of its own.
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
            answers.append(Answer(rule, None, subject, {}, subject, words.reason(gap), gap["how"] or ""))
    return Result(rule, answers, reads, left_out, seconds)
