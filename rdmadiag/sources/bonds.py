"""Bonds and their slaves: /sys/class/net and the text of /proc/net/bonding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Line, Row, Text
from rdmadiag.host import Host, link_of, names_in, text_of
from rdmadiag.patterns import late
from rdmadiag.sources.devices import known, whole

TABLES = ("bond", "bond_slave")
NET = "/sys/class/net"


def read(host: Host) -> Iterator[Row]:
    """Read the folders `bonding` and `bonding_slave` of every netdev."""
    for name in host.ls(NET):
        if name == "bonding_masters":
            continue
        path = f"{NET}/{name}/bonding"
        if mode := text_of(host, f"{path}/mode"):
            values = {
                "mode": mode.split()[0],
                "xmit_hash_policy": text_of(host, f"{path}/xmit_hash_policy").partition(" ")[0],
                "active_slave": text_of(host, f"{path}/active_slave"),
                "miimon_ms": whole(text_of(host, f"{path}/miimon")),
            }
            yield Row("bond", {"netdev": name, **known(values)}, path)
        if "bonding_slave" in names_in(host, f"{NET}/{name}"):
            path = f"{NET}/{name}/bonding_slave"
            slave = {
                "bond": link_of(host, f"{NET}/{name}/master").rpartition("/")[2],
                "mii_status": text_of(host, f"{path}/mii_status"),
                "link_failures": whole(text_of(host, f"{path}/link_failure_count")),
                "aggregator_id": whole(text_of(host, f"{path}/ad_aggregator_id")),
            }
            yield Row("bond_slave", {"netdev": name, **known(slave)}, path)


_BOND_PATH = late(r"/proc/net/bonding/(\S+)")
_LINE = late(r"\s*([A-Z][A-Za-z /]*?)(?: \([a-zA-Z]+\))?: (.*?)\s*$")
_MODES = {
    "load balancing (round-robin)": "balance-rr",
    "fault-tolerance (active-backup)": "active-backup",
    "load balancing (xor)": "balance-xor",
    "fault-tolerance (broadcast)": "broadcast",
    "IEEE 802.3ad Dynamic link aggregation": "802.3ad",
    "transmit load balancing": "balance-tlb",
    "adaptive load balancing": "balance-alb",
}


def parse(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse /proc/net/bonding/BOND; the bond is named in the prompt line, or not at all."""
    bond: str | None = None
    slave: str | None = None
    for number, text in lines:
        if command := prompt_command(text):
            match = _BOND_PATH.search(command)
            bond, slave = match[1] if match else None, None
        elif match := _LINE.match(text):
            key, value = match[1], match[2]
            if key == "Slave Interface":
                slave = value
                yield Row("bond_slave", known({"netdev": slave, "bond": bond}), number)
            elif slave and (pair := _slave_value(key, value)):
                yield Row("bond_slave", {"netdev": slave, pair[0]: pair[1]}, number)
            elif not slave and bond and (pair := _bond_value(key, value)):
                yield Row("bond", {"netdev": bond, pair[0]: pair[1]}, number)


def _slave_value(key: str, value: str) -> tuple[str, str | int] | None:
    if key == "MII Status" and value in ("up", "down", "going down", "going back"):
        return "mii_status", value
    column = {"Link Failure Count": "link_failures", "Aggregator ID": "aggregator_id"}.get(key)
    number = whole(value)
    return (column, number) if column and number is not None else None


def _bond_value(key: str, value: str) -> tuple[str, str | int] | None:
    if key == "Bonding Mode":
        return "mode", _MODES.get(late(r" \(fail_over_mac \w+\)").sub("", value), value)
    if key == "Transmit Hash Policy":
        return "xmit_hash_policy", value.partition(" ")[0]
    if key == "Currently Active Slave":
        return "active_slave", value
    if key == "MII Polling Interval":
        number = whole(value)
        return ("miimon_ms", number) if number is not None else None
    return None


TEXTS = (Text("/proc/net/bonding", (r"^Bonding Mode: ", r"^Slave Interface: \S"), parse),)
