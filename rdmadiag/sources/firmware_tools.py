"""What firmware tools say of adapters: mst status, mlxconfig, flint and mlxfwmanager, mlxreg (and their mst* twins).

mstdump and resourcedump are known, and that nobody publishes how to read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.patterns import late
from rdmadiag.sources.devices import whole
from rdmadiag.sources.mlxlink import asked_of, place_of

TABLES = ("mst", "fw_setting", "fw_image", "register")

Values = dict[str, Any]


# --- mst status ---

_MST_LINE = late(
    r"(?:\S.*?\S)\s+(?P<mst>/dev/mst/\S+)\s+(?P<bdf>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
    r"(?:\s+(?P<device>[A-Za-z]\w+|-))?(?:\s+net-(?P<netdev>[^\s,]+))?"
)
_MST_NAME = late(r"(?P<mst>/dev/mst/\S+)\s+- PCI ")
_MST_PCI = late(r"\s+(?:domain:)?bus:dev\.fn=(?P<bdf>[0-9a-f:.]+) ")


def parse_mst(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `mst status`, with -v too."""
    name = ""
    for number, text in lines:
        if match := _MST_LINE.match(text):
            values = {key: value for key, value in match.groupdict().items() if value and value != "-"}
            yield Row("mst", {**values, **place_of(values["bdf"])}, number)
        elif match := _MST_NAME.match(text):
            name = match["mst"]
        elif name and (match := _MST_PCI.match(text)):
            if place := place_of(match["bdf"]):
                yield Row("mst", {"mst": name, **place}, number)
            name = ""


# --- mlxconfig ---

_SETTING = late(r"\*?\s+(?P<setting>[A-Z][A-Z0-9_]{2,60})\s+(?P<values>\S.*)$")
_CONFIGURED = late(r"Configurations:\s+(?P<columns>.*)$")
_DEVICE = late(r"Device:\s+(\S+)")
_COLUMNS = {"Default": "default", "Current": "", "Next Boot": "next", "Next": "next"}
_VALUE_NUMBER = late(r".*\((-?(?:0x)?[0-9a-fA-F]{1,16})\)$")


def parse_mlxconfig(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `mlxconfig query`, with -e too (Default, Current, Next Boot); old releases head their one column Current."""
    place: Values = {}
    columns = ["next"]
    for number, text in lines:
        if (asked := asked_of(text)) is not None:
            place, columns = asked, ["next"]
        elif match := _DEVICE.match(text):
            place = place_of(match[1]) or place
        elif match := _CONFIGURED.match(text.rstrip()):
            heads = late(r"\s{2,}").split(match["columns"])
            columns = [_COLUMNS[head] for head in heads if head in _COLUMNS] or ["next"]
        elif match := _SETTING.match(text.rstrip()):
            found = match["values"].split()
            if len(found) == len(columns):
                yield Row("fw_setting", {**place, "setting": match["setting"], **_settings(columns, found)}, number)


def _settings(columns: Sequence[str], found: Sequence[str]) -> Values:
    values: Values = {}
    for column, text in zip(columns, found, strict=True):
        match = _VALUE_NUMBER.match(text)
        number = whole(match[1] if match else text)
        values[f"{column}_value" if column else "value"] = text
        if number is not None:
            values[f"{column}_number" if column else "number"] = number
    return values


# --- flint, mlxfwmanager ---

_FLINT = {
    "FW Version": "fw_ver",
    "FW Version(Running)": "running",
    "PSID": "board_id",
    "Part Number": "part_number",
}
_MANAGER = {"Part Number": "part_number", "PSID": "board_id", "Status": "status"}
_PAIR = late(r"\s*(?P<key>[A-Z][A-Za-z ]*(?:\(Running\))?):\s+(?P<text>\S.*)$")
_FW_LINE = late(
    r"\s+FW(?P<running> \(Running\))?\s+(?P<version>[\d.]{5,20}|N/A)(?:\s+(?P<available>[\d.]{5,20}|N/A))?\s*$"
)


def parse_flint(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `flint query` (`mstflint`), which prints a running version only where it is not the one in the flash."""
    place: Values = {}
    values: Values = {}
    at = 0
    for number, text in lines:
        asked = asked_of(text)
        if asked is not None or text.startswith("Image type:"):
            yield from _image(place, values, at)
            place, values, at = place if asked is None else asked, {}, number
        elif (match := _PAIR.match(text.rstrip())) and match["key"] in _FLINT and match["text"] != "N/A":
            values.setdefault(_FLINT[match["key"]], match["text"])
            at = at or number
    yield from _image(place, values, at)


def _image(place: Values, values: Values, at: int) -> Iterator[Row]:
    if "fw_ver" in values:
        yield Row("fw_image", {**place, **values}, at)


def parse_fwmanager(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `mlxfwmanager` (`mlxup`): one block a device."""
    place: Values = {}
    values: Values = {}
    at = 0
    for number, text in lines:
        if late(r"\s*Device #\d+:\s*$").match(text):
            yield from _image(place, values, at)
            place, values, at = {}, {}, number
        elif match := _FW_LINE.match(text):
            version = match["version"] if match["version"] != "N/A" else None
            available = match["available"] if match["available"] not in (None, "N/A") else None
            found = {"running": version} if match["running"] else {"fw_ver": version, "available": available}
            values.update((name, value) for name, value in found.items() if value)
        elif match := _PAIR.match(text.rstrip()):
            if match["key"] == "PCI Device Name":
                place = place_of(match["text"])
            elif match["key"] in _MANAGER:
                values.setdefault(_MANAGER[match["key"]], match["text"])
    yield from _image(place, values, at)


# --- mlxreg ---

_REGISTER = late(r"\b(?:mlxreg|mstreg) .*--reg_name[ =](?P<register>\w+)")
_REGISTER_FIELD = late(r"\s*(?P<field>[a-z][\w.\[\]]{1,60})\s+\|\s+(?P<value>0x[0-9a-fA-F]{1,16})\s*$")


def parse_mlxreg(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `mlxreg --get`: `field | 0x00000001`."""
    place: Values = {}
    for number, text in lines:
        if (command := prompt_command(text)) is not None:
            register = _REGISTER.search(command)
            place = {**(asked_of(text) or {}), **({"register": register["register"]} if register else {})}
        elif match := _REGISTER_FIELD.match(text):
            yield Row("register", {**place, "field": match["field"], "value": whole(match["value"])}, number)


# --- mstdump, resourcedump ---


def parse_dump(lines: Sequence[Line]) -> Iterator[Gap]:
    """Say that a dump of registers or resource segments is no evidence here: what its words mean is not published."""
    reason = "a dump of the adapter's registers or resources: what its words mean is published by nobody"
    how = "what is published: mlxreg --get, mlxlink -m -c, mlxconfig -e query, rdma resource show; keep the dump for the maker's support"
    if any(text.strip() for _, text in lines):
        yield Gap(("register",), reason, "unreadable", how, "mstdump")


TEXTS = (
    Text(
        "mst status",
        (r"^MST (modules|devices):", r"^DEVICE_TYPE +MST +PCI +RDMA", r"^/dev/mst/[^ ]+ +- PCI "),
        parse_mst,
        ("mst", "mstdevices_info"),
    ),
    Text(
        "mlxconfig",
        (
            r"^Configurations: +(Default|Current|Next)",
            r"^\*? +(PCI_WR_ORDERING|ROCE_CONTROL|LINK_TYPE_P[12]|SRIOV_EN|MAX_ACC_OUT_READ|ADVANCED_PCI_SETTINGS) +[A-Za-z_0-9]",
        ),
        parse_mlxconfig,
        ("mlxconfig", "mstconfig"),
    ),
    Text(
        "flint",
        (r"^Image type: +FS[0-9]", r"^FW Version(\(Running\))?: +[0-9]+\.[0-9]+\.[0-9]+"),
        parse_flint,
        ("flint", "mstflint"),
    ),
    Text(
        "mlxfwmanager",
        (r"^Querying Mellanox devices firmware", r"^ +Versions: +Current +Available"),
        parse_fwmanager,
        ("mlxfwmanager", "mstfwmanager", "mlxup"),
    ),
    Text(
        "mlxreg",
        (r"^Field Name +\| +Data", r"^roce_(adp_retrans|tx_window|slow_restart)\w* +\| 0x[0-9a-f]+"),
        parse_mlxreg,
        ("mlxreg", "mstreg"),
    ),
    Text(
        "mstdump",
        (r"^0x[0-9a-f]{8} 0x[0-9a-f]{8}[ \t\r]*$",),
        parse_dump,
        ("mstdump", "mstregdump", "resourcedump", "mstresourcedump"),
    ),
)
