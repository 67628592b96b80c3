"""PCI functions that matter to RDMA and the bridges above them, from /sys/bus/pci/devices and lspci."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rdmadiag.errors import HostRefused, NotPresent
from rdmadiag.evidence.row import Gap, Row
from rdmadiag.host import Host, link_of, text_of
from rdmadiag.patterns import late
from rdmadiag.sources import _lspci
from rdmadiag.sources._pci_ids import family, gigatransfers, role_of

TABLES = ("pci",)
ROOT_ONLY = ("pci.acs", "pci.max_read_request_bytes", "pci.max_payload_bytes", "pci.relaxed_ordering")
ROOT = "/sys/bus/pci/devices"
Values = dict[str, Any]

_BDF = r"[0-9a-f]{4,5}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"


# --- /sys/bus/pci/devices ---


class Function(NamedTuple):
    """One function: where it is, its ids, and its place below bridges."""

    path: str
    vendor: int
    device: int
    code: int
    driver: str
    chain: tuple[str, ...] = ()


def read(host: Host) -> Iterable[Row | Gap]:
    """Read adapters, GPUs and NVMe drives, then every bridge on the way to them."""
    try:
        names = host.ls(ROOT)
    except NotPresent:
        return
    group_types: dict[str, str | None] = {}
    bridges: dict[str, None] = {}
    short = ""
    for bdf in names:
        function = function_of(host, bdf)
        role = role_of(function.vendor, function.device, function.code) if function else "other"
        if function and role not in ("other", "bridge"):
            chain = bridges_above(host, bdf)
            bridges.update(dict.fromkeys(chain))
            row = _row(host, bdf, function._replace(chain=chain), role, group_types)
            if role in ("rdma", "gpu") and host.live and "max_payload_bytes" not in row.values:
                short = short or function.path
            yield row
    for bdf in bridges:
        if function := function_of(host, bdf):
            yield _row(host, bdf, function._replace(chain=bridges_above(host, bdf)), "bridge", group_types)
    if short and host.root is False:
        reason = "only root may read configuration space beyond its first 64 bytes"
        yield Gap(ROOT_ONLY, reason, "not_permitted", "run as root", f"{short}/config")


def function_of(host: Host, bdf: str) -> Function | None:
    """Return a function's ids and driver; None where they cannot be read."""
    # uevent has all four in one read; a captured tree may hold the files instead.
    path = f"{ROOT}/{bdf}"
    fields = dict(line.partition("=")[::2] for line in text_of(host, f"{path}/uevent").splitlines())
    vendor, _, device = fields.get("PCI_ID", "").partition(":")
    ids = [vendor, device, fields.get("PCI_CLASS", "")]
    if "" in ids:
        ids = [text_of(host, f"{path}/{name}") for name in ("vendor", "device", "class")]
        fields["DRIVER"] = link_of(host, f"{path}/driver").rpartition("/")[2]
    numbers = [number for word in ids if (number := _hex(word)) is not None]
    return Function(path, numbers[0], numbers[1], numbers[2], fields.get("DRIVER", "")) if len(numbers) == 3 else None


def bridges_above(host: Host, bdf: str) -> tuple[str, ...]:
    """Return the bridges above a function, outermost first: the folders of /sys/devices on the way."""
    target = link_of(host, f"{ROOT}/{bdf}")
    return tuple(part for part in target.split("/")[:-1] if late(_BDF).fullmatch(part))


def _row(host: Host, bdf: str, function: Function, role: str, group_types: dict[str, str | None]) -> Row:
    path = function.path
    values: Values = {
        "bdf": bdf,
        "vendor_id": function.vendor,
        "device_id": function.device,
        "class": function.code,
        "name": family(function.vendor, function.device),
        "driver": function.driver,
        "role": role,
        "parent_bdf": function.chain[-1] if function.chain else None,
        "revision": text_of(host, f"{path}/revision").removeprefix("0x") or None,
        **_place(host, path, group_types),
        **_speeds(host, path),
    }
    if role in ("rdma", "net", "gpu"):
        values.update(_virtual_functions(host, path))
    if role == "gpu":
        values["bar1_bytes"] = _largest_region(text_of(host, f"{path}/resource"))
    if role in ("rdma", "gpu", "bridge"):
        values.update(_configuration(host, path))
    return Row("pci", {name: value for name, value in values.items() if value is not None}, path)


def _virtual_functions(host: Host, path: str) -> Values:
    physical = link_of(host, f"{path}/physfn").rpartition("/")[2]
    return {
        "physical_bdf": physical or None,
        "vfs": _count(text_of(host, f"{path}/sriov_numvfs")),
        "max_vfs": _count(text_of(host, f"{path}/sriov_totalvfs")),
    }


def _count(text: str) -> int | None:
    return int(text) if late(r"[0-9]{1,6}").fullmatch(text) else None


def _place(host: Host, path: str, group_types: dict[str, str | None]) -> Values:
    numa_node = text_of(host, f"{path}/numa_node")
    group = link_of(host, f"{path}/iommu_group").rpartition("/")[2]
    if group not in group_types:
        group_types[group] = _group_type(host, group)
    return {
        "numa_node": int(numa_node) if late(r"\d{1,4}").fullmatch(numa_node) else None,
        "iommu_group": int(group) if late(r"\d{1,9}").fullmatch(group) else None,
        "iommu_type": group_types[group],
    }


def _group_type(host: Host, group: str) -> str | None:
    if group:
        return text_of(host, f"/sys/kernel/iommu_groups/{group}/type") or None
    try:
        return None if host.ls("/sys/kernel/iommu_groups") else ""
    except NotPresent:
        return ""  # a kernel without IOMMU support
    except HostRefused:
        return None


def _speeds(host: Host, path: str) -> Values:
    return {
        "current_speed_gts": gigatransfers(text_of(host, f"{path}/current_link_speed")),
        "max_speed_gts": gigatransfers(text_of(host, f"{path}/max_link_speed")),
        "current_width": _lanes(text_of(host, f"{path}/current_link_width")),
        "max_width": _lanes(text_of(host, f"{path}/max_link_width")),
    }


def _lanes(text: str) -> int | None:
    # 0 of a virtual function or a link that is down, 255 of a function that no longer answers
    return int(text) if late(r"\d{1,2}").fullmatch(text) and 0 < int(text) <= 32 else None


def _largest_region(resource: str) -> int | None:
    # Lines "start end flags", six regions first; peers reach GPU memory by the largest, its number differs.
    sizes = [0]
    for line in resource.splitlines()[:6]:
        numbers = [_hex(word) for word in line.split()]
        if len(numbers) == 3 and numbers[0] and numbers[1]:
            sizes.append(numbers[1] - numbers[0] + 1)
    return max(sizes) or None


# --- configuration space ---

_ACS_FLAGS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")


def _configuration(host: Host, path: str) -> Values:
    try:
        data = host.read_bytes(f"{path}/config")
    except (NotPresent, HostRefused):
        return {}
    return parse_configuration(data, virtual=bool(link_of(host, f"{path}/physfn")))


def parse_configuration(data: bytes, virtual: bool = False) -> Values:
    """Parse configuration space: the first 64 bytes are for everyone, the rest (DevCtl, ACSCtl) for root."""
    if len(data) < 64:
        return {}
    if data[:4] == b"\xff\xff\xff\xff":
        return {"revision": "ff"}  # the function no longer answers
    express = _capability(data, 0x10)
    if express is None:
        return {}
    control = _word(data, express + 8)
    # A virtual function has zeros there, and uses what its physical function says.
    device_control = {
        "max_payload_supported_bytes": 128 << (_word(data, express + 4) & 7),
        "max_payload_bytes": 128 << (control >> 5 & 7),
        "max_read_request_bytes": 128 << (control >> 12 & 7),
        "relaxed_ordering": control >> 4 & 1,
    }
    return {**({} if virtual else device_control), **_access_control(data)}


def _capability(data: bytes, wanted: int) -> int | None:
    place, steps = data[0x34] & 0xFC, 0
    while place >= 0x40 and place + 12 <= len(data) and steps < 48:
        if data[place] == wanted:
            return place
        place, steps = data[place + 1] & 0xFC, steps + 1
    return None


def _access_control(data: bytes) -> Values:
    place, steps = 0x100, 0
    while 0x100 <= place <= len(data) - 8 and steps < 480:
        head = int.from_bytes(data[place : place + 4], "little")
        if head & 0xFFFF == 0x0D:
            control = _word(data, place + 6)
            return {"acs": ",".join(name for bit, name in enumerate(_ACS_FLAGS) if control >> bit & 1)}
        place, steps = head >> 20 & 0xFFC, steps + 1
    return {"acs": ""} if len(data) >= 0x1000 else {}


def _word(data: bytes, place: int) -> int:
    return int.from_bytes(data[place : place + 2], "little")


def _hex(text: str) -> int | None:
    return int(text, 16) if _HEX.fullmatch(text) else None


_HEX = late(r"(?:0x)?[0-9a-fA-F]{1,16}")


TEXTS = _lspci.TEXTS
