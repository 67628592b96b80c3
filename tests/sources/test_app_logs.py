"""Logs of programs are known by their first lines."""

import re

import pytest

from rdmadiag.sources.app_logs import TEXTS

LOGS = [
    ("NCCL log", "node-a:2114:2114 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE"),
    ("NCCL log", "RCCL version : 2.22.3-HEAD:8b9e1d0"),
    # LMCache/LMCache#795, #503
    (
        "LMCache log",
        "[2025-06-09 23:23:14,906] LMCache WARNING: No LMCache configuration file is set. (utils.py:53:lmcache)",
    ),
    ("LMCache log", "[2025-04-24 08:24:34.494] [infini] [info] gid index: 3"),
    ("libfabric log", "libfabric:1713:1718700000::efa:cq:efa_rdm_cq_poll_ibv_cq():440<warn> Unexpected opcode"),
    ("NVSHMEM log", "node-a:100:100 [0] NVSHMEM INFO NVSHMEM symmetric heap kind = DEVICE selected"),
    ("DeepEP log", "DeepEP timeout for dispatch RDMA receiver, rank: 3"),
]


@pytest.mark.parametrize("tool,line", LOGS)
def test_a_log_is_known_by_its_lines(tool, line):
    assert [text.tool for text in TEXTS if any(re.search(sign, line) for sign in text.signs)] == [tool]
