"""Contracts that every plug-in keeps: tested the moment its file exists."""

from __future__ import annotations

import configparser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rdmadiag.cli
import rdmadiag.render
import rdmadiag.sources
from rdmadiag import explain, registry, sources
from rdmadiag.diagnose import examples, rulebook
from rdmadiag.errors import BadInput
from rdmadiag.evidence import collect, store
from rdmadiag.evidence.row import Gap, Json, Line, Row, Rows, Text
from rdmadiag.evidence.scan import pattern_problem
from rdmadiag.evidence.texts import Library
from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import Tree, parse_tree

ROOT = Path(__file__).parent.parent
NODES = sorted(path.parent for path in (ROOT / "tests/data/nodes").glob("*/tree.txt"))
SOURCES = sources.load()
TEXTS = [(name, text) for name, module in SOURCES.items() for text in getattr(module, "TEXTS", ())]
RULES = list(rulebook.load())
TABLES = store.tables()


def check_row(item: Any) -> None:
    """Assert that what a source yields fits the schema."""
    assert isinstance(item, (Row, Rows, Gap)), item
    if isinstance(item, Gap):
        assert item.tables and {name.partition(".")[0] for name in item.tables} <= set(TABLES), item
        assert item.kind in {
            "not_given",
            "not_permitted",
            "unreadable",
            "timeout",
            "crash",
            "truncated",
            "restricted",
            "assumed",
        }
        return
    columns = {column.name: column.type for column in TABLES[item.table].columns}
    rows = [item.values] if isinstance(item, Row) else [dict(zip(item.columns, t, strict=True)) for t in item.tuples]
    for row in rows:
        assert set(row) <= set(columns), (item.table, set(row) - set(columns))
        for name, value in row.items():
            wanted: Any = {"INTEGER": int, "REAL": (int, float), "TEXT": str}.get(columns[name], object)
            assert value is None or isinstance(value, wanted), (item.table, name, value)


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_names_tables_and_has_a_way_to_fill_them(name: str) -> None:
    module = SOURCES[name]
    assert set(module.TABLES) <= set(TABLES)
    assert hasattr(module, "read") or hasattr(module, "capture") or module.TEXTS
    assert module.__doc__


@pytest.mark.parametrize("node", NODES, ids=lambda path: path.name)
@pytest.mark.parametrize("name", [name for name, module in SOURCES.items() if hasattr(module, "read")])
def test_a_source_reads_every_captured_node(name: str, node: Path) -> None:
    tree, seconds = parse_tree((node / "tree.txt").read_text())
    for item in collect.run_source(name, SOURCES[name], CapturedHost(tree, node.name, seconds)):
        check_row(item)
        assert not (isinstance(item, Gap) and item.kind == "crash"), item


@pytest.mark.parametrize("name", [name for name, module in SOURCES.items() if hasattr(module, "read")])
def test_a_source_on_an_empty_tree_says_not_given_or_nothing(name: str) -> None:
    items = list(collect.run_source(name, SOURCES[name], CapturedHost(Tree({}))))
    assert not any(isinstance(item, Gap) and item.kind == "crash" for item in items), items


@pytest.mark.parametrize("text", [text for _, text in TEXTS if isinstance(text, Text)], ids=lambda text: text.tool)
def test_signs_of_a_text_are_patterns_that_can_be_compiled(text: Text) -> None:
    assert text.signs or text.commands
    assert [problem for sign in text.signs if (problem := pattern_problem(sign))] == []


WORDS = st.sampled_from(
    [
        "mlx5_0",
        "port",
        "state",
        "ACTIVE",
        "0x81",
        "status",
        "12",
        "GID",
        "fe80::",
        ":",
        "1",
        "-1",
        "[",
        "]",
        "{",
        "}",
        "\t",
        "-",
        "=",
        "99999999999999999999",
        "LnkSta",
        "Width",
        "x16",
        "mtu",
        "link",
        "lqpn",
        "pid",
        "comm",
        "QP",
        "error",
        "\x00",
        "\x1b[31m",
        "€",
        "/",
        "0000:18:00.0",
        "rate",
        "400",
        "Gb/sec",
        "(4X",
        "NDR)",
        "memlock",
        "unlimited",
        "NAME=value",
    ]
)


@pytest.mark.parametrize("text", [text for _, text in TEXTS if isinstance(text, Text)], ids=lambda text: text.tool)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(lines=st.lists(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=10).map(" ".join)), max_size=12))
def test_a_parser_survives_any_lines(text: Text, lines: list[str]) -> None:
    for item in text.parse([Line(number, line.replace("\n", " ")) for number, line in enumerate(lines, 1)]):
        check_row(item)


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("text", [text for _, text in TEXTS if isinstance(text, Json)], ids=lambda text: text.tool)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_json_parser_survives_any_values(text: Json, data: st.DataObject) -> None:
    keys = st.sampled_from(sorted({key for form in text.keys for key in form}) + ["x"])
    objects = data.draw(st.lists(st.dictionaries(keys, JSON_VALUES, max_size=6), max_size=4))
    for item in text.parse(objects):
        assert isinstance(item, (Row, Rows, Gap))


@pytest.mark.parametrize("path", rulebook.files(rulebook.shipped_folder()), ids=lambda path: Path(path).stem)
def test_a_rule_file_is_well_formed(path: str) -> None:
    rulebook.parse(path, rulebook.read_json(path))


def test_shipped_rules_hold_together(book: rulebook.Rulebook) -> None:
    rulebook.check(book, book)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_answers_its_own_examples(rule: rulebook.Rule, book: rulebook.Rulebook, library: Library) -> None:
    assert [tried for tried in examples.run(rule, book, library) if tried.problem] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_tells_what_to_do(rule: rulebook.Rule) -> None:
    assert rule.refs, "where is it from?"
    if rule.kind == "cause" and rule.severity != "info":
        assert rule.fix and rule.settle, "a cause needs a fix and the step that settles it"


@pytest.mark.parametrize("name", registry.names(explain))
def test_a_topic_decodes_its_examples(name: str) -> None:
    module = registry.load(explain, name)
    for words in module.EXAMPLES:
        assert module.decode(*words)
    with pytest.raises(BadInput):
        module.decode("\x1bno such thing", "at all")


@pytest.mark.parametrize("name", registry.names(rdmadiag.cli))
def test_a_command_has_help_with_examples(name: str, rdmadiag: Callable[..., Any]) -> None:
    result = rdmadiag(name, "--help")
    assert result.returncode == 0
    assert "Examples:" in result.stdout and f"rdmadiag {name}" in result.stdout


def test_an_unknown_plug_in_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"known: .*devices"):
        registry.load(rdmadiag.sources, "nosuch")


def test_setup_cfg_names_every_package() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    named = set(config["options"]["packages"].split())
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "rdmadiag").rglob("__init__.py")}
    assert named == found | {"rdmadiag.rules", "rdmadiag.scenarios"}
