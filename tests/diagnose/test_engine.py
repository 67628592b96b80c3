"""Rules answer yes, no or unknown, and a rule can neither harm nor hang the run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from rdmadiag.diagnose import engine, guard, rulebook, words
from rdmadiag.evidence.store import Evidence

MakeRule = Callable[..., rulebook.Rule]
MakeEvidence = Callable[..., Evidence]
Answers = Callable[..., list[int | None]]


def test_a_row_answers_yes_no_or_unknown(make_rule: MakeRule, make_evidence: MakeEvidence, answers: Answers) -> None:
    rule = make_rule("r", "SELECT node, device, ports > 1 AS wrong FROM device ORDER BY device")
    evidence = make_evidence(device=[{"device": "a", "ports": 2}, {"device": "b", "ports": 1}, {"device": "c"}])
    assert answers(evidence, rule) == [1, 0, None]


def test_no_row_and_a_gap_is_unknown(make_rule: MakeRule, make_evidence: MakeEvidence, answers: Answers) -> None:
    assert answers(make_evidence(gaps=("device",)), make_rule("r")) == [None]


def test_no_row_and_no_gap_is_not_applicable(
    make_rule: MakeRule, make_evidence: MakeEvidence, answers: Answers
) -> None:
    assert answers(make_evidence(gaps=("port",)), make_rule("r")) == []


def test_a_gap_in_a_view_counts_for_rules_that_read_the_view(
    make_rule: MakeRule, make_evidence: MakeEvidence, answers: Answers
) -> None:
    kernel = make_rule("r", "SELECT node, 1 AS wrong FROM kernel_event")
    application = make_rule("s", "SELECT node, 1 AS wrong FROM app_event")
    evidence = make_evidence(gaps=("kernel_event",))
    assert answers(evidence, kernel) == [None]
    assert answers(evidence, application) == []


def test_a_gap_behind_the_signal_view_is_seen(
    make_rule: MakeRule, make_evidence: MakeEvidence, answers: Answers
) -> None:
    rule = make_rule("r", "SELECT node, delta > 0 AS wrong FROM signal WHERE name = 'ack_timeouts'")
    assert answers(make_evidence(gaps=("counter",)), rule) == [None]


def test_a_node_without_a_row_is_unknown_beside_one_that_has(make_rule: MakeRule, make_evidence: MakeEvidence) -> None:
    evidence = make_evidence(nodes=("a", "b"), device=[{"node": "a", "device": "mlx5_0"}])
    evidence.gap("b", "test", engine_gap())
    result = engine.evaluate(evidence, rulebook.Rulebook([make_rule("r")]))["r"]
    assert {answer.subject["node"]: answer.wrong for answer in result.answers} == {"a": 1, "b": None}


def engine_gap() -> Any:
    from rdmadiag.evidence.row import Gap

    return Gap(("device",), "not given", "not_given")


def test_parameters_are_bound_and_a_site_overrides_them(
    make_rule: MakeRule, make_evidence: MakeEvidence, answers: Answers
) -> None:
    rule = make_rule(
        "r",
        "SELECT node, ports >= :limit AS wrong FROM device",
        parameters={"limit": {"default": 2, "unit": "ports", "source": "test"}},
    )
    evidence = make_evidence(device=[{"device": "a", "ports": 2}])
    assert answers(evidence, rule) == [1]
    assert answers(evidence, rule, {"limit": 3}) == [0]


FORBIDDEN = {
    "attach": "ATTACH DATABASE '/tmp/x' AS x",
    "pragma": "PRAGMA writable_schema = 1",
    "pragma function": "SELECT node, 1 AS wrong FROM pragma_table_info('device'), node",
    "schema table": "SELECT sql AS node, 1 AS wrong FROM sqlite_master",
    "write": "DELETE FROM device",
    "insert": "INSERT INTO device (node) VALUES ('x') RETURNING node, 1 AS wrong",
    "drop": "DROP TABLE device",
    "zeroblob": "SELECT hex(zeroblob(400000000)) AS node, 1 AS wrong",
    "load_extension": "SELECT load_extension('x') AS node, 1 AS wrong",
    "readfile": "SELECT readfile('/etc/passwd') AS node, 1 AS wrong",
    "printf": "SELECT printf('%400000000d', 1) AS node, 1 AS wrong",
    "two statements": "SELECT node, 1 AS wrong FROM node; DELETE FROM device",
    "no sql": "SELEC node",
    "unknown table": "SELECT node, 1 AS wrong FROM nosuch",
    "unknown column": "SELECT nosuch AS node, 1 AS wrong FROM node",
}


@pytest.mark.parametrize("sql", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_a_query_that_may_not_run_is_refused(make_evidence: MakeEvidence, sql: str) -> None:
    evidence = make_evidence(device=[{"device": "a"}])
    with pytest.raises((sqlite3.Error, sqlite3.Warning)):
        guard.run(evidence.db, sql, {}, 2.0)
    assert evidence.db.execute("SELECT count(*) FROM device").fetchone() == (1,)


ENDLESS = {
    "recursion": "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT max(x) AS node, 1 AS wrong FROM r",
    "growth": "WITH RECURSIVE r(x) AS (SELECT 'aaaaaaaa' UNION ALL SELECT x || x FROM r) SELECT length(x) AS node, 1 AS wrong FROM r",
    "rows": "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x AS node, 1 AS wrong FROM r",
    "one call": "WITH RECURSIVE r(a, b) AS (SELECT 'a', 'b' UNION ALL SELECT a || a, b || b FROM r WHERE length(a) < 500000)"
    " SELECT trim(max(a), max(b) || 'a') AS node, 1 AS wrong FROM r",
}


@pytest.mark.parametrize("sql", ENDLESS.values(), ids=ENDLESS.keys())
def test_an_endless_query_ends_within_its_time_and_memory(make_evidence: MakeEvidence, sql: str) -> None:
    evidence = make_evidence()
    with pytest.raises((sqlite3.Error, MemoryError), match="took longer than 0.3 s|too big|out of memory|^$"):
        guard.run(evidence.db, sql, {}, 0.3)


def test_a_rule_that_fails_at_run_time_is_unknown_and_says_why(
    make_rule: MakeRule, make_evidence: MakeEvidence
) -> None:
    rule = make_rule("r", ENDLESS["growth"])
    (answer,) = engine.evaluate(make_evidence(), rulebook.Rulebook([rule]))["r"].answers
    assert answer.wrong is None
    assert "the rule's query failed" in answer.reason


def test_the_database_is_usable_after_a_refused_query(make_evidence: MakeEvidence) -> None:
    evidence = make_evidence()
    with pytest.raises(sqlite3.Error):
        guard.run(evidence.db, "PRAGMA user_version", {}, 1.0)
    evidence.add("n", {"device": "late"}, "device", "here")
    assert evidence.db.execute("SELECT count(*) FROM device").fetchone() == (1,)


@pytest.mark.parametrize(
    ("template", "row", "text"),
    [
        ("{device}/{port}", {"device": "mlx5_0", "port": 1}, "mlx5_0/1"),
        ("{device}", {"device": None}, "?"),
        ("{device}", {}, "?"),
        ("{seconds} s", {"seconds": 1.00042}, "1 s"),
        (
            "{device.__class__} {0} {device!r} {device:>9}",
            {"device": "x"},
            "{device.__class__} ? {device!r} {device:>9}",
        ),
    ],
)
def test_messages_survive_null_and_know_no_other_syntax(template: str, row: dict[str, Any], text: str) -> None:
    assert words.fill(template, row) == text
