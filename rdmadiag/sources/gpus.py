"""GPUs without a GPU library: /proc/driver/nvidia, what amdgpu and kfd show in /sys, and the texts of nvidia-smi."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.host import Host, names_in, text_of
from rdmadiag.patterns import late
from rdmadiag.sources import pci
from rdmadiag.sources._pci_ids import AMD, NVIDIA, role_of

TABLES = ("gpu", "gpu_path", "module_parameter")
PROC = "/proc/driver/nvidia"
KFD = "/sys/class/kfd/kfd/topology/nodes"
LINE_CHARACTERS = 1000
MIB = 1 << 20
Values = dict[str, Any]


class Chip(NamedTuple):
    """NVIDIA chips by PCI device id, first to last, with their architecture and CUDA compute capability."""

    first: int
    last: int
    architecture: str
    capability: str


CHIPS = (
    Chip(0x1D80, 0x1DFF, "Volta", "7.0"),  # GV100: V100
    Chip(0x1E00, 0x1FFF, "Turing", "7.5"),  # TU10x: T4, RTX 20
    Chip(0x2080, 0x20FF, "Ampere", "8.0"),  # GA100: A100, A800, A30
    Chip(0x2300, 0x237F, "Hopper", "9.0"),  # GH100: H100, H200, H20, GH200
    Chip(0x2200, 0x25FF, "Ampere", "8.6"),  # GA10x: A40, A10, RTX 30
    Chip(0x2680, 0x28FF, "Ada Lovelace", "8.9"),  # AD10x: L40, L4, RTX 40
    Chip(0x2900, 0x297F, "Blackwell", "10.0"),  # GB100: B200, GB200
    Chip(0x3180, 0x31FF, "Blackwell", "10.3"),  # GB110: B300, GB300
    Chip(0x2B80, 0x2BFF, "Blackwell", "12.0"),  # GB202: RTX PRO 6000, RTX 5090
)
"""Ranges of the PCI ID repository; the first that fits counts."""


def chip(device: int) -> Chip | None:
    """Return the NVIDIA chip of a PCI device id, where it is known."""
    return next((one for one in CHIPS if one.first <= device <= one.last), None)


# --- reading a node ---


def read(host: Host) -> Iterable[Row | Gap]:
    """Read the GPUs on the PCI bus that a driver drives, with what that driver shows of itself."""
    gpus = list(_on_bus(host))
    version = text_of(host, f"{PROC}/version") if any(function.driver == "nvidia" for _, function in gpus) else ""
    driver = parse_version(version)
    index: dict[str, int] = {}
    for bdf, function in gpus:
        vendor = {NVIDIA: "nvidia", AMD: "amd"}.get(function.vendor)
        if vendor is None:
            continue
        number = index.setdefault(vendor, 0)
        index[vendor] += 1
        values = _nvidia(host, bdf, function, driver) if vendor == "nvidia" else _amd(host, bdf)
        path = f"{PROC}/version" if driver and vendor == "nvidia" else f"{pci.ROOT}/{bdf}"
        yield Row("gpu", _known({"bdf": bdf, "gpu": number, "vendor": vendor, **values}), path)
    yield from _parameters(host)


def _on_bus(host: Host) -> Iterator[tuple[str, pci.Function]]:
    try:
        names = host.ls(pci.ROOT)
    except NotPresent:
        return
    for bdf in names:
        function = pci.function_of(host, bdf)
        if function and role_of(function.vendor, function.device, function.code) == "gpu":
            yield bdf, function


def _nvidia(host: Host, bdf: str, function: pci.Function, driver: Values) -> Values:
    name = late(r"^Model:\s+(\S.*)$", re.M).search(text_of(host, f"{PROC}/gpus/{bdf}/information"))
    kind = chip(function.device)
    return {
        **(driver if function.driver == "nvidia" else {}),
        "name": name[1] if name else None,
        "architecture": kind.architecture if kind else None,
        "compute_capability": kind.capability if kind else None,
    }


def _amd(host: Host, bdf: str) -> Values:
    path = f"{pci.ROOT}/{bdf}"
    return {
        "name": text_of(host, f"{path}/product_name") or None,
        "architecture": _gfx_target(host, bdf),
        "driver_version": text_of(host, "/sys/module/amdgpu/version") or None,
        "memory_bytes": _number(text_of(host, f"{path}/mem_info_vram_total")),
        "bar1_bytes": _number(text_of(host, f"{path}/mem_info_vis_vram_total")),
    }


def _gfx_target(host: Host, bdf: str) -> str | None:
    # location_id is bus << 8 | device << 3 | function; gfx_target_version 90402 is gfx942 (stepping in hexadecimal).
    domain, bus, rest = bdf.split(":")
    device, _, function = rest.partition(".")
    location = int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16)
    for node in names_in(host, KFD):
        found = dict(line.partition(" ")[::2] for line in text_of(host, f"{KFD}/{node}/properties").splitlines())
        target = _number(found.get("gfx_target_version", ""))
        here = (_number(found.get("domain", "0")), _number(found.get("location_id", "")))
        if target and here == (int(domain, 16), location):
            return f"gfx{target // 10000}{target // 100 % 100}{target % 100:x}"
    return None


def _parameters(host: Host) -> Iterator[Row | Gap]:
    try:
        text = host.read(f"{PROC}/params")
    except (NotPresent, NotGiven):
        return
    except HostRefused as error:
        yield Gap(("module_parameter",), error.reason, "unreadable", error.how, error.what)
        return
    for name, value in _PARAMETER.findall(text):
        yield Row(
            "module_parameter", {"module": "nvidia", "parameter": name, "value": value.strip('"')}, f"{PROC}/params"
        )


def _known(values: Mapping[str, Any]) -> Values:
    return {name: value for name, value in values.items() if value is not None}


def _number(text: str) -> int | None:
    return int(text) if late(r"\d{1,18}").fullmatch(text) else None


# --- texts of the driver ---

_PARAMETER = late(r"^(\w{2,60}): (.{0,200}?)\s*$", re.M)
_VERSION = late(
    r"NVIDIA UNIX (?P<open>Open )?(?:\w+ )?Kernel Module(?: for \w+)?\s+(?P<version>\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)"
)
_PARAMS = (
    "EnableStreamMemOPs",
    "RegistryDwords",
    "RegistryDwordsPerDevice",
    "DmaRemapPeerMmio",
    "EnablePCIeRelaxedOrderingMode",
)
_KNOWN_PARAMS = frozenset(
    (*_PARAMS, "EnableResizableBar", "EnableGpuFirmware", "OpenRmEnableUnsupportedGpus", "GrdmaPciTopoCheckOverride")
)


def parse_version(text: str) -> Values:
    """Return driver_version and flavour of a line such as /proc/driver/nvidia/version has; empty for another text."""
    match = _VERSION.search(text)
    return {"driver_version": match["version"], "flavour": "open" if match["open"] else "proprietary"} if match else {}


def parse_driver(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse /proc/driver/nvidia/version and params as pasted; the driver is the same for all GPUs of the node."""
    for number, text in lines:
        if len(text) > LINE_CHARACTERS:
            continue
        if values := parse_version(text):
            yield Row("gpu", {"vendor": "nvidia", **values}, number)
        elif (match := _PARAMETER.match(text.strip())) and match[1] in _KNOWN_PARAMS:
            values = {"module": "nvidia", "parameter": match[1], "value": match[2].strip('"')}
            yield Row("module_parameter", values, number)


# --- nvidia-smi ---


def full_address(text: str) -> str:
    """Return a PCI address as the kernel writes it: `00000000:18:00.0` of nvidia-smi is `0000:18:00.0`."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:] if domain.startswith('0000') else domain}:{rest}"


_Q_GPU = late(r"GPU (?P<bdf>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_Q_PAIR = late(r"(?P<indent> *)(?P<key>[A-Z][\w .&()/-]{1,60}?) *: (?P<value>\S.*?)\s*$")
_Q_SECTION = late(r"(?P<indent> *)(?P<key>[A-Z][\w .&()/-]{1,60}?)\s*$")
_MEMORY = late(r"(\d{1,9}) MiB$")
_Q_KEYS: Mapping[tuple[str, str], str] = {
    ("", "Product Name"): "name",
    ("", "Product Architecture"): "architecture",
    ("", "Persistence Mode"): "persistence",
    ("GPU Virtualization Mode", "Virtualization Mode"): "virtualization",
    ("GPU Virtualization Mode", "Virtualization mode"): "virtualization",
    ("FB Memory Usage", "Total"): "memory_bytes",
    ("BAR1 Memory Usage", "Total"): "bar1_bytes",
    ("BAR1 Memory Usage", "Used"): "bar1_used_bytes",
}


def parse_query(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `nvidia-smi -q`: one block a GPU, sections by indentation."""
    driver: str | None = None
    gpu: Values = {}
    start, count, section = 0, 0, ""
    for number, text in lines:
        if len(text) > LINE_CHARACTERS:
            continue
        if match := _Q_GPU.match(text):
            yield from _query_row(gpu, start)
            gpu = {"bdf": full_address(match["bdf"]), "gpu": count, "vendor": "nvidia", "driver_version": driver}
            start, count, section = number, count + 1, ""
        elif match := _Q_PAIR.match(text):
            if match["key"] == "Driver Version" and not match["indent"]:
                driver, count = match["value"], 0
            elif column := _Q_KEYS.get((section if len(match["indent"]) > 4 else "", match["key"])):
                gpu.setdefault(column, _query_value(column, match["value"]))
        elif match := _Q_SECTION.match(text):
            section = match["key"]
    yield from _query_row(gpu, start)


def _query_row(gpu: Values, number: int) -> Iterator[Row]:
    if gpu.get("bdf"):
        yield Row("gpu", _known(gpu), number)


def _query_value(column: str, value: str) -> Any:
    if value == "N/A":
        return None
    if column == "persistence":
        return {"Enabled": 1, "Disabled": 0}.get(value)
    if column.endswith("_bytes"):
        match = _MEMORY.match(value)
        return int(match[1]) * MIB if match else None
    return value


_TABLE_HEAD = late(r"\| NVIDIA-SMI \S+\s+Driver Version: (?P<version>\d{3,4}[\d.]{2,10})")
_TABLE_ROW = late(
    r"\|\s+(?P<gpu>\d{1,3})\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off|N/A)\s*\|\s+"
    r"(?P<bdf>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s"
)
_TABLE_MEMORY = late(r"\|.*\|\s+\d{1,9}MiB /\s+(?P<mib>\d{1,9})MiB\s+\|")


def parse_table(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse the table of plain `nvidia-smi`: two lines a GPU."""
    driver: str | None = None
    gpu: Values = {}
    start = 0
    for number, text in lines:
        if len(text) > LINE_CHARACTERS:
            continue
        if match := _TABLE_HEAD.search(text):
            driver = match["version"]
        elif match := _TABLE_ROW.match(text):
            yield from _query_row(gpu, start)
            start = number
            gpu = {
                "bdf": full_address(match["bdf"]),
                "gpu": int(match["gpu"]),
                "vendor": "nvidia",
                "driver_version": driver,
                "name": None if match["name"].endswith("...") else match["name"],
                "persistence": {"On": 1, "Off": 0}.get(match["persistence"]),
            }
        elif gpu and (match := _TABLE_MEMORY.match(text)):
            gpu.setdefault("memory_bytes", int(match["mib"]) * MIB)
    yield from _query_row(gpu, start)


_CSV_COLUMNS = {
    "index": "gpu",
    "name": "name",
    "gpu_name": "name",
    "pci.bus_id": "bdf",
    "gpu_bus_id": "bdf",
    "driver_version": "driver_version",
    "compute_cap": "compute_capability",
    "persistence_mode": "persistence",
}


def parse_csv(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `nvidia-smi --query-gpu=... --format=csv` with its line of names."""
    columns: list[str] = []
    for number, text in lines:
        words = [word.strip() for word in text[:LINE_CHARACTERS].split(",")]
        if any(word in ("pci.bus_id", "gpu_bus_id") for word in words):
            columns = words
        elif columns and len(words) == len(columns):
            values = {
                _CSV_COLUMNS[name]: _csv_value(_CSV_COLUMNS[name], word)
                for name, word in zip(columns, words, strict=True)
                if name in _CSV_COLUMNS
            }
            if values.get("bdf"):
                yield Row("gpu", _known({**values, "vendor": "nvidia"}), number)
        else:
            columns = []


def _csv_value(column: str, word: str) -> Any:
    if column == "gpu":
        return _number(word)
    if column == "bdf":
        return full_address(word) if _Q_GPU.match(f"GPU {word}") else None
    return None if word in ("[N/A]", "N/A") else _query_value(column, word)


# --- nvidia-smi topo -m ---

PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Ways between a GPU and an adapter, nearest first."""

_NIC_NAME = late(r"\s*NIC(?P<nic>\d{1,3}): (?P<device>[A-Za-z][\w.-]{1,62})\s*$")
_GPU_HEAD = late(r"\s*GPU0(?:\s|$)")
_NAMED_NIC = late(r"(?:mlx[45]|bnxt_re|irdma|rocep|ibp|efa|ionic|rdma)[\w.-]*$|roce[\w.-]+$")


def parse_topology(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `nvidia-smi topo -m`: the matrix of GPUs and NICs, whose names are in its legend (or, in old releases, in the matrix)."""
    header: list[str] = []
    found: list[tuple[int, str, str, int]] = []
    names: dict[str, str] = {}
    for number, text in lines:
        if len(text) > LINE_CHARACTERS:
            continue
        words = text.split()
        if _GPU_HEAD.match(text) and (len(words) == 1 or not _is_path(words[1])):
            header = [
                word for word in words if late(r"GPU\d{1,3}|NIC\d{1,3}").fullmatch(word) or _NAMED_NIC.match(word)
            ]
        elif match := _NIC_NAME.match(text):
            names[f"NIC{match['nic']}"] = match["device"]
        elif header and words and late(r"GPU\d{1,3}").fullmatch(words[0]) and len(words) > len(header):
            for column, path in zip(header, words[1:], strict=False):
                if not column.startswith("GPU") and path in PATHS:
                    found.append((int(words[0][3:]), column, path, number))
    for gpu, column, path, number in found:
        device = names.get(column) or (None if column.startswith("NIC") else column)
        if device:
            yield Row("gpu_path", {"gpu": gpu, "device": device, "path": path}, number)


def _is_path(word: str) -> bool:
    return word in PATHS or word == "X" or bool(late(r"NV\d{1,2}").fullmatch(word))


TEXTS = (
    Text(
        "nvidia-smi -q",
        (r"^=+NVSMI LOG=+", r"^Attached GPUs +: [0-9]"),
        parse_query,
    ),
    Text("nvidia-smi", (r"^\| NVIDIA-SMI [0-9.]+ +Driver Version: [0-9]",), parse_table, ("nvidia-smi",)),
    Text(
        "nvidia-smi --query-gpu", (r"^([a-z_.]+, )*(pci\.bus_id|gpu_bus_id)(, [a-z_. \[\]A-Za-z]+)*[ \r]*$",), parse_csv
    ),
    Text("nvidia-smi topo -m", (r"^[ \t]+GPU0[ \t].*(CPU Affinity|NIC0|mlx5_0)", r"^  NIC0: [a-z]"), parse_topology),
    Text(
        "/proc/driver/nvidia",
        (
            r"NVIDIA UNIX (Open )?([a-z0-9_]+ )?Kernel Module",
            r"^(EnableStreamMemOPs|RegistryDwords|DmaRemapPeerMmio): ",
        ),
        parse_driver,
        by_line=True,
    ),
)
