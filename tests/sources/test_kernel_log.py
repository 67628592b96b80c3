"""The kernel log: the node's own and pasted ones."""

import re

import pytest
from live_tree import LiveTree

from rdmadiag.sources.kernel_log import TEXTS, parse, read


@pytest.mark.parametrize(
    "line",
    [
        "[905244.123409] mlx5_core 0000:21:00.0: mlx5_cmd_check:795:(pid 24275): ALLOC_UAR(0x802) op_mod(0x0) failed",
        "[  345.837186] mlx5_core 0000:0e:00.0: poll_health:801:(pid 0): device's health compromised",
        "[    0.000000][    T0] Linux version 6.1.0",
        "[Wed Sep  9 11:26:02 2026] nvidia_peermem: Unknown symbol",
        "Feb 02 09:56:04 node-a kernel: mlx5_core 0000:d2:00.0: x",
        "2026-02-02T09:56:04+0100 node-a kernel: mlx5_core 0000:d2:00.0: x",
        "2026-02-02T09:56:04,123456+00:00 mlx5_core 0000:d2:00.0: x",
        "6,339,5140900,-;mlx5_core 0000:21:00.0: firmware version",
        "kern  :err   : [   12.345678] mlx5_core 0000:d2:00.0: x",
        "mlx5_core 0000:21:00.0: firmware version: 22.35.1012",
        "nv_mem nv_get_p2p_free_callback:144 nv_get_p2p_free_callback -- invalid page_table ",
        "rdma_rxe: failed to allocate crc algorithmi err:-2",
        "infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe",
    ],
)
def test_kernel_log_lines_are_known_in_every_time_style(line):
    assert any(re.search(sign, line) for sign in TEXTS[0].signs)


@pytest.mark.parametrize(
    "line",
    [
        "[1700000001.054681] [node-a:20101:0]        ib_iface.c:1035 UCX  ERROR ibv_create_cq(cqe=4096) failed",
        "node-b:1204:1251 [0] transport/net_ib.cc:839 NCCL WARN NET/IB : Got completion with error 12",
        "E0512 03:42:36.255509 20240 rdma_context.cpp:198] Failed to register memory",
        "Feb 02 09:56:04 node-a gpud[1331796]: checking nvidia gpu infiniband",
        "[2026-03-13 22:26:02] node-a:31007:31254 [5] ibvwrap.c:262 NCCL WARN Call",
        "mlx5: node-a: got completion with error:",
        "mlx5_0 1 DOWN",
    ],
)
def test_logs_of_programs_are_not_the_kernels(line):
    assert not any(re.search(sign, line) for sign in TEXTS[0].signs)


def test_the_nodes_own_log_is_handed_over_with_its_end():
    (printed,) = read(LiveTree("/proc/uptime:99.5 1.0\n", texts={"dmesg": "[    1.000000] x"}))
    assert (printed.text, printed.end_seconds) == ("[    1.000000] x", 99.5)
    assert list(parse([])) == []
