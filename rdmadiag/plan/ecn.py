"""ECN thresholds of a switch queue for DCQCN: where published settings lie, and what limits them.

Marking starts at Kmin and is certain from Kmax on (RED). ECN must mark before PFC pauses, so Kmax must lie below XOFF; and Kmin
below the bandwidth-delay product keeps queues short (DCQCN, Zhu et al., SIGCOMM 2015).
"""

from __future__ import annotations

from typing import Any

from rdmadiag.plan._words import bytes_text, positive, rate_text, values
from rdmadiag.plan.window import bdp_bytes

HELP = "ECN thresholds Kmin, Kmax, Pmax: rate= [rtt=20us] [xoff=SIZE]"
EXAMPLES = (("rate=100gbit",), ("rate=400gbit", "rtt=10us", "xoff=1500KB"))

KMIN_BYTES_PER_BIT, KMAX_BYTES_PER_BIT = 100e3 / 25e9, 400e3 / 25e9
"""100 KB and 400 KB at 25 Gbit/s, in proportion to the rate (alibaba-edu/High-Precision-Congestion-Control, simulation/mix)."""
PMAX = 0.2


def thresholds(rate: float) -> tuple[float, float]:
    """Return Kmin and Kmax [bytes] for a rate [bit/s], in that proportion."""
    return rate * KMIN_BYTES_PER_BIT, rate * KMAX_BYTES_PER_BIT


def decode(*words: str) -> dict[str, Any]:
    """Answer a starting point for Kmin, Kmax and Pmax, and whether XOFF leaves room for it. Raises BadInput."""
    given = values("ecn", words, {"rate": ("rate", ...), "rtt": ("time", 20e-6), "xoff": ("size", None)})
    positive("ecn", given, "rate", "rtt", "xoff")
    low, high = thresholds(given["rate"])
    bdp = bdp_bytes(given["rate"], given["rtt"])
    xoff = given["xoff"]
    return {
        "kmin": bytes_text(low),
        "kmin_bytes": low,
        "kmax": bytes_text(high),
        "kmax_bytes": high,
        "pmax": f"{PMAX:.0%}",
        "compared": f"the bandwidth-delay product at {rate_text(given['rate'])} and {given['rtt'] * 1e6:g} us is {bytes_text(bdp)}",
        "with_pfc": "not known: give xoff= (the threshold at which the port pauses)"
        if xoff is None
        else f"Kmax lies {'below' if high < xoff else 'above'} XOFF ({bytes_text(xoff)}): "
        + (
            "ECN acts first" if high < xoff else "PFC pauses before ECN has marked everything; lower Kmax or raise XOFF"
        ),
        "others_use": [
            "SONiC's lossless default: Kmin 1 MiB, Kmax 2 MiB, 5 %, whatever the rate",
            "Huawei, few senders and short delay: Kmin 7 KB, Kmax 150 KB at 25 Gbit/s or 500 KB at 100 Gbit/s, 30 %",
        ],
        "next": [
            "a starting point, not a setting: raise Kmin when links stay idle, lower Kmax when PFC pauses before CNPs arrive",
            "adapters must react: `rdmadiag check` with --window 10 under load tells ecn_marked, cnp_sent and cnp_handled",
        ],
        "sources": [
            "DCQCN, SIGCOMM 2015",
            "alibaba-edu/High-Precision-Congestion-Control simulation/mix/config.txt",
            "sonic-buildimage files/build_templates/qos_config.j2",
            "Huawei EDOC1100155250",
        ],
    }
