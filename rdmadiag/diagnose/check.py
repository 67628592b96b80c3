"""One check: look (at this node, or at what was given), evaluate every rule, report."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rdmadiag import sources
from rdmadiag.diagnose import engine, report, rulebook
from rdmadiag.errors import BadInput
from rdmadiag.evidence import collect
from rdmadiag.evidence.store import Evidence
from rdmadiag.host import Host, LiveHost


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
    loaded = time.perf_counter()
    evidence, unread, timings = look(request, book, expected, host, progress)
    looked = time.perf_counter()
    results = engine.evaluate(evidence, book, site, request.since)
    result = report.build(evidence, book, results, request.fail_on, unread, request.given)
    timings = [collect.Timing("(rules loaded)", loaded - start, len(book)), *timings]
    timings.append(collect.Timing("(all looking)", looked - loaded, 0))
    timings.append(collect.Timing("(rules evaluated)", time.perf_counter() - looked, len(results)))
    return Checked(result, evidence, book, site, results, timings)


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
    options = collect.Options(request.window, request.budget, request.since)
    unread: list[str] = []
    timings: list[collect.Timing] = []
    if request.given:
        unread = collect.from_paths(evidence, request.given, modules, texts, options, progress)
    else:
        timings = collect.live(evidence, host or LiveHost(), modules, texts, options)
    evidence.finish()
    for node in evidence.nodes():
        for name, value in expected.items():
            evidence.add(node, {"name": name, "value": value}, "expect", request.expect or "")
    return evidence, unread, timings


def _names_qp(query: str) -> bool:
    # Outside of its strings; a comment may hold an apostrophe, so with one all of it counts.
    outside = query if "--" in query or "/*" in query else re.sub("'[^']*'", "", query)
    return re.search(r"\bqp\b", outside, re.I) is not None


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
                "says": engine.fill(rule.message if answer.wrong else rule.fine, answer.row)
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
    evidence, _, _ = look(request, book, {}, None, progress, sql)
    try:
        names, rows, more, _ = engine.run(evidence.db, sql, {}, request.budget)
    except (sqlite3.Error, sqlite3.Warning, MemoryError) as error:
        raise BadInput(
            f"the query cannot be run: {error or 'out of memory'}; `rdmadiag tables` prints tables and columns"
        ) from error
    return names, rows, more
