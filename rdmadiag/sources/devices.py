"""RDMA devices, their ports and the filled entries of their GID tables, from /sys/class/infiniband and RDMA netlink."""

from __future__ import annotations

from _socket import AF_INET6, inet_ntop
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rdmadiag.errors import HostRefused, NotPresent
from rdmadiag.evidence.row import Gap, Row
from rdmadiag.explain.gid import full_gid, ipv4, kind
from rdmadiag.explain.port_state import PHYS_STATES, STATES
from rdmadiag.host import Host, link_of, names_in, text_of
from rdmadiag.patterns import late

TABLES = ("device", "port", "gid")
CLASS = "/sys/class/infiniband"
VERBS_CLASS = "/sys/class/infiniband_verbs"
LARGEST = (1 << 63) - 1
"""Largest integer that the evidence holds; what a device calls unlimited (2^64 - 1) becomes this."""

Values = dict[str, Any]

# Kernel module of the PCI or auxiliary function below the RDMA device, where its name is not the driver's.
_DRIVERS = {
    "mlx5_core": "mlx5",
    "mlx4_core": "mlx4",
    "bnxt_en": "bnxt_re",
    "ice": "irdma",
    "i40e": "irdma",
    "idpf": "irdma",
    "hns3": "hns",
    "qede": "qedr",
    "efa": "efa",
    "erdma": "erdma",
    "ionic": "ionic",
    "hfi1": "hfi1",
    "cxgb4": "cxgb4",
    "mana": "mana",
    "vmw_pvrdma": "vmw_pvrdma",
    "enic": "usnic",
}
_PREFIXES = ("mlx5", "mlx4", "bnxt_re", "irdma", "efa", "hns", "erdma", "ionic", "qedr", "hfi1", "rxe", "siw")
_PHYSICAL = {row[0]: row[1] for row in PHYS_STATES}
_PHYSICAL_OF_RDMA = {
    "SLEEP": 1,
    "POLLING": 2,
    "DISABLED": 3,
    "ARMED": 4,
    "LINK_UP": 5,
    "LINK_ERROR_RECOVER": 6,
    "PHY_TEST": 7,
}
_STATES = {row[1] for row in STATES if row[0]}
_BDF = late(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RATE = late(r"([0-9]+(?:\.[0-9]+)?) ?Gb/sec")
_ZERO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


class Restricted(Exception):
    """The function answers EINVAL or EIO: firmware keeps it from this host, and each read may fill the kernel log."""


# --- words that several sources read ---


def whole(text: Any) -> int | None:
    """Read an integer as tools print it (decimal, or hex with 0x), at most LARGEST; None for anything else."""
    if isinstance(text, str):
        try:
            text = int(text) if text.isdecimal() else int(text, 16 if text.strip()[:2] in ("0x", "0X") else 10)
        except ValueError:
            return None
    if not isinstance(text, int) or isinstance(text, bool):
        return None
    return max(-LARGEST, min(text, LARGEST))


def known(values: Mapping[str, Any]) -> Values:
    """Leave out what is not known."""
    return {name: value for name, value in values.items() if value is not None and value != ""}


def driver_of(device: str, module: str = "", description: str = "") -> str | None:
    """Return the driver's name by node description (rxe, siw), module of the function below, or device name."""
    if description == "rxe":
        return "rxe"
    if description.startswith("Software iWARP"):
        return "siw"
    if module.partition(".")[0] in _DRIVERS:
        return _DRIVERS[module.partition(".")[0]]
    for prefix in _PREFIXES:
        if late(rf"{prefix}(_?[0-9]|_bond)").match(device):
            return prefix
    return module or None


def state_values(text: str) -> Values:
    """Read a port state: `4: ACTIVE` (sysfs), `ACTIVE` (rdma), `PORT_ACTIVE (4)` (ibv_devinfo)."""
    word = text.rpartition(": ")[2].partition(" (")[0].strip().removeprefix("PORT_")
    return {"state": word} if word in _STATES else {}


def physical_values(text: str) -> Values:
    """Read a physical state: `5: LinkUp` (sysfs), `LINK_UP` (rdma), `LINK_UP (5)` (ibv_devinfo)."""
    number = _PHYSICAL_OF_RDMA.get(text)
    if number is None and (match := late(r"([1-7]): |.*\(([1-7])\)\s*$").match(text)):
        number = int(match[1] or match[2])
    return {"phys_state": _PHYSICAL[number]} if number else {}


def rate_values(text: str) -> Values:
    """Read a rate as the kernel prints it: `400 Gb/sec (4X NDR)`."""
    match = _RATE.match(text)
    return {"rate_gbps": float(match[1]), "rate_text": text} if match else {}


def protocol_of(link_layer: Any, node_type: str = "") -> str | None:
    """Return the protocol by link layer; a node of type RNIC speaks iWARP."""
    if "rnic" in node_type.lower() or "iwarp" in node_type.lower():
        return "iw"
    return {"InfiniBand": "ib", "Ethernet": "roce"}.get(link_layer)


def gid_values(gid: str) -> Values:
    """Return a full GID with its kind and the address that it stands for."""
    what = kind(gid)
    address = ipv4(gid) if what == "ipv4" else None
    if what == "ipv6":
        address = inet_ntop(AF_INET6, bytes.fromhex(gid.replace(":", "")))
    return known({"gid": gid, "kind": what, "ip": address})


def gid_type(text: str, link_layer: Any, node_type: str = "") -> str | None:
    """Resolve the kernel's `IB/RoCE v1` by link layer; iWARP has neither."""
    if text != "IB/RoCE v1":
        return text if text in ("RoCE v1", "RoCE v2") else None
    return {"ib": "IB", "roce": "RoCE v1"}.get(protocol_of(link_layer, node_type) or "")


def port_of_link(link: Mapping[str, Any]) -> Values:
    """Return the port row of one object of `rdma -j link`; older releases print `ifname` as mlx5_0/1."""
    name, _, number = str(link.get("ifname") or "").partition("/")
    lid, netdev = whole(link.get("lid")), link.get("netdev")
    return known(
        {
            "device": name,
            "port": whole(link.get("port")) if "port" in link else whole(number),
            **state_values(str(link.get("state") or "")),
            **physical_values(str(link.get("physical_state") or "")),
            # The kernel gives a LID for InfiniBand ports only, and a netdev for the others only.
            "link_layer": "InfiniBand" if lid is not None else "Ethernet" if netdev else None,
            "lid": lid,
            "sm_lid": whole(link.get("sm_lid")),
            "netdev": netdev if isinstance(netdev, str) else None,
        }
    )


def device_of_dev(dev: Mapping[str, Any]) -> Values:
    """Return the device row of one object of `rdma -j dev`."""
    name = str(dev.get("ifname") or "")
    columns = {"protocol": "protocol", "fw_ver": "fw", "node_guid": "node_guid", "sys_image_guid": "sys_image_guid"}
    values = {column: dev[key] for column, key in columns.items() if isinstance(dev.get(key), str)}
    return known({"device": name, "driver": driver_of(name), **values})


# --- reading a node ---


def read(host: Host) -> Iterable[Row | Gap]:
    """Read a live node or a captured tree; a restricted function's ports are read once and then left alone."""
    names = host.ls(CLASS)
    links = {(row.get("device"), row.get("port")): row for row in map(port_of_link, _objects(host, "rdma link show"))}
    devs = {row.get("device"): row for row in map(device_of_dev, _objects(host, "rdma dev show"))} if names else {}
    uverbs = _uverbs(host) if names else {}
    for name in names:
        yield from _read_device(host, name, devs.get(name, {}), links, uverbs.get(name))


def _objects(host: Host, command: str) -> list[dict[str, Any]]:
    # Only adds to what sysfs says; a node or a capture without it is not a gap.
    try:
        return host.objects(command)
    except (NotPresent, HostRefused):
        return []


def _uverbs(host: Host) -> dict[str, str]:
    names = [name for name in names_in(host, VERBS_CLASS) if name.startswith("uverbs")]
    return {text_of(host, f"{VERBS_CLASS}/{name}/ibdev"): name for name in names}


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal() and len(name) < 9)


def _read_device(
    host: Host, name: str, dev: Values, links: Mapping[tuple[Any, Any], Values], uverbs: str | None
) -> Iterator[Row | Gap]:
    base = f"{CLASS}/{name}"
    below = f"{base}/device"
    try:
        ports = _numbers(host.ls(f"{base}/ports"))
    except NotPresent:
        ports = []
    except HostRefused as error:
        ports = []
        yield Gap(("port", "gid"), error.reason, "unreadable", error.how, name)
    node_type = text_of(host, f"{base}/node_type")
    target = link_of(host, below)
    bdf = _BDF.findall(target)
    module = link_of(host, f"{below}/driver").rpartition("/")[2] if target else ""
    numa_node = whole(text_of(host, f"{below}/numa_node"))
    if uverbs is None:
        uverbs = next(iter(names_in(host, f"{below}/infiniband_verbs")), None)
    layers = [layer for port in ports if (layer := text_of(host, f"{base}/ports/{port}/link_layer"))]
    description = text_of(host, f"{base}/node_desc")
    if not description and not target and text_of(host, f"{base}/parent"):
        description = "rxe"  # only rxe has this file: the netdev below it
    values = {
        "device": name,
        "driver": driver_of(name, module, description),
        "protocol": dev.get("protocol") or protocol_of(layers[0] if layers else None, node_type),
        "fw_ver": text_of(host, f"{base}/fw_ver") or dev.get("fw_ver"),
        "node_guid": text_of(host, f"{base}/node_guid") or dev.get("node_guid"),
        "sys_image_guid": text_of(host, f"{base}/sys_image_guid") or dev.get("sys_image_guid"),
        "vendor_id": whole(text_of(host, f"{below}/vendor")),
        "vendor_part_id": whole(text_of(host, f"{below}/device")),
        "board_id": text_of(host, f"{base}/board_id"),
        "hca_type": text_of(host, f"{base}/hca_type"),
        "hw_ver": text_of(host, f"{base}/hw_rev"),
        "bdf": bdf[-1] if bdf else None,
        "numa_node": numa_node if numa_node is not None and numa_node >= 0 else None,
        "ports": len(ports) or None,
        "uverbs": uverbs,
    }
    yield Row("device", known(values), base)
    try:
        for port in ports:
            yield from _read_port(host, name, port, links.get((name, port), {}), node_type)
    except Restricted as error:
        reason = f"{error}; its ports are not read again"
        how = "read them from the host that owns this function"
        yield Gap(("port", "gid"), reason, "restricted", how, name)


def _port_text(host: Host, path: str) -> str:
    # EINVAL and EIO say that the function is restricted; whatever else is wrong with one file leaves out one column.
    try:
        return host.read(path).strip()
    except NotPresent:
        return ""
    except HostRefused as error:
        if is_restricted(error):
            raise Restricted(str(error)) from error
        return ""


def is_restricted(error: HostRefused) -> bool:
    """Tell whether a port file's refusal says that firmware keeps the function from this host."""
    return error.reason.endswith(("(EINVAL)", "(EIO)"))


def _read_port(host: Host, device: str, port: int, link: Values, node_type: str) -> Iterator[Row | Gap]:
    base = f"{CLASS}/{device}/ports/{port}"
    state = _port_text(host, f"{base}/state")
    if not state and "state" not in link:
        yield Gap(("port",), f"{base}/state cannot be read", "unreadable", f"cat {base}/state", f"{device}/{port}")
    layer = _port_text(host, f"{base}/link_layer") or link.get("link_layer")
    gids = list(_read_gids(host, base, layer, node_type))
    netdevs = [link["netdev"]] if "netdev" in link else [gid["netdev"] for gid in gids if "netdev" in gid]
    values = {
        "device": device,
        "port": port,
        **link,
        **state_values(state),
        **physical_values(_port_text(host, f"{base}/phys_state")),
        # A port that is down may have no width, and then the kernel answers EINVAL for its rate.
        **rate_values(text_of(host, f"{base}/rate")),
        "link_layer": layer,
        "lid": whole(_port_text(host, f"{base}/lid")),
        "sm_lid": whole(_port_text(host, f"{base}/sm_lid")),
        "netdev": netdevs[0] if netdevs else _netdev(host, f"{CLASS}/{device}/device/net", port),
        "capability": _port_text(host, f"{base}/cap_mask"),
    }
    yield Row("port", known(values), base)
    for gid in gids:
        yield Row("gid", {"device": device, "port": port, **gid}, f"{base}/gids/{gid['gid_index']}")


def _netdev(host: Host, folder: str, port: int) -> str | None:
    names = names_in(host, folder)
    if len(names) > 1:  # a function with several ports, or with representors
        names = [name for name in names if whole(text_of(host, f"{folder}/{name}/dev_port")) == port - 1]
    return names[0] if len(names) == 1 else None


def _read_gids(host: Host, base: str, layer: Any, node_type: str) -> Iterator[Values]:
    # An unused index gives a zero GID (EINVAL on some kernels), and EINVAL for its type: neither is a gap.
    for index in _numbers(names_in(host, f"{base}/gids")):
        try:
            text = host.read(f"{base}/gids/{index}")
        except NotPresent:
            continue
        except HostRefused as error:
            if error.reason.endswith("(EIO)"):
                raise Restricted(str(error)) from error
            continue
        gid = None if text == _ZERO_GID else full_gid(text)
        if gid is None or gid == _ZERO_GID:
            continue
        what = gid_type(text_of(host, f"{base}/gid_attrs/types/{index}"), layer, node_type)
        netdev = text_of(host, f"{base}/gid_attrs/ndevs/{index}")
        yield known({"gid_index": index, **gid_values(gid), "type": what, "netdev": netdev})
