"""The switch side of a lossless network, as pasted from SONiC and Cumulus Linux: PFC, its watchdog, ECN, drops, watermarks.

Formats: sonic-net/sonic-utilities doc/Command-Reference.md and tests; Cumulus Linux 5 user guide, RDMA over Converged Ethernet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Line, Row, Text
from rdmadiag.patterns import late
from rdmadiag.sources.devices import whole

TABLES = ("switch_setting", "switch_counter")
Values = dict[str, Any]
Cells = dict[str, str]


def _counter(port: str, priority: int | None, name: str, value: str, at: int, text: str | None = None) -> Iterator[Row]:
    number = whole(value.replace(",", ""))
    if number is not None:
        values = {"port": port, "priority": priority, "name": name, "value": number, "text": text}
        yield Row("switch_counter", values, at)


def _setting(port: str, name: str, value: str, at: int) -> Iterator[Row]:
    if value and value != "N/A":
        yield Row("switch_setting", {"port": port, "name": name, "value": value}, at)


# --- SONiC: tables below a line of dashes ---

_NUMBERED = late(r"(?:PFC|PG|UC|MC|ALL)([0-9]{1,2})$")
_CELLS = late(r"\s{2,}")


def _pfc_counters(first: str) -> Callable[[Cells, int, str], Iterator[Row]]:
    name = "pfc_received" if first.endswith("Rx") else "pfc_sent"

    def read(cells: Cells, at: int, _title: str) -> Iterator[Row]:
        for head, value in cells.items():
            if match := _NUMBERED.match(head):
                yield from _counter(cells[first], int(match[1]), name, value, at)

    return read


def _pfc_history(cells: Cells, at: int, _title: str) -> Iterator[Row]:
    if match := _NUMBERED.match(cells["Priority"]):
        yield from _counter(cells["Port"], int(match[1]), "pfc_received_us", cells["Total RX Pause Time US"], at)


def _watchdog(cells: Cells, at: int, _title: str) -> Iterator[Row]:
    port, _, queue = cells["QUEUE"].rpartition(":")
    pairs = {
        "STORM DETECTED/RESTORED": ("storms_detected", "storms_restored"),
        "TX OK/DROP": (None, "storm_tx_dropped"),
        "RX OK/DROP": (None, "storm_rx_dropped"),
    }
    for head, names in pairs.items():
        for name, value in zip(names, cells.get(head, "").split("/"), strict=False):
            if name and port and queue.isdecimal():
                yield from _counter(port, int(queue), name, value, at, cells["STATUS"])


def _watchdog_config(cells: Cells, at: int, _title: str) -> Iterator[Row]:
    columns = (
        ("ACTION", "pfcwd_action"),
        ("DETECTION TIME", "pfcwd_detection_ms"),
        ("RESTORATION TIME", "pfcwd_restoration_ms"),
    )
    for head, name in columns:
        yield from _setting(cells["PORT"], name, cells.get(head, ""), at)


def _lossless(cells: Cells, at: int, _title: str) -> Iterator[Row]:
    yield from _setting(cells["Interface"], "pfc_priorities", cells["Lossless priorities"], at)


def _queues(cells: Cells, at: int, _title: str) -> Iterator[Row]:
    if match := late(r"UC([0-9]{1,2})").fullmatch(cells["TxQ"]):
        names = {"Drop/pkts": "queue_dropped", "WredDrp/pkts": "wred_dropped", "EcnMarked/pkts": "ecn_marked"}
        for head, name in names.items():
            yield from _counter(cells["Port"], int(match[1]), name, cells.get(head, ""), at)


def _watermarks(cells: Cells, at: int, title: str) -> Iterator[Row]:
    kind = "queue" if "queue" in title or "UC0" in cells else "headroom" if "headroom" in title else "pg"
    name = "pg_dropped" if "dropped" in title else f"{kind}_watermark_bytes"
    for head, value in cells.items():
        if match := _NUMBERED.match(head):
            yield from _counter(cells["Port"], int(match[1]), name, value, at)


def _pools(cells: Cells, at: int, _title: str) -> Iterator[Row]:
    yield from _counter(cells["Pool"], None, "pool_watermark_bytes", cells["Bytes"], at)


def _pfc_stats(cells: Cells, at: int, _title: str) -> Iterator[Row]:
    # Cumulus: nv show interface swp1 counters qos pfc-stats; the port is in the command line, see parse_cumulus.
    for head, name in (("rx-pause-frames", "pfc_received"), ("tx-pause-frames", "pfc_sent")):
        priority = whole(cells["switch-priority"])
        if priority is not None:
            yield from _counter(cells.get("", ""), priority, name, cells.get(head, ""), at)


def _reader(heads: Sequence[str]) -> Callable[[Cells, int, str], Iterator[Row]] | None:
    first = heads[0]
    if first in ("Port Rx", "Port Tx"):
        return _pfc_counters(first)
    for wanted, read in _TABLES:
        if set(wanted) <= set(heads):
            return read
    return None


_TABLES: tuple[tuple[tuple[str, ...], Callable[[Cells, int, str], Iterator[Row]]], ...] = (
    (("Port", "Priority", "Total RX Pause Time US"), _pfc_history),
    (("QUEUE", "STATUS", "STORM DETECTED/RESTORED"), _watchdog),
    (("PORT", "ACTION", "DETECTION TIME"), _watchdog_config),
    (("Interface", "Lossless priorities"), _lossless),
    (("Port", "TxQ"), _queues),
    (("Port", "PG0"), _watermarks),
    (("Port", "UC0"), _watermarks),
    (("Pool", "Bytes"), _pools),
    (("switch-priority", "rx-pause-frames"), _pfc_stats),
)
_DASHES = late(r"\s*-{3,}(?:\s+-{3,})+\s*$")
_PORT = late(r"\binterface\s+(\S+)")


def _tables(lines: Sequence[Line], port: str = "") -> Iterator[Row]:
    before = title = ""
    heads: list[str] = []
    read = None
    for number, text in lines:
        stripped = text.strip()
        if command := prompt_command(text):
            match = _PORT.search(command)
            port, read, title = match[1] if match else "", None, ""
        elif _DASHES.match(text):
            heads = _CELLS.split(before.strip())
            read = _reader(heads)
        elif not stripped:
            read = None
        elif read:
            cells = _CELLS.split(stripped)
            if len(cells) == len(heads):
                yield from read({"": port, **dict(zip(heads, cells, strict=True))}, number, title)
        elif stripped.endswith(":"):
            title = stripped
        before = text


_PROFILE = late(r"Profile:\s+\**([\w.-]+?)\**\s*$")
_PROFILE_LINE = late(r"(\w+)\s{2,}(\w+)\s*$")
_ECN = {
    "green_min_threshold": "ecn_min_bytes",
    "green_max_threshold": "ecn_max_bytes",
    "green_drop_probability": "ecn_probability",
}


def _profiles(lines: Sequence[Line]) -> Iterator[Row]:
    profile = ""
    for number, text in lines:
        if match := _PROFILE.match(text.strip()):
            profile = match[1]
        elif prompt_command(text):
            profile = ""
        elif profile and (match := _PROFILE_LINE.match(text.strip())):
            if match[1] == "ecn":
                yield from _setting(profile, "ecn", "off" if match[2] == "ecn_none" else "on", number)
            elif match[1] in _ECN:
                yield from _setting(profile, _ECN[match[1]], match[2], number)


def parse_sonic(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse SONiC's `show pfc counters|priority`, `pfcwd stats|config`, `ecn`, `queue`, `priority-group`, `buffer_pool`."""
    yield from _tables(lines)
    yield from _profiles(lines)


# --- Cumulus Linux: values below indented sections ---

_NV = late(r"\bnv show\s+(?:interface\s+(\S+)\s+)?(?:counters\s+)?qos\b")
_NV_LINE = late(r"(?P<indent>\s*)(?P<key>[a-z][a-z0-9-]*)(?:\s{2,}(?P<value>\S.*))?$")
_NV_COUNTERS = {
    ("rx-pfc-stats", "pause-packets"): "pfc_received",
    ("rx-pfc-stats", "pause-duration"): "pfc_received_us",
    ("tx-pfc-stats", "pause-packets"): "pfc_sent",
    ("rx-roce-stats", "no-buffer-discard"): "discarded",
    ("tx-roce-stats", "unicast-no-buffer-discard"): "queue_dropped",
    ("tx-ecn-stats", "ecn-marked-packets"): "ecn_marked",
}
_NV_SETTINGS = {
    ("pfc", "pfc-priority"): "pfc_priorities",
    ("pfc", "rx-enabled"): "pfc_rx",
    ("pfc", "tx-enabled"): "pfc_tx",
    ("congestion-control", "congestion-mode"): "ecn",
    ("congestion-control", "enabled-tc"): "ecn_tcs",
    ("congestion-control", "min-threshold"): "ecn_min_bytes",
    ("congestion-control", "max-threshold"): "ecn_max_bytes",
    ("congestion-control", "probability"): "ecn_probability",
    ("trust", "trust-mode"): "trust",
    ("", "mode"): "roce_mode",
    ("", "state"): "roce_state",
}
_UNITS = {"Bytes": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_YES = {"yes": "on", "enabled": "on", "on": "on", "no": "off", "disabled": "off", "off": "off"}


def parse_cumulus(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `nv show qos roce`, `nv show interface PORT qos roce [status|counters]`, `... counters qos pfc-stats`."""
    port, section = "", ""
    for number, text in lines:
        if command := prompt_command(text):
            match = _NV.search(command)
            port, section = (match[1] or "") if match else "", ""
        elif match := _NV_LINE.match(text.rstrip()):
            if match["value"] is None:
                section = match["key"]
                continue
            section = section if match["indent"] else ""
            value = _CELLS.split(match["value"])[0]
            key = (section, match["key"])
            if key in _NV_COUNTERS:
                yield from _counter(port, None, _NV_COUNTERS[key], value, number)
            elif key in _NV_SETTINGS:
                yield from _setting(port, _NV_SETTINGS[key], _nv_value(_NV_SETTINGS[key], value), number)
    yield from _tables(lines)


def _nv_value(name: str, value: str) -> str:
    if name == "ecn":
        return "on" if "ecn" in value.lower() else "off"
    if name in ("pfc_rx", "pfc_tx"):
        return _YES.get(value, "")
    size = late(r"([0-9.]{1,12}) (Bytes|KB|MB|GB)").fullmatch(value)
    if name.endswith("_bytes") and size and size[1].count(".") < 2 and size[1] != ".":
        return str(round(float(size[1]) * _UNITS[size[2]]))
    return value


TEXTS = (
    Text(
        "sonic",
        (
            r"^\s*Port [RT]x +PFC0 +PFC1 ",
            r"^\s*QUEUE +STATUS +STORM DETECTED/RESTORED",
            r"^\s*PORT +ACTION +DETECTION TIME",
            r"^\s*Interface +Lossless priorities",
            r"^\s*Port +TxQ +(Counter|WredDrp)/pkts",
            r"^(Ingress|Egress) .* per (PG|unicast queue|multicast queue)",
            r"^Ingress PG dropped packets:",
            r"^Shared pool maximum occupancy:",
            r"^(red|green)_(min|max)_threshold +[0-9]",
            r"^\s*Port +Priority +RX Pause Transitions",
        ),
        parse_sonic,
    ),
    Text(
        "cumulus",
        (
            r"^ +(rx|tx)-(pfc|roce|ecn|cnp)-stats",
            r"^ +pfc-priority +[0-9]",
            r"^ +congestion-mode +\S",
            r"^switch-priority +rx-pause-frames",
        ),
        parse_cumulus,
        ("nv",),
    ),
)
