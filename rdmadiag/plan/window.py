"""How much must be under way to fill a link: bandwidth-delay product, queue depth, and what READ allows.

A link of rate R with a round trip of T holds R x T bits (the bandwidth-delay product; Jain, The Art of Computer Systems
Performance Analysis). A READ is bounded by the requests that the responder keeps (max_rd_atomic of ibv_modify_qp).
"""

from __future__ import annotations

import math
from typing import Any

from rdmadiag.plan._words import bytes_text, positive, rate_text, values

HELP = "queue depth that fills a link: rate= rtt= block= [per_request=TIME] [rd_atomic=16]"
EXAMPLES = (("rate=100gbit", "rtt=50us", "block=8KiB"), ("rate=400gbit", "rtt=10us", "block=1MiB", "per_request=1us"))


def bdp_bytes(rate: float, rtt_seconds: float) -> float:
    """Return the bandwidth-delay product [bytes] of a rate [bit/s] and a round trip [s]."""
    return rate * rtt_seconds / 8


def depth(rate: float, rtt_seconds: float, block_bytes: float) -> int:
    """Return how many requests of a size [bytes] must be under way to fill a link: those in flight, and one being served."""
    return math.ceil(bdp_bytes(rate, rtt_seconds) / block_bytes) + 1


def read_rate(rd_atomic: int, block_bytes: float, rtt_seconds: float) -> float:
    """Return the most that READs of a size reach [bit/s] when a QP may have `rd_atomic` of them outstanding."""
    return rd_atomic * block_bytes * 8 / rtt_seconds


def decode(*words: str) -> dict[str, Any]:
    """Answer the bytes and requests under way that fill the link, and what READ reaches. Raises BadInput."""
    given = values(
        "window",
        words,
        {
            "rate": ("rate", ...),
            "rtt": ("time", ...),
            "block": ("size", ...),
            "per_request": ("time", 0.0),
            "rd_atomic": ("count", 16),
        },
    )
    positive("window", given, "rate", "rtt", "block", "rd_atomic")
    bdp = bdp_bytes(given["rate"], given["rtt"])
    needed = depth(given["rate"], given["rtt"], given["block"])
    read = read_rate(given["rd_atomic"], given["block"], given["rtt"])
    on_wire = given["block"] * 8 / given["rate"]
    share = on_wire / max(on_wire, given["per_request"])
    return {
        "depth": f"{needed} requests of {bytes_text(given['block'])} under way",
        "requests": needed,
        "under_way": f"{bytes_text(bdp)}: the bandwidth-delay product of {rate_text(given['rate'])}",
        "bdp_bytes": bdp,
        "read": f"{rate_text(min(read, given['rate']))}: one QP with {given['rd_atomic']} READs outstanding"
        + (": it cannot fill the link; larger blocks, more QPs, or WRITE" if read < given["rate"] else ""),
        "read_bits_per_second": min(read, given["rate"]),
        "share_of_rate": f"{share:.0%}: {given['per_request'] * 1e6:g} us of work for each request, {on_wire * 1e6:.3g} us on the wire"
        if given["per_request"]
        else "",
        "next": [
            "send queues must hold the depth and what waits for a retransmission; a CQ must hold the depth of all its QPs",
            "measure per_request with one QP and 4 KiB blocks: ib_write_bw -s 4096 reports messages a second",
        ],
        "sources": ["bandwidth-delay product", "ibv_modify_qp(3): max_rd_atomic"],
    }
