"""Buffer that a lossless priority needs above its XOFF threshold, so that nothing is dropped while PAUSE takes effect.

What still arrives after XOFF: one frame that the switch itself is sending, the PAUSE frame's way and back on the cable, the
peer's time to react (IEEE 802.3, 31B.3.7) and the frame that it had begun (IEEE 802.1Qbb, annex O).
"""

from __future__ import annotations

from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.plan._words import bytes_text, positive, rate_text, values

HELP = "PFC headroom of a switch port and of an adapter: rate= cable= [mtu=9216] [lossless_mtu=4200]"
EXAMPLES = (("rate=100gbit", "cable=30m"), ("rate=400gbit", "cable=100m", "mtu=9216", "lossless_mtu=4200"))

PAUSE_QUANTA = {10: 67, 25: 80, 40: 118, 50: 147, 100: 394, 200: 453, 400: 905, 800: 905}
"""Time to react to PAUSE, in quanta of 64 bytes, by rate [Gbit/s] (IEEE 802.3, 31B.3.7, as switch software uses it)."""
METRES_PER_SECOND = 1.98e8
"""Speed of light in fibre."""
PAUSE_FRAME_BYTES = 64 + 8 + 12


def headroom_bytes(gbit: int, cable_metres: float, mtu_bytes: float, lossless_mtu_bytes: float) -> float:
    """Return the bytes that may still arrive of a lossless priority after XOFF at a port. Raises KeyError for no Ethernet rate."""
    on_cable = 2 * cable_metres / METRES_PER_SECOND * gbit * 1e9 / 8
    return mtu_bytes + PAUSE_FRAME_BYTES + on_cable + PAUSE_QUANTA[gbit] * 64 + lossless_mtu_bytes


def mlx5_xoff_bytes(gbit: int, cable_metres: float, mtu_bytes: float) -> float:
    """Return what mlx5 itself sets aside for a lossless buffer (kernel drivers/net/ethernet/mellanox/mlx5/core/en/port_buffer.c)."""
    return (301 + 2.16 * cable_metres) * max(gbit, 40) + 2.72 * mtu_bytes


def decode(*words: str) -> dict[str, Any]:
    """Answer the headroom of a port and where its bytes come from. Raises BadInput."""
    known: dict[str, tuple[str, Any]] = {"rate": ("rate", ...), "cable": ("length", ...), "mtu": ("size", 9216.0)}
    given = values("pfc-headroom", words, {**known, "lossless_mtu": ("size", 4200.0)})
    positive("pfc-headroom", given, "mtu", "lossless_mtu")
    gbit = round(given["rate"] / 1e9)
    if gbit not in PAUSE_QUANTA or given["cable"] > 1e5:
        rates = ", ".join(f"{rate}gbit" for rate in PAUSE_QUANTA)
        raise BadInput(f"plan pfc-headroom: wanted rate= one of {rates}, and cable= at most 100km")
    needed = headroom_bytes(gbit, given["cable"], given["mtu"], given["lossless_mtu"])
    adapter = mlx5_xoff_bytes(gbit, given["cable"], given["mtu"])
    return {
        "headroom": f"{bytes_text(needed)} for each lossless priority of the port",
        "headroom_bytes": needed,
        "made_of": [
            f"{given['mtu']:.0f} bytes: the frame being sent when PAUSE is due",
            f"{PAUSE_FRAME_BYTES} bytes: the PAUSE frame",
            f"{2 * given['cable'] / METRES_PER_SECOND * gbit * 1e9 / 8:.0f} bytes: on {given['cable']:g} m of cable, there and back",
            f"{PAUSE_QUANTA[gbit] * 64} bytes: the peer's time to react ({PAUSE_QUANTA[gbit]} quanta at {rate_text(given['rate'])})",
            f"{given['lossless_mtu']:.0f} bytes: the frame of the priority that the peer had begun",
        ],
        "adapter": f"{bytes_text(adapter)} is what mlx5 sets aside (mlnx_qos --cable_len; 7 m unless told)",
        "next": [
            "a buffer is handed out in cells: a frame of 1 byte more than a cell takes two; the switch's own table has that factor",
            "compare with the switch: show buffer configuration, or the headroom of each priority group",
            "drops of a lossless priority with headroom as computed mean a longer cable or a wrong MTU than the switch was told",
        ],
        "sources": [
            "IEEE 802.1Qbb, annex O",
            "IEEE 802.3, 31B.3.7",
            "sonic-net/sonic-swss cfgmgr/buffer_headroom_mellanox.lua",
            "kernel mlx5/core/en/port_buffer.c",
        ],
    }
