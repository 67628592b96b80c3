"""Results of workloads: what was claimed, and what the client's device counted; what is of another type is passed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.sources import workload_results

RESULT = Path(__file__).parent.parent / "data/nodes/mooncake-silent-tcp/result.json"


def rows(**changes: Any) -> list[dict[str, Any]]:
    result = json.loads(RESULT.read_text()) | changes
    return [dict(row.values) for row in workload_results.parse([result])]


def test_mooncakes_silent_tcp_is_a_route_of_rdma_whose_device_sent_nothing() -> None:
    assert rows() == [
        {
            "run": "mooncake in lab k4", "path": "rxe1", "kind": "rdma", "device": "rxe1", "peer_device": "rxe2", "same_device": 0,
            "acknowledged_bytes": 8388608, "read_bytes": 0, "packets_sent": 0, "packets_received": 0,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "read"),
    [
        ({"mode": "pull"}, 8388608),
        ({"test": "ib_read_bw"}, 8388608),
        ({"test": "ib_write_bw"}, 0),
        ({"mode": "push_imm"}, 0),
    ],
)
def test_which_way_the_bytes_went_follows_from_the_parameters(parameters: dict[str, str], read: int) -> None:
    assert rows(parameters=parameters)[0]["read_bytes"] == read


def test_where_it_is_not_told_which_way_they_went_nothing_is_guessed() -> None:
    assert "read_bytes" not in rows(parameters={"client": "anything"})[0]


def test_words_of_an_adapters_counters_are_four_bytes() -> None:
    moved = {"h1/rxe1": {"port_xmit_data": 10, "port_rcv_data": 3}}
    row = rows(carried={"devices": moved})[0]
    assert (row["wire_bytes_sent"], row["wire_bytes_received"]) == (40, 12)


def test_both_ends_on_one_device_of_one_host_are_told() -> None:
    host = json.loads(RESULT.read_text())["client"]
    assert rows(server=host)[0]["same_device"] == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
)


@given(st.dictionaries(st.sampled_from(sorted(json.loads(RESULT.read_text()))), JSON))
def test_values_of_another_type_raise_nothing(changes: dict[str, Any]) -> None:
    for row in workload_results.parse([json.loads(RESULT.read_text()) | changes]):
        assert all(isinstance(value, (int, str)) for value in row.values.values())
