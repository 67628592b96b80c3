"""One check: look (at this node, or at what was given), evaluate every rule, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from rdmadiag import sources
from rdmadiag.diagnose import engine, guard, known, report, rulebook, words
from rdmadiag.errors import BadInput
from rdmadiag.evidence import collect, given
from rdmadiag.evidence.store import Evidence
from rdmadiag.evidence.texts import Library
from rdmadiag.host import Host
from rdmadiag.patterns import late


class Request(NamedTuple):
    """What to check. `given` empty: this node. Times in seconds."""

    given: tuple[str, ...] = ()
    window: float = 1.0
    budget: float = 10.0
    since: float = 86400.0
    expect: str | None = None
    site: str | None = None
    folders: tuple[str, ...] = ()
    fail_on: str = "warning"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    baseline: str | None = None
    previous: str | None = None
    peer: tuple[str, ...] = ()
    taps: tuple[str, ...] = ()


ALL_SECONDS = 1e10
"""As far back as no log goes: who asks in SQL sees all lines, with their age [s]."""


class Checked(NamedTuple):
    """A finished check: the report, and what it was made of."""

    report: dict[str, Any]
    evidence: Evidence
    book: rulebook.Rulebook
    site: Mapping[str, Mapping[str, Any]]
    results: dict[str, engine.Result]
    timings: list[collect.Timing]


def check(request: Request, host: Host | None = None, progress: Callable[[str], None] = lambda text: None) -> Checked:
    """Run one check. Raises BadFile or BadInput for what the user gave wrong, before anything is looked at."""
    start = time.perf_counter()
    book = rulebook.load(request.folders)
    site = rulebook.site_parameters(request.site, book) if request.site else {}
    expected = rulebook.expectations(request.expect) if request.expect else {}
    chosen = book.choose(request.only, request.skip, request.layers)
    before = report.baseline(request.baseline) if request.baseline else frozenset()
    loaded = time.perf_counter()
    evidence, unread, timings = look(request, book, expected, host, progress)
    looked = time.perf_counter()
    results = engine.evaluate(evidence, chosen, site, request.since, None if request.folders else known.known(book))
    result = report.build(
        evidence, chosen, results, request.fail_on, unread, request.given, before, len(chosen) < len(book)
    )
    timings = [collect.Timing("(rules loaded)", loaded - start, len(book)), *timings]
    timings.append(collect.Timing("(all looking)", looked - loaded, 0))
    timings.append(collect.Timing("(rules evaluated)", time.perf_counter() - looked, len(results)))
    return Checked(result, evidence, chosen, site, results, timings)


def look(
    request: Request,
    book: rulebook.Rulebook,
    expected: Mapping[str, Any],
    host: Host | None = None,
    progress: Callable[[str], None] = lambda text: None,
    sql: str = "",
) -> tuple[Evidence, list[str], list[collect.Timing]]:
    """Fill the evidence of one run, for the rules and `sql`.

    Returns it, the paths of texts that nothing recognised, and what each source took.
    """
    queries = [sql, *(rule.query for rule in book)]
    evidence = Evidence(rulebook.extra_log_columns(book), keep_qps=any(_names_qp(query) for query in queries))
    modules = sources.load()
    texts = collect.library(modules, book.patterns(), cached=not request.folders)
    # Counters that count from an earlier time need no second sample.
    options = collect.Options(0.0 if request.previous else request.window, request.budget, request.since)
    earlier = {}
    if request.previous:
        from rdmadiag.diagnose import previous

        earlier = previous.read(request.previous, modules, texts, options)
    unread: list[str] = []
    timings: list[collect.Timing] = []
    if request.given:
        unread = collect.from_paths(evidence, request.given, modules, texts, options, progress)
    else:
        from rdmadiag.host.live import LiveHost

        timings = collect.live(evidence, host or LiveHost(), modules, texts, options)
    if request.taps:
        from rdmadiag.diagnose import wire

        wire.compared(evidence, request.taps)
    for spec in request.peer:
        unread += _peer(evidence, spec, modules, texts, options, progress)
    if request.previous:
        previous.compare(evidence, earlier, request.previous)
    evidence.finish()
    for node in evidence.nodes():
        for name, value in expected.items():
            evidence.add(node, {"name": name, "value": value}, "expect", request.expect or "")
    return evidence, unread, timings


def _names_qp(query: str) -> bool:
    # The word qp outside of strings and comments.
    query = query.lower()
    return _QP.search(query) is not None and _QP.search(_TEXTS.sub(r"\1", query)) is not None


_QP = late(r"qp\b(?<!\wqp)")  # the word qp, its letters first: they are found quickly
_TEXTS = late(r"""("[^"]*")|'[^']*'|--[^\n]*|/\*(?s:.*?)(?:\*/|\Z)""")


def _peer(
    evidence: Evidence,
    spec: str,
    modules: Mapping[str, ModuleType],
    texts: Library,
    options: collect.Options,
    progress: Callable[[str], None],
) -> list[str]:
    # The nodes of --peer are looked at like those of --from, and the nodes looked at before are said to talk to them.
    before = frozenset(evidence.named()) - evidence.peers
    unread = collect.from_paths(evidence, (spec,), modules, texts, options, progress, before | evidence.peers)
    found = evidence.named() - before - evidence.peers
    if not found:
        names = ", ".join(sorted(before)) or "no node"
        raise BadInput(f"--peer {spec} is not about another node than {names}; name it: --peer NODE=PATH")
    evidence.peers |= found
    for node in sorted(before):
        for peer in sorted(found):
            evidence.add(node, {"peer": peer}, "peering", f"--peer {given.shown(spec)}")
    return unread


def explain(checked: Checked, name: str) -> dict[str, Any]:
    """Return all that a rule's answer was made of: query, parameters, rows, tables read, gaps. Raises BadInput for an unknown rule."""
    if name not in checked.book:
        import difflib

        near = difflib.get_close_matches(name, list(checked.book.rules), 5, 0.4)
        raise BadInput(
            f"no rule {name!r}" + (f"; near: {', '.join(near)}" if near else "; `rdmadiag rules list` shows all")
        )
    rule, result = checked.book[name], checked.results[name]
    gaps = [gap for gap in checked.report["gaps"] if set(gap["tables"]) & result.reads]
    return {
        "schema": "rdmadiag.explanation/1",
        "rule": rule.id,
        "title": rule.title,
        "kind": rule.kind,
        "query": rule.query,
        "patterns": rule.patterns,
        "parameters": {
            key: {**rule.data["parameters"][key], "value": checked.site.get(name, {}).get(key, value)}
            for key, value in rule.parameters.items()
        },
        "reads": sorted(name for name in result.reads if "." not in name),
        "answers": [
            {
                "answer": {1: "yes", 0: "no", None: "unknown"}[answer.wrong],
                "subject": answer.subject,
                "says": words.fill(rule.message if answer.wrong else rule.fine, answer.row)
                if answer.wrong is not None
                else answer.reason,
                "row": answer.row,
            }
            for answer in result.answers
        ],
        "rows_left_out": result.left_out,
        "seconds": result.seconds,
        "gaps": gaps,
        "explains": rule.explains,
        "explained_by": [cause.id for cause in checked.book.causes_of(name)],
        "false_alarm": rule.false_alarm,
        "refs": rule.refs,
    }


def query(
    request: Request, sql: str, progress: Callable[[str], None] = lambda text: None
) -> tuple[list[str], list[tuple[Any, ...]], int]:
    """Run one guarded SELECT over the evidence. Returns columns, rows, and how many more there were. Raises BadInput."""
    import sqlite3

    book = rulebook.load()
    evidence, _, _ = look(request._replace(since=ALL_SECONDS), book, {}, None, progress, sql)
    try:
        names, rows, more, _ = guard.run(evidence.db, sql, {}, request.budget)
    except (sqlite3.Error, sqlite3.Warning, MemoryError) as error:
        raise BadInput(
            f"the query cannot be run: {error or 'out of memory'}; {_near_table(str(error))}`rdmadiag tables` prints tables and columns"
        ) from error
    return names, rows, more


def _near_table(problem: str) -> str:
    import difflib

    from rdmadiag.evidence import store

    _, said, name = problem.partition("no such table: ")
    near = difflib.get_close_matches(name, list(store.tables()), 3, 0.5) if said else []
    return f"near: {', '.join(near)}; " if near else ""
