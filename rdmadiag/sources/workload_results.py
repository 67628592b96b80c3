"""Results of `rdmadiag workload run --format json` (rdmadiag.workload/1): what a program says it moved, and its device's counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rdmadiag.evidence.row import Json, Row
from rdmadiag.sources.devices import whole

TABLES = ("kv_route",)
SCHEMA = "rdmadiag.workload/1"
_COUNTERS = {"packets_sent": ("sent_pkts", 1), "packets_received": ("rcvd_pkts", 1),
             "wire_bytes_sent": ("port_xmit_data", 4), "wire_bytes_received": ("port_rcv_data", 4)}  # fmt: skip


def _mapping(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _reads(parameters: Mapping[str, Any]) -> bool | None:
    """Tell whether the client's bytes come in; None where the parameters do not say it."""
    told = str(parameters.get("mode") or parameters.get("test"))
    if told == "pull" or told.startswith("ib_read"):
        return True
    return False if told.startswith(("push", "ib_write", "ib_send")) else None


def parse(objects: list[dict[str, Any]]) -> Iterator[Row]:
    """Parse such results; passes over values of another type."""
    for one in objects:
        if one.get("schema") != SCHEMA:
            continue
        client, claimed = _mapping(one, "client"), whole(one.get("claimed_bytes"))
        device, carrier = client.get("device"), one.get("carrier")
        if not isinstance(device, str) or not isinstance(carrier, str):
            continue
        moved = _mapping(_mapping(_mapping(one, "carried"), "devices"), f"{client.get('name')}/{device}")
        reads = _reads(_mapping(one, "parameters"))
        values: dict[str, Any] = {
            "run": f"{str(one.get('workload'))[:80]} in {str(one.get('place'))[:80]}",
            "path": device,
            "kind": carrier[:16],
            "device": device,
        }
        peer = _mapping(one, "server").get("device")
        if isinstance(peer, str):
            same = (client.get("name"), device) == (_mapping(one, "server").get("name"), peer)
            values |= {"peer_device": peer, "same_device": int(same)}
        if claimed is not None:
            values["acknowledged_bytes"] = claimed
            values |= {} if reads is None else {"read_bytes": claimed if reads else 0}
        for column, (name, unit) in _COUNTERS.items():
            if (count := whole(moved.get(name))) is not None and count < 1 << 60:
                values[column] = count * unit
        yield Row("kv_route", values, 1)


TEXTS = (Json("rdmadiag workload run", (("schema", "workload", "claimed_bytes", "carried"),), parse),)
