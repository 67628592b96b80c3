"""Whole processes: --help, a live check, and a check of a large captured node, beside a Python that imports click, sqlite3, json."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.benchmarks._timing import Ratio, pairs, peak_bytes, process

ROOT = Path(__file__).parent.parent.parent
NODE = ROOT / "tests/data/nodes/mlx5-roce-8nic-h100"
PROGRAM = str(Path(sys.executable).parent / "rdmadiag")
PEER = [sys.executable, "-c", "import click, sqlite3, json"]
QPS = 10_000
CALM = (
    'audit: type=1400 audit(1764460800.{n}:92): apparmor="STATUS" operation="profile_load" name="docker-default"',
    "docker0: port {n}(veth1a2b3c4) entered forwarding state",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth{n}: link becomes ready",
    "systemd[1]: Started Session {n} of user operator.",
    "EXT4-fs (nvme0n1p2): re-mounted. Opts: errors=remount-ro. Quota mode: none. {n}",
    "perf: interrupt took too long ({n} > 2500), lowering kernel.perf_event_max_sample_rate to 50000",
)
LOG_BYTES = 5 << 20


def large_node(folder: Path) -> Path:
    """Make the captured 8-NIC node with 10,000 QPs and a kernel log of 5 MB out of its real one."""
    node = folder / "node"
    shutil.copytree(NODE, node)
    qps = [
        {"ifindex": n % 8, "ifname": f"mlx5_{n % 8}", "port": 1, "lqpn": n, "rqpn": n + 1, "type": "RC", "state": "RTS", "rq-psn": n, "sq-psn": n, "path-mig-state": "MIGRATED",
         "pdn": n % 64, "pid": 1000 + n % 8, "comm": "python3"}
        for n in range(QPS)
    ]  # fmt: skip
    (node / "rdma-res-qp.json").write_text(json.dumps(qps))
    log = (node / "dmesg.txt").read_text().rstrip("\n")
    last = float(log.splitlines()[-1].partition("[")[2].partition("]")[0])
    with (node / "dmesg.txt").open("w") as file:
        size = file.write(log + "\n")
        number = 0
        while size < LOG_BYTES:
            number += 1
            size += file.write(f"[{last + number / 1000:12.6f}] {CALM[number % len(CALM)].format(n=number)}\n")
    return node


def measure(rounds: int = 15) -> list[Ratio]:
    """Return the ratios to the peer process."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        node = large_node(Path(folder))
        cases = {
            "rdmadiag --help": ([PROGRAM, "--help"], "at most 1.5"),
            "check --window 0, this machine": ([PROGRAM, "check", "--window", "0"], "at most 4"),
            "check --from 8 NICs, 10,000 QPs, 5 MB log": ([PROGRAM, "check", "--from", str(node)], "at most 4"),
        }
        for name, (command, wanted) in cases.items():
            seconds, peer, ratio = pairs(process(command), process(PEER), rounds)
            found.append(
                Ratio(name, seconds, peer, ratio, wanted, f"{peak_bytes(command) / 1e6:.0f} MB peak (wanted under 120)")
            )
    return found


def test_the_large_node_is_as_large_as_it_says(tmp_path: Path) -> None:
    node = large_node(tmp_path)
    assert len(json.loads((node / "rdma-res-qp.json").read_text())) == QPS
    assert (node / "dmesg.txt").stat().st_size >= LOG_BYTES
