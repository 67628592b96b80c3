"""Whether RDMA carried what a workload claims: counters of both ends' devices, before and after.

Adapters count bytes (`counters/port_xmit_data`, `port_rcv_data`, in 4-byte words; IBA vol 1, 16.1.3.5). rdma_rxe has no
such counters (drivers/infiniband/sw/rxe/rxe_hw_counters.c): there the most that RDMA can have carried is its packets
times the MTU, and no more than its netdev's bytes. A claim above the most is wrong; one below may be right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rdmadiag.lab import LabError
from rdmadiag.workloads._contract import Host
from rdmadiag.workloads._place import Place

YES, NO, UNKNOWN = "yes", "no", "unknown"
LARGEST_MTU = 4096
SECONDS = 20.0

# One shell and no process: reading with the shell's own `read` costs nothing in an emulated guest.
_LOOK = r"""
for f in /sys/class/infiniband/"$1"/ports/"$2"/hw_counters/* /sys/class/infiniband/"$1"/ports/"$2"/counters/port_*_data; do
  [ -e "$f" ] && read -r v < "$f" && echo "${f##*/} $v"
done 2>/dev/null
for c in tx_bytes rx_bytes; do read -r v < /sys/class/net/"$3"/statistics/$c && echo "netdev_$c $v"; done 2>/dev/null
read -r v < /sys/class/net/"$3"/mtu && echo "netdev_mtu $v"; :
"""
_WORDS, _PACKETS = ("port_xmit_data", "port_rcv_data"), ("sent_pkts", "rcvd_pkts")
_NETDEV = ("netdev_tx_bytes", "netdev_rx_bytes")


class Carried(NamedTuple):
    """Whether RDMA carried what was claimed: yes, no or unknown; the counters that say so, by device."""

    answer: str
    why: str
    most_bytes: int | None
    devices: dict[str, dict[str, int]]


def read(place: Place, host: Host) -> dict[str, int]:
    """Return a device's counters and those of its netdev; empty when they cannot be read."""
    try:
        ran = place.run(host.name, ["sh", "-c", _LOOK, "sh", host.device, str(host.port), host.netdev], SECONDS)
    except LabError:
        return {}
    return parse(ran.text)


def parse(text: str) -> dict[str, int]:
    """Read `name value` lines; passes over others."""
    words = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isascii() and pair[1].isdecimal()}


def delta(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return what each counter moved by; one that went back, or is missing at one time, is left out."""
    return {name: after[name] - value for name, value in before.items() if after.get(name, -1) >= value}


def most(moved: Mapping[str, int], mtu: int) -> tuple[tuple[int, int], str] | None:
    """Return the most bytes that RDMA can have sent and received, and the counters that say so; None: no counter says it."""
    if all(name in moved for name in _WORDS):
        return (moved[_WORDS[0]] * 4, moved[_WORDS[1]] * 4), "port_xmit_data, port_rcv_data"
    if not all(name in moved for name in _PACKETS):
        return None
    sent, received = (moved[name] * min(mtu, LARGEST_MTU) for name in _PACKETS)
    if not all(name in moved for name in _NETDEV):
        return (sent, received), f"sent_pkts and rcvd_pkts times {min(mtu, LARGEST_MTU)} bytes"
    bounded = min(sent, moved[_NETDEV[0]]), min(received, moved[_NETDEV[1]])
    return bounded, f"sent_pkts and rcvd_pkts times {min(mtu, LARGEST_MTU)} bytes, and the netdev's bytes"


def judge(
    claimed: int,
    hosts: tuple[Host, Host],
    before: tuple[Mapping[str, int], Mapping[str, int]],
    after: tuple[Mapping[str, int], Mapping[str, int]],
) -> Carried:
    """Judge a claim of bytes, in whichever direction more went."""
    moved = [delta(one, other) for one, other in zip(before, after, strict=True)]
    shown = {
        f"{host.name}/{host.device}": {n: v for n, v in each.items() if n in (*_WORDS, *_PACKETS, *_NETDEV)}
        for host, each in zip(hosts, moved, strict=True)
    }
    if (hosts[0].name, hosts[0].device) == (hosts[1].name, hosts[1].device):
        return Carried(UNKNOWN, "both ends use one device, which may turn traffic around uncounted", None, shown)
    ends = [
        most(each, one.get("netdev_mtu", 0) or LARGEST_MTU) if each else None
        for each, one in zip(moved, before, strict=True)
    ]
    if ends[0] is None or ends[1] is None:
        silent = ", ".join(f"{h.name}/{h.device}" for h, end in zip(hosts, ends, strict=True) if end is None)
        return Carried(UNKNOWN, f"{silent}: no counter of RDMA traffic could be read before and after", None, shown)
    (one, by), (other, _) = ends[0], ends[1]
    largest = max(min(one[0], other[1]), min(other[0], one[1]))
    if not claimed:
        return Carried(UNKNOWN, "no byte was claimed", largest, shown)
    said = f"RDMA carried at most {largest} bytes between the devices ({by}), {claimed} were claimed"
    return Carried(YES if largest >= claimed else NO, said, largest, shown)
