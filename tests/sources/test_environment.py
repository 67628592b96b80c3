"""Environment variables of RDMA programs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_tree import lines, rows

from rdmadiag.sources.environment import TEXTS, allowed, parse, safe_value

LINES = [
    ("NCCL_IB_GID_INDEX=1", [("NCCL_IB_GID_INDEX", "1")]),
    ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", [("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")]),
    ("export NCCL_IB_HCA=^mlx5_2,mlx5_3", [("NCCL_IB_HCA", "^mlx5_2,mlx5_3")]),
    ('$ export UCX_TLS="rc,cuda_copy"', [("UCX_TLS", "rc,cuda_copy")]),
    ('declare -x MC_GID_INDEX="3"', [("MC_GID_INDEX", "3")]),
    ("setenv NCCL_DEBUG INFO", [("NCCL_DEBUG", "INFO")]),
    ("ENV NCCL_DEBUG INFO", [("NCCL_DEBUG", "INFO")]),
    ("ENV NCCL_DEBUG=WARN", [("NCCL_DEBUG", "WARN")]),
    ("docker run -e NCCL_IB_DISABLE=1 --env=UCX_TLS=tcp image", [("NCCL_IB_DISABLE", "1"), ("UCX_TLS", "tcp")]),
    (
        "$ NCCL_DEBUG=INFO CUDA_VISIBLE_DEVICES=0,1 python3 x.py",
        [("NCCL_DEBUG", "INFO"), ("CUDA_VISIBLE_DEVICES", "0,1")],
    ),
    ("mpirun -np 2 -x NCCL_IB_HCA=mlx5_0 -x LD_LIBRARY_PATH ./all_reduce", [("NCCL_IB_HCA", "mlx5_0")]),
    ("$ mpirun -n 2 --mca pml ob1 --mca btl sm,self osu", [("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "sm,self")]),
    ("mpiexec -genv FI_PROVIDER verbs ./a", [("FI_PROVIDER", "verbs")]),
    ("srun --export=ALL,UCX_NET_DEVICES=mlx5_0:1 ./a", [("UCX_NET_DEVICES", "mlx5_0:1")]),
    ("NCCL INFO NCCL_IB_DISABLE set by environment to 0.", [("NCCL_IB_DISABLE", "0")]),
    ("node-a:1:2 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0:1,mlx5_1:1", [("NCCL_IB_HCA", "mlx5_0:1,mlx5_1:1")]),
    (
        "[1722544054.656199] [node-a:7:0]  parser.c:2042 UCX  INFO  UCX_* env variables: UCX_TLS=rc,sm UCX_LOG_LEVEL=data",
        [("UCX_TLS", "rc,sm"), ("UCX_LOG_LEVEL", "data")],
    ),
    ("      NCCL_IB_HCA: mlx5_0", [("NCCL_IB_HCA", "mlx5_0")]),
    ('  "NCCL_IB_HCA": "mlx5_0",', [("NCCL_IB_HCA", "mlx5_0")]),
    ('{"name": "NCCL_IB_HCA", "value": "mlx5_0"}', [("NCCL_IB_HCA", "mlx5_0")]),
    ('os.environ["MC_GID_INDEX"] = "3"', [("MC_GID_INDEX", "3")]),
    ('os.environ.setdefault("MC_GID_INDEX", "3")', [("MC_GID_INDEX", "3")]),
    ("      - NCCL_IB_HCA=mlx5_0", [("NCCL_IB_HCA", "mlx5_0")]),
]


@pytest.mark.parametrize("line,expected", LINES)
def test_variables_are_found_wherever_they_are_set(line, expected):
    assert [(row["name"], row["value"]) for row in rows(parse(lines(line)), "env")] == expected
    assert any(re.search(sign, line) for text in TEXTS for sign in text.signs)


def test_a_kubernetes_specification_has_name_and_value_on_two_lines():
    text = '        - name: NCCL_IB_GID_INDEX\n          value: "3"\n        - name: OTHER\n          value: "4"\n'
    assert rows(parse(lines(text)), "env") == [{"name": "NCCL_IB_GID_INDEX", "value": "3"}]


@pytest.mark.parametrize(
    "line",
    [
        "PATH=/usr/bin",
        "UCX  WARN  try setting UCX_TLS=rc",
        "MOONCAKE_TOKEN=abc",
        "MC_REDIS_PASSWORD=abc",
        "NIXL_API_KEY=abc",
        "[node-a:1:0] UCX  ERROR x",
        "NCCL WARN NET/IB : Got completion",
    ],
)
def test_other_variables_advice_and_secrets_are_passed_over(line):
    assert rows(parse(lines(line)), "env") == []


def test_a_partition_key_is_no_secret():
    assert allowed("NCCL_IB_PKEY") and not allowed("NIXL_ETCD_KEY")


def test_a_login_in_an_address_is_left_out():
    assert safe_value('"redis://me:word@10.20.0.1:6379/0"') == "redis://10.20.0.1:6379/0"


def test_the_ranks_of_a_job_say_a_variable_once_a_host():
    text = "\n".join(
        f"node-{host}:{pid}:1 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0."
        for host in "ab"
        for pid in range(9)
    )
    assert len(rows(parse(lines(text)), "env")) == 2


@given(st.text())
def test_no_text_raises(text):
    list(parse(lines(text)))
    for line, _ in LINES:
        list(parse(lines(line + text)))


@pytest.mark.parametrize(
    "line", ["NCCL_X: a" + " " * 60000 + "b", "NCCL_X=" + "'\"" * 30000, "-e " * 20000, "name: A_B" * 7000]
)
def test_long_lines_are_read_in_time(line):
    list(parse(lines(line)))
