"""How network devices are set up, and their modules: ethtool over netlink, and what the tool prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Gap, Json, Line, Row, Text
from rdmadiag.host import Host, link_of, names_in
from rdmadiag.patterns import late
from rdmadiag.sources._module_json import KEYS, NAMES, parse_module_json
from rdmadiag.sources.devices import whole

TABLES = ("netdev_setting", "optics")
SECONDS = 4.0  # a module answers a page in some milliseconds, and a node may have sixteen
NET = "/sys/class/net"
Values = dict[str, Any]

_BDF = late(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


# --- reading a node ---


def read(host: Host) -> Iterator[Row | Gap]:
    """Ask the kernel for every setting of all netdevs, then for the modules of physical functions (root only)."""
    for option, parse in _OPTIONS.items():
        command = f"ethtool {option}".strip()
        try:
            objects = host.objects(command)
        except NotPresent:  # a kernel without ethtool netlink, or no driver that knows this setting
            continue
        except NotGiven:
            yield Gap(
                ("netdev_setting", "optics"),
                "a captured tree runs nothing",
                "not_given",
                f"add the output of {command}",
            )
            return
        except HostRefused as error:
            yield Gap(("netdev_setting",), error.reason, "unreadable", error.how, command)
            continue
        for row in parse(objects):
            yield row._replace(at=f"netlink: {command}")
    names = [name for name in names_in(host, NET) if link_of(host, f"{NET}/{name}/device")]
    physical = [name for name in names if not link_of(host, f"{NET}/{name}/device/physfn")]
    if names:
        yield from _named(host, f"ethtool -i {' '.join(names)}", "netdev_setting", parse_driver_objects)
    if physical:
        yield from _named(host, f"ethtool -m {' '.join(physical)}", "optics", parse_module_objects)


def _named(host: Host, command: str, table: str, parse: Callable[[list[Values]], Iterable[Row]]) -> Iterator[Row | Gap]:
    try:
        objects = host.objects(command)
    except NotPresent:
        return
    except HostRefused as error:
        yield Gap((table,), error.reason, "not_permitted", error.how, command[:10])
        return
    for row in parse(objects):
        yield row._replace(at=f"{command[:10]} {row.values['netdev']}")


# --- objects: ethtool --json, netlink ---


def _flag(value: Any) -> int | None:
    if isinstance(value, dict):
        value = value.get("active")
    return int(value) if isinstance(value, bool) else None


def _listed(value: Any) -> str | None:
    return ", ".join(map(str, value)) if isinstance(value, list) and value else None


_Columns = dict[str, tuple[str, Callable[[Any], Any]]]
_RINGS: _Columns = {
    "rx_ring": ("rx", whole),
    "rx_ring_max": ("rx-max", whole),
    "tx_ring": ("tx", whole),
    "tx_ring_max": ("tx-max", whole),
}
_COALESCE: _Columns = {
    "adaptive_rx": ("adaptive-rx", _flag),
    "rx_usecs": ("rx-usecs", whole),
    "tx_usecs": ("tx-usecs", whole),
}
_PAUSE: _Columns = {"pause_autoneg": ("autonegotiate", _flag), "pause_rx": ("rx", _flag), "pause_tx": ("tx", _flag)}
_FEC: _Columns = {"fec": ("active", _listed), "fec_configured": ("config", _listed)}
_FEATURES: _Columns = {
    "gro": ("generic-receive-offload", _flag),
    "lro": ("large-receive-offload", _flag),
    "tso": ("tx-tcp-segmentation", _flag),
    "rx_checksum": ("rx-checksumming", _flag),
    "hw_tc_offload": ("hw-tc-offload", _flag),
}
_LINK: _Columns = {"autoneg": ("auto-negotiation", _flag), "lanes": ("lanes", whole)}


def _objects_parser(columns: _Columns) -> Callable[[list[Values]], Iterator[Row]]:
    def parse(objects: list[Values]) -> Iterator[Row]:
        for entry in objects:
            values = {column: read(entry[key]) for column, (key, read) in columns.items() if key in entry}
            values = {column: value for column, value in values.items() if value is not None}
            if values and isinstance(entry.get("ifname"), str):
                yield Row("netdev_setting", {"netdev": entry["ifname"], **values}, 1)

    return parse


def _channels(objects: list[Values]) -> Iterator[Row]:
    for entry in objects:
        combined = whole(entry.get("combined-max"))
        key = "combined" if combined else "rx"
        values = {"channels": whole(entry.get(key)), "channels_max": whole(entry.get(f"{key}-max"))}
        if isinstance(entry.get("ifname"), str) and values["channels"] is not None:
            yield Row("netdev_setting", {"netdev": entry["ifname"], **values}, 1)


parse_rings = _objects_parser(_RINGS)
parse_pause = _objects_parser(_PAUSE)
parse_fec = _objects_parser(_FEC)
parse_features = _objects_parser(_FEATURES)
parse_coalesce = _objects_parser(_COALESCE)
_OPTIONS: dict[str, Callable[[list[Values]], Iterable[Row]]] = {
    "": _objects_parser(_LINK),
    "-g": parse_rings,
    "-l": _channels,
    "-c": parse_coalesce,
    "-a": parse_pause,
    "--show-fec": parse_fec,
    "-k": parse_features,
}


def parse_driver_objects(objects: list[Values]) -> Iterator[Row]:
    """Turn objects with the keys of `ethtool -i` into rows of netdev: the firmware's version."""
    for entry in objects:
        if entry.get("firmware-version"):
            yield Row("netdev", {"netdev": entry["ifname"], "fw_ver": entry["firmware-version"]}, 1)


def parse_module_objects(objects: list[Values]) -> Iterator[Row]:
    """Turn what netlink/module.py decodes into rows: the module (lane 0), then its lanes."""
    for entry in objects:
        keys = ("identifier", "vendor", "part", "temperature_c", "voltage_v")
        values: Values = {"netdev": entry["ifname"], "lane": 0, **{key: entry[key] for key in keys if key in entry}}
        values |= {key: ", ".join(entry[key]) for key in ("alarms", "warnings") if key in entry}
        yield Row("optics", values, 1)
        for lane in entry.get("lanes", ()):
            yield Row("optics", {"netdev": entry["ifname"], **lane}, 1)


# --- text ---

_HEAD = late(r"(?:Settings for|(?:Ring|Channel|Coalesce|Pause|FEC) parameters for|Features for) (\S+):\s*$")
_COMMAND = late(r"\bethtool\s+(?:-I\s+|--include-statistics\s+)?(-\w|--[\w-]+)\s+([^\s|;&-][^\s|;&]*)")
_PAIR = late(r"\s*([A-Za-z][\w /-]*?):\s*(.*?)\s*$")
_TEXT_COLUMNS: dict[str, str] = {
    "generic-receive-offload": "gro",
    "large-receive-offload": "lro",
    "tx-tcp-segmentation": "tso",
    "rx-checksumming": "rx_checksum",
    "hw-tc-offload": "hw_tc_offload",
    "rx-usecs": "rx_usecs",
    "tx-usecs": "tx_usecs",
    "Auto-negotiation": "autoneg",
    "Lanes": "lanes",
    "Active FEC encoding": "fec",
    "Active FEC encodings": "fec",
    "Supported/Configured FEC encodings": "fec_configured",
    "Configured FEC encodings": "fec_configured",
}
_SWITCHES = {"on": 1, "off": 0}


def parse_settings(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ethtool NETDEV`, `-g`, `-l`, `-c`, `-a`, `-k`, `--show-fec`, with `-I` too."""
    name, kind, largest = "", "", False
    for number, text in lines:
        if match := _HEAD.match(text):
            name, kind, largest = match[1], text.split()[0], False
        elif name and text.startswith("Pre-set maximums"):
            largest = True
        elif name and text.startswith("Current hardware settings"):
            largest = False
        elif prompt_command(text):
            name = ""
        elif name and (match := _PAIR.match(text)):
            yield from _setting(name, kind, largest, match[1], match[2], number)


def _setting(name: str, kind: str, largest: bool, key: str, value: str, number: int) -> Iterator[Row]:
    word = value.split()[0] if value else ""
    if kind == "Settings" and key in ("Speed", "Link detected"):
        if key == "Speed" and (speed := late(r"([0-9]{1,9})Mb/s").match(value)):
            yield Row("netdev", {"netdev": name, "speed_mbps": int(speed[1])}, number)
        elif word in ("yes", "no"):
            yield Row("netdev", {"netdev": name, "carrier": int(word == "yes")}, number)
        return
    column = _text_column(kind, largest, key)
    found: int | str | None = None
    if column in ("fec", "fec_configured"):
        found = ", ".join(value.split()) or None
    elif column:
        found = _SWITCHES.get(word, whole(word))
    if column and found is not None:
        yield Row("netdev_setting", {"netdev": name, column: found}, number)
    elif kind == "FEC" and whole(word) is not None and late(r"[a-z_0-9]+").fullmatch(key):
        yield Row("counter", _counter(name, "fec", key, word), number)
    elif kind == "Pause" and key in ("tx_pause_frames", "rx_pause_frames"):
        yield Row("counter", _counter(name, "pause", key, word), number)


def _counter(name: str, kind: str, key: str, value: str) -> Values:
    return {"netdev": name, "kind": kind, "counter": key, "value": whole(value), "state": "one sample"}


def _text_column(kind: str, largest: bool, key: str) -> str | None:
    if kind == "Ring" and key in ("RX", "TX"):
        return f"{key.lower()}_ring" + ("_max" if largest else "")
    if kind == "Channel" and key == "Combined":
        return "channels_max" if largest else "channels"
    if kind == "Pause":
        return {"Autonegotiate": "pause_autoneg", "RX": "pause_rx", "TX": "pause_tx"}.get(key)
    if kind == "Coalesce" and key == "Adaptive RX":
        return "adaptive_rx"
    return _TEXT_COLUMNS.get(key) if kind in ("Settings", "Features", "Coalesce", "FEC") else None


def parse_driver(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ethtool -i NETDEV`, which names its netdev in the prompt line only."""
    name: str | None = None
    values: Values = {}
    for number, text in lines:
        if prompt_command(text):
            match = _COMMAND.search(text)
            name, values = match[2] if match and match[1] in ("-i", "--driver") else None, {}
        elif match := late(r"\s*(driver|bus-info|firmware-version): (\S.*)").match(text):
            values[{"driver": "driver", "bus-info": "bdf", "firmware-version": "fw_ver"}[match[1]]] = match[2].strip()
        if {"driver", "bdf"} <= set(values):
            known = values if _BDF.match(values["bdf"]) else {**values, "bdf": None}
            yield Row("netdev", {key: value for key, value in {"netdev": name, **known}.items() if value}, number)
            name, values = None, {}


_MODULE_COLUMNS = {
    "Identifier": "identifier",
    "Vendor name": "vendor",
    "Vendor PN": "part",
    "Module temperature": "temperature_c",
    "Module voltage": "voltage_v",
}
_LANE = late(r"(.*?)\s*\((?:Channel|Chan|Lane|lane)\s+([0-9]{1,2})\)$")
_LIGHT = {
    "Laser bias current": "bias_ma",
    "Laser tx bias current": "bias_ma",
    "Laser output power": "tx_power_dbm",
    "Transmit avg optical power": "tx_power_dbm",
    "Receiver signal average optical power": "rx_power_dbm",
    "Rcvr signal avg optical power": "rx_power_dbm",
}
_FLAG = late(
    r"(.* (?:high|low) (?:alarm|warning)|(?:Rx|Tx) (?:loss of signal|loss of lock|fault)|(?:RX|TX) (?:LOS|fault).*)$"
)


def parse_module(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ethtool -m NETDEV`, which names its netdev in the prompt line only; one module a section."""
    name: str | None = None
    module: Values = {}
    lanes: dict[int, Values] = {}
    flags: list[str] = []
    first = 0
    for number, text in lines:
        if prompt_command(text):
            yield from _module_rows(name, module, lanes, flags, first)
            match = _COMMAND.search(text)
            name = match[2] if match and match[1] in ("-m", "--module-info") else None
            module, lanes, flags = {}, {}, []
        elif match := late(r"\s*(\S.*?)\s+: (.*?)\s*$").match(text):
            first = number if not module else first
            _module_line(match[1], match[2], module, lanes, flags)
    yield from _module_rows(name, module, lanes, flags, first)


def _module_line(key: str, value: str, module: Values, lanes: dict[int, Values], flags: list[str]) -> None:
    match = _LANE.match(key)
    what, lane = (match[1], int(match[2])) if match else (key, 1)
    if key in _MODULE_COLUMNS:
        module[_MODULE_COLUMNS[key]] = _number(value) if key.startswith("Module") else _identifier(value)
    elif what in _LIGHT:
        found = late(r"(-?[0-9.]+|-inf) dBm").search(value)
        power = (-40.0 if found[1] == "-inf" else _number(found[1])) if found else None
        lanes.setdefault(lane, {})[_LIGHT[what]] = power if "dbm" in _LIGHT[what] else _number(value)
    elif _FLAG.match(what):
        module.setdefault("flags", True)
        if value == "On":
            flags.append(key if not match else f"{what} (lane {lane})")
        elif value.startswith("["):  # one a lane: [ Yes, No, No, No ]
            words = value.strip("[] ").split(",")
            flags += [f"{what} (lane {place})" for place, word in enumerate(words, 1) if word.strip() in ("Yes", "On")]


def _number(value: str) -> float | None:
    match = late(r"-?[0-9]{1,9}(?:\.[0-9]{1,9})?").match(value)
    return float(match[0]) if match else None


def _identifier(value: str) -> str:
    # "0x11 (QSFP28)": the words in brackets.
    match = late(r"0x[0-9a-f]+ \((.*)\)").fullmatch(value)
    return match[1] if match else value


def _module_rows(
    name: str | None, module: Values, lanes: dict[int, Values], flags: list[str], number: int
) -> Iterator[Row]:
    if "identifier" not in module:
        return
    values = {key: value for key, value in module.items() if key != "flags"}
    if "flags" in module:
        warnings = [flag for flag in flags if flag.partition(" (")[0].endswith("warning")]
        values |= {"alarms": ", ".join(f for f in flags if f not in warnings), "warnings": ", ".join(warnings)}
    yield Row("optics", {"netdev": name, "lane": 0, **values}, number)
    for lane, light in lanes.items():
        yield Row("optics", {"netdev": name, "lane": lane, **light}, number)


TEXTS: tuple[Text | Json, ...] = (
    Text(
        "ethtool",
        (
            r"^Settings for \S+:",
            r"^(Ring|Channel|Coalesce|Pause|FEC) parameters for \S+:",
            r"^Features for \S+:",
        ),
        parse_settings,
        ("ethtool",),
    ),
    Text("ethtool -i", (r"^expansion-rom-version:", r"^bus-info: "), parse_driver),
    Text("ethtool -m", (r"^\s+Identifier +: 0x[0-9a-f]+ \(", r"^\s+Vendor PN +: "), parse_module),
    Json("ethtool -m", KEYS, parse_module_json, names=NAMES),
    Json("ethtool -a", (("ifname", "autonegotiate", "rx"),), parse_pause, ("ethtool",)),
    Json("ethtool --show-fec", (("ifname", "active", "config"),), parse_fec),
    Json("ethtool -k", (("ifname", "rx-checksumming"), ("ifname", "generic-receive-offload")), parse_features),
    Json("ethtool -c", (("ifname", "adaptive-rx"), ("ifname", "rx-usecs")), parse_coalesce),
    Json("ethtool -l", (("ifname", "combined-max"), ("ifname", "other-max")), _channels),
    Json("ethtool -g", (("ifname", "rx-max", "tx-max"), ("ifname", "rx-max", "rx-mini-max")), parse_rings),
)
