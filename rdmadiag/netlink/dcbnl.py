"""Data centre bridging of network devices over RTM_GETDCB, as `dcb -j` prints it.

Numbers and structures: uapi/linux/dcbnl.h; keys and words: iproute2 7.1 (dcb/). One object holds what `dcb pfc`, `ets`,
`app`, `buffer`, `maxrate`, `apptrust` and `dcbx` show of a netdev, with its name as `ifname`, which dcb leaves out.
"""

from __future__ import annotations

import errno
from struct import unpack_from

from rdmadiag.netlink.route import NETLINK_ROUTE, ip
from rdmadiag.netlink.wire import (
    Fields,
    NetlinkError,
    Object,
    attribute,
    attributes,
    entries,
    exchange,
    messages,
    span,
    text,
    uint,
)

GETDCB, IEEE_GET = 78, 21
_IFNAME, _IEEE, _DCBX = 1, 13, 14
_PRIORITIES = 8
_TSA = {0: "strict", 1: "cbs", 2: "ets", 255: "vendor"}
_SELECTORS = {
    1: "ethtype_prio",
    2: "stream_port_prio",
    3: "dgram_port_prio",
    4: "port_prio",
    5: "dscp_prio",
    24: "pcp_prio",
}
_TRUST = {5: "dscp", 24: "pcp"}
_DCBX_FLAGS = {0x01: "host", 0x02: "lld_managed", 0x04: "cee", 0x08: "ieee", 0x10: "static"}


def _pfc(data: bytes, start: int, stop: int) -> Object:
    if stop - start < 136:  # struct ieee_pfc
        return {}
    cap, enabled, bypass, delay = unpack_from("=BBBxH", data, start)
    return {
        "pfc_cap": cap,
        "macsec_bypass": bool(bypass),
        "delay": delay,
        "prio_pfc": [bool(enabled >> priority & 1) for priority in range(_PRIORITIES)],
        "requests": list(unpack_from("=8Q", data, start + 8)),
        "indications": list(unpack_from("=8Q", data, start + 72)),
    }


def _ets(data: bytes, start: int, stop: int) -> Object:
    if stop - start < 59:  # struct ieee_ets
        return {}
    willing, cap, shaper = data[start : start + 3]
    rows = [list(data[start + 3 + 8 * row : start + 11 + 8 * row]) for row in range(7)]
    return {
        "willing": bool(willing),
        "ets_cap": cap,
        "cbs": bool(shaper),
        "tc_bw": rows[0],
        "tc_tsa": [_TSA.get(value, str(value)) for value in rows[2]],
        "prio_tc": rows[3],
    }


def _app(data: bytes, start: int, stop: int) -> Object:
    table: dict[str, list[list[int]]] = {}
    for kind in (1, 2):  # DCB_ATTR_IEEE_APP, DCB_ATTR_DCB_APP
        for first, last in entries(data, start, stop, kind):
            if last - first >= 4:
                selector, priority, protocol = unpack_from("=BBH", data, first)
                name = _SELECTORS.get(selector)
                if name == "ethtype_prio" and protocol == 0:
                    table.setdefault("default_prio", []).append([priority])
                elif name:
                    table.setdefault(name, []).append([protocol, priority])
    return {key: [row[0] for row in rows] if key == "default_prio" else rows for key, rows in table.items()}


def _buffer(data: bytes, start: int, stop: int) -> Object:
    if stop - start < 44:  # struct dcbnl_buffer
        return {}
    return {
        "prio_buffer": list(data[start : start + 8]),
        "buffer_size": list(unpack_from("=8I", data, start + 8)),
        "total_size": unpack_from("=I", data, start + 40)[0],
    }


def _maxrate(data: bytes, start: int, stop: int) -> Object:
    if stop - start < 64:
        return {}
    return {"tc_maxrate": [rate * 125 for rate in unpack_from("=8Q", data, start)]}  # kbit/s to bytes/s, as dcb prints


def _trust(data: bytes, start: int, stop: int) -> Object:
    order = [_TRUST.get(data[first]) for first, last in entries(data, start, stop, 13) if last > first]
    return {"order": [name for name in order if name]}


_IEEE_FIELDS: Fields = {1: ("ets", _ets), 2: ("pfc", _pfc), 3: ("app", _app), 7: ("maxrate", _maxrate)}
_IEEE_FIELDS = {**_IEEE_FIELDS, 10: ("buffer", _buffer), 11: ("apptrust", _trust)}


def read_dcb(name: str) -> bytes:
    """Ask the kernel for one netdev's DCB objects. Raises OSError: EOPNOTSUPP where its driver or the kernel has none."""
    payload = bytes([0, IEEE_GET, 0, 0]) + attribute(_IFNAME, name.encode() + b"\0")
    return exchange(NETLINK_ROUTE, GETDCB, payload, dump=False)


def parse_dcb(data: bytes) -> list[Object]:
    """Turn raw replies into one object a netdev: the keys of `dcb -j`, with `ifname`. Raises NetlinkError (EBADMSG)."""
    found = []
    fields: Fields = {_IFNAME: ("ifname", text), _IEEE: ("", span), _DCBX: ("dcbx", uint)}
    for kind, _flags, start, stop in messages(data):
        if kind != GETDCB:
            continue
        entry = attributes(data, start + 4, stop, fields, {})
        first, last = entry.pop("", (0, 0))
        nested = attributes(data, first, last, _IEEE_FIELDS, {})
        dcbx = entry.pop("dcbx", None)
        if dcbx is not None:
            entry.update({word: True for bit, word in _DCBX_FLAGS.items() if dcbx & bit})
        for part in nested.values():
            entry.update(part)
        if entry.get("ifname"):
            found.append(entry)
    return found


def dcb(words: str) -> list[Object]:
    """Return what the dcb tool shows of every netdev that has DCB. `words` is not looked at: all is asked at once.

    Raises NetlinkError: EOPNOTSUPP where no netdev has any, EPERM.
    """
    found: list[Object] = []
    for link in ip("link"):
        try:
            found += parse_dcb(read_dcb(str(link.get("ifname", ""))))
        except NetlinkError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL, errno.ENOENT):
                raise
    if not found:
        raise NetlinkError(errno.EOPNOTSUPP, "netlink: no netdev has data centre bridging")
    return found
