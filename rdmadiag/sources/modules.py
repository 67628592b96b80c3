"""Kernel modules, loaded or built in: /proc/modules, /sys/module, modules.builtin, and lsmod."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rdmadiag.errors import NotPresent
from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.host import Host, names_in, text_of
from rdmadiag.patterns import late

TABLES = ("module",)

RELEVANT = frozenset(
    (
        *(
            "ib_core",
            "ib_uverbs",
            "ib_umad",
            "ib_cm",
            "iw_cm",
            "rdma_cm",
            "rdma_ucm",
            "ib_ipoib",
            "ib_isert",
            "ib_srpt",
        ),
        *("mlx5_core", "mlx5_ib", "mlx4_core", "mlx4_ib", "mlx4_en", "mlxfw", "mlxdevm", "mlx_compat", "mst_pciconf"),
        *("bnxt_en", "bnxt_re", "irdma", "ice", "i40e", "i40iw", "efa", "hns3", "hns_roce_hw_v2", "erdma", "ionic"),
        *(
            "ionic_rdma",
            "iw_cxgb4",
            "cxgb4",
            "qedr",
            "qede",
            "hfi1",
            "rdmavt",
            "mana",
            "mana_ib",
            "ocrdma",
            "vmw_pvrdma",
        ),
        *("rdma_rxe", "siw", "nvme_rdma", "nvmet_rdma", "rpcrdma", "ib_ucaps", "xpmem", "knem", "udp_tunnel"),
        *("nvidia", "nvidia_peermem", "nv_peer_mem", "nvidia_fs", "gdrdrv", "nvidia_uvm", "amdgpu", "amdkfd"),
        *("ib_peer_mem", "habanalabs", "habanalabs_ib", "xe", "i915", "vfio", "vfio_pci", "vfio_iommu_type1"),
    )
)
"""Modules of RDMA and of GPUs: their versions are read, and they are looked for when they are built in."""

# What each class of devices is made by; a module without parameters leaves nothing in /sys/module when built in.
_CLASSES = {
    "/sys/class/infiniband": "ib_core",
    "/sys/class/infiniband_verbs": "ib_uverbs",
    "/sys/class/infiniband_mad": "ib_umad",
}


def read(host: Host) -> Iterable[Row | Gap]:
    """Read loaded modules, then those that are part of the kernel."""
    try:
        loaded = [row.values for row in parse_modules(_lines(host.read("/proc/modules")))]
    except NotPresent:
        loaded = []  # a kernel that cannot load modules: what it can do is built in
    for values in loaded:
        name = values["module"]
        version = text_of(host, f"/sys/module/{name}/version") if name in RELEVANT else ""
        yield Row("module", {**values, **({"version": version} if version else {})}, "/proc/modules")
    yield from _built_in(host, {values["module"] for values in loaded})


def _built_in(host: Host, loaded: set[str]) -> Iterator[Row]:
    seen = set(loaded)
    for name in RELEVANT.intersection(names_in(host, "/sys/module")) - seen:
        seen.add(name)
        version = text_of(host, f"/sys/module/{name}/version")
        yield Row(
            "module", {"module": name, "builtin": 1, **({"version": version} if version else {})}, f"/sys/module/{name}"
        )
    for path, name in _CLASSES.items():
        if name not in seen and names_in(host, path):
            seen.add(name)
            yield Row("module", {"module": name, "builtin": 1}, path)
    yield from _listed(host, seen)


def _listed(host: Host, seen: set[str]) -> Iterator[Row]:
    release = text_of(host, "/proc/sys/kernel/osrelease")
    path = f"/lib/modules/{release}/modules.builtin"
    for line in text_of(host, path).splitlines() if release else ():
        name = line.rpartition("/")[2].partition(".")[0].replace("-", "_")
        if name in RELEVANT and name not in seen:
            yield Row("module", {"module": name, "builtin": 1}, path)


def _lines(text: str) -> list[Line]:
    return [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]


_PROC = late(r"(?P<module>\w+) \d+ (?P<users>-|\d{1,9}) (?P<used_by>\S+) (?:Live|Loading|Unloading)\b")
_LSMOD = late(r"(?P<module>\w{2,56})\s+\d{4,12}\s+(?P<users>-?\d{1,9})(?:[ \t]+(?P<used_by>[\w,\[\]-]*))?\s*$")


def parse_modules(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `lsmod` and /proc/modules."""
    for number, text in lines:
        if match := _PROC.match(text) or _LSMOD.match(text):
            yield Row("module", _values(match), number)


def parse_lsmod(lines: Sequence[Line]) -> Iterator[Row | Gap]:
    """Parse modules as pasted; what `grep` let through says nothing of the others."""
    whole = False
    for _, text in lines:
        command = prompt_command(text)
        whole = ("|" not in command) if command else whole or text.startswith("Module ") or bool(_PROC.match(text))
    yield from parse_modules(lines)
    if not whole:
        yield Gap(TABLES, "only some of the modules were given", "not_given", "lsmod", "lsmod")


def _values(match: re.Match[str]) -> dict[str, Any]:
    users = (match["used_by"] or "").strip("-").rstrip(",")
    values: dict[str, Any] = {"module": match["module"], "used_by": users, "builtin": 0}
    return values if match["users"] == "-" else {**values, "users": int(match["users"])}


_FIELD = late(r"(filename|version|name):\s+(\S.*)")
_NOT_FOUND = late(r"modinfo: ERROR: Module (\S+) not found")


def parse_modinfo(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `modinfo NAME` of a module that is built in; one that could be loaded is not said to be."""
    name: str | None = None
    built_in = False
    for number, text in lines:
        if command := prompt_command(text):
            name, built_in = command.split()[-1], False
        elif match := _FIELD.match(text):
            built_in = (match[1], match[2].strip()) == ("filename", "(builtin)") or built_in
            name = match[2].strip() if match[1] == "name" else name
            if built_in and name and match[1] != "version":
                yield Row("module", {"module": name.replace("-", "_"), "builtin": 1}, number)


TEXTS = (
    Text(
        "lsmod",
        (
            r"^Module +Size +Used by",
            r"^(ib|rdma|mlx[45]|nv|nvidia|bnxt|irdma|efa|iw|hns|erdma|siw|rxe|ionic)_?\w* +\d{4,} +\d+( |$)",
            r"^\w+ \d+ (-|\d+) \S+ (Live|Loading|Unloading) 0x[0-9a-f]+",
        ),
        parse_lsmod,
        ("lsmod",),
    ),
    Text("modinfo", (r"^filename: +\(builtin\)",), parse_modinfo, ("modinfo",)),
)
