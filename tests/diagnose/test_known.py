"""What is known of rules before they are run changes no answer: one that is not run, because its tables are empty, answers as if it were."""

import os
import sqlite3

import pytest

from rdmadiag.diagnose import check, engine, known, rulebook
from rdmadiag.diagnose.engine import Known
from rdmadiag.evidence.row import Gap
from rdmadiag.evidence.store import Evidence
from tests.conftest import DATA

GIVEN = sorted(path for kind in ("nodes", "reports") for path in (DATA / kind).iterdir() if path.suffix != ".json")


def told(results):
    return {name: (result.answers, result.reads, result.left_out) for name, result in results.items()}


@pytest.mark.parametrize("folder", GIVEN, ids=lambda path: path.name)
def test_answers_are_the_same_whether_something_is_known_of_the_rules_or_not(folder, book):
    evidence, _, _ = check.look(check.Request(given=(str(folder),)), book, {})
    assert told(engine.evaluate(evidence, book, known=known.known(book))) == told(engine.evaluate(evidence, book))


@pytest.mark.parametrize("dies", [False, True])
def test_answers_are_the_same_whether_a_child_asks_some_of_the_rules_or_not_or_dies(dies, book, monkeypatch):
    evidence, _, _ = check.look(check.Request(given=(str(DATA / "nodes" / "mlx5-roce-8nic-h100"),)), book, {})
    told_before = known.known(book)
    monkeypatch.setattr(engine.aside, "spare_processor", lambda: False)
    alone = told(engine.evaluate(evidence, book, known=told_before))
    here, children, fork, ask = os.getpid(), [], os.fork, engine._ask
    monkeypatch.setattr(engine.aside, "spare_processor", lambda: True)
    monkeypatch.setattr(os, "fork", lambda: children.append(fork()) or children[-1])
    if dies:  # in the middle of a piece
        monkeypatch.setattr(engine, "_ask", lambda *all: ask(*all) if os.getpid() == here else os._exit(9))
    assert told(engine.evaluate(evidence, book, known=told_before)) == alone
    assert len(children) == 1


def test_all_shipped_rules_are_known_to_be_fit_to_run(book):
    assert known.known(book).keys() == book.rules.keys()


def test_most_rules_are_passed_over_where_nothing_was_seen(book, monkeypatch):
    told_before = known.known(book)
    assert sum(1 for told in told_before.values() if told.needed) > 0.7 * len(book)
    ran = []
    run = engine.Guard.run
    monkeypatch.setattr(engine.aside, "spare_processor", lambda: False)
    monkeypatch.setattr(engine.Guard, "run", lambda self, sql, *rest: ran.append(sql) or run(self, sql, *rest))
    engine.evaluate(Evidence(), book, known=told_before)
    assert len(ran) < 0.1 * len(book)  # those that read a table which is never empty


def test_a_rule_is_passed_over_where_one_table_that_it_joins_is_empty(book, monkeypatch):
    evidence = Evidence()
    evidence.add("n", {"device": "mlx5_0", "port": 1}, "port", "")
    own = rules(
        "SELECT p.node, 1 AS wrong FROM port p JOIN gid g ON g.node = p.node",
        "SELECT p.node, 1 AS wrong FROM port p LEFT JOIN gid g ON g.node = p.node",
    )
    ran = []
    evidence.db.set_trace_callback(ran.append)
    results = engine.evaluate(evidence, own, {"r0": {"x": 1}}, known=known.known(own))
    assert [len(result.answers) for result in results.values()] == [0, 1]
    assert len([sql for sql in ran if "AS wrong" in sql]) == 1


def rules(*queries):
    data = {"kind": "cause", "layer": "qp", "severity": "error", "title": "", "message": ""}
    made = [rulebook.Rule("", {**data, "id": f"r{n}", "query": [query]}) for n, query in enumerate(queries)]
    return rulebook.Rulebook(made)


def test_a_query_that_says_something_of_empty_tables_is_always_run():
    found = known.known(
        rules(
            "SELECT node, count(*) > 0 AS wrong FROM port",
            "SELECT node, 1 AS wrong FROM port GROUP BY node",
            "SELECT 'x' AS node, 1 AS wrong",
        )
    )
    port, read, none = frozenset({"port"}), frozenset({"port", "port.node"}), frozenset()
    assert found["r1"] == Known(read, port) and found["r2"] == Known(none, none)
    assert found["r0"].needed == none


def test_nothing_is_known_of_a_query_that_cannot_or_may_not_be_run():
    assert known.known(rules("SELECT node, 1 AS wrong FROM nosuch", "SELECT random() AS wrong FROM port")) == {}


def test_where_nothing_is_known_of_one_rule_all_are_run_guarded():
    book = rules("SELECT node, 1 AS wrong FROM port", "SELECT random() AS wrong, node FROM node")
    evidence = Evidence()
    evidence.add("n", {}, "node", "")
    found = engine.evaluate(evidence, book, known=known.known(book))
    assert "may not be called" in found["r1"].answers[0].reason


def test_a_view_is_told_from_the_table_below_it():
    book = rules(
        "SELECT node, 1 AS wrong FROM app_event",
        "SELECT node, 1 AS wrong FROM log",
        "WITH app_event AS (SELECT * FROM log) SELECT node, 1 AS wrong FROM app_event",
    )
    by_view, by_table, shadowed = known.known(book).values()
    assert {"app_event", "log"} < by_view.reads and by_view.needed == {"app_event"}
    assert by_table.needed == {"log"}
    assert "log" in shadowed.needed


def test_a_rule_with_other_parameters_is_run_and_so_is_one_whose_events_may_be_older(book):
    own = rules("SELECT node, :most AS wrong FROM port WHERE :most < 2 AND :since_seconds < 100")
    (rule,) = own
    rule.parameters = {"most": 2}
    told_before = {rule.id: Known(frozenset({"port"}), frozenset({"port"}))}
    evidence = Evidence()
    ran = []
    evidence.db.set_trace_callback(ran.append)
    for site, since in (({}, 86400.0), ({rule.id: {"most": 1}}, 86400.0), ({}, 50.0)):
        ran.clear()
        engine.evaluate(evidence, own, site, since, told_before)
        assert any("AS wrong" in sql for sql in ran) == (site != {} or since != 86400.0)


def test_rules_that_share_a_query_share_what_it_reads_and_so_its_gaps():
    book = rules("SELECT node, 1 AS wrong FROM app_event", "SELECT node, 1 AS wrong FROM app_event")
    evidence = Evidence()
    evidence.add("n", {}, "node", "")
    evidence.gap("n", "given", Gap(("app_event",), "not given", "not_given"))
    results = engine.evaluate(evidence, book)
    assert [[answer.wrong for answer in result.answers] for result in results.values()] == [[None], [None]]
    assert results["r0"].reads == results["r1"].reads > {"app_event", "log"}


def test_what_is_kept_is_found_again_and_is_worked_out_again_for_other_rules(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    book = rules("SELECT node, 1 AS wrong FROM port")
    first = rulebook.Rulebook(book, "first")
    found = known.known(first)
    monkeypatch.setattr(known, "_find", None)
    assert known.known(first) == found
    monkeypatch.setattr(known, "_find", lambda book: {})
    assert known.known(rulebook.Rulebook(book, "second")) == {}
    assert known.known(book) == {}  # rules of which nobody says what version they are
    monkeypatch.setattr(sqlite3, "sqlite_version", "0")
    assert known.known(first) == {}
