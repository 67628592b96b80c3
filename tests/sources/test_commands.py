"""Commands of RDMA programs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_tree import lines, rows

from rdmadiag.sources.commands import TEXTS, parse

COMMANDS = [
    ("ibv_rc_pingpong -g 0 -d rxe0 -i 1", {"program": "ibv_rc_pingpong", "gid_index": 0, "device": "rxe0", "port": 1}),
    ("# ./ib_write_bw -R -F -n10 -q1026 -s32 10.20.17.11", {"program": "ib_write_bw", "rdma_cm": 1, "qps": 1026, "iterations": 10}),
    ("$ ib_send_lat --ib-dev=mlx5_0 --gid-index 3 --rdma_cm", {"program": "ib_send_lat", "device": "mlx5_0", "gid_index": 3, "rdma_cm": 1}),
    ("root@node-a:~# taskset -c 3 ib_read_bw -d mlx5_1 -aFR", {"program": "ib_read_bw", "device": "mlx5_1", "rdma_cm": 1}),
    ("$ rping -s -a 10.20.0.1 -v", {"program": "rping", "rdma_cm": 1}),
    ("[root@node-a ~]# ibping -S -C mlx5_0 -P 1", {"program": "ibping", "device": "mlx5_0", "port": 1}),
    ("$ UCX_TLS=rc ucx_perftest -d mlx5_0:1 -x rc -t tag_bw", {"program": "ucx_perftest", "device": "mlx5_0", "port": 1}),
    ("$ ip netns exec red ib_write_bw -d rxe0 | tee log -x 9", {"program": "ib_write_bw", "device": "rxe0"}),
    ("$ mpirun -np 2 -x NCCL_IB_HCA=mlx5_0 ./all_reduce_perf", {"program": "mpirun"}),
    ("root@node-a:~# sudo modprobe rdma_rxe ", {"program": "modprobe"}),
    ("# rxe_cfg status", {"program": "rxe_cfg"}),
]  # fmt: skip


@pytest.mark.parametrize("line,expected", COMMANDS)
def test_options_are_read_in_the_way_of_each_program(line, expected):
    (row,) = rows(parse(lines(line)), "command")
    assert {name: value for name, value in row.items() if name != "line"} == expected
    assert any(re.search(sign, line) for sign in TEXTS[0].signs)


@pytest.mark.parametrize(
    "line",
    [
        "$ man ib_write_bw",
        "$ which ibstat",
        "$ grep ib_write_bw log",
        "ib_write_bw fails on mlx5_0",
        "libibverbs: Warning",
        "",
    ],
)
def test_other_lines_are_no_commands(line):
    known = rows(parse(lines(line)), "command")
    assert not known or not any(re.search(sign, line) for sign in TEXTS[0].signs)


def test_secrets_do_not_stay_in_the_line():
    (row,) = rows(parse(lines("$ docker run -e HF_TOKEN=abc image ib_write_bw -d mlx5_0")), "command")
    assert "abc" not in row["line"]


def test_the_line_is_kept_without_its_prompt():
    (row,) = rows(parse(lines("root@node-a:~# ibv_devinfo -d mlx5_0")), "command")
    assert row == {"program": "ibv_devinfo", "line": "ibv_devinfo -d mlx5_0", "device": "mlx5_0"}


def test_perftest_depth_and_iterations_are_kept():
    (row,) = rows(parse(lines("$ ib_write_bw -R -F -n10 -q1026 --tx-depth=64 10.20.17.11")), "command")
    assert (row["qps"], row["depth"], row["iterations"], row["rdma_cm"]) == (1026, 64, 10, 1)


@given(st.text())
def test_no_text_raises(text):
    for kind in TEXTS:
        list(kind.parse(lines(text)))
        list(kind.parse(lines("$ ib_write_bw " + text)))
