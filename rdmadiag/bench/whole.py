"""A whole KV transfer as one measurement: slots, manifest, layers over WRITE, WRITE_WITH_IMM or READ; verified after the clock stopped.

Two processes, as in real use: the listening side is this module (`python -m rdmadiag.bench.whole DEVICE SIZE SLOTS`), the connecting
side is the measuring program. What is timed is from the first work request to the completion of the last, with the manifest's
rows told in between; blocks are made before, and compared after.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from rdmadiag.errors import RdmadiagError
from rdmadiag.kv.client import PULL, PUSH, PUSH_IMM, Client, Settings
from rdmadiag.kv.layout import Shape
from rdmadiag.kv.rdma import Rails
from rdmadiag.kv.recovery import Limits
from rdmadiag.kv.server import Server
from rdmadiag.kv.session import Options
from rdmadiag.verbs.attributes import RcAttributes

LAYERS = 4
MODES = {"push": PUSH, "imm": PUSH_IMM, "pull": PULL}
LEASE_SECONDS = 600.0
_DAMAGE = ("corrupt", "stale", "missing", "torn", "misplaced")


def shape(size: int) -> Shape:
    """Return layers of one plane with pieces of a size [bytes]."""
    return Shape(LAYERS, 1, size, 16)


def slots(count: int) -> int:
    """Return the slots of an arena in which a transfer of so many pieces fits beside the canaries."""
    blocks = max(1, count // LAYERS)
    return blocks + blocks // 8 + 4


class Whole:
    """A peer process with its session, for transfers of one size and number of pieces. A context manager."""

    def __init__(self, near: str, far: str, asked: Mapping[str, Any], attributes: RcAttributes) -> None:
        self.asked = {name: asked[name] for name in ("mode", "size", "count", "window", "signal_every")}
        size, held = asked["size"], slots(asked["count"])
        words = [sys.executable, "-m", "rdmadiag.bench.whole", far, str(size), str(held)]
        self._peer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._request = 0
        try:
            assert self._peer.stdout is not None
            told = json.loads(self._peer.stdout.readline() or "{}")
            if "port" not in told:
                raise RdmadiagError("the listening process did not start")
            rails = Rails((near,), attributes)
            settings = Settings(
                MODES[asked["mode"]], held, 1, asked["window"], min(asked["signal_every"], asked["window"]), size,
                60.0, Limits(tcp_allowed=False), overlap=False,
            )  # fmt: skip
            address = ("127.0.0.1", int(told["port"]))
            self._client = Client(address, shape(size), settings, rails.connect, None, (near,), "", rails.close)
        except (RdmadiagError, OSError):
            self._end_peer()
            raise

    def __enter__(self) -> Whole:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session and the peer."""
        self._client.close()
        self._end_peer()

    def _end_peer(self) -> None:
        assert self._peer.stdin is not None and self._peer.stdout is not None
        self._peer.stdin.close()
        self._peer.wait()
        self._peer.stdout.close()

    def measure(self) -> dict[str, Any]:
        """Move one request; time, requests that failed, and pieces whose content is wrong."""
        self._request += 1
        wanted = shape(self.asked["size"])
        count = max(1, self.asked["count"] // LAYERS)
        row = self._client.transfer(self._request, count * wanted.block_tokens)
        failed = int(row["state"] != "published" or row["retries"] > 0)
        wrong = sum(row[name] or 0 for name in _DAMAGE)
        return {
            "seconds": row["moving_seconds"],
            "whole_seconds": row["seconds"],
            "bytes": row["bytes"],
            "failed": failed,
            "wrong": wrong,
            "compared": row["blocks"] * LAYERS * row["audited"],
            "why": row["why"] or (f"{row['retries']} retries" if row["retries"] else None),
        }


def main() -> int:
    """Listen until the input ends."""
    device, size, held = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with Server(shape(size), Options(held, LEASE_SECONDS, receives=256), devices=(device,)) as server:
        print(json.dumps({"port": server.address[1]}), flush=True)  # noqa: T201
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
