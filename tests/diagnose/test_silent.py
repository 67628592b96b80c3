"""A rule that is not run, because the tables that it reads are empty, answers as if it were."""

import sqlite3

import pytest

from rdmadiag.diagnose import check, engine, rulebook, silent
from rdmadiag.diagnose.engine import Silence
from rdmadiag.evidence.row import Gap
from rdmadiag.evidence.store import Evidence
from tests.conftest import DATA

GIVEN = sorted(path for kind in ("nodes", "reports") for path in (DATA / kind).iterdir() if path.suffix != ".json")


def told(results):
    return {name: (result.answers, result.reads, result.left_out) for name, result in results.items()}


@pytest.mark.parametrize("folder", GIVEN, ids=lambda path: path.name)
def test_answers_are_the_same_with_and_without_the_rules_that_are_passed_over(folder, book):
    evidence, _, _ = check.look(check.Request(given=(str(folder),)), book, {})
    silences = silent.silences(book)
    assert told(engine.evaluate(evidence, book, silences=silences)) == told(engine.evaluate(evidence, book))


def test_most_rules_are_passed_over_where_nothing_was_seen(book, monkeypatch):
    silences = silent.silences(book)
    assert len(silences) > 0.7 * len(book)
    ran = []
    run = engine.Guard.run
    monkeypatch.setattr(engine.aside, "spare_processor", lambda: False)
    monkeypatch.setattr(engine.Guard, "run", lambda self, sql, *rest: ran.append(sql) or run(self, sql, *rest))
    engine.evaluate(Evidence(), book, silences=silences)
    assert len(ran) < 0.1 * len(book)  # those that read a table which is never empty


def rules(*queries):
    data = {"kind": "cause", "layer": "qp", "severity": "error", "title": "", "message": ""}
    return [rulebook.Rule("", {**data, "id": f"r{n}", "query": [query]}) for n, query in enumerate(queries)]


def test_a_query_that_says_something_of_empty_tables_is_always_run():
    found = silent.silences(
        rules(
            "SELECT node, count(*) > 0 AS wrong FROM port",
            "SELECT node, 1 AS wrong FROM port GROUP BY node",
            "SELECT 'x' AS node, 1 AS wrong",
            "SELECT node, 1 AS wrong FROM nosuch",
        )
    )
    assert found == {"r1": Silence(frozenset({"port", "port.node"}), frozenset({"port"}))}


def test_a_view_is_told_from_the_table_below_it():
    by_view, by_table, shadowed = rules(
        "SELECT node, 1 AS wrong FROM app_event",
        "SELECT node, 1 AS wrong FROM log",
        "WITH app_event AS (SELECT * FROM log) SELECT node, 1 AS wrong FROM app_event",
    )
    found = silent.silences([by_view, by_table, shadowed])
    assert {"app_event", "log"} < found[by_view.id].reads and found[by_view.id].tables == {"app_event"}
    assert found[by_table.id].tables == {"log"}
    assert "log" in found[shadowed.id].tables


def test_a_rule_with_other_parameters_is_run_and_so_is_one_whose_events_may_be_older(book):
    rule = rules("SELECT node, :most AS wrong FROM port WHERE :most < 2 AND :since_seconds < 100")[0]
    rule.parameters = {"most": 2}
    own = rulebook.Rulebook([rule])
    silences = {rule.id: Silence(frozenset({"port"}), frozenset({"port"}))}
    evidence = Evidence()
    ran = []
    evidence.db.set_trace_callback(ran.append)
    for site, since in (({}, 86400.0), ({rule.id: {"most": 1}}, 86400.0), ({}, 50.0)):
        ran.clear()
        engine.evaluate(evidence, own, site, since, silences)
        assert any("AS wrong" in sql for sql in ran) == (site != {} or since != 86400.0)


def test_rules_that_share_a_query_share_what_it_reads_and_so_its_gaps():
    one, other = rules("SELECT node, 1 AS wrong FROM app_event", "SELECT node, 1 AS wrong FROM app_event")
    evidence = Evidence()
    evidence.add("n", {}, "node", "")
    evidence.gap("n", "given", Gap(("app_event",), "not given", "not_given"))
    results = engine.evaluate(evidence, rulebook.Rulebook([one, other]))
    assert [[answer.wrong for answer in result.answers] for result in results.values()] == [[None], [None]]
    assert results[one.id].reads == results[other.id].reads > {"app_event", "log"}


def test_what_is_kept_is_found_again_and_is_worked_out_again_for_another_query(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = rules("SELECT node, 1 AS wrong FROM port")
    found = silent.silences(first)
    monkeypatch.setattr(silent, "_find", None)
    assert silent.silences(first) == found
    monkeypatch.setattr(silent, "_find", lambda rules: {})
    assert silent.silences(rules("SELECT node, 1 AS wrong FROM gid")) == {}
    monkeypatch.setattr(sqlite3, "sqlite_version", "0")
    assert silent.silences(first) == {}
