"""Where the time of one small WRITE goes, and what of it can be saved.

The parts are added up; each is a parameter, since adapters differ, and the defaults are round figures, not measurements of yours.
Which steps a WRITE has, and which of them inline data and BlueFlame save: Kalia et al., USENIX ATC 2016, 2.
"""

from __future__ import annotations

from typing import Any

from rdmadiag.explain._words import span
from rdmadiag.plan._words import positive, rate_text, values
from rdmadiag.plan.kv import PACKET_OVERHEAD_BYTES
from rdmadiag.plan.pfc_headroom import METRES_PER_SECOND

HELP = "time of one WRITE, part by part: size= rate= [cable=30m] [hops=1] [mtu=4096] [switch=500ns] ..."
EXAMPLES = (("size=64B", "rate=400gbit"), ("size=1MiB", "rate=100gbit", "hops=3", "cable=50m"))

_PARTS: dict[str, tuple[str, Any]] = {
    "post": ("time", 50e-9),
    "doorbell": ("time", 150e-9),
    "request_read": ("time", 300e-9),
    "data_read": ("time", 300e-9),
    "adapter": ("time", 100e-9),
    "switch": ("time", 500e-9),
    "remote_write": ("time", 300e-9),
    "completion": ("time", 300e-9),
}


def decode(*words: str) -> dict[str, Any]:
    """Answer the time until the requester's completion, part by part. Raises BadInput."""
    known = {
        "size": ("size", ...),
        "rate": ("rate", ...),
        "cable": ("length", 30.0),
        "hops": ("count", 1),
        "mtu": ("size", 4096.0),
    }
    given = values("latency", words, {**known, **_PARTS})
    positive("latency", given, "size", "rate", "mtu")
    packets = max(1, -(-int(given["size"]) // int(given["mtu"])))
    serial = (given["size"] + packets * PACKET_OVERHEAD_BYTES) * 8 / given["rate"]
    packet = (min(given["size"], given["mtu"]) + PACKET_OVERHEAD_BYTES) * 8 / given["rate"]
    fibre = given["cable"] / METRES_PER_SECOND
    there = given["hops"] * (given["switch"] + packet) + (given["hops"] + 1) * fibre
    back = given["hops"] * given["switch"] + (given["hops"] + 1) * fibre
    local = given["post"] + given["doorbell"] + given["request_read"] + given["data_read"] + given["adapter"]
    total = local + serial + there + given["adapter"] + back + given["completion"]
    parts = {
        "CPU writes the request": given["post"],
        "doorbell over PCIe (saved with the request in it: BlueFlame, inline)": given["doorbell"],
        "adapter reads the request (saved by BlueFlame)": given["request_read"],
        "adapter reads the data (saved by inline data)": given["data_read"],
        "adapters, both": 2 * given["adapter"],
        f"{packets} packet(s) on a {rate_text(given['rate'])} link": serial,
        f"{given['hops']} switch(es), a packet stored at each, and fibre, there": there,
        "switches and fibre, back (the ACK)": back,
        "completion written and polled": given["completion"],
    }
    return {
        "completion": f"{span(total)} after the request is posted",
        "seconds": total,
        "data_there": f"{span(local + serial + there + given['adapter'] + given['remote_write'])}: data in the peer's memory",
        "parts": [f"{span(value)}: {name}" for name, value in parts.items()],
        "on_the_wire": f"{serial / total:.0%} of it; below a half the size of a request decides, not the rate of the link",
        "next": [
            "compare with ib_write_lat -s SIZE (half a round trip) on the same pair of nodes",
            "every part is a parameter: " + ", ".join(f"{key}=" for key in _PARTS),
        ],
        "notes": ["congestion, PCIe contention and GPU memory are not in it: they add to the parts that they hit"],
        "sources": [
            "Kalia, Kaminsky, Andersen: Design Guidelines for High Performance RDMA Systems, USENIX ATC 2016",
            "IBA vol 1, 9.7 (acknowledgement)",
        ],
    }
