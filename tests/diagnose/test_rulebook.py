"""A rule that is not right is refused before anything runs: file, place, and what was wanted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.diagnose import rulebook
from rdmadiag.errors import BadFile

Write = Callable[..., Path]

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"colour": "red"}, "'colour' was unexpected"),
    "unknown severity": ({"severity": "bad"}, "/severity: 'bad' is not one of"),
    "missing examples": ({"examples": {"wrong": [{}], "fine": [{}]}}, "/examples: 'unknown' is a required property"),
    "empty examples": ({"examples": {"wrong": [], "fine": [{}], "unknown": [{}]}}, "/examples/wrong"),
    "unknown table": ({"query": ["SELECT node, 1 AS wrong FROM nosuch"]}, "/query: no such table: nosuch"),
    "unknown column": ({"query": ["SELECT node, nosuch AS wrong FROM node"]}, "/query: no such column: nosuch"),
    "unknown function": ({"query": ["SELECT node, nosuch(1) AS wrong FROM node"]}, "/query: .*nosuch"),
    "forbidden function": (
        {"query": ["SELECT hex(zeroblob(4e8)) AS node, 1 AS wrong"]},
        r"/query: function zeroblob\(\) may not be called",
    ),
    "bad SQL": ({"query": ["SELEC 1"]}, '/query: near "SELEC": syntax error'),
    "attach": ({"query": ["ATTACH '/tmp/x' AS y"]}, "/query: only SELECT is allowed"),
    "unbound parameter": ({"query": ["SELECT node, :limit AS wrong FROM node"]}, "/query: .*limit"),
    "no verdict": (
        {"query": ["SELECT node, 1 AS bad FROM node"], "message": "it is all wrong"},
        "/query: has no column 'wrong'",
    ),
    "no node": (
        {"query": ["SELECT 1 AS wrong FROM node"], "message": "it is all wrong"},
        "/query: has no column 'node'",
    ),
    "message column": ({"message": "{nosuch} is wrong here"}, "/message: {nosuch} is not a column"),
    "fix column": ({"fix": ["ip link set {netdev} up"]}, "/fix/0: {netdev} is not a column"),
    "bad pattern": ({"patterns": ["foo(bar"]}, "/patterns/0: not a regular expression"),
    "look-around": ({"patterns": ["(?<=foo)barbaz"]}, "/patterns/0: not a pattern that Hyperscan takes"),
    "dangling explains": ({"explains": ["nosuch"]}, "/explains/0: no rule 'nosuch'"),
    "symptom that explains": (
        {"kind": "symptom", "explains": ["no-rdma-device"]},
        "/explains: a symptom explains nothing",
    ),
    "other id": ({"id": "another"}, "/id: 'another' is not the file's name"),
    "taken id": ({}, "is also the id of"),
    "neither query nor patterns": ({"query": None}, "."),
}


@pytest.mark.parametrize(("keys", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_rule_is_refused_with_its_place(
    write_rule: Write, keys: dict[str, Any], message: str, request: pytest.FixtureRequest
) -> None:
    name = "no-rdma-device" if "taken id" in request.node.name else "mine"
    path = write_rule(name, **keys)
    if keys.get("query", 0) is None:
        data = json.loads(path.read_text())
        del data["query"]
        path.write_text(json.dumps(data))
    with pytest.raises(BadFile, match=message) as caught:
        rulebook.load([str(path)])
    assert str(path) in str(caught.value)


def test_rules_that_explain_each_other_in_a_circle_are_refused(write_rule: Write, tmp_path: Path) -> None:
    write_rule("one", explains=["two"])
    write_rule("two", explains=["three"])
    write_rule("three", explains=["one"])
    with pytest.raises(BadFile, match="explains itself: one -> two -> three -> one"):
        rulebook.load([str(tmp_path)])


NOT_JSON = {
    "truncated": b'{"id": "mine", ',
    "binary": bytes(range(256)),
    "not utf-8": b'{"id": "\xff"}',
    "deep": b"[" * 100_000,
    "empty": b"",
    "twins": b'{"id": "mine", "id": "other"}',
    "a list": b"[]",
    "a number": b"17",
    "huge": b" " * (rulebook.FILE_LIMIT_BYTES + 1),
}


@pytest.mark.parametrize("content", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_a_file_that_is_no_rule_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(BadFile, match=r"mine\.json"):
        rulebook.load([str(path)])


def test_a_folder_without_rules_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="holds no rule"):
        rulebook.load([str(tmp_path)])
    with pytest.raises(BadFile, match="cannot be read: No such file"):
        rulebook.load([str(tmp_path / "nosuch.json")])


def test_a_good_rule_of_ones_own_joins_the_shipped_ones(write_rule: Write) -> None:
    book = rulebook.load([str(write_rule("mine", explains=["no-rdma-device"]))])
    assert "mine" in book and "no-rdma-device" in book
    assert "mine" in [rule.id for rule in book.causes_of("no-rdma-device")]


def test_named_groups_without_a_column_get_one(write_rule: Write) -> None:
    path = write_rule(
        "mine", patterns=["my_driver: lane (?P<lane>[0-9]+) lost"], query=["SELECT node, lane, origin, 1 AS wrong FROM kernel_event WHERE rule = :rule"],
        log="kernel", message="lane {lane} was lost",
    )  # fmt: skip
    assert rulebook.extra_log_columns(rulebook.load([str(path)])) == ["lane"], (
        "shipped patterns name only documented columns"
    )


SITES: dict[str, tuple[Any, str]] = {
    "no schema": ({"parameters": {}}, "wanted"),
    "unknown rule": ({"schema": "rdmadiag.site/1", "parameters": {"nosuch": {}}}, "/parameters/nosuch: no such rule"),
    "unknown key": ({"schema": "rdmadiag.site/1", "parameters": {}, "x": 1}, "/x: unknown key"),
    "unknown parameter": (
        {"schema": "rdmadiag.site/1", "parameters": {"mine": {"x": 1}}},
        "/parameters/mine/x: no such parameter; known: limit",
    ),
    "wrong type": ({"schema": "rdmadiag.site/1", "parameters": {"mine": {"limit": "2"}}}, "wanted a number"),
    "no object": ({"schema": "rdmadiag.site/1", "parameters": {"mine": 3}}, "wanted an object"),
}


@pytest.mark.parametrize(("data", "message"), SITES.values(), ids=SITES.keys())
def test_a_wrong_site_file_is_refused_with_its_place(
    write_rule: Write, tmp_path: Path, data: Any, message: str
) -> None:
    book = rulebook.load([str(write_rule("mine", parameters={"limit": {"default": 2, "unit": "1", "source": "test"}}))])
    path = tmp_path / "site.txt"
    path.write_text(json.dumps(data))
    with pytest.raises(BadFile, match=message):
        rulebook.site_parameters(str(path), book)


def test_a_wrong_expectation_file_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "expect.json"
    path.write_text('{"schema": "rdmadiag.expect/1", "nics": 8}')
    with pytest.raises(BadFile, match="/nics: unknown expectation; known: .*nic_count"):
        rulebook.expectations(str(path))
    path.write_text('{"schema": "rdmadiag.expect/1", "nic_count": 8}')
    assert rulebook.expectations(str(path)) == {"nic_count": 8}
