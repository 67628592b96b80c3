"""The physical link as `mlxlink` (`mstlink`) prints it, as text and JSON: state, BER, FEC bins, cable and module."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Json, Line, Row, Text
from rdmadiag.patterns import late
from rdmadiag.sources.devices import whole

TABLES = ("link",)

Values = dict[str, Any]

_BDF = late(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])$")
_VERBS = late(r"[A-Za-z]\w*_?\d+$")


def place_of(name: str) -> Values:
    """Return which adapter a firmware tool was asked about: columns device, bdf or mst; empty for none of them."""
    name = name.strip("\"'")
    if match := _BDF.match(name):
        return {"bdf": f"{match[1] or '0000'}:{match[2]}".lower()}
    if name.startswith(("/dev/mst/", "mt")):
        return {"mst": name if name.startswith("/") else f"/dev/mst/{name}"}
    return {"device": name} if _VERBS.match(name) else {}


_ASKED = late(r"\b(?:mlx\w+|mst\w+|flint) .*?(?:-d|--device)[ =]?(\S+)")


def asked_of(text: str) -> Values | None:
    """Return the adapter that a prompt line asks a firmware tool about; None when the line is no prompt."""
    command = prompt_command(text)
    if command is None:
        return None
    match = _ASKED.search(command)
    return place_of(match[1]) if match else {}


# --- values ---

_NUMBER = late(r"-?\d{1,12}(?:\.\d{1,9})?$")
_BER = late(r"(\d{1,6}(?:\.\d{1,6})?)E(-\d{1,3})$")
_READING = late(r"(?P<values>[-\d.,]+) \[(?P<low>[-\d.]+)\.\.(?P<high>-?\d[\d.]*)\]$")
_NO_ERROR = 1e-200
_EMPTY = ("", "N/A", "_N/A")


def _ber(text: str) -> float | None:
    match = _BER.match(text)
    if match is None:
        return 0.0 if text == "0" else None
    value = float(f"{match[1]}e{match[2]}")
    return 0.0 if value < _NO_ERROR else value  # 15E-255: not one error since the counters were cleared


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.match(text) else None


def _word(text: str) -> str | None:
    return None if text in _EMPTY else text


_Read = Callable[[str], Any]
_FIELDS: Mapping[str, tuple[str, _Read]] = {
    "State": ("state", _word),
    "Physical state": ("phys_state", _word),
    "Speed": ("speed", _word),
    "Width": ("width", lambda text: whole(text.removesuffix("x"))),
    "FEC": ("fec", _word),
    "Raw Physical BER": ("raw_ber", _ber),
    "Effective Physical BER": ("effective_ber", _ber),
    "Symbol BER": ("symbol_ber", _ber),
    "Effective Physical Errors": ("effective_errors", whole),
    "Symbol Errors": ("symbol_errors", whole),
    "Link Down Counter": ("link_down", whole),
    "Link Error Recovery Counter": ("link_recoveries", whole),
    "Time Since Last Clear [Min]": ("minutes", _number),
    "Status Opcode": ("status_opcode", whole),
    "Recommendation": ("recommendation", _word),
    "Identifier": ("cable", _word),
    "Cable Type": ("cable", _word),
    "Vendor Name": ("vendor", _word),
    "Vendor Part Number": ("part_number", _word),
}
_FLAGS = (
    *("Module FW Fault", "DataPath FW Fault", "Tx Fault", "Tx LOS", "Tx CDR LOL", "Rx LOS", "Rx CDR LOL"),
    "Tx Adaptive EQ Fault",
)
_READINGS = ("Temperature [C]", "Voltage [mV]", "Bias Current [mA]", "Rx Power Current [dBm]", "Tx Power Current [dBm]")
_BIN = late(r"(?:Bin )(\d{1,2})$")
_COUNT = late(r".*[\s\]](\d{1,20})$")


class _Link:
    """What is known of the link whose lines are being read."""

    def __init__(self, place: Values, at: int) -> None:
        self.place, self.at, self.values = place, at, dict[str, Any]()

    def take(self, key: str, text: str, at: int) -> None:
        """Take one field; what it does not know, it passes over."""
        flag = key.removesuffix(" [per lane]")
        if key in _FIELDS:
            column, read = _FIELDS[key]
            if (value := read(text)) is not None and column not in self.values:
                self._keep(column, value, at)
        elif flag in _FLAGS and late(r"[01](,[01])*").fullmatch(text):
            self._list("faults", f"{flag}: {text}" if "1" in text else "", at)
        elif key in _READINGS and (match := _READING.match(text)):
            self._reading(key, match, at)
        elif (found := _BIN.match(key)) and (count := _COUNT.match(text)):
            self._keep("fec_bins", max(self.values.get("fec_bins", 0), int(found[1]) + 1), at)
            if int(count[1]):
                self._keep("fec_highest_bin", max(self.values.get("fec_highest_bin", 0), int(found[1])), at)

    def _keep(self, column: str, value: Any, at: int) -> None:
        self.at = self.at or at
        self.values[column] = value

    def _list(self, column: str, text: str, at: int) -> None:
        before = self.values.get(column, "")
        self._keep(column, ", ".join(part for part in (before, text) if part), at)

    def _reading(self, key: str, match: re.Match[str], at: int) -> None:
        values = [_number(part) for part in match["values"].split(",")]
        low, high = _number(match["low"]), _number(match["high"])
        if low is None or high is None or low == high or None in values:
            return  # a passive cable has no sensors: 0 [0..0]
        beyond = [value for value in values if value is not None and not low <= value <= high]
        self._list("out_of_range", f"{key} {match[0]}" if beyond else "", at)
        if key == "Temperature [C]" and values[0] is not None:
            self._keep("temperature_celsius", values[0], at)

    def rows(self) -> Iterator[Row]:
        """Return the row, if anything of a link was seen."""
        if self.values.keys() - {"state", "speed", "width"}:
            yield Row("link", {**self.place, **self.values}, self.at)


_FIELD = late(r"\s*(?P<key>[A-Z][A-Za-z]*(?: [A-Za-z0-9]+)*(?: \[[A-Za-z ]+\])?)\s*: ?(?P<text>.*)$")


def parse(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `mlxlink` with or without -m, -c and --show_histogram, or the lines of it that grep let through."""
    link = _Link({}, 0)
    for line in lines:
        place = asked_of(line.text)
        if place is not None or line.text.startswith("Operational Info"):
            yield from link.rows()
            link = _Link(link.place if place is None else place, 0)
        elif match := _FIELD.match(line.text.rstrip()):
            link.take(match["key"], match["text"], line.number)
    yield from link.rows()


def parse_objects(objects: list[dict[str, Any]]) -> Iterable[Row]:
    """Parse `mlxlink --json`: the same fields, in sections; lists are `{"values": [...]}`."""
    for entry in objects:
        result = entry.get("result")
        output = result.get("output") if isinstance(result, dict) else None
        link = _Link({}, 1)
        for section in output.values() if isinstance(output, dict) else ():
            for key, value in section.items() if isinstance(section, dict) else ():
                if isinstance(key, str):
                    link.take(key, _text(value), 1)
        yield from link.rows()


def _text(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("values"), list):
        joined = " " if any(str(part).startswith("[") for part in value["values"][:1]) else ","
        return joined.join(str(part) for part in value["values"])
    return value if isinstance(value, str) else str(value) if isinstance(value, (int, float)) else ""


TEXTS: tuple[Text | Json, ...] = (
    Text(
        "mlxlink",
        (
            r"^Operational Info[ \t\r]*$",
            r"^Physical Counters and BER Info[ \t\r]*$",
            r"^(Raw|Effective) Physical (BER|Errors)[A-Za-z ]* : ",
            r"^Status Opcode +: [0-9]",
            r"^(Bias Current \[mA\]|(Rx|Tx) Power Current \[dBm\]) +: ",
        ),
        parse,
        ("mlxlink", "mstlink"),
    ),
    Json("mlxlink", (("result", "status"),), parse_objects, ("mlxlink", "mstlink")),
)
