"""What the plugged module of a network device says of itself: vendor, temperature, light and its alarms.

The pages come from the kernel (ETHTOOL_MSG_MODULE_EEPROM_GET, CAP_NET_ADMIN), which asks the module; nothing is written to
it. Flags of CMIS and SFF-8636 are latched: they say what was since the last read, and reading clears them.
Layouts: SFF-8636 2.10a (QSFP28 and before), CMIS 5.2 (QSFP-DD, OSFP), SFF-8472 12.4 (SFP).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from struct import unpack_from

from rdmadiag.netlink.ethnl import GENERIC, family
from rdmadiag.netlink.wire import FIRST_REAL_TYPE, Object, attribute, attributes, exchange, messages, span

MODULE_EEPROM_GET, _UPPER, _PAGE_BYTES = 31, 128, 128
_SFP = {0x03: "SFP"}
_SFF8636 = {0x0C: "QSFP", 0x0D: "QSFP+", 0x11: "QSFP28"}
_CMIS = {0x18: "QSFP-DD", 0x19: "OSFP", 0x1A: "SFP-DD", 0x1B: "DSFP", 0x1E: "QSFP+ with CMIS", 0x1F: "SFP-DD with CMIS"}
_SECOND_ADDRESS = 0x51  # where an SFP has its diagnostics

Page = Callable[[int, int, int], bytes]
"""page, offset, I2C address -> 128 bytes (fewer where the module has no more)."""


def read_page(name: str, page: int, offset: int, address: int) -> bytes:
    """Read 128 bytes of a module's memory. Raises OSError: EOPNOTSUPP, EPERM, EIO and EINVAL where no module is."""
    header = attribute(1 | 0x8000, attribute(2, name.encode() + b"\0"))
    numbers = b"".join(
        attribute(number, value.to_bytes(4, "little")) for number, value in ((2, offset), (3, _PAGE_BYTES))
    )
    places = b"".join(attribute(number, bytes([value])) for number, value in ((4, page), (5, 0), (6, address)))
    payload = bytes([MODULE_EEPROM_GET, 1, 0, 0]) + header + numbers + places
    replies = exchange(GENERIC, family("ethtool"), payload, dump=False)
    for kind, _flags, start, stop in messages(replies):
        if kind >= FIRST_REAL_TYPE:
            first, last = attributes(replies, start + 4, stop, {7: ("data", span)}, {}).get("data", (0, 0))
            return replies[first:last]
    return b""


def module(name: str, page: Page | None = None) -> Object:
    """Return identifier, vendor, part, temperature_c, voltage_v, alarms, warnings and lanes of a netdev's module.

    `lanes`: objects with lane (from 1), rx_power_dbm, tx_power_dbm, bias_ma. What the module does not measure is left out;
    copper cables measure nothing. Raises OSError as `read_page`; returns nothing for a kind of module that is not known.
    """
    read = page or (lambda number, offset, address: read_page(name, number, offset, address))
    low = read(0, 0, 0x50)
    kind = low[0] if low else None
    if kind in _SFF8636 and len(low) >= _PAGE_BYTES:
        return {"identifier": _SFF8636[kind], **_sff8636(low, read(0, _UPPER, 0x50))}
    if kind in _CMIS and len(low) >= _PAGE_BYTES:
        return {"identifier": _CMIS[kind], **_cmis(low, read)}
    if kind in _SFP and len(low) >= _PAGE_BYTES:
        return {"identifier": _SFP[kind], **_sff8472(low, read)}
    return {}


def _words(data: bytes, first: int, last: int) -> str:
    return data[first:last].decode("ascii", "replace").strip(" \0")


def _dbm(tenth_microwatts: int) -> float:
    # ethtool prints no light at all as -40 dBm.
    return round(10 * math.log10(tenth_microwatts / 10_000), 2) if tenth_microwatts else -40.0


def _kelvin_free(data: bytes, place: int) -> float:
    value: int = unpack_from(">h", data, place)[0]
    return round(value / 256, 2)


def _volts(data: bytes, place: int) -> float:
    value: int = unpack_from(">H", data, place)[0]
    return round(value / 10_000, 3)


def _powers(data: bytes, place: int, lanes: int) -> tuple[int, ...]:
    return unpack_from(f">{lanes}H", data, place)


_LEVELS = ("high alarm", "low alarm", "high warning", "low warning")


def _split(flags: Iterator[str]) -> Object:
    found = list(flags)
    return {
        "alarms": [flag for flag in found if not flag.partition(" (")[0].endswith("warning")],
        "warnings": [flag for flag in found if flag.partition(" (")[0].endswith("warning")],
    }


def _four_bits(what: str, bits: int, lane: int | None = None) -> Iterator[str]:
    # Four flags from the highest bit on: high alarm, low alarm, high warning, low warning.
    for place, level in enumerate(_LEVELS):
        if bits >> (3 - place) & 1:
            yield f"{what} {level}" + (f" (lane {lane})" if lane else "")


def _each_lane(what: str, bits: int, lanes: int) -> Iterator[str]:
    return (f"{what} (lane {lane + 1})" for lane in range(lanes) if bits >> lane & 1)


def _sff8636_flags(low: bytes) -> Iterator[str]:
    yield from _each_lane("Rx loss of signal", low[3] & 0xF, 4)
    yield from _each_lane("Tx fault", low[4] & 0xF, 4)
    yield from _each_lane("Rx loss of lock", low[5] & 0xF, 4)
    yield from _four_bits("Module temperature", low[6] >> 4)
    yield from _four_bits("Module voltage", low[7] >> 4)
    for what, place in (("Laser rx power", 9), ("Laser bias current", 11), ("Laser tx power", 13)):
        for lane in range(4):
            bits = low[place + lane // 2] >> (4 if lane % 2 == 0 else 0) & 0xF
            yield from _four_bits(what, bits, lane + 1)


def _sff8636(low: bytes, upper: bytes) -> Object:
    found: Object = {"vendor": _words(upper, 20, 36), "part": _words(upper, 40, 56)}
    if len(upper) > 19 and upper[19] >> 4 >= 0xA:  # copper
        return {**found, "alarms": [], "warnings": []}
    receive, bias, send = (_powers(low, place, 4) for place in (34, 42, 50))
    return {
        **found,
        "temperature_c": _kelvin_free(low, 22),
        "voltage_v": _volts(low, 26),
        **_split(_sff8636_flags(low)),
        "lanes": [
            {
                "lane": lane + 1,
                "rx_power_dbm": _dbm(receive[lane]),
                "tx_power_dbm": _dbm(send[lane]),
                "bias_ma": round(bias[lane] * 0.002, 3),
            }
            for lane in range(4)
        ],
    }


_CMIS_MODULE_FLAGS = [f"{what} {level}" for what in ("Module temperature", "Module voltage") for level in _LEVELS]
_CMIS_LANE_FLAGS = (  # bytes of page 11h from 135 on; None: not read
    *("Tx fault", "Tx loss of signal", "Tx loss of lock", None),
    *(f"Laser tx power {level}" for level in _LEVELS),
    *(f"Laser bias current {level}" for level in _LEVELS),
    *("Rx loss of signal", "Rx loss of lock"),
    *(f"Laser rx power {level}" for level in _LEVELS),
)


def _cmis(low: bytes, read: Page) -> Object:
    upper = read(0, _UPPER, 0x50)
    found: Object = {"vendor": _words(upper, 1, 17), "part": _words(upper, 20, 36)}
    flat = low[2] >> 7 or (len(upper) > 84 and upper[84] >= 0x0A)  # 212: media interface technology; copper
    if flat:
        return {**found, "alarms": [], "warnings": []}
    lanes = read(0x11, _UPPER, 0x50)
    found |= {"temperature_c": _kelvin_free(low, 14), "voltage_v": _volts(low, 16)}
    flags = [name for bit, name in enumerate(_CMIS_MODULE_FLAGS) if low[9] >> bit & 1]
    if len(lanes) < _PAGE_BYTES:
        return {**found, **_split(iter(flags))}
    for place, what in enumerate(_CMIS_LANE_FLAGS, 7):
        if what:
            flags += _each_lane(what, lanes[place], 8)
    send, bias, receive = (_powers(lanes, place, 8) for place in (26, 42, 58))
    advertised = read(0x01, _UPPER, 0x50)
    scale = 0.002 * (1 << min(advertised[32] >> 3 & 3, 2)) if len(advertised) > 32 else None
    found |= _split(iter(flags))
    found["lanes"] = [
        {
            "lane": lane + 1,
            "rx_power_dbm": _dbm(receive[lane]),
            "tx_power_dbm": _dbm(send[lane]),
            **({"bias_ma": round(bias[lane] * scale, 3)} if scale else {}),
        }
        for lane in range(8)
        if receive[lane] or send[lane] or bias[lane]  # a module with four lanes has zeroes in the others
    ]
    return found


_SFP_FLAGS = ("Module temperature", "Module voltage", "Laser bias current", "Laser tx power", "Laser rx power")


def _sff8472(low: bytes, read: Page) -> Object:
    found: Object = {"vendor": _words(low, 20, 36), "part": _words(low, 40, 56), "alarms": [], "warnings": []}
    if not low[92] & 0x40 or not low[92] & 0x20:  # no diagnostics, or values that need the module's own calibration
        return found
    page = read(0, 0, _SECOND_ADDRESS)
    if len(page) < 118:
        return found
    bias, send, receive = _powers(page, 100, 3)
    flags = []
    for level, place in (("alarm", 112), ("warning", 116)):
        bits: int = unpack_from(">H", page, place)[0]
        for number, what in enumerate(_SFP_FLAGS):
            flags += [
                f"{what} {end} {level}" for end, bit in (("high", 15), ("low", 14)) if bits >> (bit - 2 * number) & 1
            ]
    return {
        **found,
        "temperature_c": _kelvin_free(page, 96),
        "voltage_v": _volts(page, 98),
        **_split(iter(flags)),
        "lanes": [
            {
                "lane": 1,
                "rx_power_dbm": _dbm(receive),
                "tx_power_dbm": _dbm(send),
                "bias_ma": round(bias * 0.002, 3),
            }
        ],
    }
