"""Partition keys of InfiniBand ports, from /sys/class/infiniband/D/ports/P/pkeys (RoCE has one, which no switch looks at)."""

from __future__ import annotations

from collections.abc import Iterable

from rdmadiag.evidence.row import Gap, Row
from rdmadiag.host import Host, names_in, text_of
from rdmadiag.sources.devices import CLASS

TABLES = ("pkey",)


def read(host: Host) -> Iterable[Row | Gap]:
    """Read the filled entries of each InfiniBand port's table."""
    for device in host.ls(CLASS):
        for port in names_in(host, f"{CLASS}/{device}/ports"):
            folder = f"{CLASS}/{device}/ports/{port}"
            if port.isdecimal() and text_of(host, f"{folder}/link_layer") == "InfiniBand":
                yield from _table(host, device, int(port), f"{folder}/pkeys")


def _table(host: Host, device: str, port: int, folder: str) -> Iterable[Row]:
    for index in names_in(host, folder):
        text = text_of(host, f"{folder}/{index}")
        try:
            place, pkey = int(index), int(text, 16)
        except ValueError:
            continue
        if 0 < pkey < 1 << 16:
            values = {"device": device, "port": port, "pkey_index": place, "pkey": pkey}
            yield Row("pkey", values, f"{folder}/{index}")
