"""In-flight changes as data: what is read is what was written, and what is wrong is named with its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmadiag.errors import BadInput
from rdmadiag.lab import changes, pattern, switch_rules

PSN = st.integers(0, (1 << 24) - 1)
MATCHES = st.fixed_dictionaries(
    {},
    optional={
        "from": st.sampled_from(["h1", "h2"]),
        "to": st.sampled_from(["h1", "h2"]),
        "opcode": st.sampled_from([0x0A, "RDMA_WRITE_LAST", ["RC_ACKNOWLEDGE", 0x06]]),
        "qp": st.one_of(PSN, st.fixed_dictionaries({"nth": st.integers(1, 9)}), st.just("0x11")),
        "psn": st.one_of(PSN, st.fixed_dictionaries({"relative": PSN}), st.just([5, 9])),
        "retransmission": st.integers(0, 9),
        "occurrence": st.one_of(st.integers(1, 9), st.just([2, 4])),
        "probability": st.floats(0.001, 1),
        "bursts": st.fixed_dictionaries({}, optional={"enter": st.floats(0.001, 1), "good": st.floats(0, 1)}),
        "seed": st.integers(0, 9),
        "budget": st.integers(1, 99),
    },
)
ACTIONS = st.sampled_from(
    [
        {"do": "drop"},
        {"do": "mark_ce"},
        {"do": "delay", "seconds": 0.5},
        {"do": "duplicate", "copies": 2},
        {"do": "reorder", "by": 3},
        {"do": "hold"},
        {"do": "corrupt", "offset": 7, "mask": 1, "icrc": "invalid"},
        {"do": "rewrite", "set": {"rkey": "0x1234", "va": 1 << 63, "psn": 7}},
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(MATCHES, ACTIONS), min_size=1, max_size=5))
def test_changes_written_as_json_are_read_back_the_same(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    for match, _ in pairs:
        if "bursts" in match:
            match.pop("probability", None)
        elif "probability" not in match:
            match.pop("seed", None)
    read = changes.read([{"match": match, "action": action} for match, action in pairs])
    assert changes.read([changes.as_json(change) for change in read]) == read
    assert [change.name for change in read] == [f"change-{n + 1}" for n in range(len(pairs))]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "action: do: wanted one of drop, mark_ce"),
        ({"action": {"do": "burn"}}, "got 'burn'"),
        ({"action": {"do": "drop", "seconds": 1}}, "no 'seconds'"),
        ({"action": {"do": "delay"}}, "seconds: wanted a number above 0"),
        ({"action": {"do": "rewrite"}}, "set: wanted values for some of rkey"),
        ({"action": {"do": "rewrite", "set": {"ttl": 1}}}, "no 'ttl'; known: rkey"),
        ({"action": {"do": "rewrite", "set": {"psn": 1 << 24}}}, "set, psn: wanted a number"),
        ({"action": {"do": "corrupt", "icrc": "no"}}, "icrc: wanted valid or invalid"),
        ({"action": {"do": "rewrite", "set": {"syndrome": "0x40"}}}, "panic_on_warn"),
        ({"match": {"opcode": "WRITE_FIRTS"}, "action": {"do": "drop"}}, "no BTH opcode"),
        (
            {"match": {"opcode": 0x04, "rkey": 1}, "action": {"do": "drop"}},
            "no packet of the opcodes wanted carries a rkey",
        ),
        ({"match": {"seed": 1}, "action": {"do": "drop"}}, "a seed wants a probability or bursts"),
        ({"match": {"probability": 2}, "action": {"do": "drop"}}, "probability: wanted"),
        ({"match": {"probability": 0}, "action": {"do": "drop"}}, "probability: wanted a number above 0"),
        ({"match": {"probability": 1e-9, "seed": 1}, "action": {"do": "drop"}}, "with a seed wanted at least 0.00006"),
        ({"match": {"probability": 0.1, "bursts": {}}, "action": {"do": "drop"}}, "probability or bursts, not both"),
        ({"match": {"bursts": {"enter": 0}}, "action": {"do": "drop"}}, "bursts: enter, leave and bad: wanted numbers"),
        ({"match": {"bursts": {"leave": 7}}, "action": {"do": "drop"}}, "bursts, leave: wanted a number from 0 to 1"),
        ({"match": {"bursts": {"p": 1}}, "action": {"do": "drop"}}, "no 'p'; known: enter, leave, bad, good"),
        ({"match": {"bursts": True}, "action": {"do": "drop"}}, "bursts: wanted an object"),
        ({"match": {"psn": [9, 5]}, "action": {"do": "drop"}}, r"wanted \[first, last\]"),
        ({"match": {"qp": {"first": 1}}, "action": {"do": "drop"}}, "no 'first'; known: nth"),
        ({"match": {"qpn": 1}, "action": {"do": "drop"}}, "no 'qpn'; known: from, to"),
        ({"match": {"from": 1}, "action": {"do": "drop"}}, "from: wanted the name of a host"),
        ("drop", "wanted an object"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(entry: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        changes.read([entry])


def test_a_list_that_is_none_or_two_of_one_name_are_refused() -> None:
    for values in ([], {}, "x", [{"action": {"do": "drop"}}] * 65):
        with pytest.raises(BadInput, match="list of 1 to 64"):
            changes.read(values)
    with pytest.raises(BadInput, match="name of its own"):
        changes.read([{"name": "a", "action": {"do": "drop"}}] * 2)


def test_the_kernel_does_what_it_can_and_only_that() -> None:
    def where(match: dict[str, Any], do: str = "drop") -> bool:
        return changes.read([{"match": match, "action": {"do": do}}])[0].in_kernel

    assert where({"from": "h1", "opcode": 0x0A, "occurrence": 3, "probability": 0.5, "budget": 9, "rkey": 1}, "mark_ce")
    assert where({"probability": 0.5, "seed": 1}) and where({"bursts": {}, "budget": 2})
    for match in ({"qp": {"nth": 1}}, {"psn": {"relative": 1}}, {"retransmission": 1}):
        assert not where(match)
    assert not where({}, "duplicate")


def test_rules_forward_only_what_a_change_wants_and_stop_when_their_program_does() -> None:
    read = changes.read(
        [
            {"match": {"from": "h1", "qp": 0x11}, "action": {"do": "duplicate"}},
            {"match": {"to": "h1", "opcode": 8, "occurrence": [3, 4]}, "action": {"do": "drop"}},
        ]
    )
    text = switch_rules.table("t", read, {"p1": "h1", "p2": "h2"}, {"h1": ["02:00:00:00:00:01"], "h2": []}, "d")
    assert " flags owner" in text and text.count("udp dport != @alive accept") == 2
    assert '@th,104,24 0x11 counter name "c0" fwd to "d"' in text
    assert (
        '@th,64,8 { 0x8 } counter name "s1" numgen inc mod 4294967295 >= 2 numgen inc mod 4294967295 < 2 goto h1'
        in text
    )
    assert 'chain h1 {\n  counter name "c1" drop' in text
    first, second = text.split("type filter hook ingress device ")[1:]
    assert first.startswith('"p1"') and "jump k0" in first and "jump k1" in first
    assert "jump k0" not in second and "ether daddr { 02:00:00:00:00:01 } udp dport 4791 jump k1" in second


def test_a_loss_model_is_numbers_that_the_kernel_looks_up_and_the_budget_is_of_those_it_chose() -> None:
    (change,) = changes.read([{"match": {"bursts": {"enter": 0.01}, "budget": 7}, "action": {"do": "drop"}}])
    period, hit = pattern.in_bursts(0.01, 0.2, 1.0, 0.0, 1)
    assert change.match.seed == 1 and change.match.chosen() == (period, hit)
    text = switch_rules.table("t", [change], {"p1": "h1"}, {}, "d")
    assert f'counter name "s0" numgen inc mod {period} vmap {{ {hit[0]} : goto h0, ' in text
    assert 'chain h0 {\n  numgen inc mod 4294967295 < 7 counter name "c0" drop' in text


def test_counters_are_read_from_what_nft_prints() -> None:
    text = (
        "table netdev t {\n\tcounter s0 {\n\t\tpackets 12 bytes 34\n\t}\n\tcounter c0 {\n\t\tpackets 1 bytes 2\n\t}\n}"
    )
    assert switch_rules.counters(text) == {"s0": (12, 34), "c0": (1, 2)}
