"""What a device's own counters say went over it: a transfer's word is checked against them.

RDMA: `counters` (port_xmit_data in units of 4 bytes; kernel Documentation/ABI/stable/sysfs-class-infiniband), and rxe's
hw_counters, which count packets only. Netdevs: statistics. What cannot be read is None, never 0.
"""

from __future__ import annotations

from typing import NamedTuple

_BOOT = "/proc/sys/kernel/random/boot_id"
_RDMA = "/sys/class/infiniband/{0}/ports/1"


class Counters(NamedTuple):
    """Since the device was made; None where the driver does not count it. Bytes of an RDMA port are without its link's headers."""

    packets_sent: int | None = None
    packets_received: int | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None


def _value(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def machine() -> str:
    """Return what two programs on one running kernel have in common (its boot_id); empty when it cannot be read."""
    try:
        with open(_BOOT, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def read(kind: str, device: str) -> Counters:
    """Return the counters of an RDMA device (`kind` rdma) or a netdev."""
    if not device:
        return Counters()
    if kind != "rdma":
        folder = f"/sys/class/net/{device}/statistics"
        return Counters(*(_value(f"{folder}/{name}") for name in ("tx_packets", "rx_packets", "tx_bytes", "rx_bytes")))
    folder = _RDMA.format(device)
    words = [_value(f"{folder}/counters/port_{way}_data") for way in ("xmit", "rcv")]
    sent, received = (
        first
        if (first := _value(f"{folder}/counters/port_{way}_packets")) is not None
        else _value(f"{folder}/hw_counters/{rxe}")
        for way, rxe in (("xmit", "sent_pkts"), ("rcv", "rcvd_pkts"))
    )
    return Counters(sent, received, *(None if word is None else 4 * word for word in words))


def moved(before: Counters, after: Counters) -> dict[str, int | None]:
    """Return what was counted in between, by the names of kv_route; None where it is not known, or went back."""
    names = ("packets_sent", "packets_received", "wire_bytes_sent", "wire_bytes_received")
    return {
        name: None if old is None or new is None or new < old else new - old
        for name, old, new in zip(names, before, after, strict=True)
    }
