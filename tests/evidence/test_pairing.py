"""GPUs and RDMA devices are paired by the PCI tree, by NUMA nodes, or as the GPU driver says."""

import pytest

from rdmadiag.evidence.pairing import Place, path_between
from rdmadiag.evidence.store import Evidence

ROOT, UP, DOWN, OTHER = "0000:20:01.0", "0000:21:00.0", "0000:22:00.0", "0000:22:01.0"


@pytest.mark.parametrize(
    "one,other,wanted",
    [
        (Place("g", (DOWN, UP, ROOT), 0), Place("n", (OTHER, UP, ROOT), 0), "PIX"),
        (Place("g", ("0000:30:00.0", "0000:29:00.0", DOWN, UP, ROOT), 0), Place("n", (OTHER, UP, ROOT), 0), "PXB"),
        (Place("g", (ROOT,), 0), Place("n", ("0000:20:03.0",), 0), "PHB"),
        (Place("g", (ROOT,), 0), Place("n", ("0000:40:01.0",), 0), "NODE"),
        (Place("g", (ROOT,), 0), Place("n", ("0000:40:01.0",), 1), "SYS"),
        (Place("g", (ROOT,), None), Place("n", ("0000:40:01.0",), 1), None),
        (Place("g", (), None), Place("n", (), None), None),
        (Place("g", (), 0), Place("n", (), 0), None),
        (Place("g", (), 0), Place("n", (), 1), "SYS"),
        (Place("g", (DOWN,), 0, whole=False), Place("n", (OTHER,), 0, whole=False), None),
    ],
)
def test_the_way_between_two_functions(one, other, wanted):
    assert path_between(one, other) == wanted


def pairs(evidence):
    evidence.finish()
    cursor = evidence.db.execute("SELECT gpu, device, path, nearest, rail FROM gpu_nic ORDER BY gpu, device")
    return cursor.fetchall()


def test_what_the_driver_reports_counts_before_the_tree_and_the_fastest_near_adapter_is_the_rail():
    evidence = Evidence()
    for bdf, role in (("0000:19:00.0", "gpu"), ("0000:1a:00.0", "rdma"), ("0000:1b:00.0", "rdma")):
        evidence.add("n", {"bdf": bdf, "role": role, "numa_node": 0, "parent_bdf": ROOT}, "pci", "x")
    for device, bdf, rate in (("mlx5_0", "0000:1a:00.0", 100), ("mlx5_1", "0000:1b:00.0", 400)):
        evidence.add("n", {"device": device, "bdf": bdf}, "device", "x")
        evidence.add("n", {"device": device, "port": 1, "rate_gbps": rate}, "port", "x")
    assert pairs(evidence) == [(0, "mlx5_0", "PIX", 1, None), (0, "mlx5_1", "PIX", 1, 0)]
    evidence.add("n", {"gpu": 0, "device": "mlx5_1", "path": "SYS"}, "gpu_path", "x")
    assert pairs(evidence) == [(0, "mlx5_0", "PIX", 1, 0), (0, "mlx5_1", "SYS", 0, None)]


def test_a_topology_alone_pairs_too():
    evidence = Evidence()
    evidence.add("n", {"gpu": 3, "device": "mlx5_2", "path": "PIX"}, "gpu_path", "x")
    assert pairs(evidence) == [(3, "mlx5_2", "PIX", 1, 0)]


def test_a_node_without_gpus_has_no_pairs():
    evidence = Evidence()
    evidence.add("n", {"device": "mlx5_0"}, "device", "x")
    assert pairs(evidence) == []
