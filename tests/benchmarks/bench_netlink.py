"""Decoding 100,000 queue pairs from netlink bytes, beside json.loads of what the rdma tool would have printed."""

from __future__ import annotations

import json
import struct
import time
from typing import Any

from rdmadiag.netlink import parse_rdma
from rdmadiag.netlink.wire import attribute

QPS = 100_000
PER_MESSAGE = 280  # about as many as the kernel puts into one 32 KiB read


def _uint32(number: int, value: int) -> bytes:
    return attribute(number, struct.pack("=I", value))


def _uint8(number: int, value: int) -> bytes:
    return attribute(number, struct.pack("=B", value))


def queue_pair(lqpn: int) -> bytes:
    """Encode one RC queue pair of a user process, as fill_res_qp_entry of the kernel orders it."""
    rqpn, psn = _uint32(22, lqpn ^ 1), _uint32(23, lqpn * 7 & 0xFFFFFF)
    state = _uint32(24, lqpn * 5 & 0xFFFFFF) + _uint8(25, 0) + _uint8(26, 2) + _uint8(27, 3)
    owner = _uint32(60, lqpn % 64) + _uint32(28, 1000 + lqpn % 8)
    return attribute(20, _uint32(3, 1) + _uint32(21, lqpn) + rqpn + psn + state + owner)


def recording(count: int = QPS) -> bytes:
    """Encode a dump of `res show qp` with this many queue pairs of one device."""
    device = _uint32(1, 0) + attribute(2, b"mlx5_0\0")
    found = []
    for first in range(0, count, PER_MESSAGE):
        table = b"".join(queue_pair(number) for number in range(first, min(first + PER_MESSAGE, count)))
        payload = device + attribute(19, table)
        found.append(struct.pack("=IHHII", 16 + len(payload), 0x140A, 2, 1, 1) + payload)
    return b"".join(found) + struct.pack("=IHHIIi", 20, 3, 2, 1, 1, 0)


def _decode(data: bytes) -> list[dict[str, Any]]:
    return parse_rdma("res show qp", data, name_of=lambda pid: f"worker-{pid % 8}")


def _best_seconds(work: Any, rounds: int = 3) -> float:
    def once() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return min(once() for _ in range(rounds))


def measure() -> dict[str, float]:
    """Return seconds (best of 3) to decode 100,000 queue pairs, and to json.loads the same objects; and sizes."""
    data = recording()
    printed = json.dumps(_decode(data), separators=(",", ":"))
    return {
        "queue_pairs": QPS,
        "netlink_bytes": len(data),
        "json_bytes": len(printed),
        "netlink_seconds": _best_seconds(lambda: _decode(data)),
        "json_seconds": _best_seconds(lambda: json.loads(printed)),
    }


def test_every_queue_pair_of_a_large_dump_is_decoded() -> None:
    found = _decode(recording(3 * PER_MESSAGE + 5))
    assert [qp["lqpn"] for qp in found] == list(range(3 * PER_MESSAGE + 5))
    assert found[5] == {
        "ifindex": 0,
        "ifname": "mlx5_0",
        "port": 1,
        "lqpn": 5,
        "rqpn": 4,
        "type": "RC",
        "state": "RTS",
        "rq-psn": 35,
        "sq-psn": 25,
        "path-mig-state": "MIGRATED",
        "pdn": 5,
        "pid": 1005,
        "comm": "worker-5",
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
