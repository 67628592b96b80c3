"""PCI functions as lspci prints them: plain, -n, -nn, -k, -v to -vvv, and the trees of -t and -tv."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.patterns import late
from rdmadiag.sources._pci_ids import (
    AMD,
    CHELSIO,
    CORNELIS,
    HABANA,
    HUAWEI,
    INTEL,
    MELLANOX,
    NVIDIA,
    family,
    gigatransfers,
    role_of,
)

TABLES = ("pci",)
Values = dict[str, Any]

LINE_CHARACTERS = 1000
"""A longer line is not lspci's."""

_CLASSES = {
    "Ethernet controller": 0x0200,
    "Infiniband controller": 0x0207,
    "InfiniBand controller": 0x0207,
    "Fabric controller": 0x0208,
    "Network controller": 0x0280,
    "VGA compatible controller": 0x0300,
    "3D controller": 0x0302,
    "Display controller": 0x0380,
    "Processing accelerators": 0x1200,
    "Non-Volatile memory controller": 0x0108,
    "PCI bridge": 0x0604,
}
_VENDORS = (
    ("Mellanox Technologies", MELLANOX),
    ("NVIDIA Corporation", NVIDIA),
    ("Advanced Micro Devices, Inc. [AMD/ATI]", AMD),
    ("Intel Corporation", INTEL),
    ("Broadcom", 0x14E4),
    ("Amazon.com, Inc.", 0x1D0F),
    ("Huawei Technologies", HUAWEI),
    ("Habana Labs", HABANA),
    ("Alibaba (China)", 0x1DED),
    ("Chelsio Communications", CHELSIO),
    ("QLogic Corp.", 0x1077),
    ("Cornelis Networks", CORNELIS),
)
_RDMA_NAMES = late(
    r"ConnectX|Connect-IB|BlueField.*network|BCM57(?:41[2-7]|45[24]|5\d\d|6\d\d)|BCM5750X NetXtreme-E RDMA|\bE8[13]0-|"
    r"X722 for (?:10GbE|10GBASE)|Omni-Path HFI|Elastic Fabric Adapter|HNS .*RDMA|DSC Ethernet|Elastic RDMA|"
    r"Unified Wire Ethernet Controller(?! \[VF)|FastLinQ QL4\d+ Series [\d/]+GbE Controller(?! \()"
)
_HEAD = late(
    r"(?P<bdf>(?:[0-9a-f]{4,5}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
    r"(?:(?P<code>[0-9a-f]{4}): (?P<pair>[0-9a-f]{4}:[0-9a-f]{4})|"
    r"(?P<class>[A-Z0-9][\w .-]+?)(?: \[(?P<class_id>[0-9a-f]{4})\])?: (?P<name>.+?)"
    r"(?: \[(?P<ids>[0-9a-f]{4}:[0-9a-f]{4})\])?)"
    r"(?: \(rev (?P<revision>[0-9a-f]{2})\))?(?: \(prog-if .*\))?\s*$"
)
_SLOW = r" \(downgraded\)"
_LINK = rf"Speed (?P<speed>[\d.]{{1,8}})GT/s(?P<slow>{_SLOW})?[^,]*, Width x(?P<width>\d{{1,2}})(?P<narrow>{_SLOW})?"
_LINK_CAP = late(r"\bLnkCap:\s.*?" + _LINK)
_LINK_STA = late(r"\bLnkSta:\s.*?" + _LINK)
_SIZES = late(r"\bMaxPayload (\d{1,5}) bytes, MaxReadReq (\d{1,5}) bytes")
_SUPPORTED = late(r"\bDevCap:\s+MaxPayload (\d{1,5}) bytes")
_RELAXED = late(r"\bRlxdOrd([+-])")
_VFS = late(r"\bTotal VFs: (\d{1,5}), Number of VFs: (\d{1,5})")
_ACS_CTL = late(r"\bACSCtl:\s*((?:\w+[+-] ?)+)")
_REGION = late(r"\bRegion \d: Memory at .*\[size=(\d{1,9})([KMGT]?)\]")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_ONE_VALUE = late(r"^\s+(?P<key>Kernel driver in use|NUMA node|IOMMU group|Kernel modules): (?P<value>\S+)")
_FIRST = ("00:00.0", "0000:00:00.0")  # a root complex, printed unless something was selected
_COLUMNS = {"Kernel driver in use": "driver", "NUMA node": "numa_node", "IOMMU group": "iommu_group"}


def parse_lspci(lines: Sequence[Line]) -> Iterator[Row | Gap]:
    """Parse `lspci`, with any of -n, -nn, -k, -v, -t; excerpts without an address become rows without one."""
    trees, lines = parse_trees(lines)
    yield from trees
    if trees and not any(line.text.strip() for line in lines if prompt_command(line.text) is None):
        reason = "a tree of PCI functions says nothing of their links, drivers and settings"
        yield Gap(TABLES, reason, "not_given", "sudo lspci -vvv", "lspci -t")
        return
    device = _Device()
    denied, whole = 0, False
    for number, text in lines:
        if len(text) > LINE_CHARACTERS:
            continue
        if head := _HEAD.match(text):
            yield from device.rows()
            whole = whole or head["bdf"] in _FIRST
            device = _Device(number, _head_values(head))
        elif prompt_command(text) is not None:
            yield from device.rows()
            device = _Device()
        elif "Capabilities: <access denied>" in text:
            denied = denied or number
        else:
            values = _line_values(text)
            if not device.values.get("bdf") and values.keys() & device.values.keys():
                yield from device.rows()  # the next device of an excerpt that names none
                device = _Device()
            device.add(number, values)
    yield from device.rows()
    if not whole:
        yield Gap(TABLES, "only some of the PCI functions were given", "not_given", "sudo lspci -vvv", "lspci")
    if denied:
        yield Gap(
            TABLES, "lspci was not run as root and shows no capabilities", "not_permitted", "sudo lspci -vvv", "lspci"
        )


_DEVICE_CONTROL = frozenset(("max_payload_bytes", "max_payload_supported_bytes", "relaxed_ordering"))


class _Device:
    """The device of which lines are being read."""

    def __init__(self, number: int = 0, values: Values | None = None) -> None:
        self.number, self.values, self.modules = number, values or {}, False

    def add(self, number: int, values: Values) -> None:
        if values.keys() & _DEVICE_CONTROL and "irtual" in self.values.get("name", ""):
            return
        if "bar1_bytes" in values:
            values = self._region(values)
        if values.pop("modules", False):
            self.modules = True
        if "current_speed_gts" in values or (values and not self.number):
            self.number = number
        self.values.update(values)

    def _region(self, values: Values) -> Values:
        if self.values.get("role") != "gpu":
            return {}
        return {"bar1_bytes": max(values["bar1_bytes"], self.values.get("bar1_bytes", 0))}

    def rows(self) -> Iterator[Row]:
        if self.modules:
            self.values.setdefault("driver", "")
        if self.values:
            yield Row("pci", {name: value for name, value in self.values.items() if value is not None}, self.number)


def _head_values(head: re.Match[str]) -> Values:
    bdf, name, words = head["bdf"], head["name"], head["class"]
    vendor, device = (int(part, 16) for part in (head["pair"] or head["ids"] or "0:0").split(":"))
    short = int(head["code"] or head["class_id"] or "0", 16) or _CLASSES.get(words or "", 0)
    named = next((number for word, number in _VENDORS if name and name.startswith(word)), 0)
    return {
        "bdf": bdf if bdf.count(":") == 2 else f"0000:{bdf}",
        "vendor_id": vendor or named or None,
        "device_id": device or None,
        "class": short << 8 or None,
        "name": name or family(vendor, device),
        "role": _named_role(name, vendor or named, device, short << 8),
        "revision": head["revision"],
    }


def _named_role(name: str | None, vendor: int, device: int, code: int) -> str | None:
    if not code:
        return None
    role = role_of(vendor, device, code)
    return "rdma" if role == "net" and not device and _RDMA_NAMES.search(name or "") else role


def _line_values(text: str) -> Values:
    if match := _LINK_CAP.search(text):
        return {"max_speed_gts": _speed(match), "max_width": int(match["width"])}
    if match := _LINK_STA.search(text):
        slower = int(bool(match["slow"] or match["narrow"]))
        return {
            "current_speed_gts": _speed(match),
            "current_width": int(match["width"]) or None,
            "downgraded": slower or None,
        }
    if match := _SIZES.search(text):
        return {"max_payload_bytes": int(match[1]), "max_read_request_bytes": int(match[2])}
    if match := _SUPPORTED.search(text):
        return {"max_payload_supported_bytes": int(match[1])}
    if match := _RELAXED.search(text):
        return {"relaxed_ordering": int(match[1] == "+")}
    if match := _VFS.search(text):
        return {"max_vfs": int(match[1]), "vfs": int(match[2])}
    if match := _ACS_CTL.search(text):
        return {"acs": ",".join(word[:-1] for word in match[1].split() if word.endswith("+"))}
    if match := _REGION.search(text):
        return {"bar1_bytes": int(match[1]) * _UNITS[match[2]]}
    if match := _ONE_VALUE.match(text):
        return _one_value(match["key"], match["value"])
    return {"revision": "ff"} if "!!! Unknown header type 7f" in text else {}


def _speed(match: re.Match[str]) -> float | None:
    return gigatransfers(match["speed"] + "GT/s")


def _one_value(key: str, value: str) -> Values:
    if key == "Kernel modules":
        return {"modules": True}
    if key == "Kernel driver in use":
        return {"driver": value}
    return {_COLUMNS[key]: int(value)} if late(r"\d{1,9}").fullmatch(value) else {}


# --- lspci -t: buses and the functions on them, drawn with lines ---

_TREE_LINE = late(r"[ |]*(?:-?[+\\]-|-)(?:\[[0-9a-f]{4,5}:[0-9a-f]{2}\]|[0-9a-f]{2}\.[0-7](?:[-\s]|$))")
_TREE_PART = late(
    r"\[(?:(?P<domain>[0-9a-f]{4,5}):)?(?P<bus>[0-9a-f]{2})(?:-[0-9a-f]{2})?\]|"
    r"(?P<branch>[-+\\])-(?P<function>[0-9a-f]{2}\.[0-7])(?:  (?P<name>.*)|(?=-|\s*$))"
)
_GPU_NAME = late(r"NVIDIA Corporation G[A-Z]?[BHAPV]?\d{2,3}\w* \[|NVIDIA Corporation (?:TU|AD)\d{3}\w* \[")


class _Bus(NamedTuple):
    """A bus of a tree: its address, and the bridge that leads to it."""

    address: str
    bridge: str | None


def parse_trees(lines: Sequence[Line]) -> tuple[list[Row], list[Line]]:
    """Parse the trees of `lspci -t` and `lspci -tv`: bridges, and functions that their name tells. Returns rows and the other lines."""
    rows: list[Row] = []
    rest: list[Line] = []
    branches: dict[int, _Bus] = {}
    for line in lines:
        if len(line.text) <= LINE_CHARACTERS and _TREE_LINE.match(line.text):
            rows += _tree_line(line, branches)
        else:
            rest.append(line)
    return rows, rest


def _tree_line(line: Line, branches: dict[int, _Bus]) -> Iterator[Row]:
    # A function hangs on the bus drawn before it on its line, else on the one whose branch begins in the same column.
    bus: _Bus | None = None
    function: tuple[str, _Bus] | None = None
    for part in _TREE_PART.finditer(line.text):
        if part["bus"]:
            domain = part["domain"] or (function[0] if function else "0000").partition(":")[0]
            bus = _Bus(f"{domain}:{part['bus']}", function[0] if function else None)
            if function and not part["domain"]:
                yield _tree_row(*function, "bridge", "", line.number)
            continue
        bus = bus or branches.get(part.start("branch"))
        if bus is None:
            return  # the lines above it were left out
        branches[part.start("branch")] = bus
        function = (f"{bus.address}:{part['function']}", bus)
        name = (part["name"] or "").strip()
        if role := _tree_role(name):
            yield _tree_row(*function, role, name, line.number)
        bus = None


def _tree_row(bdf: str, bus: _Bus, role: str, name: str, number: int) -> Row:
    values = {"bdf": bdf, "name": name, "role": role, "parent_bdf": bus.bridge}
    return Row("pci", {key: value for key, value in values.items() if value}, number)


def _tree_role(name: str) -> str | None:
    # A tree shows no class codes.
    if _GPU_NAME.search(name) and "Audio" not in name:
        return "gpu"
    return "rdma" if _RDMA_NAMES.search(name) else None


TEXTS = (
    Text(
        "lspci",
        (
            r"^[ |]*-?([+\\]-)?\[[0-9a-f]{4,5}:[0-9a-f]{2}\]-[-+]-",
            r"^([0-9a-f]{4,5}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [A-Z0-9][\w .-]+( \[[0-9a-f]{4}\])?: \S",
            r"^([0-9a-f]{4,5}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [0-9a-f]{4}: [0-9a-f]{4}:[0-9a-f]{4}",
            r"\bLnk(Cap|Sta):\s.*Speed [\d.]+GT/s",
            r"\bACSCtl:\s*SrcValid",
            r"\bMaxPayload \d+ bytes, MaxReadReq \d+ bytes",
        ),
        parse_lspci,
        ("lspci",),
    ),
)
