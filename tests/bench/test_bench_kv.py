"""What bench kv plans, prints and draws; the measuring itself is in tests/softroce."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.bench import plot
from rdmadiag.bench.kv import Plan, _knees, spread
from rdmadiag.cli.bench import _lines
from rdmadiag.errors import BadInput


def value(*values: float) -> dict[str, Any]:
    return {"median": sorted(values)[len(values) // 2], "low": min(values), "high": max(values), "values": list(values)}


POINTS = [
    {"mode": "push", "size": size, "depth": depth, "bytes_per_second": value(rate, rate * 1.1, rate * 0.9)}
    for size, depth, rate in (
        (4096, 32, 20e6), (65536, 32, 58e6), (1 << 20, 32, 60e6),
        (65536, 1, 30e6), (65536, 4, 57e6), (65536, 8, 58e6),
    )
]  # fmt: skip
RESULT: dict[str, Any] = {
    "schema": "rdmadiag.bench_kv/1",
    "place": "lab x",
    "kernel": "6.1.0",
    "devices": ["rxe1", "rxe2"],
    "plan": Plan(modes=("push",))._asdict(),
    "python": {"post_seconds_each": 1e-6, "all_seconds_each": 2e-6},
    "pairs": [
        {
            "what": "blocks", "mode": "push", "size": 65536, "depth": 32, "against": "ib_write_bw", "bytes_per_second": value(58e6),
            "against_bytes_per_second": value(60e6), "ratio": value(0.97),
        }
    ],
    "points": POINTS,
    "knees": {"push": _knees(POINTS, "push", Plan())},
    "spread": 0.05,
}  # fmt: skip


def test_the_recommendation_is_the_smallest_size_and_then_the_smallest_depth_that_is_enough() -> None:
    assert RESULT["knees"]["push"] == {"size": 65536, "depth": 4, "bytes_per_second": 57e6}


@pytest.mark.parametrize(
    ("differ", "words"),
    [(0.05, ""), (0.6, "runs of one point differ by 60%: which"), (None, "each point was measured once: which")],
)
def test_a_recommendation_is_called_rough_where_runs_of_one_point_differ_more_than_points(
    differ: float | None, words: str
) -> None:
    text = "\n".join(_lines({**RESULT, "spread": differ}))
    assert ("push: roughly, use blocks of 64 KiB" in text) == bool(words) and words in text
    assert ("push: use blocks of 64 KiB and a queue depth of 4" in text) == (not words)


def test_the_spread_is_that_of_the_runs_of_a_point() -> None:
    assert spread([[9.0, 11.0], [99.0, 101.0], [5.0, 15.0]]) == pytest.approx(0.2)
    assert spread([[9.0], [11.0]]) is None and spread([]) is None


def test_a_mode_without_points_has_no_recommendation() -> None:
    assert _knees(POINTS, "pull", Plan()) == {"size": None, "depth": None, "bytes_per_second": None}


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture_is_written(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"bench.{ending}"
    plot.save(RESULT, [str(path)])
    assert path.read_bytes()[:4] == {"png": b"\x89PNG", "svg": b"<?xm"}[ending]


def test_a_picture_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--plot"):
        plot.save(RESULT, [str(tmp_path / "no/such/folder.png")])
    with pytest.raises(BadInput, match="--plot"):
        plot.save(RESULT, [str(tmp_path / "bench.xyz")])


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(modes=("shove",)), "known: push, imm, pull"),
        (Plan(sizes=(5000,)), "a power of two"),
        (Plan(pair_sizes=(1 << 21,)), "a power of two"),
        (Plan(depths=(0,)), "wanted 1 to"),
    ],
)
def test_what_cannot_be_measured_is_refused(plan: Plan, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        plan.checked()


def test_at_least_sixteen_blocks_are_moved() -> None:
    assert Plan(volume_bytes=1 << 20).count(1 << 20) == 16 and Plan(volume_bytes=1 << 20).count(4096) == 256
    assert Plan(volume_bytes=1 << 20).count(1 << 20, 64) == 64


def test_sizes_are_read_as_people_write_them(rdmadiag: Callable[..., Any]) -> None:
    assert "'64X'; wanted for example 4096, 64K, 1M" in rdmadiag("bench", "kv", "--size", "64X").stderr
    said = rdmadiag("bench", "kv", "--lab", "nosuch", "--size", "64K", "--size", "1MiB").stderr
    assert "no lab 'nosuch'" in said


def test_the_result_is_json() -> None:
    json.dumps(RESULT)
