"""Which switch and port each network device is cabled to: what systemd-networkd keeps, and lldpcli, lldptool, networkctl."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.row import Json, Line, Row, Text
from rdmadiag.host import Host, names_in, text_of
from rdmadiag.patterns import late
from rdmadiag.sources.devices import known

TABLES = ("lldp",)
NETWORKD = "/run/systemd/netif/lldp"
Values = dict[str, Any]


# --- reading a node ---


def read(host: Host) -> Iterator[Row]:
    """Read the frames that systemd-networkd keeps, one file an interface index; lldpd keeps its own to itself."""
    indexes = {}
    for name in names_in(host, "/sys/class/net"):
        if index := text_of(host, f"/sys/class/net/{name}/ifindex"):
            indexes[index] = name
    for index in names_in(host, NETWORKD):
        try:
            data = host.read_bytes(f"{NETWORKD}/{index}")
        except NotGiven:
            raise
        except (NotPresent, HostRefused):
            continue
        for frame in frames(data):
            values = neighbour(frame)
            if index in indexes and values:
                yield Row("lldp", {"netdev": indexes[index], **values}, f"{NETWORKD}/{index}")


def frames(data: bytes) -> Iterator[bytes]:
    """Yield the Ethernet frames of systemd-networkd's file: each behind its length, 8 bytes little-endian."""
    place = 0
    while place + 8 <= len(data):
        size = int.from_bytes(data[place : place + 8], "little")
        if size > len(data) - place - 8:
            return
        yield data[place + 8 : place + 8 + size]
        place += 8 + size


def neighbour(frame: bytes) -> Values:
    """Read the columns of table lldp out of an LLDP frame (IEEE 802.1AB, 8.5); empty for any other frame."""
    if frame[12:14] != b"\x88\xcc":
        return {}
    found: Values = {}
    place = 14
    while place + 2 <= len(frame):
        head = int.from_bytes(frame[place : place + 2], "big")
        kind, value = head >> 9, frame[place + 2 : place + 2 + (head & 0x1FF)]
        if kind == 0:
            break
        if kind in (1, 2) and value:
            found["chassis" if kind == 1 else "switch_port"] = _identifier(value[0], value[1:], 4 if kind == 1 else 3)
        elif kind in (4, 5):
            found["port_description" if kind == 4 else "switch"] = _words(value)
        elif kind == 8 and value[1:2] == b"\x01" and len(value) >= 6:
            found.setdefault("management_ip", ".".join(map(str, value[2:6])))
        place += 2 + (head & 0x1FF)
    return known(found)


def _identifier(kind: int, value: bytes, mac: int) -> str:
    return value.hex(":") if kind == mac and len(value) == 6 else _words(value)


def _words(value: bytes) -> str:
    text = value.decode("utf-8", "replace").strip("\0 \n")
    return "".join(letter for letter in text if letter.isprintable())[:200]


# --- lldpcli, lldpctl ---

_INTERFACE = late(r"Interface:\s+(\S+?),\s+via")
_FIELD = late(r"\s*(ChassisID|SysName|MgmtIP|PortID|PortDescr):\s+(.*?)\s*$")
_COLUMNS = {
    "SysName": "switch",
    "PortID": "switch_port",
    "PortDescr": "port_description",
    "ChassisID": "chassis",
    "MgmtIP": "management_ip",
}
_KINDS = late(r"(?:ifname|ifalias|mac|local|ip|netaddr|chassis|unhandled) (?=\S)")


def parse(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `lldpcli show neighbors` (lldpctl): one row a neighbour."""
    name, first = "", 0
    values: Values = {}
    for number, text in lines:
        if match := _INTERFACE.match(text.strip()):
            yield from _neighbour_row(name, values, first)
            name, values, first = match[1].rstrip(","), {}, number
        elif name and (match := _FIELD.match(text)):
            value = _KINDS.sub("", match[2], count=1) if match[1] in ("ChassisID", "PortID") else match[2]
            values.setdefault(_COLUMNS[match[1]], value)
    yield from _neighbour_row(name, values, first)


def _neighbour_row(name: str, values: Values, at: int) -> Iterator[Row]:
    if name and values:
        yield Row("lldp", {"netdev": name, **values}, at)


def parse_json(objects: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """Parse `lldpcli -f json|json0 show neighbors`: an interface is a list of objects by name, or one object."""
    for entry in objects:
        for lldp in _some(entry.get("lldp")):
            for interface in _some(lldp.get("interface")):
                for name, inner in _named(interface):
                    if values := _json_values(inner):
                        yield Row("lldp", {"netdev": name, **values}, 1)


def _some(value: Any) -> list[Values]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]


def _named(interface: Values) -> Iterable[tuple[str, Values]]:
    # json0 has the name as a value, json as the key.
    name = _scalar(interface.get("name"))
    if name:
        return [(name, interface)]
    return [(key, value) for key, value in interface.items() if isinstance(value, dict)]


def _scalar(value: Any) -> str | None:
    # json0 wraps every value: [{"value": "..."}]; ids have a type beside it.
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, str) and value else None


def _json_values(inner: Values) -> Values:
    chassis, switch = _unwrapped(inner.get("chassis"))
    port, _ = _unwrapped(inner.get("port"))
    return known(
        {
            "switch": _scalar(chassis.get("name")) or switch,
            "switch_port": _scalar(port.get("id")),
            "port_description": _scalar(port.get("descr")),
            "chassis": _scalar(chassis.get("id")),
            "management_ip": _scalar(chassis.get("mgmt-ip")),
        }
    )


def _unwrapped(value: Any) -> tuple[Values, str | None]:
    # "chassis": {"leaf1": {"id": ...}} where the system has a name, {"id": ...} where it has none.
    for item in _some(value):
        if "id" in item:
            return item, None
        for key, inner in item.items():
            if isinstance(inner, dict):
                return inner, key
    return {}, None


# --- networkctl lldp ---

_HEADINGS = {
    "LINK": "netdev",
    "CHASSIS[ -]ID": "chassis",
    "SYSTEM[ -]NAME": "switch",
    "SYSTEM[ -]DESCRIPTION": "",
    "CAPS": "",
    "PORT[ -]ID": "switch_port",
    "PORT[ -]DESCRIPTION": "port_description",
}


def parse_networkctl(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `networkctl lldp`, a table whose columns lie below their headings and change with the release."""
    columns: list[tuple[int, str]] = []
    for number, text in lines:
        if text.startswith("LINK"):
            found = [(late(rf"\b{heading}\b").search(text), column) for heading, column in _HEADINGS.items()]
            columns = sorted((match.start(), column) for match, column in found if match)
        elif columns and text[:1].strip() and len(text) > columns[-1][0]:
            ends = [start for start, _ in columns[1:]] + [len(text)]
            values = {column: text[start:end].strip() for (start, column), end in zip(columns, ends, strict=True)}
            values.pop("", None)
            if values.get("netdev") and len(known(values)) > 1:
                yield Row("lldp", known(values), number)
        else:
            columns = []


TEXTS: tuple[Text | Json, ...] = (
    Text("lldpcli", (r"^Interface: +\S+, via: ",), parse, ("lldpcli", "lldpctl")),
    Json("lldpcli", (("lldp",),), parse_json),
    Text("networkctl lldp", (r"^LINK +(CHASSIS|SYSTEM)[- ]",), parse_networkctl),
)
