"""Network devices' settings over the generic netlink family "ethtool", as `ethtool --json` prints them, and `ethtool -S`
and `-i` by ioctl, which have no netlink form.

Numbers: uapi/linux/ethtool_netlink.h, ethtool.h (SIOCETHTOOL), genetlink.h; keys: ethtool 6.15. Every command is asked
for all netdevs of the namespace at once; one that knows no such setting is left out by the kernel.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable, Mapping
from struct import Struct, calcsize, pack_into, unpack_from
from typing import Any, NamedTuple

from rdmadiag.errors import BadInput
from rdmadiag.netlink.wire import (
    FIRST_REAL_TYPE,
    Fields,
    NetlinkError,
    Object,
    Reader,
    attribute,
    attributes,
    entries,
    exchange,
    flag,
    malformed,
    messages,
    span,
    text,
    uint,
)

GENERIC, CONTROL, GET_FAMILY = 16, 16, 3  # NETLINK_GENERIC, GENL_ID_CTRL, CTRL_CMD_GETFAMILY
COMPACT, STATISTICS = 0x1, 0x4  # ETHTOOL_FLAG_COMPACT_BITSETS, _STATS
_generic_header = Struct("=BBH")

# --- readers of one attribute ---


def _name(data: bytes, start: int, stop: int) -> str:
    header: str = attributes(data, start, stop, {2: ("name", text)}, {}).get("name", "")
    return header


# Link mode bits of FEC (ethtool_link_mode_bit_indices), with the words of `ethtool --show-fec`.
_FEC = {49: "Off", 50: "RS", 51: "BaseR", 74: "LLRS"}


def _bitset(data: bytes, start: int, stop: int) -> int:
    # A compact bitset is its bits as 32-bit words.
    found = attributes(data, start, stop, {4: ("value", span)}, {}).get("value", (0, 0))
    return int.from_bytes(data[found[0] : found[1]], "little")


def _fec_modes(data: bytes, start: int, stop: int) -> list[str]:
    bits = _bitset(data, start, stop)
    return [name for bit, name in _FEC.items() if bits >> bit & 1]


def _fec_mode(data: bytes, start: int, stop: int) -> list[str]:
    return [name] if (name := _FEC.get(uint(data, start, stop))) else []


def _total(data: bytes, start: int, stop: int) -> Object:
    # 64-bit counters: the whole port first, then one a lane, where the driver has lanes.
    values = [uint(data, place, place + 8) for place in range(start, stop - 7, 8)]
    found: Object = {"total": values[0]} if values else {}
    if len(values) > 1:
        found["lanes"] = values[1:]
    return found


def _fec_statistics(data: bytes, start: int, stop: int) -> Object:
    fields: Fields = {
        2: ("corrected_blocks", _total),
        3: ("uncorrectable_blocks", _total),
        4: ("corrected_bits", _total),
    }
    found = attributes(data, start, stop, fields, {})
    bins: Fields = {2: ("bin_low", uint), 3: ("bin_high", uint), 4: ("total", uint)}
    histogram = [attributes(data, *place, bins, {}) for place in entries(data, start, stop, 5)]
    return {**found, "hist": histogram} if histogram else found


def _pause_statistics(data: bytes, start: int, stop: int) -> Object:
    return attributes(data, start, stop, {2: ("tx_pause_frames", uint), 3: ("rx_pause_frames", uint)}, {})


def _numbers(names: str, first: int = 2, read: Reader = uint) -> dict[int, tuple[str, Reader]]:
    return {number: (name, read) for number, name in enumerate(names.split(), first) if name != "-"}


_DUPLEX = {0: "Half", 1: "Full"}


def _duplex(data: bytes, start: int, stop: int) -> str:
    return _DUPLEX.get(uint(data, start, stop), "Unknown!")


# The kernel's names of the features that are read, with those of `ethtool -k`.
_FEATURES = {
    "rx-checksum": "rx-checksumming",
    "rx-gro": "generic-receive-offload",
    "rx-gro-hw": "rx-gro-hw",
    "rx-lro": "large-receive-offload",
    "tx-tcp-segmentation": "tx-tcp-segmentation",
    "hw-tc-offload": "hw-tc-offload",
}


def _features(data: bytes, start: int, stop: int) -> list[str]:
    # Without a mask the bits that are listed are those that are on.
    first, last = attributes(data, start, stop, {3: ("bits", span)}, {}).get("bits", (0, 0))
    rows = (attributes(data, *place, {2: ("name", text)}, {}) for place in entries(data, first, last, 1))
    return [row["name"] for row in rows if row]


# --- the commands ---


class Question(NamedTuple):
    """One option of the ethtool tool: which message asks, and how to read the answer."""

    command: int  # ETHTOOL_MSG_*_GET; the reply has a number of its own, which is not looked at
    fields: Fields  # of one netdev
    flags: int = COMPACT
    finish: Callable[[Object], None] | None = None


def _flatten_fec(entry: Object) -> None:
    if entry.pop("auto", False):
        entry["config"] = ["Auto", *entry.get("config", [])]


def _nest_features(entry: Object) -> None:
    active = set(entry.pop("active", ()))
    entry.update({name: {"active": kernel_name in active} for kernel_name, name in _FEATURES.items()})


QUESTIONS: Mapping[str, Question] = {
    "-g": Question(15, _numbers("rx-max rx-mini-max rx-jumbo-max tx-max rx rx-mini rx-jumbo tx rx-buf-len")),
    "-l": Question(17, _numbers("rx-max tx-max other-max combined-max rx tx other combined")),
    "-c": Question(
        19,
        {
            **_numbers("rx-usecs rx-frames rx-usecs-irq rx-frames-irq tx-usecs tx-frames tx-usecs-irq tx-frames-irq"),
            **_numbers("adaptive-rx adaptive-tx", 11, flag),
        },
    ),
    "-a": Question(
        21,
        {**_numbers("autonegotiate rx tx", 2, flag), 5: ("statistics", _pause_statistics)},
        COMPACT | STATISTICS,
    ),
    "--show-fec": Question(
        29,
        {2: ("config", _fec_modes), 3: ("auto", flag), 4: ("active", _fec_mode), 5: ("statistics", _fec_statistics)},
        COMPACT | STATISTICS,
        _flatten_fec,
    ),
    "-k": Question(11, {4: ("active", _features)}, 0, _nest_features),
    "": Question(4, {2: ("auto-negotiation", flag), 5: ("speed", uint), 6: ("duplex", _duplex), 9: ("lanes", uint)}),
}


def _question(words: str) -> Question:
    if words not in QUESTIONS:
        raise BadInput(f"no ethtool option {words!r}; known: {', '.join([*QUESTIONS, '-S', '-i', '-m'])}")
    return QUESTIONS[words]


# --- asking ---


def family(name: str) -> int:
    """Return the number of a generic netlink family. Raises NetlinkError (EOPNOTSUPP) where the kernel has none such.

    Looking must not change the node: asking for one by name makes the kernel try to load it, so all are listed.
    """
    replies = exchange(GENERIC, CONTROL, _generic_header.pack(GET_FAMILY, 1, 0))
    fields: Fields = {1: ("id", uint), 2: ("name", text)}
    for kind, _flags, start, stop in messages(replies):
        if kind >= FIRST_REAL_TYPE:
            found = attributes(replies, start + _generic_header.size, stop, fields, {})
            if found.get("name") == name and "id" in found:
                number: int = found["id"]
                return number
    raise NetlinkError(errno.EOPNOTSUPP, f"netlink: this kernel has no generic family {name}")


def read_ethtool(words: str) -> bytes:
    """Dump what one option of ethtool shows, of every netdev; return the raw replies.

    Raises BadInput for an unknown option, and OSError: EOPNOTSUPP from a kernel without ethtool netlink.
    """
    question = _question(words)
    header = attribute(1 | 0x8000, attribute(3, question.flags.to_bytes(4, "little")))
    payload = _generic_header.pack(question.command, 1, 0) + header
    return exchange(GENERIC, family("ethtool"), payload)


def parse_ethtool(words: str, data: bytes) -> list[Object]:
    """Turn raw replies into the objects that `ethtool --json WORDS NETDEV` prints, one a netdev.

    A setting that the driver does not report is left out. Raises BadInput for an unknown option, NetlinkError (EBADMSG).
    """
    question = _question(words)
    found = []
    for kind, _flags, start, stop in messages(data):
        if kind < FIRST_REAL_TYPE:
            continue
        if stop - start < _generic_header.size:
            raise malformed("truncated generic header", start)
        entry = attributes(data, start + _generic_header.size, stop, {1: ("ifname", _name), **question.fields}, {})
        if question.finish:
            question.finish(entry)
        if entry.get("ifname"):
            found.append(entry)
    return found


# --- by ioctl ---

SIOCETHTOOL = 0x8946
_GDRVINFO, _GSTRINGS, _GSTATS, _GSSET_INFO = 0x03, 0x1B, 0x1D, 0x37
_STATISTICS_SET = 1  # ETH_SS_STATS
_NAME_BYTES, _MOST = 32, 1 << 16
_PER_QUEUE = re.compile(r"(?:ch|rx|tx|rxq|txq|q)_?(?:queue_)?[0-9]+[_.:]|\[[0-9]+\]|.*_(?:queue|ring|ch)_?[0-9]+_")

Ask = Callable[[str, bytearray], None]


def ask(name: str, buffer: bytearray) -> None:
    """Send one SIOCETHTOOL request about a netdev; the kernel's answer is written into `buffer`. Raises OSError."""
    import ctypes
    import fcntl

    place = ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))
    request = bytearray(40)  # struct ifreq
    pack_into("=16sQ", request, 0, name.encode()[:15], place)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        fcntl.ioctl(channel, SIOCETHTOOL, request)


def statistics(name: str, ask: Ask = ask) -> dict[str, int]:
    """Return what `ethtool -S` prints of a netdev, without counters of single queues. Raises OSError with the errno."""
    head = bytearray(calcsize("=IIQI"))
    pack_into("=IIQ", head, 0, _GSSET_INFO, 0, 1 << _STATISTICS_SET)
    ask(name, head)
    _command, _reserved, mask, count = unpack_from("=IIQI", head)
    if not mask or not 0 < count <= _MOST:
        return {}
    strings = bytearray(12 + count * _NAME_BYTES)
    pack_into("=III", strings, 0, _GSTRINGS, _STATISTICS_SET, count)
    ask(name, strings)
    values = bytearray(8 + count * 8)
    pack_into("=II", values, 0, _GSTATS, count)
    ask(name, values)
    found: dict[str, int] = {}
    for number in range(min(count, unpack_from("=I", strings, 8)[0], unpack_from("=I", values, 4)[0])):
        place = 12 + number * _NAME_BYTES
        key = text(bytes(strings[place : place + _NAME_BYTES]), 0, _NAME_BYTES).strip()
        if key and not _PER_QUEUE.match(key):
            found[key] = unpack_from("=Q", values, 8 + number * 8)[0]
    return found


def driver_information(name: str, ask: Ask = ask) -> dict[str, str]:
    """Return driver, version, firmware-version and bus-info of a netdev, as `ethtool -i` names them. Raises OSError."""
    buffer = bytearray(196)  # struct ethtool_drvinfo
    pack_into("=I", buffer, 0, _GDRVINFO)
    ask(name, buffer)
    data = bytes(buffer)
    keys = ("driver", "version", "firmware-version", "bus-info")
    return {key: text(data, 4 + 32 * place, 36 + 32 * place) for place, key in enumerate(keys)}


def _each(names: list[str], read: Callable[[str], Mapping[str, Any]]) -> list[Object]:
    found = []
    for name in names:
        try:
            found.append({"ifname": name, **read(name)})
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL, errno.EIO):
                raise
    return [entry for entry in found if len(entry) > 1]


def ethtool(words: str) -> list[Object]:
    """Return what `ethtool --json OPTION` prints, of every netdev; `-S NETDEV ...` and `-i NETDEV ...` of those named.

    Raises as `read_ethtool` and `parse_ethtool` do.
    """
    option, *names = words.split() or [""]
    if option == "-S":
        return _each(names, statistics)
    if option == "-i":
        return _each(names, driver_information)
    if option == "-m":
        from rdmadiag.netlink import module

        return _each(names, module.module)
    return parse_ethtool(option, read_ethtool(option))
