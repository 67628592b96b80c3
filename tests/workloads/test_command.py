"""Any program as a workload: lines of JSON, patterns, words."""

from __future__ import annotations

import re

import pytest

from rdmadiag.errors import BadInput
from rdmadiag.workloads import Setting, load
from rdmadiag.workloads._contract import checked
from rdmadiag.workloads.command import STARTED, Reader
from tests.workloads import HOSTS, notes

# `rping -c -a 10.0.0.2 -C 2 -v` (rdma-core 44), as printed in a lab on 2026-11-30.
RPING = """\
ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr
ping data: rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs
"""


def ends(**given: object) -> dict[str, object]:
    return load("command").ends(Setting(checked(load("command").PARAMETERS, given), *HOSTS))  # type: ignore[no-any-return]


def test_named_groups_become_metrics_and_claims() -> None:
    reader = Reader(
        re.compile("rdma-ping-0"), (re.compile(r"rdma-ping-(?P<ping>\d+)"), re.compile(r"(?P<bytes>\d+): ")), 64
    )
    found = notes(reader, RPING)
    assert [note.kind for note in found] == ["ready", "metric", "progress", "metric", "progress"]
    assert found[-1].values == {"bytes": 64} and found[-2].values == {"name": "ping", "value": 1}


def test_an_error_has_the_programs_words() -> None:
    reader = Reader(None, (re.compile(r"cq completion failed status (?P<status>\d+)(?P<error>)"),))
    # rping, when its peer is killed.
    found = notes(reader, "cq completion failed status 5\n")
    assert found[0].values == {"words": "cq completion failed status 5", "status": "5"}


def test_lines_of_json_are_events_or_metrics() -> None:
    found = notes(
        Reader(),
        f'{STARTED}\n{{"event": "progress", "bytes": 5}}\n{{"tokens_per_second": 7.5, "x": "y"}}\n{{broken\n{{"event": "progress"}}\n',
    )
    assert [(note.kind, note.values) for note in found] == [
        ("ready", {"carrier": "unknown"}),
        ("progress", {"bytes": 5}),
        ("metric", {"name": "tokens_per_second", "value": 7.5}),
    ]


def test_places_in_braces_are_filled_in_word_by_word() -> None:
    made = ends(client="rping -c -a {peer_address} -d '{device}'", ready="x")
    assert made["client"].argv == ["rping", "-c", "-a", "10.0.0.2", "-d", "rxe1"]  # type: ignore[attr-defined]
    assert list(made) == ["client"]


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({}, "client: wanted a command"),
        ({"client": "a '"}, "a shell's words"),
        ({"client": "a {nothing}"}, "{nothing} is not known; known: .*peer_address"),
        ({"client": "a", "ready": "("}, "no regular expression"),
        ({"client": "a", "patterns": "x" * 501}, "longer than 500"),
    ],
)
def test_what_cannot_be_used_is_refused(given_: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        ends(**given_)
