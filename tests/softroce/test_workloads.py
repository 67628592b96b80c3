"""Workloads between the two rxe devices of a lab; what they claim is compared with the devices' counters."""

from __future__ import annotations

import pytest

from rdmadiag import workloads
from rdmadiag.lab import Lab


def test_perftest_says_ready_claims_bytes_and_rdma_carried_them(lab: Lab) -> None:
    with workloads.start("perftest", workloads.InLab(lab), {"iterations": 100, "size": 65536}) as run:
        result = run.finish(90)
    assert result["ok"] == "yes", result
    assert result["claimed_bytes"] == 100 * 65536 and result["carried"]["answer"] == "yes"
    assert result["metrics"]["bandwidth_gbps"] > 0


def test_a_tcp_transfer_that_says_rdma_is_found_out(lab: Lab) -> None:
    parameters = {
        "server": 'python3 -c \'import socket; s = socket.create_server(("{address}", 7100)); print("READY", flush=True); c = s.accept()[0]\nwhile c.recv(65536): pass\'',
        "client": 'python3 -c \'import socket; s = socket.create_connection(("{peer_address}", 7100)); print("READY", flush=True); s.sendall(bytes(1 << 20)); print(1 << 20)\'',
        "ready": "READY",
        "patterns": r"^(?P<bytes>\d+)$",
        "carrier": "rdma",
    }
    with workloads.start("command", workloads.InLab(lab), parameters) as run:
        result = run.finish(60)
    assert result["claimed_bytes"] == 1 << 20
    assert result["ok"] == "no" and "not carried by RDMA, as was claimed" in result["problems"][0]


def test_a_program_in_a_lab_is_killed_and_started_again(lab: Lab) -> None:
    with workloads.start("perftest", workloads.InLab(lab), {"seconds": 0}) as run:
        run.wait("client", "progress", 60)
        run.kill("client")
        run.restart("server")
        run.restart("client")
        run.wait("client", "progress", 60, len(run.events))
        run.stop("client")
        result = run.finish(30)
    assert result["carried"]["answer"] == "yes", result


SMALL = {"requests": 1, "layers": 2, "blocks": 8}


@pytest.mark.parametrize("name", ["mooncake", "nixl"])
def test_a_real_engine_moves_blocks_by_rdma_and_every_block_is_right(lab: Lab, real_cache: None, name: str) -> None:
    with workloads.start(name, workloads.InLab(lab), SMALL) as run:
        result = run.finish(120)
    assert result["ok"] == "yes", result
    assert result["carried"]["answer"] == "yes" and result["claimed_bytes"] == 2 * 8 * 65536
    assert result["content"] == {"answer": "yes", "blocks": 16, "bytes": 2 * 8 * 65536, "wrong": 0}


def test_mooncakes_silent_tcp_is_found_out_by_the_counters(lab: Lab, real_cache: None) -> None:
    given = {**SMALL, "force_hca": False, "devices": "nosuch0"}
    with workloads.start("mooncake", workloads.InLab(lab), given) as run:
        result = run.finish(120)
    assert result["content"]["answer"] == "yes" and result["exit_codes"]["client"] == 0
    assert result["ok"] == "no" and result["carried"]["answer"] == "no", result
