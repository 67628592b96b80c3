"""Arrivals: made, or read from a trace; what is no trace is refused with its line."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.errors import BadFile, BadInput
from rdmadiag.kv import arrivals
from rdmadiag.kv.arrivals import Agents


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 1000))
def test_agents_come_in_the_order_of_time_and_their_prefixes_grow(agents: int, turns: int, seed: int) -> None:
    made = list(arrivals.synthetic(Agents(agents, turns), seed))
    assert len(made) == agents * turns
    assert [one.seconds for one in made] == sorted(one.seconds for one in made)
    last: dict[int, arrivals.Arrival] = {}
    for one in made:
        assert len(one.hash_ids) == one.input_tokens // arrivals.HASH_TOKENS
        before = last.get(one.agent)
        if before is not None:
            assert one.turn == before.turn + 1
            assert one.hash_ids[: len(before.hash_ids)] == before.hash_ids
            assert one.input_tokens > before.input_tokens + before.output_tokens
        last[one.agent] = one
    shared = {one.hash_ids[:4] for one in made}
    assert len(shared) == 1, "the system prompt is everybody's"
    assert made == list(arrivals.synthetic(Agents(agents, turns), seed))


def test_several_agents_switch_contexts_and_one_does_not() -> None:
    assert arrivals.switches(arrivals.synthetic(Agents(agents=1))) == 0
    assert arrivals.switches(arrivals.synthetic(Agents(agents=8))) > 40


def test_numbers_that_are_none_are_refused() -> None:
    for work in (Agents(agents=0), Agents(think_seconds=-1), Agents(token_seconds=float("nan"))):
        with pytest.raises(BadInput):
            list(arrivals.synthetic(work))


def test_a_trace_in_the_form_that_mooncake_published_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"  # form: kvcache-ai/Mooncake FAST25-release/traces
    path.write_text(
        '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}\n\n'
        '{"timestamp": 3000, "input_length": 7319, "output_length": 490, "hash_ids": [0, 14]}\n'
    )
    first, second = arrivals.from_trace(str(path))
    assert (first.seconds, first.input_tokens, first.hash_ids) == (0.0, 6758, (0, 1, 2))
    assert (second.seconds, second.output_tokens) == (3.0, 490)
    assert len(list(arrivals.from_trace(str(path), 1))) == 1


@given(st.binary(max_size=200))
def test_any_file_is_a_trace_or_refused_with_its_line(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    with pytest.raises(BadFile, match="wanted|integers"):
        list(arrivals.from_trace(str(path)))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"timestamp": "x", "input_length": 1, "output_length": 1}', "timestamp is 'x'"),
        ('{"timestamp": 1, "input_length": -5, "output_length": 1}', "input_length is '-5'"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [true]}', "hash_ids"),
        ('{"timestamp": NaN, "input_length": 1, "output_length": 1}', "timestamp"),
        ("[" * 100000, "RecursionError"),
        ("7", "wanted an object"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 1, "output_length": 1}\n' + line)
    with pytest.raises(BadFile, match="line 2") as error:
        list(arrivals.from_trace(str(path)))
    assert what in str(error.value)


def test_agents_go_on_for_ever_with_contexts_that_only_share_the_system_prompt() -> None:
    work = Agents(agents=2, turns=3)
    turns = list(islice(arrivals.endless(work), 14))
    assert [turn.seconds for turn in turns] == sorted(turn.seconds for turn in turns)
    first, second = (set().union(*(turn.hash_ids for turn in some)) for some in (turns[:6], turns[6:12]))
    assert first & second == set(range(work.system_tokens // arrivals.HASH_TOKENS))
    assert turns[:6] == list(arrivals.synthetic(work))
