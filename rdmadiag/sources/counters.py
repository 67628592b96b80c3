"""Counters of RDMA ports, devices and netdevs: sysfs, `rdma statistic`, `ethtool -S` and `-I`, `perfquery`, file dumps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rdmadiag.errors import HostRefused, NotPresent
from rdmadiag.evidence.row import Gap, Json, Line, Row, Text
from rdmadiag.host import Host, link_of, names_in, text_of
from rdmadiag.patterns import late
from rdmadiag.sources.devices import CLASS, is_restricted, whole

TABLES = ("counter",)
SAMPLED = True

_NOT_COUNTERS = {"lifespan"}  # hw_counters/lifespan: how long the kernel keeps a value [ms]
_HOW = "read them from the host that owns this function"


# --- reading a node ---


def read(host: Host, skip: frozenset[str] = frozenset()) -> Iterator[Row | Gap]:
    """Read every counter once. Devices in `skip` are left alone: the subjects of the gaps of kind `restricted`.

    A restricted function answers EINVAL or EIO, and each such read may write a line to the kernel log: it is left at
    the first one, and its netdev too.
    """
    aside = set(skip)
    missing: NotPresent | HostRefused | None = None
    try:
        for item in _rdma_counters(host, skip):
            if isinstance(item, Gap) and item.kind == "restricted":
                aside.add(item.subject)
            yield item
    except (NotPresent, HostRefused) as error:
        missing = error
    yield from _netdev_counters(host, aside)
    if missing is not None:
        raise missing


def _rdma_counters(host: Host, skip: frozenset[str]) -> Iterator[Row | Gap]:
    for device in host.ls(CLASS):
        if device in skip:
            continue
        try:
            seen: set[tuple[int | None, str]] = set()
            for folder, port, kind in _folders(host, device):
                for row in _read_folder(host, device, folder, port, kind):
                    seen.add((port, row.values["counter"]))
                    yield row
            yield from _optional(host, device, seen)
        except HostRefused as error:
            restricted = is_restricted(error)
            reason = f"{error}; its counters are not read again" if restricted else str(error)
            how = _HOW if restricted else error.how
            yield Gap(("counter",), reason, "restricted" if restricted else "unreadable", how, device)


def _optional(host: Host, device: str, seen: set[tuple[int | None, str]]) -> Iterator[Row]:
    # Optional counters (rdma statistic set ... optional-counters) are told by netlink only.
    command = "rdma statistic show link"
    for row in parse_statistic_objects(_objects(host, command)):
        values = row.values
        if values["device"] == device and (values["port"], values["counter"]) not in seen:
            values.pop("state", None)
            yield Row("counter", values, f"netlink: {command}")


def _objects(host: Host, command: str) -> list[dict[str, Any]]:
    # What is optional: a kernel or a capture without it has no such counters, and that is no gap.
    try:
        return host.objects(command)
    except (NotPresent, HostRefused):
        return []


_NET = "/sys/class/net"


def _netdev_counters(host: Host, aside: set[str]) -> Iterator[Row]:
    # Of real adapters: carrier changes, ethtool -S, and the standard statistics of FEC and pause.
    left = {name for device in aside for name in names_in(host, f"{CLASS}/{device}/device/net")}
    try:
        names = [name for name in names_in(host, _NET) if name not in left and link_of(host, f"{_NET}/{name}/device")]
        for name in names:
            if text := text_of(host, f"{_NET}/{name}/carrier_changes"):
                values = {"netdev": name, "kind": "netdev", "counter": "carrier_changes", "value": whole(text)}
                yield Row("counter", values, f"{_NET}/{name}/carrier_changes")
    except HostRefused:  # the capture does not hold netdevs
        return
    if not names:
        return
    for entry in _objects(host, f"ethtool -S {' '.join(names)}"):
        yield from _statistics(entry, "ethtool", {key: value for key, value in entry.items() if key != "ifname"})
    for option, kind in (("-a", "pause"), ("--show-fec", "fec")):
        for entry in _objects(host, f"ethtool {option}"):
            if entry.get("ifname") in names and isinstance(entry.get("statistics"), dict):
                yield from _statistics(entry, kind, entry["statistics"])


def _statistics(entry: dict[str, Any], kind: str, counters: dict[str, Any]) -> Iterator[Row]:
    at = f"netlink: ethtool, {entry['ifname']}"
    for name, value in counters.items():
        if name == "hist":
            for one in value:
                low, high = one.get("bin_low"), one.get("bin_high")
                name = f"fec_bit_err_{low}" + (f"_to_{high}" if high != low else "")
                yield Row("counter", _netdev_values(entry, kind, name, one.get("total")), at)
        else:
            yield Row("counter", _netdev_values(entry, kind, name, value), at)


def _netdev_values(entry: dict[str, Any], kind: str, name: str, value: Any) -> dict[str, Any]:
    value = value.get("total") if isinstance(value, dict) else value
    return {"netdev": entry["ifname"], "kind": kind, "counter": name, "value": whole(value)}


def _folders(host: Host, device: str) -> Iterator[tuple[str, int | None, str]]:
    # hw_counters first: they come from the function itself, counters/ from the port that it may not look at.
    base = f"{CLASS}/{device}"
    yield f"{base}/hw_counters", None, "hw_counters"
    ports = [name for name in _names(host, f"{base}/ports") if name.isascii() and name.isdecimal()]
    for kind in ("hw_counters", "counters"):
        for port in ports:
            yield f"{base}/ports/{port}/{kind}", int(port), kind


def _names(host: Host, folder: str) -> list[str]:
    try:
        return host.ls(folder)
    except NotPresent:  # bnxt_re has no counters/, siw no hw_counters/
        return []


def _read_folder(host: Host, device: str, folder: str, port: int | None, kind: str) -> Iterator[Row]:
    for name in _names(host, folder):
        if name in _NOT_COUNTERS:
            continue
        path = f"{folder}/{name}"
        try:
            text = host.read(path)
        except NotPresent:
            continue
        yield Row("counter", _values(device, port, kind, name, text), path)


def _values(device: str | None, port: int | None, kind: str, name: str, text: Any) -> dict[str, Any]:
    # "N/A (no PMA)": a VF or an iWARP device, whose port has no such counter to read.
    value = whole(text)
    row: dict[str, Any] = {"device": device, "port": port, "kind": kind, "counter": name, "value": value}
    if value is None:
        row["state"] = "unreadable"
    return row


def _once(row: dict[str, Any]) -> dict[str, Any]:
    row.setdefault("state", "one sample")
    return row


# --- rdma statistic ---

_LINK = late(r"link ([^\s/]+)/([0-9]+)\s*(.*)")
_PAIR = late(r"([A-Za-z][A-Za-z0-9_]*) ([0-9]+)(?: |$)")
_OBJECT_KEYS = {"ifindex", "ifname", "port", "cntn", "qp-type", "pid", "comm", "lqpn"}


def parse_statistic(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `rdma statistic show`: counters behind `link D/P`, or one a line below it (iproute2 5.1 and later).

    Counters of single QPs (`rdma statistic qp show`, with `cntn`) are passed over: they are a part of a port's.
    """
    link: tuple[str, int] | None = None
    for line in lines:
        text = line.text.strip().rstrip("\\")
        if match := _LINK.match(text):
            text = match[3]
            other = late(r"(cntn|lqpn|cm-idn|state|subnet_prefix|mode) ").match(text)
            link = None if other else (match[1], int(match[2]))
        elif not line.text[:1].isspace():
            link = None
        if link is None:
            continue
        pairs = _PAIR.findall(text)
        if " ".join(f"{name} {value}" for name, value in pairs) != " ".join(text.split()):
            continue
        for name, value in pairs:
            yield Row("counter", _once(_values(*link, "hw_counters", name, value)), line.number)


def parse_statistic_objects(objects: list[dict[str, Any]]) -> Iterator[Row]:
    """Parse `rdma -j statistic show`: one object a port, its counters as keys."""
    for entry in objects:
        device, port = entry.get("ifname"), whole(entry.get("port"))
        if not isinstance(device, str) or "cntn" in entry:
            continue
        for name, value in entry.items():
            if name not in _OBJECT_KEYS and isinstance(value, int) and not isinstance(value, bool):
                yield Row("counter", _once(_values(device, port, "hw_counters", name, value)), 1)


# --- dumps of the files ---

_FILE = late(r"(?:^|/)(hw_counters|counters)/([A-Za-z0-9_]+)(?::\s*|\s+)(\S.*)")
_REFUSALS = ("N/A", "Invalid argument", "Input/output error")
_BELOW = late(r"infiniband/([^/\s]+)(?:/ports/([0-9]+))?")
_SHOW = late(r"show_counters\s+([^\s/]+)\s*$")
_SHOW_HEAD = late(r"Port ([0-9]+) (hw|cm) counters:\s*$")
_SHOW_LINE = late(r"([A-Za-z0-9_]+): ([0-9]+)\s*$")


def parse_files(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `grep -r . .../hw_counters` (path:value) and show_counters of mlnx-tools (`Port 1 hw counters:`)."""
    device: str | None = None
    port: int | None = None
    listed: int | None = None
    for line in lines:
        text = line.text.strip()
        if match := _FILE.search(text):
            kind, name, content = match.groups()
            values = _values(*_place(text[: match.start()], device, port), kind, name, content)
            if name not in _NOT_COUNTERS and (values["value"] is not None or content.startswith(_REFUSALS)):
                yield Row("counter", _once(values), line.number)
        elif match := _SHOW_HEAD.match(text):
            listed = int(match[1]) if match[2] == "hw" else None
        elif listed is not None and (match := _SHOW_LINE.match(text)):
            if match[1] not in _NOT_COUNTERS:
                yield Row("counter", _once(_values(device, listed, "hw_counters", match[1], match[2])), line.number)
        else:
            listed = None
            if match := _SHOW.search(text):
                device, port = match[1], None
            elif match := _BELOW.search(text):  # the command line: cd /sys/class/infiniband/mlx5_0/ports/1
                device, port = match[1], whole(match[2])


def _place(folder: str, device: str | None, port: int | None) -> tuple[str | None, int | None]:
    # What the path says; a path that begins below the device or the port takes the rest from the command line.
    if below := _BELOW.search(folder):
        return below[1], whole(below[2])
    names = folder.split("/")
    if names[-1].isascii() and names[-1].isdecimal():
        port = whole(names.pop())
        if names and names[-1] == "ports":
            names.pop()
        if names and names[-1] not in ("", ".", ".."):
            device = names[-1].rpartition(" ")[2]
    return device, port


# --- perfquery ---

# Names of libibmad (and of its releases before 2010) to the files of counters/.
_PERFQUERY = {
    "SymbolErrorCounter": "symbol_error",
    "SymbolErrors": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkRecovers": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "LinkDowned": "link_downed",
    "PortRcvErrors": "port_rcv_errors",
    "RcvErrors": "port_rcv_errors",
    "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "RcvRemotePhysErrors": "port_rcv_remote_physical_errors",
    "PortRcvSwitchRelayErrors": "port_rcv_switch_relay_errors",
    "RcvSwRelayErrors": "port_rcv_switch_relay_errors",
    "PortXmitDiscards": "port_xmit_discards",
    "XmtDiscards": "port_xmit_discards",
    "PortXmitConstraintErrors": "port_xmit_constraint_errors",
    "XmtConstraintErrors": "port_xmit_constraint_errors",
    "PortRcvConstraintErrors": "port_rcv_constraint_errors",
    "RcvConstraintErrors": "port_rcv_constraint_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "LinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
    "ExcBufOverrunErrors": "excessive_buffer_overrun_errors",
    "VL15Dropped": "VL15_dropped",
    "PortXmitData": "port_xmit_data",
    "XmtData": "port_xmit_data",
    "PortRcvData": "port_rcv_data",
    "RcvData": "port_rcv_data",
    "PortXmitPkts": "port_xmit_packets",
    "XmtPkts": "port_xmit_packets",
    "PortRcvPkts": "port_rcv_packets",
    "RcvPkts": "port_rcv_packets",
    "PortXmitWait": "port_xmit_wait",
    "XmtWait": "port_xmit_wait",
    "PortUnicastXmitPkts": "unicast_xmit_packets",
    "PortUnicastRcvPkts": "unicast_rcv_packets",
    "PortMulticastXmitPkts": "multicast_xmit_packets",
    "PortMulticastRcvPkts": "multicast_rcv_packets",
}
_PERFQUERY_HEAD = late(r"# Port (?:extended )?counters: .*\bport ([0-9]+)")
_PERFQUERY_LINE = late(r"([A-Za-z0-9]+):\.*([0-9]+)\s*$")
_PERFQUERY_COMMAND = late(r"\bperfquery\b(?:\s+-[A-Za-z]*x[A-Za-z]*)?\s+-C\s+(\S+)(?:\s+-P\s+[0-9]+)?\s*$")


def parse_perfquery(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `perfquery`; the device is known only where the prompt line chose it (-C) and no LID of another port."""
    device: str | None = None
    port: int | None = None
    for line in lines:
        text = line.text.strip()
        if match := _PERFQUERY_COMMAND.search(text):
            device, port = match[1], None
        elif match := _PERFQUERY_HEAD.match(text):
            port = int(match[1])
        elif (match := _PERFQUERY_LINE.match(text)) and match[1] in _PERFQUERY:
            yield Row("counter", _once(_values(device, port, "counters", _PERFQUERY[match[1]], match[2])), line.number)


# --- ethtool -S ---

_ETHTOOL_COMMAND = late(r"\bethtool\s+(?:-S|--statistics)\s+([^\s|;&]+)")
_ETHTOOL_HEAD = late(r"NIC statistics(?: for ([^\s:]+))?:\s*$")
_ETHTOOL_NAME = late(r"(rx|tx)_(prio[0-9]_|global_pause|discards_phy|pause_ctrl_phy|symbol_err_phy|vport_rdma_)")


def parse_ethtool(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ethtool -S NETDEV`; the netdev is known only where the prompt or `NIC statistics for N:` names it."""
    netdev: str | None = None
    inside = False
    for line in lines:
        if match := _ETHTOOL_COMMAND.search(line.text):
            netdev, inside = match[1], False
            continue
        text = line.text.strip()
        if match := _ETHTOOL_HEAD.match(text):
            netdev, inside = match[1] or netdev, True
            continue
        name, _, value = text.rpartition(": ")
        if name and value.isascii() and value.isdecimal() and (inside or _ETHTOOL_NAME.match(name)):
            row = {"netdev": netdev, "kind": "ethtool", "counter": name.strip(), "value": whole(value)}
            yield Row("counter", _once(row), line.number)
        elif text:
            inside = False


_FIRST_COUNTERS = (  # a counter that each driver has
    "rx_write_requests",
    "vport_rx_write_requests",
    "sent_pkts",
    "active_qps",
    "active_qp",
    "ip4InOctets",
    "RxUDP",
    "tx_bytes",
    "tx_pkts",
    "rx_rc_pkt",
    "out_of_buffer",
    "duplicate_request",
)

_Parser = Callable[[Sequence[Line]], Iterable[Row]]
TEXTS: tuple[Text | Json, ...] = (
    Text(
        "rdma statistic",
        (r"^link [^ /]+/[0-9]+( +[A-Za-z0-9_]+ [0-9]+){4}", r"^link [^ /]+/[0-9]+ *$"),
        parse_statistic,
    ),
    Json("rdma statistic", tuple(("ifname", "port", name) for name in _FIRST_COUNTERS), parse_statistic_objects),
    Text(
        "grep hw_counters",
        (
            r"ports/[0-9]+/(hw_)?counters/[A-Za-z0-9_]+:",
            r"^(\./)?(hw_)?counters/[A-Za-z0-9_]+:",
            r"infiniband/[^/ ]+/hw_counters/[A-Za-z0-9_]+:",
            r"^Port [0-9]+ hw counters:",
        ),
        parse_files,
        commands=("show_counters",),
    ),
    Text(
        "perfquery",
        (
            r"^# Port (extended )?counters: ",
            r"^(Port)?(Xmi?t|Rcv)(Data|Pkts|Errors|Discards):\.+[0-9]",
            r"^LinkDowned(Counter)?:\.+[0-9]",
        ),
        parse_perfquery,
        commands=("perfquery",),
    ),
    Text(
        "ethtool -S",
        (
            r"^NIC statistics( for [^ :]+)?:",
            r"^ *(rx|tx)_prio[0-9]_(pause|discards|packets|pause_duration|buf_discard|cong_discard|marked): [0-9]",
            r"^ *(rx|tx)_(discards_phy|pause_ctrl_phy|global_pause): [0-9]",
        ),
        parse_ethtool,
    ),
)
