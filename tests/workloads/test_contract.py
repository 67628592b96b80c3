"""Contracts that every workload keeps: tested the moment its file exists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdmadiag import workloads
from rdmadiag.errors import BadInput
from rdmadiag.workloads import KINDS, Setting
from rdmadiag.workloads._contract import checked
from tests.workloads import HOSTS

NAMES = workloads.names()
NEEDED = {"ready", "progress", "verified", "error", "metric"}


def setting(name: str) -> Setting:
    module = workloads.load(name)
    return Setting(checked(module.PARAMETERS, module.EXAMPLE), *HOSTS)


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_says_what_it_is_and_what_can_be_set(name: str) -> None:
    module = workloads.load(name)
    assert module.TITLE and module.__doc__
    assert len({one.name for one in module.PARAMETERS}) == len(module.PARAMETERS)
    for one in module.PARAMETERS:
        assert one.help and type(one.default) in (int, float, str, bool)
        assert not one.choices or one.default in one.choices
    assert all(isinstance(name, str) and isinstance(package, str) for name, package in module.PROGRAMS.items())


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_has_two_ends_and_starts_the_server_first(name: str) -> None:
    ends = workloads.load(name).ends(setting(name))
    assert list(ends) == ["server", "client"]
    for end in ends.values():
        assert end.argv and all(isinstance(word, str) for word in end.argv)
        assert end.seconds >= 0


@pytest.mark.parametrize("name", NAMES)
def test_each_start_has_a_reader_of_its_own(name: str) -> None:
    module = workloads.load(name)
    first, second = module.ends(setting(name)), module.ends(setting(name))
    assert first["client"].reader is not second["client"].reader


def check_note(note: workloads.Note) -> None:
    assert note.kind in KINDS
    number: Any = (int, float)
    if note.kind == "progress":
        assert isinstance(note.values["bytes"], number) and note.values["bytes"] >= 0
    elif note.kind == "verified":
        assert all(isinstance(note.values.get(name, 0), number) for name in ("bytes", "blocks", "wrong"))
    elif note.kind == "metric":
        assert isinstance(note.values["name"], str) and isinstance(note.values["value"], number)
    elif note.kind == "error":
        assert "words" in note.values


WORDS = st.sampled_from(
    ["{", "}", '"event"', ":", '"progress"', '"bytes"', "-1", "1e999", "NaN", "null", "READY", "error", "E1130", "]"]
    + ["#bytes", "#iterations", "BW average[MB/sec]", "65536", "100", "0.00", "Failed status 12: wr_id 0 syndrom 0x81"]
)
EVENTS = st.fixed_dictionaries(
    {"event": st.sampled_from([*KINDS, "x", 3])},
    optional={
        name: st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
        for name in ("bytes", "blocks", "wrong", "name", "value", "words", "code", "carrier", "seconds")
    },
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    lines=st.lists(
        st.text(max_size=60) | st.lists(WORDS, max_size=8).map(" ".join) | EVENTS.map(workloads.line), max_size=10
    )
)
def test_a_reader_survives_any_lines(name: str, lines: list[str]) -> None:
    for end in workloads.load(name).ends(setting(name)).values():
        for stream in (1, 2):
            for line in lines:
                for note in end.reader(stream, line.replace("\n", " ")):
                    check_note(note)


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"size": "many"}, "a whole number"),
        ({"size": -1}, "from 0 on"),
        ({"size": True}, "a whole number"),
        ({"seconds": "inf"}, "a number"),
        ({"test": "ib_lat"}, "one of ib_write_bw"),
        ({"sise": 1}, "known: test, size"),
    ],
)
def test_a_wrong_parameter_is_refused_and_named(given_: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        checked(workloads.load("perftest").PARAMETERS, given_)


def test_text_becomes_the_type_of_the_default() -> None:
    values = checked(workloads.load("perftest").PARAMETERS, {"size": "4096", "seconds": "2"})
    assert values["size"] == 4096 and values["seconds"] == 2.0 and values["depth"] == 128


def test_an_unknown_workload_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match="known: command, "):
        workloads.load("nosuch")
