"""`ethtool --json -m NETDEV` (ethtool 6.14 and later): one object a module, powers in mW; it does not name its netdev."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rdmadiag.evidence.row import Row

KEYS = (("identifier", "identifier_description", "vendor_pn"), ("identifier", "identifier_description", "vendor_name"))
NAMES = r"\s(?:-m|--module-info|--dump-module-eeprom)\s+(\S+)"

Values = dict[str, Any]

_LIGHT = (
    ("bias_ma", ("laser_tx_bias_current", "laser_bias_current")),
    ("tx_power_dbm", ("transmit_avg_optical_power", "laser_output_power")),
    ("rx_power_dbm", ("rx_power", "receiver_signal_average_optical_power")),
)
_FLAGS = ("_alarm", "_warning", "_loss_of_signal", "_loss_of_lock", "_los", "_lol", "_fault", "_fault_flag")
LANES = 16


def parse_module_json(objects: list[dict[str, Any]]) -> Iterator[Row]:
    """Parse the objects; passes over what is not as expected; never raises. Flags of a lane are named as the text has them."""
    for entry in objects:
        name = entry.get("ifname")
        place = {"netdev": name if isinstance(name, str) else None}
        if "identifier_description" not in entry:
            continue
        yield Row("optics", {**place, "lane": 0, **_module(entry)}, 1)
        light: dict[int, Values] = {}
        for column, keys in _LIGHT:
            for lane, value in enumerate(next((found for key in keys if (found := _lanes(entry.get(key)))), []), 1):
                light.setdefault(lane, {})[column] = value if column == "bias_ma" else _dbm(value)
        for lane, values in light.items():
            yield Row("optics", {**place, "lane": lane, **values}, 1)


def _module(entry: Values) -> Values:
    values: Values = {}
    texts = (("identifier", "identifier_description"), ("vendor", "vendor_name"), ("part", "vendor_pn"))
    for column, key in texts:
        if isinstance(text := entry.get(key), str):
            values[column] = text.strip()
    for column, key in (("temperature_c", "module_temperature"), ("voltage_v", "module_voltage")):
        if (number := _number(entry.get(key))) is not None:  # before ethtool 6.19 its thresholds have the same key
            values[column] = number
    flags = {key: value for key, value in entry.items() if key.endswith(_FLAGS) and isinstance(value, (bool, list))}
    if flags:
        raised = [flag for key, value in flags.items() for flag in _raised(key, value)]
        warnings = [flag for flag in raised if flag.partition(" (")[0].endswith("warning")]
        values["alarms"] = ", ".join(flag for flag in raised if flag not in warnings)
        values["warnings"] = ", ".join(warnings)
    return values


def _raised(key: str, value: bool | list[Any]) -> Iterator[str]:
    name = key.replace("_", " ").capitalize()
    if value is True:
        yield name
    elif isinstance(value, list):
        for lane, told in enumerate(value[:LANES], 1):
            if told is True or told in ("Yes", "On"):
                yield f"{name} (lane {lane})"


def _lanes(value: Any) -> list[float]:
    # A number, a list of them, or an object with `value` or `values`.
    if isinstance(value, dict):
        value = value.get("values", value.get("value"))
    numbers = value[:LANES] if isinstance(value, list) else [value]
    return [number for found in numbers if (number := _number(found)) is not None]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value) if abs(value) < 1e6 else None


def _dbm(milliwatts: float) -> float:
    return round(10 * math.log10(milliwatts), 2) if milliwatts > 0.0001 else -40.0
