"""Quality of service of network devices: DCB over netlink, the sysfs files of MLNX_OFED, and dcb, mlnx_qos, cma_roce_mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Gap, Json, Line, Row, Text
from rdmadiag.host import Host, link_of, names_in, text_of
from rdmadiag.patterns import late
from rdmadiag.sources.devices import CLASS, known, whole

TABLES = ("qos", "qos_priority", "qos_dscp", "qos_tc", "qos_buffer", "roce_setting")
NET, CONFIGFS = "/sys/class/net", "/sys/kernel/config/rdma_cm"
Values = dict[str, Any]
PRIORITIES = range(8)


# --- reading a node ---


def read(host: Host) -> Iterator[Row | Gap]:
    """Ask the kernel for DCB, then read what MLNX_OFED shows in sysfs; configfs only as far as somebody made its folders."""
    try:
        for entry in host.objects("dcb"):
            for row in parse_dcb([entry]):
                yield row._replace(at="netlink: dcb")
            yield from _mlx5_trust(host, entry)
    except NotPresent:
        pass
    except HostRefused as error:
        kind = "not_given" if isinstance(error, NotGiven) else "unreadable"
        yield Gap(
            TABLES[:5],
            error.reason,
            kind,
            "add the output of dcb -j pfc show dev NETDEV, or of mlnx_qos -i NETDEV",
            "dcb",
        )
    try:
        for name in names_in(host, NET):
            yield from _qos_folder(host, name, f"{NET}/{name}/qos")
            yield from _ecn_folder(host, name, f"{NET}/{name}/ecn")
            yield from _cc_params(host, name)
    except NotGiven:
        pass  # a capture without netdevs: the gap above says so
    yield from _roce_settings(host)


def _mlx5_trust(host: Host, entry: Mapping[str, Any]) -> Iterator[Row]:
    # mlx5 of the kernel trusts DSCP exactly while it has an entry for one (mlx5/core/en_dcbnl.c, setapp and delapp).
    name = entry["ifname"]
    if "order" not in entry and link_of(host, f"{NET}/{name}/device/driver").endswith("/mlx5_core"):
        trust = "dscp" if entry.get("dscp_prio") else "pcp"
        yield Row("qos", {"netdev": name, "trust": trust}, "netlink: dcb app")


def _qos_folder(host: Host, name: str, path: str) -> Iterator[Row]:
    if trust := text_of(host, f"{path}/trust"):
        yield Row("qos", {"netdev": name, "trust": trust}, f"{path}/trust")
    for line in text_of(host, f"{path}/dscp2prio").splitlines():
        words = [whole(word) for word in line.split()[:2]]
        if len(words) == 2 and None not in words:
            values = {"netdev": name, "dscp": words[0], "priority": words[1]}
            yield Row("qos_dscp", values, f"{path}/dscp2prio")
    for number, value in _numbers(text_of(host, f"{path}/prio2buffer")):
        yield Row("qos_priority", {"netdev": name, "priority": number, "buffer": value}, f"{path}/prio2buffer")
    for number, value in _numbers(text_of(host, f"{path}/buffer_size")):
        yield Row("qos_buffer", {"netdev": name, "buffer": number, "size_bytes": value}, f"{path}/buffer_size")


def _numbers(text: str) -> list[tuple[int, int | None]]:
    words = text.replace(",", " ").split()[:8]
    return list(enumerate(map(whole, words))) if len(words) == 8 else []


def _ecn_folder(host: Host, name: str, path: str) -> Iterator[Row]:
    values = {
        "cnp_dscp": whole(text_of(host, f"{path}/roce_np/cnp_dscp")),
        "cnp_priority": whole(text_of(host, f"{path}/roce_np/cnp_802p_prio")),
        "min_time_between_cnps_us": whole(text_of(host, f"{path}/roce_np/min_time_between_cnps")),
    }
    if found := known(values):
        yield Row("qos", {"netdev": name, **found}, f"{path}/roce_np")
    for priority in PRIORITIES:
        sides = {f"ecn_{side}": whole(text_of(host, f"{path}/roce_{side}/enable/{priority}")) for side in ("np", "rp")}
        if enabled := known(sides):
            yield Row(
                "qos_priority", {"netdev": name, "priority": priority, **enabled}, f"{path}/roce_np/enable/{priority}"
            )


def _cc_params(host: Host, name: str) -> Iterator[Row]:
    # mlx5 of the kernel shows the notification point in debugfs (mlx5/cong.c), for root.
    bdf = link_of(host, f"{NET}/{name}/device").rpartition("/")[2]
    path = f"/sys/kernel/debug/mlx5/{bdf}/cc_params"
    try:
        if not bdf or not names_in(host, path):
            return
    except NotGiven:
        return
    values = {
        "cnp_dscp": whole(text_of(host, f"{path}/np_cnp_dscp")),
        "cnp_priority": whole(text_of(host, f"{path}/np_cnp_prio")),
        "min_time_between_cnps_us": whole(text_of(host, f"{path}/np_min_time_between_cnps")),
    }
    if found := known(values):
        yield Row("qos", {"netdev": name, **found}, path)


def _roce_settings(host: Host) -> Iterator[Row]:
    for device in host.ls(CLASS):
        for port in names_in(host, f"{CLASS}/{device}/ports"):
            if not (port.isascii() and port.isdecimal()):
                continue
            found = late(r"([0-9]{1,9})").search(text_of(host, f"{CLASS}/{device}/tc/{port}/traffic_class"))
            values = known({"traffic_class": int(found[1]) if found else None, **_configfs(host, device, port)})
            if values:
                yield Row(
                    "roce_setting", {"device": device, "port": int(port), **values}, f"{CLASS}/{device}/tc/{port}"
                )


def _configfs(host: Host, device: str, port: str) -> Values:
    # Making the folder would tell more, and would change the node.
    path = f"{CONFIGFS}/{device}/ports/{port}"
    try:
        mode, tos = text_of(host, f"{path}/default_roce_mode"), text_of(host, f"{path}/default_roce_tos")
    except NotGiven:
        return {}
    return {"cm_roce_mode": mode or None, "cm_roce_tos": whole(tos)}


# --- objects: dcb -j, netlink ---


def parse_dcb(objects: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Turn objects with the keys of `dcb -j pfc|ets|app|buffer|maxrate|dcbx|apptrust show` into rows."""
    for entry in objects:
        name = entry.get("ifname")
        place = {"netdev": name if isinstance(name, str) else ""}
        if values := _dcb_port(entry):
            yield Row("qos", {**place, **values}, 1)
        columns = {
            "pfc": ("prio_pfc", _switch),
            "tc": ("prio_tc", whole),
            "buffer": ("prio_buffer", whole),
            "pfc_sent": ("requests", whole),
            "pfc_received": ("indications", whole),
        }
        for priority, values in _by_number(entry, columns):
            yield Row("qos_priority", {**place, "priority": priority, **values}, 1)
        shares: Mapping[str, tuple[str, Any]] = {
            "tsa": ("tc_tsa", _text),
            "bandwidth_percent": ("tc_bw", whole),
            "maxrate_bytes_per_second": ("tc_maxrate", whole),
        }
        for tc, values in _by_number(entry, shares):
            yield Row("qos_tc", {**place, "tc": tc, **values}, 1)
        for buffer, values in _by_number(entry, {"size_bytes": ("buffer_size", whole)}):
            yield Row("qos_buffer", {**place, "buffer": buffer, **values}, 1)
        for pair in map(_list, _list(entry.get("dscp_prio"))):
            dscp, of_dscp = (whole(pair[0]), _after_colon(pair[1])) if len(pair) > 1 else (None, None)
            if dscp is not None and of_dscp is not None:
                yield Row("qos_dscp", {**place, "dscp": dscp, "priority": of_dscp}, 1)


def _dcb_port(entry: Mapping[str, Any]) -> Values:
    order = [word for word in _list(entry.get("order")) if word in ("dscp", "pcp")]
    trust = ("both" if len(order) > 1 else order[0]) if order else None
    default = _list(entry.get("default_prio"))
    values = {
        "trust": trust,
        "dcbx": "firmware" if entry.get("lld_managed") is True else "os" if entry.get("host") is True else None,
        "pfc_cap": whole(entry.get("pfc_cap")),
        "cable_length_m": whole(entry.get("delay")),
        "buffer_total_bytes": whole(entry.get("total_size")),
        "default_priority": whole(default[0]) if default else None,
    }
    return known(values)


def _by_number(entry: Mapping[str, Any], columns: Mapping[str, tuple[str, Any]]) -> Iterator[tuple[int, Values]]:
    for number in PRIORITIES:
        values = {}
        for column, (key, fit) in columns.items():
            array = _list(entry.get(key))
            if number < len(array) and (value := fit(array[number])) is not None:
                values[column] = value
        if values:
            yield number, values


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _switch(value: Any) -> int | None:
    return int(value) if isinstance(value, bool) else {"on": 1, "off": 0}.get(str(value))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _after_colon(value: Any) -> int | None:
    return whole(value.lstrip(":").strip()) if isinstance(value, str) else whole(value)


# --- text: dcb ---

_DCB_COMMAND = late(r"\bdcb\s.*\bdev\s+(\S+)")
_DCB_LINE = late(r"\s*((?:prio|tc|buffer|dscp|default)-[a-z]+) (.*)")
_DCB_HEAD = late(r"\s*(pfc-cap|total-size) ([0-9A-Za-z.]+)")
_DCB_TABLES: Mapping[str, tuple[str, str, str, Any]] = {
    "prio-pfc": ("qos_priority", "priority", "pfc", _switch),
    "prio-tc": ("qos_priority", "priority", "tc", whole),
    "prio-buffer": ("qos_priority", "priority", "buffer", whole),
    "tc-tsa": ("qos_tc", "tc", "tsa", _text),
    "tc-bw": ("qos_tc", "tc", "bandwidth_percent", whole),
    "dscp-prio": ("qos_dscp", "dscp", "priority", whole),
}
_DSCP_NAMES = {  # /etc/iproute2/rt_dsfield
    **{f"CS{number}": 8 * number for number in PRIORITIES},
    **{f"AF{line}{drop}": 8 * line + 2 * drop for line in range(1, 5) for drop in range(1, 4)},
    "EF": 46,
}


def parse_dcb_text(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `dcb pfc|ets|app|buffer show dev NETDEV` as text; the netdev is named in the prompt line only."""
    place: Values = {"netdev": ""}
    for number, text in lines:
        if command := prompt_command(text):
            match = _DCB_COMMAND.search(command)
            place = {"netdev": match[1] if match else ""}
        elif match := _DCB_HEAD.match(text):
            if match[1] == "pfc-cap" and (value := whole(match[2])) is not None:
                delay = late(r"\bdelay (\d{1,6})\b").search(text)
                yield Row(
                    "qos",
                    {**place, **known({"pfc_cap": value, "cable_length_m": whole(delay[1]) if delay else None})},
                    number,
                )
        elif (match := _DCB_LINE.match(text)) and match[1] in _DCB_TABLES:
            table, key, column, fit = _DCB_TABLES[match[1]]
            for pair in match[2].split():
                first, _, second = pair.partition(":")
                at = _DSCP_NAMES.get(first, whole(first) if first.isdecimal() else None)
                read = fit(second)
                if at is not None and at < 64 and read is not None:
                    yield Row(table, {**place, key: at, column: read}, number)


# --- text: mlnx_qos ---

_QOS_COMMAND = late(r"\bmlnx_qos\s.*?(?:-i|--interface)[ =]*(\S+)")
_QOS_DSCP = late(r"\s*prio:\s*([0-7])\s+dscp:\s*([0-9][0-9, ]*)")
_QOS_ROW = late(r"\s*(priority|enabled|buffer):?((?:\s+[0-9]+){8})\s*$")
_QOS_BUFFERS = late(r"\s*Receive buffer size \(bytes\): ((?:[0-9]+,){8})(?:max_buffer_size=([0-9]+))?")
_QOS_TC = late(r"\s*tc: ([0-7]) (?:ratelimit: (\S+)(?: Gbps)?, )?tsa: (\w+)(?:, bw: ([0-9]+)%)?")
_QOS_PRIORITY = late(r"\s+priority:\s+([0-7])\s*$")
_QOS_PORT = (
    ("trust", late(r"\s*Priority trust state: (dscp|pcp|both)\b")),
    ("dcbx", late(r"\s*DCBX mode: (OS|Firmware) controlled")),
    ("cable_length_m", late(r"\s*Cable len: ([0-9]{1,6})")),
    ("lldpad", late(r"\*+ WARNING: (lldpad) service is running")),
    ("default_priority", late(r"\s*default priority: ?([0-7])")),
)


def parse_mlnx_qos(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `mlnx_qos -i NETDEV`; the netdev is named in the prompt line only."""
    place: Values = {"netdev": ""}
    tc: int | None = None
    for number, text in lines:
        if command := prompt_command(text):
            match = _QOS_COMMAND.search(command)
            place, tc = {"netdev": match[1] if match else ""}, None
        elif match := _QOS_TC.match(text):
            tc = int(match[1])
            share = {"tsa": match[3], "bandwidth_percent": whole(match[4]) if match[4] else None}
            yield Row("qos_tc", {**place, "tc": tc, **known(share)}, number)
        elif tc is not None and (match := _QOS_PRIORITY.match(text)):
            yield Row("qos_priority", {**place, "priority": int(match[1]), "tc": tc}, number)
        else:
            yield from (Row(table, {**place, **values}, number) for table, values in _qos_line(text))


def _qos_line(text: str) -> Iterator[tuple[str, Values]]:
    if match := _QOS_DSCP.match(text):
        for dscp in match[2].replace(",", " ").split():
            if int(dscp) < 64:
                yield "qos_dscp", {"dscp": int(dscp), "priority": int(match[1])}
    elif (match := _QOS_ROW.match(text)) and match[1] != "priority":
        column = "pfc" if match[1] == "enabled" else "buffer"
        for priority, value in enumerate(match[2].split()):
            yield "qos_priority", {"priority": priority, column: whole(value)}
    elif match := _QOS_BUFFERS.match(text):
        for buffer, size in enumerate(match[1].strip(",").split(",")):
            yield "qos_buffer", {"buffer": buffer, "size_bytes": whole(size)}
        if match[2]:
            yield "qos", {"buffer_total_bytes": whole(match[2])}
    else:
        for column, pattern in _QOS_PORT:
            if match := pattern.match(text):
                word = match[1].lower()
                yield "qos", {column: 1 if column == "lldpad" else whole(word) if word.isdecimal() else word}


# --- text: cma_roce_mode, cma_roce_tos, traffic_class ---

_CMA = late(r"\bcma_roce_(mode|tos)\b(?=.*?-d[ =]*(\S+))?(?=.*?-p[ =]*([0-9]+))?")
_CLASS_PATH = late(r"infiniband/([^/\s]+)/tc/([0-9]+)/traffic_class(?::(.*))?")
_GLOBAL = late(r"Global tclass=(\d{1,3})")


def parse_cma(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse what `cma_roce_mode`, `cma_roce_tos` and `cat .../tc/1/traffic_class` print; the prompt line names the device."""
    place: Values = {}
    what = ""
    for number, text in lines:
        stripped = text.strip()
        if command := prompt_command(text):
            what, place = "", {}
            if match := _CMA.search(command):
                what, place = match[1], {"device": match[2], "port": whole(match[3] or "1")}
            elif match := _CLASS_PATH.search(command):
                what, place = "class", {"device": match[1], "port": whole(match[2])}
        elif match := _CLASS_PATH.search(stripped):
            if found := _GLOBAL.search(match[3] or ""):
                yield Row(
                    "roce_setting",
                    {"device": match[1], "port": whole(match[2]), "traffic_class": int(found[1])},
                    number,
                )
        elif what == "mode" and stripped in ("IB/RoCE v1", "RoCE v2"):
            yield Row("roce_setting", known({**place, "cm_roce_mode": stripped}), number)
        elif what == "tos" and stripped.isdecimal() and int(stripped) < 256:
            yield Row("roce_setting", known({**place, "cm_roce_tos": int(stripped)}), number)
        elif what == "class" and (found := _GLOBAL.match(stripped)):
            yield Row("roce_setting", {**place, "traffic_class": int(found[1])}, number)


TEXTS: tuple[Text | Json, ...] = (
    Json(
        "dcb",
        (
            ("prio_pfc",),
            ("tc_tsa", "prio_tc"),
            ("dscp_prio",),
            ("prio_buffer", "buffer_size"),
            ("tc_maxrate",),
            ("default_prio",),
        ),
        parse_dcb,
        ("dcb",),
        r"\bdev\s+(\S+)",
    ),
    Text(
        "dcb",
        (
            r"^\s*pfc-cap \d+ macsec-bypass ",
            r"^\s*prio-pfc 0:(on|off) ",
            r"^\s*(prio-tc|prio-buffer|tc-tsa) 0:",
            r"^\s*dscp-prio \w+:[0-7]",
        ),
        parse_dcb_text,
    ),
    Text(
        "mlnx_qos",
        (
            r"^\s*Priority trust state: (dscp|pcp|both)",
            r"^\s*dscp2prio mapping:",
            r"^\s*PFC configuration:",
            r"^\s*tc: [0-7] ratelimit: ",
        ),
        parse_mlnx_qos,
        ("mlnx_qos",),
    ),
    Text(
        "cma_roce_mode",
        (r"^Global tclass=[0-9]", r"traffic_class:Global tclass="),
        parse_cma,
        ("cma_roce_mode", "cma_roce_tos"),
    ),
)
