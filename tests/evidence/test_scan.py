"""Many patterns in one pass; the compiled form is kept, and only one that is our own is loaded."""

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rdmadiag import cache as kept
from rdmadiag.errors import BadInput
from rdmadiag.evidence import scan
from rdmadiag.evidence.scan import Scanner, pattern_problem


def test_each_line_and_pattern_is_reported_once():
    scanner = Scanner(["b+", "^a", "c$"], cached=False)
    assert scanner.lines(b"abbb\nxx\nbc\n") == [(0, 4, 0), (0, 4, 1), (8, 10, 0), (8, 10, 2)]


@example(["", "", "aaaaaaaaaa", "aab", ""], 99)  # which Hyperscan 5.4 misses without line ends behind it
@example(["", "", "aaaaaaaaaa", "aab", ""], 6)
@example(["ab", "b"], 1)
@given(st.lists(st.text("ab \n", max_size=12), max_size=8), st.integers(1, 40))
def test_lines_are_those_that_a_search_line_by_line_finds(parts, copied):
    data = "\n".join(parts).encode()
    scanner = Scanner(["a b", "b$"], cached=False)
    wanted, start = set(), 0
    for line in data.split(b"\n"):
        wanted |= {(start, start + len(line), 0)} if b"a b" in line else set()
        wanted |= {(start, start + len(line), 1)} if line.endswith(b"b") else set()
        start += len(line) + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "COPIED_BYTES", copied)  # of a longer text only the end
        assert scanner.lines(data) == sorted(wanted)
        assert scanner.first(memoryview(data)).keys() == {index for *_, index in wanted}


def test_of_a_flood_the_first_and_the_last_lines_are_reported(monkeypatch):
    monkeypatch.setattr(scan, "LINES_PER_PATTERN", 10)
    lines = Scanner(["x"], cached=False).lines(b"x\n" * 1000)
    assert [start for start, _, _ in lines] == [0, 2, 4, 6, 8, 1990, 1992, 1994, 1996, 1998]


def test_first_tells_where_each_pattern_first_ends():
    assert Scanner(["b", "z"], once=True, cached=False).first(b"aab b") == {0: 3}


def test_nothing_matches_nothing():
    assert Scanner([], cached=False).lines(b"x") == [] and Scanner(["x"], cached=False).first(b"") == {}


def test_a_pattern_that_cannot_be_used_is_named():
    with pytest.raises(BadInput, match=r"\(\?=b\)"):
        Scanner(["a", "a(?=b)"], cached=False)
    assert pattern_problem("a(") and pattern_problem(r"(a)\1") and pattern_problem("fine") is None


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rdmadiag"


def test_the_compiled_form_is_kept_and_loaded(cache, monkeypatch):
    Scanner(["abc"])
    (kept,) = cache.iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(Scanner, "_compile", None)
    assert Scanner(["abc"]).lines(b"abc") == [(0, 3, 0)]


@pytest.mark.parametrize("spoil", ["bytes", "mode", "link", "owner"])
def test_a_kept_form_that_somebody_else_could_have_written_is_not_loaded(cache, spoil, monkeypatch, tmp_path):
    Scanner(["abc"])
    (kept,) = cache.iterdir()
    if spoil == "bytes":
        kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    elif spoil == "mode":
        kept.chmod(0o666)
    elif spoil == "link":
        kept.rename(tmp_path / "elsewhere")
        kept.symlink_to(tmp_path / "elsewhere")
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    compiled = []
    compile_ = Scanner._compile
    monkeypatch.setattr(Scanner, "_compile", lambda self: compiled.append(1) or compile_(self))
    assert Scanner(["abc"]).lines(b"abc") == [(0, 3, 0)]
    assert compiled


def test_old_kept_forms_are_removed(cache):
    for number in range(12):
        Scanner([f"pattern{number}"])
        os.utime(max(cache.iterdir(), key=lambda path: path.stat().st_mtime_ns), (number, number))
    assert len(list(cache.iterdir())) <= kept.KEPT


def test_without_a_place_to_keep_it_all_still_works(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nosuch")
    assert Scanner(["abc"]).lines(b"abc") == [(0, 3, 0)]
