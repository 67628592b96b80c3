"""Expressions that are kept compiled are those that Python would compile."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import rdmadiag
from rdmadiag import cache, patterns
from rdmadiag.evidence import aside
from rdmadiag.patterns import compiled, keep, late


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(patterns, "_kept", {})
    monkeypatch.setattr(patterns, "_new", {})
    monkeypatch.setattr(patterns, "_lates", {})


def again(monkeypatch):
    # As in the next process.
    keep()
    monkeypatch.setattr(patterns, "_kept", {})
    monkeypatch.setattr(patterns.re, "compile", None)


def shipped():
    for module in pkgutil.walk_packages(rdmadiag.__path__, "rdmadiag."):
        if not module.name.startswith(("rdmadiag.rules", "rdmadiag.scenarios", "rdmadiag.__main__")):
            for value in vars(importlib.import_module(module.name)).values():
                for one in value if isinstance(value, tuple) else (value,):
                    if isinstance(one, patterns._Late):
                        yield one.pattern, one.flags


def test_all_expressions_of_this_program_come_back_as_they_were(monkeypatch):
    wanted = {(source, int(flags)): re.compile(source, flags) for source, flags in shipped()}
    assert len(wanted) > 200
    for source, flags in wanted:
        compiled(source, flags)
    again(monkeypatch)
    for (source, flags), before in wanted.items():
        found = compiled(source, flags)
        assert found is not before and found == before  # Python compares the code, too
        assert (found.flags, found.groups, found.groupindex) == (before.flags, before.groups, before.groupindex)


def test_groups_are_found_by_name(monkeypatch):
    compiled(r"(?P<a>x+)(y)?(?P<b>z)", re.I)
    again(monkeypatch)
    match = late(r"(?P<a>x+)(y)?(?P<b>z)", re.I).search("1XXz2")
    assert match and match.groupdict() == {"a": "XX", "b": "z"} and match.lastgroup == "b"


def test_what_is_kept_grows_by_what_other_runs_needed(monkeypatch):
    real = re.compile
    for source in ("one", b"one", "two"):
        compiled(source)
        again(monkeypatch)
        monkeypatch.setattr(patterns.re, "compile", real)
    monkeypatch.setattr(patterns.re, "compile", None)
    assert compiled("one").match("one") and compiled(b"one").match(b"one") and compiled("two").match("two")


def test_where_nothing_new_was_compiled_nothing_is_written(monkeypatch):
    compiled("one")
    keep()
    monkeypatch.setattr(cache, "save", None)
    monkeypatch.setattr(patterns, "_kept", {})
    compiled("one")
    keep()


@pytest.mark.parametrize("kept", [(0, b"abcd", 0, {}), ("x", b"", 0, {})])
def test_what_cannot_be_used_is_compiled_again(kept, monkeypatch):
    monkeypatch.setattr(patterns, "_kept", {("a(b)", 0): kept})
    assert compiled("a(b)").match("ab")[1] == "b"


def test_a_python_that_is_another_inside_keeps_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(patterns, "_code_of", lambda *name: [].compile)
    assert late("a+").match("aa")
    keep()
    assert not list(tmp_path.rglob("expressions*"))


def test_a_child_keeps_only_what_it_compiled_itself(monkeypatch):
    compiled("of the parent")
    aside.Aside(lambda: compiled("of the child").pattern).result()
    assert {source for source, _ in patterns._load()} == {"of the child"}
    keep()
    assert {source for source, _ in patterns._load()} == {"of the child", "of the parent"}


def test_a_wrong_expression_is_told_at_its_first_use():
    wrong = late("(")
    with pytest.raises(re.error):
        wrong.match("")


def test_an_expression_is_one_however_often_it_is_asked_for():
    assert late("a+") is late("a+")
    assert late("a+") is not late("a+", re.I)


@pytest.mark.parametrize("room", ["sources", "evidence"])
def test_what_every_check_runs_compiles_no_expression_that_is_not_kept(room):
    folder = Path(rdmadiag.__file__).parent / room
    calls = re.compile(r"\bre\.(?:match|search|fullmatch|findall|finditer|sub|split|compile)\(")
    found = {path.name: len(calls.findall(path.read_text())) for path in folder.glob("*.py")}
    allowed = {"perftest.py": 1, "scan.py": 1}  # an empty match; patterns of users
    assert {name for name, count in found.items() if count > allowed.get(name, 0)} == set()
