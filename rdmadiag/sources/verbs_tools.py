"""Devices, ports and GIDs as tools print them: ibv_devinfo, ibv_devices, ibstat, ibstatus, show_gids, rdma link."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag.evidence.row import Json, Line, Row, Text
from rdmadiag.explain.gid import full_gid
from rdmadiag.explain.port_state import PHYS_STATES
from rdmadiag.patterns import late
from rdmadiag.sources.devices import (
    Values,
    device_of_dev,
    driver_of,
    gid_type,
    gid_values,
    known,
    physical_values,
    port_of_link,
    protocol_of,
    rate_values,
    state_values,
    whole,
)

TABLES = ("device", "port", "gid", "verbs_list", "netdev")

Read = Callable[[str], Values]


# --- tools that print one block a device: ibv_devinfo, ibstat, ibstatus ---


class _Tool(NamedTuple):
    head: re.Pattern[str]  # begins a device; groups device, port
    port: re.Pattern[str]  # begins a port
    line: re.Pattern[str]  # groups key, value
    device_keys: Mapping[str, Read]
    port_keys: Mapping[str, Read]
    seen: Mapping[str, Any]  # what the head alone says of the device


_ANY_HEAD = late(r"hca_id:|CA '|(?:iWARP RNIC|Switch|Router) '|Infiniband device '")


def _number(column: str) -> Read:
    return lambda text: known({column: whole(text.split()[0] if text else "")})


def _word(column: str) -> Read:
    return lambda text: {column: text} if text and text != "unknown" else {}


def _guid(column: str) -> Read:
    def read(text: str) -> Values:
        digits = text.removeprefix("0x").replace(":", "").lower()
        if not late(r"[0-9a-f]{16}").fullmatch(digits):
            return {}
        return {column: ":".join(digits[place : place + 4] for place in range(0, 16, 4))}

    return read


def _transport(text: str) -> Values:
    word, _, number = text.rpartition(" (")
    return {"transport": word} if number.endswith(")") and word else {}


def _verbs_state(text: str) -> Values:
    return state_values(text) if text.startswith("PORT_") else {}


def _verbs_physical(text: str) -> Values:
    return physical_values(text) if text.endswith(")") else {}


def _width(text: str) -> Values:
    match = late(r"([0-9]+)X ").match(text)
    return {"_width": int(match[1])} if match and len(match[1]) < 4 else {}


def _speed(text: str) -> Values:
    match = late(r"([0-9]{1,4}(?:\.[0-9]{1,3})?) Gbps").match(text)
    return {"_speed": float(match[1])} if match else {}


IBV_DEVINFO = _Tool(
    late(r"hca_id:\s*(?P<device>\S+)"),
    late(r"\s*port:\s+(?P<port>[0-9]+)\s*$"),
    late(r"\s*(?P<key>[a-z_]+):\s+(?P<value>\S.*)$"),
    {
        "transport": _transport,
        "fw_ver": _word("fw_ver"),
        "node_guid": _guid("node_guid"),
        "sys_image_guid": _guid("sys_image_guid"),
        "vendor_id": _number("vendor_id"),
        "vendor_part_id": _number("vendor_part_id"),
        "hw_ver": _word("hw_ver"),
        "board_id": _word("board_id"),
        "phys_port_cnt": _number("ports"),
        "max_qp": _number("max_qp"),
        "max_cqe": _number("max_cqe"),
        "max_mr_size": _number("max_mr_size_bytes"),
    },
    {
        "state": _verbs_state,
        "max_mtu": _number("max_mtu"),
        "active_mtu": _number("active_mtu"),
        "sm_lid": _number("sm_lid"),
        "port_lid": _number("lid"),
        "link_layer": _word("link_layer"),
        "port_cap_flags": _word("capability"),
        "active_width": _width,
        "active_speed": _speed,
        "phys_state": _verbs_physical,
    },
    {"in_verbs": 1},
)

_STATES_OF_IBSTAT = {"Down": "DOWN", "Initializing": "INIT", "Armed": "ARMED", "Active": "ACTIVE"}
_PHYSICAL_OF_IBSTAT = {name.replace(" ", ""): name for _, name, *_ in PHYS_STATES}


def _ibstat_rate(text: str) -> Values:
    match = late(r"[0-9]{1,6}(?:\.[0-9]{1,3})?").match(text)
    return {"rate_gbps": float(match[0])} if match else {}


IBSTAT = _Tool(
    late(r"(?P<kind>CA|iWARP RNIC|Switch|Router) '(?P<device>[^']+)'\s*$"),
    late(r"\s*Port (?P<port>[0-9]+):\s*$"),
    late(r"\s*(?P<key>[A-Z][A-Za-z ]+): ?(?P<value>\S.*)$"),
    {
        "CA type": _word("hca_type"),
        "Number of ports": _number("ports"),
        "Firmware version": _word("fw_ver"),
        "Hardware version": _word("hw_ver"),
        "Node GUID": _guid("node_guid"),
        "System image GUID": _guid("sys_image_guid"),
    },
    {
        "State": lambda text: known({"state": _STATES_OF_IBSTAT.get(text)}),
        "Physical state": lambda text: known({"phys_state": _PHYSICAL_OF_IBSTAT.get(text)}),
        "Rate": _ibstat_rate,
        "Base lid": _number("lid"),
        "SM lid": _number("sm_lid"),
        "Capability mask": _word("capability"),
        "Link layer": _word("link_layer"),
    },
    {},
)

IBSTATUS = _Tool(
    late(r"Infiniband device '(?P<device>[^']+)' port (?P<port>[0-9]+) status:"),
    late(r"(?!)"),
    late(r"\s*(?P<key>default gid|base lid|sm lid|state|phys state|rate|link_layer):\s+(?P<value>\S.*)$"),
    {},
    {
        "default gid": lambda text: known({"_gid": full_gid(text)}),
        "base lid": _number("lid"),
        "sm lid": _number("sm_lid"),
        "state": lambda text: state_values(text) if text[1:3] == ": " else {},
        "phys state": lambda text: physical_values(text) if text[1:3] == ": " else {},
        "rate": rate_values,
        "link_layer": lambda text: {"link_layer": {"IB": "InfiniBand"}.get(text, text)},
    },
    {},
)

_GID = late(r"\s*GID\[\s*(?P<index>[0-9]{1,6})\]:\s*(?P<gid>[0-9A-Fa-f:.]+)(?:,\s*(?P<type>RoCE v[12]))?\s*$")


class _Block:
    """What is known of the device and the port whose lines are being read."""

    def __init__(self, values: Values, at: int, port: int | None = None) -> None:
        self.device, self.device_at, self.kind = values, at, ""
        self.name: str | None = values.get("device")
        self.gids: list[Row] = []
        self.begin_port(port, at)

    def begin_port(self, number: int | None, at: int) -> None:
        self.number, self.port, self.port_at = number, known({"device": self.name, "port": number}), at

    def port_row(self) -> Iterator[Row]:
        values = {name: value for name, value in self.port.items() if name[0] != "_"}
        if "_width" in self.port and "_speed" in self.port:
            values["rate_gbps"] = self.port["_width"] * self.port["_speed"]
        if values.keys() - {"device", "port"} or "port" in values:
            yield Row("port", values, self.port_at)
        if (gid := self.port.get("_gid")) and (row := _gid_row(self.name, self.number, 0, gid)):
            yield Row("gid", row, self.port_at)
        layer = self.port.get("link_layer")
        protocol = protocol_of(layer, self.device.get("transport", self.kind))
        if self.name and protocol and self.device.get("transport") != "unspecified":
            self.device.setdefault("protocol", protocol)

    def device_row(self) -> Iterator[Row]:
        if self.name:
            yield Row("device", self.device, self.device_at)


def _blocks(lines: Sequence[Line], tool: _Tool) -> Iterator[Row]:
    # An excerpt may begin anywhere; a line that repeats what is known of a port is another port's. Another tool's head
    # ends what is ours.
    block: _Block | None = _Block({}, 0)
    for line in lines:
        text = line.text
        if match := tool.head.match(text):
            groups = match.groupdict()
            if block:
                yield from block.port_row()
                yield from block.device_row()
            name = groups["device"]
            values = known({"device": name, "driver": driver_of(name), **tool.seen})
            block = _Block(values, line.number, whole(groups.get("port")))
            block.kind = groups.get("kind") or ""
        elif _ANY_HEAD.match(text):
            if block:
                yield from block.port_row()
                yield from block.device_row()
            block = None
        elif block is None:
            continue
        elif match := tool.port.match(text):
            yield from block.port_row()
            block.begin_port(whole(match["port"]), line.number)
        elif match := tool.line.match(text):
            key, value = match["key"], match["value"].strip()
            if read := tool.device_keys.get(key):
                block.device.update((name, what) for name, what in read(value).items() if name not in block.device)
            elif (read := tool.port_keys.get(key)) and (found := read(value)):
                if found.keys() & block.port.keys():
                    yield from block.port_row()
                    block.begin_port(None, line.number)
                block.port_at = block.port_at or line.number
                block.port.update(found)
        elif tool is IBV_DEVINFO and (match := _GID.match(text)):
            what = match["type"] or ("IB" if block.port.get("link_layer") == "InfiniBand" else None)
            if row := _gid_row(block.name, block.number, int(match["index"]), match["gid"], what):
                yield Row("gid", row, line.number)
    if block:
        yield from block.port_row()
        yield from block.device_row()


def _gid_row(
    device: str | None,
    port: int | None,
    index: int | None,
    text: str,
    what: str | None = None,
    netdev: str | None = None,
) -> Values | None:
    gid = full_gid(text)
    if gid is None or not gid.strip("0:"):
        return None
    place = {"device": device, "port": port, "gid_index": index}
    return known({**place, **gid_values(gid), "type": what, "netdev": netdev})


_HCA_COUNT = late(r"([0-9]{1,6}) HCAs? found:")
_NOT_FOUND = late(r"IB device '([^']+)' wasn't found")
_NO_LIST = late(r"No IB devices found|Failed to get IB devices list")


def _list_row(tool: str, devices: int, at: int) -> Row:
    return Row("verbs_list", {"tool": tool, "devices": devices}, at)


def _listed_row(device: str, in_verbs: int, at: int) -> Row:
    return Row("device", known({"device": device, "driver": driver_of(device), "in_verbs": in_verbs}), at)


def parse_ibv_devinfo(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ibv_devinfo`, with -v or -l, or any part of it."""
    yield from _blocks(lines, IBV_DEVINFO)
    heads = [line.number for line in lines if IBV_DEVINFO.head.match(line.text)]
    if heads:
        yield _list_row("ibv_devinfo", len(heads), heads[0])
    named = 0
    for line in lines:
        if match := _HCA_COUNT.match(line.text):
            named = int(match[1])
            yield _list_row("ibv_devinfo", named, line.number)
        elif named and (match := late(r"\s+(\S+)\s*$").match(line.text)):
            named -= 1
            yield _listed_row(match[1], 1, line.number)
        else:
            named = 0
            if _NO_LIST.match(line.text):
                yield _list_row("ibv_devinfo", 0, line.number)
            elif match := _NOT_FOUND.match(line.text):
                yield _listed_row(match[1], 0, line.number)


def parse_ibstat(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ibstat`, or any part of it."""
    return _blocks(lines, IBSTAT)


def parse_ibstatus(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ibstatus`, or any part of it."""
    yield from _blocks(lines, IBSTATUS)
    for line in lines:
        if late(r"Fatal error: +No devices").match(line.text):
            yield _list_row("ibstatus", 0, line.number)


# --- lists ---

_DEVICES_HEAD = late(r"\s*device\s+node GUID\s*$")
_DEVICES_LINE = late(r"\s+(\S+)\s+([0-9a-f]{16})\s*$")


def parse_ibv_devices(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ibv_devices`; a list without a device is a row of verbs_list too."""
    head, count = 0, 0
    for line in lines:
        if _DEVICES_HEAD.match(line.text):
            if head:
                yield _list_row("ibv_devices", count, head)
            head, count = line.number, 0
        elif head and (match := _DEVICES_LINE.match(line.text)):
            count += 1
            values = {"device": match[1], "driver": driver_of(match[1]), **_guid("node_guid")(match[2]), "in_verbs": 1}
            yield Row("device", known(values), line.number)
        elif _NO_LIST.match(line.text):
            yield _list_row("ibv_devices", 0, line.number)
    if head:
        yield _list_row("ibv_devices", count, head)


_IBDEV = late(r"(?:(\S+) )?(\S+) (?:\((\S+) - .*)?port ([0-9]+) (?:\(([A-Z]+) *\) )?==> (\S+) \((\w+)\)\s*$")
_IBDEV_FW = late(r" fw (\S+) port ")


def parse_ibdev2netdev(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ibdev2netdev`, with -v too; its Up and Down are the netdev's.

    Where one text has the lists of several hosts and none is named, what is down on one of them is kept.
    """
    found: dict[tuple[str, str], list[Row]] = {}
    for line in lines:
        if match := _IBDEV.match(line.text.strip()):
            bdf, device, hca_type, port, state, netdev, link = match.groups()
            rows = [Row("netdev", {"netdev": netdev, "operstate": link.lower()}, line.number)]
            if hca_type:
                fw_ver = _IBDEV_FW.search(line.text)
                values = {"device": device, "driver": driver_of(device), "bdf": bdf, "hca_type": hca_type}
                rows.append(Row("device", known({**values, "fw_ver": fw_ver and fw_ver[1]}), line.number))
            place = {"device": device, "port": whole(port)}
            rows.append(Row("port", {**place, **state_values(state or ""), "netdev": netdev}, line.number))
            if (device, port) not in found or link == "Down":
                found[device, port] = rows
    for rows in found.values():
        yield from rows


# --- GIDs ---

_SHOW_GIDS = late(
    r"(\S+)\s+([0-9]{1,4})\s+([0-9]{1,6})\s+([0-9a-f]{4}(?::[0-9a-f]{4}){7})"
    r"(?:\s+[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+)?(?:\s+v([12]))?(?:\s+(\S+))?\s*$"
)


def parse_show_gids(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `show_gids` of mlnx-tools; cells may be empty, and old releases print neither version nor netdev."""
    for line in lines:
        if match := _SHOW_GIDS.match(line.text.strip()):
            device, port, index, gid, version, netdev = match.groups()
            # v1 is the kernel's "IB/RoCE v1"; only an entry of RoCE has a netdev.
            what = f"RoCE v{version}" if version == "2" or (version and netdev) else None
            if row := _gid_row(device, whole(port), int(index), gid, what, netdev):
                yield Row("gid", row, line.number)


_BARE_GID = late(r"\s*[0-9a-f]{4}(?::[0-9a-f]{4}){7}\s*$")
_GID_FILE = late(
    r"(?:.*infiniband/([^/\s]+)/)?(?:.*\bports/([0-9]{1,4})/)?(?:.*/)?(gids|types|ndevs)/([0-9]{1,6}):\s*(\S.*)$"
)
_GID_FOLDER = late(r"infiniband/([^/\s*]+)/ports/([0-9]{1,4})/gids")


def parse_gid_files(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse files of a GID table: `grep . .../gids/*` (path:GID), or `cat .../gids/*` (lines that are only a GID)."""
    bare = [line for line in lines if _BARE_GID.match(line.text)]
    device: str | None = None
    port: int | None = None
    place = 0
    entries: dict[tuple[str | None, int | None, int], dict[str, Any]] = {}
    for line in lines:
        if _BARE_GID.match(line.text):
            # `cat *` sorts by text (0, 1, 10, 100 ...): beyond ten entries only the first two places are sure.
            index = place if len(bare) <= 10 or place < 2 else None
            place += 1
            if len(bare) >= 2 and (row := _gid_row(device, port, index, line.text)):
                yield Row("gid", row, line.number)
        elif match := _GID_FILE.match(line.text.strip()):
            key = (match[1] or device, whole(match[2]) if match[2] else port, int(match[4]))
            entries.setdefault(key, {"at": line.number})[match[3]] = match[5].strip()
        elif match := _GID_FOLDER.search(line.text):
            device, port, place = match[1], whole(match[2]), 0
    for (device, port, index), entry in entries.items():
        layer = "Ethernet" if "ndevs" in entry else None
        what = gid_type(entry.get("types", ""), layer)
        if row := _gid_row(device, port, index, entry.get("gids", ""), what, entry.get("ndevs")):
            yield Row("gid", row, entry["at"])


# --- rdma link, rdma dev ---

_LINK = late(r"(?:link |[0-9]+/[0-9]+: )([^\s/]+)/([0-9]+):? +(.*\bphysical_state .*)$")
_DEV = late(r"[0-9]+: ([^\s:]+): +(node_type .*)$")


def _pairs(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=False))


def parse_rdma(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `rdma link` (`link D/P state ...`, in old releases `0/1: D/P: state ...`) and `rdma dev`."""
    for line in lines:
        if match := _LINK.match(line.text):
            yield Row("port", port_of_link({**_pairs(match[3]), "ifname": match[1], "port": match[2]}), line.number)
        elif match := _DEV.match(line.text):
            yield Row("device", device_of_dev({**_pairs(match[2]), "ifname": match[1]}), line.number)
        elif line.text.startswith("Failed to open NETLINK_RDMA socket"):
            yield _list_row("rdma", 0, line.number)


def parse_links(objects: list[dict[str, Any]]) -> Iterator[Row]:
    """Parse `rdma -j link`."""
    return (Row("port", port_of_link(entry), 1) for entry in objects if isinstance(entry.get("ifname"), str))


def parse_devs(objects: list[dict[str, Any]]) -> Iterable[Row]:
    """Parse `rdma -j dev`."""
    return [Row("device", device_of_dev(entry), 1) for entry in objects if isinstance(entry.get("ifname"), str)]


TEXTS: tuple[Text | Json, ...] = (
    Text(
        "ibv_devinfo",
        (
            r"^hca_id:[ \t]",
            r"^[ \t]*GID\[ *[0-9]+\]:[ \t]",
            r"^[ \t]*state:[ \t]+PORT_[A-Z]+ \([0-9]\)",
            r"^[ \t]*phys_state:[ \t]+[A-Z_ ]+ \([0-9]\)",
            r"^[ \t]*(active_mtu|max_mtu):[ \t]+[0-9]+ \([0-9]\)",
            r"^[ \t]*active_(width|speed):[ \t]+[0-9.]+(X| Gbps) \([0-9]+\)",
            r"^[0-9]+ HCAs? found:",
            r"^No IB devices found",
            r"^IB device '[^']+' wasn't found",
        ),
        parse_ibv_devinfo,
        commands=("ibv_devinfo",),
    ),
    Text(
        "ibv_devices",
        (r"^[ \t]*device[ \t]+node GUID", r"^Failed to get IB devices list"),
        parse_ibv_devices,
        commands=("ibv_devices",),
    ),
    Text(
        "ibstat",
        (
            r"^(CA|iWARP RNIC) '[^']+'",
            r"^[ \t]*State: (Active|Down|Initializing|Armed)[ \t\r]*$",
            r"^[ \t]*Physical state: [A-Z]",
            r"^[ \t]*CA type: ",
            r"^[ \t]*Link layer: (Ethernet|InfiniBand)",
        ),
        parse_ibstat,
        commands=("ibstat",),
    ),
    Text(
        "ibstatus",
        (
            r"^Infiniband device '[^']+' port [0-9]+ status:",
            r"^[ \t]*phys state:[ \t]+[0-9]: ",
            r"^[ \t]*state:[ \t]+[0-9]: [A-Z]",
            r"^[ \t]*rate:[ \t]+[0-9.]+ Gb/sec \(",
            r"^Fatal error: +No devices",
        ),
        parse_ibstatus,
        commands=("ibstatus",),
    ),
    Text(
        "show_gids",
        (
            r"^DEV[ \t]+PORT[ \t]+INDEX[ \t]+GID",
            r"^n_gids_found=[0-9]",
            r"^[^ \t]+\t[0-9]+\t[0-9]+\t[0-9a-f]{4}(:[0-9a-f]{4}){7}",
        ),
        parse_show_gids,
        commands=("show_gids",),
    ),
    Text(
        "gids",
        (
            r"^[ \t]*[0-9a-f]{4}(:[0-9a-f]{4}){7}[ \t\r]*$",
            r"\b(gids|gid_attrs/types|gid_attrs/ndevs)/[0-9]+:[ \t]*[^ \t\r\n]",
        ),
        parse_gid_files,
    ),
    Text(
        "ibdev2netdev",
        (r" port [0-9]+ (\([A-Z]+ *\) )?==> [^ ]+ \((Up|Down)\)",),
        parse_ibdev2netdev,
        commands=("ibdev2netdev",),
    ),
    Text(
        "rdma link",
        (
            r"^(link |[0-9]+/[0-9]+: )[^ /]+/[0-9]+:? .*physical_state ",
            r"^[0-9]+: [^ :]+: node_type [a-z_]+ ",
            r"^Failed to open NETLINK_RDMA socket",
        ),
        parse_rdma,
        commands=("rdma",),
    ),
    Json("rdma link", (("ifname", "port", "state", "physical_state"),), parse_links),
    Json("rdma dev", (("ifname", "node_type", "node_guid"), ("ifname", "fw", "node_guid")), parse_devs),
)
