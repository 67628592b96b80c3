"""What bench kv plans, prints and draws; the measuring itself is in tests/softroce."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdmadiag.bench import plot
from rdmadiag.bench.kv import BenchError, Device, Plan, _knees, perftest_rate, spread
from rdmadiag.cli.bench import _lines
from rdmadiag.errors import BadInput
from rdmadiag.lab.client import Ran
from rdmadiag.workloads import Host, InLab


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
    "failures": [],
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


PERFTEST = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 1048576    64               {0}               {0}   \t\t   0.000000
---------------------------------------------------------------------------------------
"""


class Prints(InLab):
    """A place where perftest prints one rate after the other."""

    def __init__(self, *rates: str) -> None:
        self.rates = list(rates)

    def run(self, host: str, argv: list[str], seconds: float) -> Ran:
        return Ran(0, PERFTEST.format(self.rates.pop(0)).encode(), b"")


HOST = Host("h1", "rxe1", 1, "v1", "10.0.0.1", "10.0.100.1")


def test_a_rate_of_nothing_which_perftest_prints_of_a_clock_it_could_not_measure_is_asked_for_again() -> None:
    place = Prints("0.00", "56.78", "1.00")
    assert perftest_rate(place, HOST, HOST, "ib_write_bw", 1 << 20, 64, 32, 18900) == pytest.approx(56.78 * (1 << 20))
    assert place.rates == ["1.00"]


def test_a_perftest_that_never_tells_a_rate_is_an_error_with_its_words() -> None:
    with pytest.raises(BenchError, match=r"ib_write_bw, size 1048576: no result in 3 tries: .*0\.00"):
        perftest_rate(Prints(*["0.00"] * 4), HOST, HOST, "ib_write_bw", 1 << 20, 64, 32, 18900)


class Answers(Device):
    """A measuring program that gives one answer after the other."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.failures, self.answers = [], list(answers)

    def ask(self, **asked: Any) -> dict[str, Any]:
        return self.answers.pop(0)


GOOD = {"seconds": 2.0, "bytes": 4096, "failed": 0, "wrong": 0, "compared": 4}
FAILED = {**GOOD, "failed": 1, "why": "RETRY_EXC_ERR"}


def test_a_run_with_a_failed_request_is_made_again_and_told() -> None:
    device = Answers(FAILED, GOOD)
    assert device.rate("push", 1024, 2, 4) == 2048
    assert device.failures == [
        "push, 4096 bytes, depth 2: 1 requests failed, 0 of 4 blocks are not what was sent. RETRY_EXC_ERR"
    ]
    assert "made again: 1 runs" in "\n".join(_lines({**RESULT, "failures": device.failures}))


@pytest.mark.parametrize(
    "answers", [[FAILED] * 3, [{**GOOD, "wrong": 1}, GOOD], [{**GOOD, "compared": 0}, GOOD]], ids=str
)
def test_wrong_or_unread_content_and_requests_that_always_fail_end_the_measurement(answers: list[Any]) -> None:
    with pytest.raises(BenchError, match="are not what was sent"):
        Answers(*answers).rate("push", 1024, 2, 4)
