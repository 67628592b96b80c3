"""bench kv on real devices: what it measures is whole and right; how fast is for docs/performance.md."""

from __future__ import annotations

import pytest

from rdmadiag import workloads
from rdmadiag.bench.kv import Device, Plan, measure
from rdmadiag.lab import Lab


def test_each_mode_moves_right_blocks_and_is_compared_with_perftest(lab: Lab) -> None:
    plan = Plan(sizes=(65536,), depths=(4,), pair_sizes=(65536,), pairs=1, repeats=1, volume_bytes=1 << 20)
    result = measure(workloads.InLab(lab), ("h1", "h2"), plan)
    assert [(pair["mode"], pair["against"]) for pair in result["pairs"]] == [
        ("push", "ib_write_bw"),
        ("imm", "ib_write_bw"),
        ("pull", "ib_read_bw"),
    ]
    assert {(point["mode"], point["depth"]) for point in result["points"]} == {
        (mode, depth) for mode in ("push", "imm", "pull") for depth in (4, 32)
    }
    assert all(knee["size"] == 65536 and knee["depth"] in (4, 32) for knee in result["knees"].values())


def test_blocks_are_compared_after_each_run(lab: Lab) -> None:
    place = workloads.InLab(lab)
    with Device(place, place.host("h1"), place.host("h2")) as device:
        asked = {"size": 4096, "window": 8, "signal_every": 4, "count": 100}
        for op in ("RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ"):
            told = device.ask(op=op, **asked)
            assert (told["failed"], told["wrong"], told["compared"]) == (0, 0, 100), (op, told)


@pytest.mark.long
def test_a_whole_transfer_is_moved_verified_and_compared_with_perftest(lab: Lab) -> None:
    plan = Plan(
        modes=("push",), sizes=(), depths=(), pair_sizes=(65536,), pairs=1, repeats=1, volume_bytes=1 << 20, whole=True
    )
    result = measure(workloads.InLab(lab), ("h1", "h2"), plan)
    assert [(pair["what"], pair["against"]) for pair in result["pairs"]] == [
        ("blocks", "ib_write_bw"),
        ("whole transfer", "ib_write_bw"),
    ]
    assert all(pair["bytes_per_second"]["median"] > 0 for pair in result["pairs"])
