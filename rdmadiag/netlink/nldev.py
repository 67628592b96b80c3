"""RDMA devices, links, resources and counters over NETLINK_RDMA, as `rdma -d -j` prints them.

Numbers: uapi/rdma/rdma_netlink.h; who sends what: drivers/infiniband/core/nldev.c; keys and words: iproute2 7.1.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rdmadiag.errors import BadInput
from rdmadiag.netlink.wire import (
    FIRST_REAL_TYPE,
    AlikeReader,
    Fields,
    NetlinkError,
    Object,
    Reader,
    attribute,
    attributes,
    entries,
    exchange,
    flag,
    ip_address,
    messages,
    span,
    text,
    uint,
    word,
)

NETLINK_RDMA = 20
NLDEV = 5 << 10  # nlmsg_type is client << 10 | command; the client is RDMA_NL_NLDEV
DEV_INDEX, PORT_INDEX, STAT_RES = 1, 3, 75

_Read = Callable[[bytes, int, int, Object], Object]


_FLAT = ""  # the key of a table whose entries become keys of the object itself

# --- readers of one attribute ---


def _hexadecimal(data: bytes, start: int, stop: int) -> str:
    # print_hex of iproute2 takes 32 bits, so of an MR's iova it prints only the low half.
    return f"{uint(data, start, stop) & 0xFFFFFFFF:x}"


def _guid(data: bytes, start: int, stop: int) -> str:
    digits = f"{uint(data, start, stop):016x}"
    return ":".join(digits[place : place + 4] for place in range(0, 16, 4))


def _kernel_owner(data: bytes, start: int, stop: int) -> str:
    return text(data, start, stop)[:17]  # iproute2's buffer; it writes brackets around it in text only


def _socket_address(data: bytes, start: int, stop: int) -> str:
    # A sockaddr_storage as address:port; a family that iproute2 cannot print (AF_IB) as its bytes.
    family = uint(data, start, start + 2) if stop - start >= 2 else 0
    for number, offset, size in ((socket.AF_INET, 4, 4), (socket.AF_INET6, 8, 16)):
        if family == number and stop - start >= offset + size:
            place = start + offset
            return f"{ip_address(data, place, place + size)}:{int.from_bytes(data[start + 2 : start + 4], 'big')}"
    return data[start:stop].hex()


def _port_space(data: bytes, start: int, stop: int) -> str:
    return {0x0002: "IPoIB", 0x013F: "IPoIB", 0x0106: "TCP", 0x0111: "UDP"}.get(uint(data, start, stop), "---")


def _bits(low: str, high: str) -> Reader:
    # `low` names bits 0 to 31, `high` those from 32; a dash is a bit without a name.
    names = (low.split() + ["-"] * 32)[:32] + high.split()
    names = [name if name != "-" else "UNKNOWN" for name in names] + ["UNKNOWN"] * (64 - len(names))

    def read(data: bytes, start: int, stop: int) -> list[str]:
        value = uint(data, start, stop)
        return [name for place, name in enumerate(names) if value >> place & 1]

    return read


def _named_values(entry: int, name: int, value: int) -> Reader:
    fields: Fields = {name: ("name", text), value: ("value", uint)}

    def read(data: bytes, start: int, stop: int) -> Object:
        rows = (attributes(data, *place, fields, {}) for place in entries(data, start, stop, entry))
        return {row["name"]: row["value"] for row in rows if len(row) == 2}

    return read


def _qp_numbers(data: bytes, start: int, stop: int) -> list[int]:
    rows = (attributes(data, *place, {21: ("lqpn", uint)}, {}) for place in entries(data, start, stop, 20))
    return [row["lqpn"] for row in rows if row]


def _qp_ranges(data: bytes, start: int, stop: int) -> list[str]:
    # A shared receive queue's QPs come as numbers and as ranges, and iproute2 prints both as text.
    fields: Fields = {21: ("lqpn", uint), 91: ("first", uint), 92: ("last", uint)}
    rows = (attributes(data, *place, fields, {}) for place in entries(data, start, stop, 20))
    ends = ((row.get("lqpn", row.get("first")), row.get("last")) for row in rows)
    return [f"{first}" if last in (first, None) else f"{first}-{last}" for first, last in ends if first is not None]


# --- last touches to one object ---


def _flatten(entry: Object) -> None:
    entry.update(entry.pop(_FLAT, {}))


def _drop_empty_lqpn(entry: Object) -> None:
    if not entry.get("lqpn"):
        entry.pop("lqpn", None)


def _copy_on_fork_is_no(entry: Object) -> None:
    entry.setdefault("copy-on-fork", False)


# --- the commands ---

_DEVICE: Fields = {1: ("ifindex", uint), 2: ("ifname", text)}
_OWNER: Fields = {28: ("pid", uint), 29: ("comm", _kernel_owner)}
_COUNTERS: Fields = {80: (_FLAT, _named_values(81, 82, 83))}
_QP_TYPES = {0: "SMI", 1: "GSI", 2: "RC", 3: "UC", 4: "UD", 5: "RAW_IPV6", 6: "RAW_ETHERTYPE", 8: "RAW_PACKET"}
_QP_TYPES |= {9: "XRC_INI", 10: "XRC_TGT", 0xFF: "DRIVER"}


def _qp_type(data: bytes, start: int, stop: int) -> str:
    return _QP_TYPES.get(uint(data, start, stop), "UNKNOWN")


_qp_state = word("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
_path_migration_state = word("MIGRATED", "REARM", "ARMED")
_node_type = word("unknown", "ca", "switch", "router", "rnic", "usnic", "usnic_udp", "unspecified", other="unknown")
_port_state = word("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
_physical_state = word(
    *("NOP", "SLEEP", "POLLING", "DISABLED", "ARMED", "LINK_UP", "LINK_ERROR_RECOVER", "PHY_TEST"),
    *("UNKNOWN", "OPA_OFFLINE", "UNKNOWN", "OPA_TEST"),
)
_cm_id_state = word(
    *("IDLE", "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_QUERY", "ROUTE_RESOLVED", "CONNECT"),
    *("DISCONNECT", "ADDR_BOUND", "LISTEN", "DEVICE_REMOVAL", "DESTROYING"),
)
_poll_context = word("DIRECT", "SOFTIRQ", "WORKQUEUE", "UNBOUND_WORKQUEUE")
_device_caps = _bits(
    "RESIZE_MAX_WR BAD_PKEY_CNTR BAD_QKEY_CNTR RAW_MULTI AUTO_PATH_MIG CHANGE_PHY_PORT UD_AV_PORT_ENFORCE_PORT_ENFORCE "
    "CURR_QP_STATE_MOD SHUTDOWN_PORT INIT_TYPE PORT_ACTIVE_EVENT SYS_IMAGE_GUID RC_RNR_NAK_GEN SRQ_RESIZE N_NOTIFY_CQ "
    "LOCAL_DMA_LKEY - MEM_WINDOW UD_IP_CSUM UD_TSO XRC MEM_MGT_EXTENSIONS BLOCK_MULTICAST_LOOPBACK MEM_WINDOW_TYPE_2A "
    "MEM_WINDOW_TYPE_2B RC_IP_CSUM RAW_IP_CSUM CROSS_CHANNEL - MANAGED_FLOW_STEERING SIGNATURE_HANDOVER "
    "ON_DEMAND_PAGING",
    "SG_GAPS_REG VIRTUAL_FUNCTION RAW_SCATTER_FCS RDMA_NETDEV_OPA_VNIC PCI_WRITE_END_PADDING",
)
_port_caps = _bits(
    "RESERVED SM NOTICE TRAP OPT_IPD AUTO_MIGR SL_MAP MKEY_NVRAM PKEY_NVRAM LED_INFO SM_DISABLED SYS_IMAGE_GUID "
    "PKEY_SW_EXT_PORT_TRAP CABLE_INFO EXTENDED_SPEEDS CAP_MASK2 CM SNMP_TUNNEL REINIT DEVICE_MGMT VENDOR_CLASS "
    "DR_NOTICE CAP_MASK_NOTICE BOOT_MGMT LINK_LATENCY CLIENT_REG OTHER_LOCAL_CHANGES LINK_SPPED_WIDTH "
    "VENDOR_SPECIFIC_MADS MULT_PKER_TRAP MULT_FDB HIERARCHY_INFO",
    "SET_NODE_DESC EXT_INFO VIRT SWITCH_POR_STATE_TABLE LINK_WIDTH_2X LINK_SPEED_HDR",
)


class Query(NamedTuple):
    """One command of the rdma tool: what to ask the kernel, about what, and how to read the answer."""

    command: int  # RDMA_NLDEV_CMD_*
    fields: Fields  # of one object
    each: str = ""  # asked once, or for each "device", or for each "port"
    table: int = 0  # the attribute that holds the objects; 0: a message is an object
    dump: bool = True
    resource: int = 0  # RDMA_NLDEV_ATTR_STAT_RES in the request
    finish: Callable[[Object], None] | None = None


DEVICES = Query(
    1,
    {
        **_DEVICE,
        14: ("node_type", _node_type),
        67: ("protocol", text),
        5: ("fw", text),
        6: ("node_guid", _guid),
        7: ("sys_image_guid", _guid),
        99: ("type", word("unknown", "smi", other="unknown")),
        100: ("parent", text),
        84: ("adaptive-moderation", flag),
        4: ("caps", _device_caps),
    },
)
LINKS = Query(
    5,
    {
        **_DEVICE,
        3: ("port", uint),
        8: ("subnet_prefix", _guid),
        9: ("lid", uint),
        10: ("sm_lid", uint),
        11: ("lmc", uint),
        12: ("state", _port_state),
        13: ("physical_state", _physical_state),
        51: ("netdev", text),
        50: ("netdev_index", uint),
        4: ("caps", _port_caps),
    },
    each="device",
)
SUMMARY = Query(9, {**_DEVICE, 15: (_FLAT, _named_values(16, 17, 18))}, finish=_flatten)
QPS = Query(
    10,
    {
        3: ("port", uint),
        21: ("lqpn", uint),
        22: ("rqpn", uint),
        26: ("type", _qp_type),
        98: ("subtype", text),
        27: ("state", _qp_state),
        23: ("rq-psn", uint),
        24: ("sq-psn", uint),
        25: ("path-mig-state", _path_migration_state),
        60: ("pdn", uint),
        **_OWNER,
    },
    each="device",
    table=19,
)
CM_IDS = Query(
    11,
    {
        3: ("port", uint),
        63: ("cm-idn", uint),
        21: ("lqpn", uint),
        26: ("qp-type", _qp_type),
        27: ("state", _cm_id_state),
        32: ("ps", _port_space),
        33: ("src-addr", _socket_address),
        34: ("dst-addr", _socket_address),
        **_OWNER,
    },
    each="device",
    table=30,
)
CQS = Query(
    12,
    {
        61: ("cqn", uint),
        37: ("cqe", uint),
        38: ("users", uint),
        39: ("poll-ctx", _poll_context),
        84: ("adaptive-moderation", flag),
        64: ("ctxn", uint),
        **_OWNER,
    },
    each="device",
    table=35,
)
MRS = Query(
    13,
    {
        62: ("mrn", uint),
        42: ("rkey", _hexadecimal),
        43: ("lkey", _hexadecimal),
        44: ("iova", _hexadecimal),
        45: ("mrlen", uint),
        60: ("pdn", uint),
        **_OWNER,
    },
    each="device",
    table=40,
)
PDS = Query(
    14,
    {
        60: ("pdn", uint),
        48: ("local_dma_lkey", _hexadecimal),
        38: ("users", uint),
        49: ("unsafe_global_rkey", _hexadecimal),
        64: ("ctxn", uint),
        **_OWNER,
    },
    each="device",
    table=46,
)
CONTEXTS = Query(22, {64: ("ctxn", uint), **_OWNER}, each="device", table=86)
SRQS = Query(
    23,
    {
        90: ("srqn", uint),
        26: ("type", word("BASIC", "XRC", "TM")),
        19: ("lqpn", _qp_ranges),
        60: ("pdn", uint),
        61: ("cqn", uint),
        **_OWNER,
    },
    each="device",
    table=88,
    finish=_drop_empty_lqpn,
)
LINK_COUNTERS = Query(
    17, {2: ("ifname", text), 3: ("port", uint), **_COUNTERS}, each="port", dump=False, finish=_flatten
)
QP_COUNTERS = Query(
    17,
    {
        3: ("port", uint),
        79: ("cntn", uint),
        26: ("qp-type", _qp_type),
        19: ("lqpn", _qp_numbers),
        **_COUNTERS,
        **_OWNER,
    },
    each="device",
    table=77,
    resource=19,
    finish=_flatten,
)
SYSTEM = Query(
    6,
    {
        66: ("netns", word("exclusive", "shared", other="unknown")),
        96: ("privileged-qkey", flag),
        103: ("monitor", flag),
        93: ("copy-on-fork", flag),
    },
    dump=False,
    finish=_copy_on_fork_is_no,
)
QUERIES: Mapping[str, Query] = {
    "dev show": DEVICES,
    "link show": LINKS,
    "res show": SUMMARY,
    "res show qp": QPS,
    "res show cm_id": CM_IDS,
    "res show cq": CQS,
    "res show mr": MRS,
    "res show pd": PDS,
    "res show ctx": CONTEXTS,
    "res show srq": SRQS,
    "statistic show link": LINK_COUNTERS,
    "statistic qp show": QP_COUNTERS,
    "system show": SYSTEM,
}


def _query(command: str) -> Query:
    if command not in QUERIES:
        raise BadInput(f"no rdma command {command!r}; known: {', '.join(QUERIES)}")
    return QUERIES[command]


# --- asking ---


def read_rdma(command: str) -> bytes:
    """Ask the kernel what one command of the rdma tool asks; return the raw replies, one after the other.

    A device or port that refuses while others answer (it has gone, or its driver has no such counters) is left out.
    Raises BadInput for an unknown command, and OSError: EPROTONOSUPPORT when ib_core is not loaded, EINVAL when no
    device knows the command, EPERM, ETIMEDOUT.
    """
    query = _query(command)
    if not _rdma_is_loaded():
        raise NetlinkError(errno.EPROTONOSUPPORT, "netlink: ib_core is not loaded, so there is no RDMA device")
    if not query.each:
        return _ask(query, b"")
    replies, refused = b"", None
    for place in _places(query.each):
        try:
            replies += _ask(query, place)
        except NetlinkError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV):
                raise
            refused = error
    if refused and not replies:
        raise refused
    return replies


def _rdma_is_loaded() -> bool:
    # Looking must not change the node: opening a socket of a protocol that is not there makes the kernel load ib_core.
    with open("/proc/net/netlink", encoding="ascii") as file:
        return any(line.split()[1:2] == [str(NETLINK_RDMA)] for line in file)


def _ask(query: Query, place: bytes) -> bytes:
    payload = place + (_uint32(STAT_RES, query.resource) if query.resource else b"")
    return exchange(NETLINK_RDMA, NLDEV | query.command, payload, dump=query.dump)


def _uint32(number: int, value: int) -> bytes:
    return attribute(number, value.to_bytes(4, "little"))


def _places(each: str) -> Iterator[bytes]:
    replies = _ask(DEVICES, b"")
    fields: Fields = {DEV_INDEX: ("index", uint), PORT_INDEX: ("ports", uint)}
    for kind, _flags, start, stop in messages(replies):
        if kind >= FIRST_REAL_TYPE:
            found = attributes(replies, start, stop, fields, {"index": 0, "ports": 0})
            ports = [b""] if each == "device" else [_uint32(PORT_INDEX, 1 + port) for port in range(found["ports"])]
            yield from (_uint32(DEV_INDEX, found["index"]) + port for port in ports)


# --- reading ---


def process_name(pid: int) -> str | None:
    """Return a process's name from /proc/<pid>/comm, as iproute2 does, or None when there is no such process."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.readline().rstrip("\n")[:17]
    except OSError:
        return None


def parse_rdma(command: str, data: bytes, name_of: Callable[[int], str | None] = process_name) -> list[Object]:
    """Turn raw replies into the objects that `rdma -d -j <command>` prints, in the kernel's order.

    `name_of` gives a user process's name by its pid; a process that has gone leaves no `comm`. What only `-dd` prints
    (driver details) is not read. `system show`, which iproute2 prints as text in spite of `-j`, takes that text's keys.
    Raises BadInput for an unknown command, NetlinkError (EBADMSG) for bytes that are no netlink messages.
    """
    query = _query(command)
    payloads = ((start, stop) for kind, _flags, start, stop in messages(data) if kind >= FIRST_REAL_TYPE)
    if query.table:
        read = AlikeReader(query.fields).read
        found = [entry for start, stop in payloads for entry in _table(query, data, start, stop, read)]
        _name_owners(found, name_of)
    else:
        found = [attributes(data, start, stop, query.fields, {}) for start, stop in payloads]
    if query.finish:
        for entry in found:
            query.finish(entry)
    return found


def _table(query: Query, data: bytes, start: int, stop: int, read: _Read) -> Iterator[Object]:
    device = attributes(data, start, stop, {**_DEVICE, query.table: ("", span)}, {})
    table_start, table_stop = device.pop("", (0, 0))
    for first, last in entries(data, table_start, table_stop, query.table + 1):
        if first < last:  # a dump of one port's cm_ids holds an empty entry for each of another port
            yield read(data, first, last, device.copy())


def _name_owners(found: list[Object], name_of: Callable[[int], str | None]) -> None:
    names = {pid: name_of(pid) for pid in {entry["pid"] for entry in found if "pid" in entry}}
    for entry in found:
        name = names.get(entry.get("pid", -1))
        if name is not None:
            entry["comm"] = name


def rdma(command: str) -> list[Object]:
    """Return what `rdma -d -j <command>` prints, from the kernel itself; QUERIES holds the commands.

    Raises as `read_rdma` and `parse_rdma` do.
    """
    return parse_rdma(command, read_rdma(command))
