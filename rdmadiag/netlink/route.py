"""Links, addresses, routes, rules and neighbours over NETLINK_ROUTE, with the keys of `ip -d -j`.

Numbers: uapi/linux/rtnetlink.h, if_link.h, if_addr.h, fib_rules.h, neighbour.h; keys and words: iproute2 7.1, of which
the keys that say how RDMA traffic travels are read. Tables, groups and protocols that a site has named in
/etc/iproute2 stay numbers here. `family` on routes and rules is ours: iproute2 leaves it to the reader.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import NamedTuple

from rdmadiag.errors import BadInput
from rdmadiag.netlink.wire import (
    Fields,
    Object,
    attribute,
    attributes,
    entries,
    exchange,
    flag,
    ip_address,
    malformed,
    messages,
    span,
    text,
    uint,
    word,
)

NETLINK_ROUTE = 0
NEWLINK, NEWADDR, NEWROUTE, NEWNEIGH, NEWRULE = 16, 20, 24, 28, 32  # of RTM_*; the request to dump is 2 above
SKIP_STATISTICS = attribute(29, (8).to_bytes(4, "little"))  # IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS
NOARP, PROXY, EXTERNALLY_LEARNED = 0x40, 0x08, 0x10

Names = Mapping[int, str]  # of netdevs, by index

_link_header = Struct("=BxHiII")  # family, ARPHRD_*, index, flags, change
_address_header = Struct("=BBBBI")  # family, prefix length, flags, scope, index
_route_header = Struct("=8BI")  # family, dst_len, src_len, tos, table, protocol, scope, type, flags
_rule_header = Struct("=8BI")  # family, dst_len, src_len, tos, table, -, -, action, flags
_neighbour_header = Struct("=BxxxiHBB")  # family, index, state, flags, type
_nexthop = Struct("=HBBi")  # length, flags, hops, index

# fmt: off
_FAMILIES = {2: "inet", 10: "inet6"}
_ADDRESS_BITS = {2: 32, 10: 128}
_TABLES = {253: "default", 254: "main", 255: "local"}
_SCOPES = {0: "global", 200: "site", 253: "link", 254: "host", 255: "nowhere"}
_ROUTE_TYPES = {
    0: "none", 1: "unicast", 2: "local", 3: "broadcast", 4: "anycast", 5: "multicast", 6: "blackhole",
    7: "unreachable", 8: "prohibit", 9: "throw", 10: "nat", 11: "xresolve",
}
_PROTOCOLS = {
    0: "unspec", 1: "redirect", 2: "kernel", 3: "boot", 4: "static", 8: "gated", 9: "ra", 10: "mrt", 11: "zebra",
    12: "bird", 13: "dnrouted", 14: "xorp", 15: "ntk", 16: "dhcp", 18: "keepalived", 42: "babel", 186: "bgp",
    187: "isis", 188: "ospf", 189: "rip", 192: "eigrp",
}
_LINK_TYPES = {
    1: "ether", 32: "infiniband", 280: "can", 512: "ppp", 768: "ipip", 769: "tunnel6", 772: "loopback", 776: "sit",
    778: "gre", 779: "pimreg", 801: "ieee802.11", 823: "gre6", 824: "netlink", 0xFFFE: "none", 0xFFFF: "void",
}
_LINK_FLAGS = {  # in the order of iproute2, here and below
    0x8: "LOOPBACK", 0x2: "BROADCAST", 0x10: "POINTOPOINT", 0x1000: "MULTICAST", 0x80: "NOARP", 0x200: "ALLMULTI",
    0x100: "PROMISC", 0x400: "MASTER", 0x800: "SLAVE", 0x4: "DEBUG", 0x8000: "DYNAMIC", 0x4000: "AUTOMEDIA",
    0x2000: "PORTSEL", 0x20: "NOTRAILERS", 0x1: "UP", 0x10000: "LOWER_UP", 0x20000: "DORMANT", 0x40000: "ECHO",
}
_ADDRESS_FLAGS = {
    0x01: "secondary", 0x02: "nodad", 0x04: "optimistic", 0x08: "dadfailed", 0x10: "home", 0x20: "deprecated",
    0x40: "tentative", 0x100: "mngtmpaddr", 0x200: "noprefixroute", 0x400: "autojoin", 0x800: "stable-privacy",
}
_ROUTE_FLAGS = {
    0x1: "dead", 0x4: "onlink", 0x2: "pervasive", 0x8: "offload", 0x40: "trap", 0x100: "notify", 0x10: "linkdown",
    0x20: "unresolved", 0x4000: "rt_offload", 0x8000: "rt_trap", 0x20000000: "rt_offload_failed",
}
_NEIGHBOUR_FLAGS = {0x80: "router", PROXY: "proxy", EXTERNALLY_LEARNED: "extern_learn", 0x20: "offload"}
_NEIGHBOUR_STATES = {
    0x01: "INCOMPLETE", 0x02: "REACHABLE", 0x04: "STALE", 0x08: "DELAY", 0x10: "PROBE", 0x20: "FAILED",
    NOARP: "NOARP", 0x80: "PERMANENT",
}
# fmt: on


def _number_or(names: Mapping[int, str]) -> Callable[[int], str]:
    return lambda number: names.get(number, str(number))


def _set_bits(value: int, names: Mapping[int, str]) -> list[str]:
    return [name for bit, name in names.items() if value & bit]


_table_name, _protocol_name, _scope_name = _number_or(_TABLES), _number_or(_PROTOCOLS), _number_or(_SCOPES)


def _group(data: bytes, start: int, stop: int) -> str:
    return _number_or({0: "default"})(uint(data, start, stop))


def _table(data: bytes, start: int, stop: int) -> str:
    return _table_name(uint(data, start, stop))


def _protocol(data: bytes, start: int, stop: int) -> str:
    return _protocol_name(uint(data, start, stop))


def _prefixed_hexadecimal(data: bytes, start: int, stop: int) -> str:
    number = uint(data, start, stop)
    return f"{number:#x}" if number else "0"  # printf's %#x


def _via(data: bytes, start: int, stop: int) -> Object:
    family = uint(data, start, start + 2) if stop - start >= 2 else 0
    return {"family": _FAMILIES.get(family, str(family)), "host": ip_address(data, start + 2, stop)}


def _metrics(data: bytes, start: int, stop: int) -> list[Object]:
    found = attributes(data, start, stop, _METRICS, {})
    if found.get("hoplimit") == 0xFFFFFFFF:  # "as the device says"
        del found["hoplimit"]
    return [found]


def _kind_data(data: bytes, start: int, stop: int) -> Object:
    # What IFLA_INFO_DATA means depends on the kind beside it.
    found = attributes(data, start, stop, {1: ("kind", text), 2: ("data", span), 4: ("slave_kind", text)}, {})
    info: Object = {f"info_{key}": found[key] for key in ("kind", "slave_kind") if key in found}
    fields = _KIND_DATA.get(found.get("kind", ""), {})
    if fields and "data" in found:
        first, last = found["data"]
        info["info_data"] = attributes(data, first, last, fields, {})
    return info


def _vlan_protocol(data: bytes, start: int, stop: int) -> str:
    number = int.from_bytes(data[start:stop], "big")
    return {0x8100: "802.1Q", 0x88A8: "802.1ad"}.get(number, str(number))


def _qos_map(data: bytes, start: int, stop: int) -> list[Object]:
    # struct ifla_vlan_qos_mapping: the kernel's priority and that of the tag.
    pairs = [data[first:last] for first, last in entries(data, start, stop, 1)]
    return [{"from": uint(pair, 0, 4), "to": uint(pair, 4, 8)} for pair in pairs if len(pair) >= 8]


_bond_mode = word(
    "balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb", other="unknown"
)
_KIND_DATA: Mapping[str, Fields] = {
    "vlan": {1: ("id", uint), 3: ("egress_qos", _qos_map), 5: ("protocol", _vlan_protocol)},
    "bond": {1: ("mode", _bond_mode)},
}
_METRICS: Fields = {
    2: ("mtu", uint),
    3: ("window", uint),
    6: ("cwnd", uint),
    7: ("ssthresh", uint),
    8: ("advmss", uint),
    9: ("reordering", uint),
    10: ("hoplimit", uint),
    11: ("initcwnd", uint),
    14: ("initrwnd", uint),
}
_operational_state = word("UNKNOWN", "NOTPRESENT", "DOWN", "LOWERLAYERDOWN", "TESTING", "DORMANT", "UP")
_LINK: Fields = {
    3: ("ifname", text),
    5: ("link", uint),
    37: ("link_netnsid", uint),
    4: ("mtu", uint),
    6: ("qdisc", text),
    10: ("master", uint),
    16: ("operstate", _operational_state),
    27: ("group", _group),
    13: ("txqlen", uint),
    1: ("address", ip_address),
    2: ("broadcast", ip_address),
    30: ("promiscuity", uint),
    50: ("min_mtu", uint),
    51: ("max_mtu", uint),
    18: ("linkinfo", _kind_data),
    31: ("num_tx_queues", uint),
    32: ("num_rx_queues", uint),
    41: ("gso_max_size", uint),
    40: ("gso_max_segs", uint),
    57: ("parentbus", text),
    56: ("parentdev", text),
}
_ADDRESS: Fields = {
    1: ("address", ip_address),
    2: ("local", ip_address),
    3: ("label", text),
    4: ("broadcast", ip_address),
    6: ("lifetimes", span),
    8: ("flags", uint),
    9: ("metric", uint),
}
_ROUTE: Fields = {
    1: ("dst", ip_address),
    2: ("from", ip_address),
    4: ("dev", uint),
    5: ("gateway", ip_address),
    6: ("metric", uint),
    7: ("prefsrc", ip_address),
    8: ("metrics", _metrics),
    9: ("nexthops", span),
    15: ("table", _table),
    18: ("via", _via),
    20: ("pref", word("medium", "high", "2", "low")),
    30: ("nhid", uint),
}
_RULE: Fields = {
    1: ("dst", ip_address),
    2: ("src", ip_address),
    3: ("iif", text),
    4: ("goto", uint),
    6: ("priority", uint),
    10: ("fwmark", _prefixed_hexadecimal),
    16: ("fwmask", _prefixed_hexadecimal),
    14: ("suppress_prefixlen", uint),
    15: ("table", _table),
    17: ("oif", text),
    19: ("l3mdev", flag),
    21: ("protocol", _protocol),
}
_NEIGHBOUR: Fields = {1: ("dst", ip_address), 2: ("lladdr", ip_address)}


def _unpack(header: Struct, data: bytes, start: int, stop: int) -> tuple[int, ...]:
    if stop - start < header.size:
        raise malformed(f"header of {stop - start} bytes, {header.size} wanted", start)
    return header.unpack_from(data, start)


def _link(data: bytes, start: int, stop: int, names: Names) -> Object:
    _family, kind, index, flags, _change = _unpack(_link_header, data, start, stop)
    link = attributes(data, start + _link_header.size, stop, _LINK, {"ifindex": index})
    no_carrier = ["NO-CARRIER"] if flags & 0x1 and not flags & 0x40 else []
    link.update(flags=no_carrier + _set_bits(flags, _LINK_FLAGS), link_type=_LINK_TYPES.get(kind, f"[{kind}]"))
    if "master" in link:
        link["master"] = names.get(link["master"], f"if{link['master']}")
    if "link" in link:
        lower = link.pop("link")
        if "link_netnsid" in link:
            link["link_index"] = lower  # it lies in another network namespace, where the name is another matter
        else:
            link["link"] = names.get(lower, f"if{lower}") if lower else None
    if flags & 0x10 and "broadcast" in link:
        link["link_pointtopoint"] = True
    return link


def _address(data: bytes, start: int, stop: int, _names: Names) -> Object:
    family, prefix, flags, scope, index = _unpack(_address_header, data, start, stop)
    found = attributes(data, start + _address_header.size, stop, _ADDRESS, {"flags": flags})
    local = found.pop("local", found.get("address"))
    if found.get("address") == local:
        found.pop("address", None)
    flags = found.pop("flags")
    address: Object = {
        "index": index,
        "family": _FAMILIES.get(family, str(family)),
        "local": local,
        "prefixlen": prefix,
        "scope": _scope_name(scope),
    }
    address.update(dict.fromkeys(_set_bits(flags, _ADDRESS_FLAGS), True))
    if family == socket.AF_INET6 and address.pop("secondary", False):
        address["temporary"] = True  # the bit has two names
    if not flags & 0x80:  # IFA_F_PERMANENT
        address["dynamic"] = True
    first, last = found.pop("lifetimes", (0, 0))
    if last - first >= 8:  # seconds; 4294967295 is for ever
        address["preferred_life_time"] = uint(data, first, first + 4)
        address["valid_life_time"] = uint(data, first + 4, first + 8)
    return {**address, **found}


def _route(data: bytes, start: int, stop: int, names: Names) -> Object:
    family, dst_bits, src_bits, _tos, table, protocol, scope, kind, flags = _unpack(_route_header, data, start, stop)
    route: Object = {
        "family": _FAMILIES.get(family, str(family)),
        "type": _ROUTE_TYPES.get(kind, str(kind)),
        "table": _table_name(table),
        "protocol": _protocol_name(protocol),
        "scope": _scope_name(scope),
        "flags": _set_bits(flags, _ROUTE_FLAGS),
    }
    attributes(data, start + _route_header.size, stop, _ROUTE, route)
    whole = _ADDRESS_BITS.get(family, 0)
    route["dst"] = _prefix(route.get("dst", "0" if dst_bits else "default"), dst_bits, whole)
    if "from" in route or src_bits:
        route["from"] = _prefix(route.get("from", "0"), src_bits, whole)
    if "dev" in route:
        route["dev"] = names.get(route["dev"], f"if{route['dev']}")
    if "nexthops" in route:
        first, last = route["nexthops"]
        route["nexthops"] = list(_nexthops(data, first, last, names))
    return route


def _prefix(address: str, bits: int, whole: int) -> str:
    return address if bits == whole or address == "default" else f"{address}/{bits}"


def _nexthops(data: bytes, start: int, stop: int, names: Names) -> Iterator[Object]:
    while stop - start >= _nexthop.size:
        length, flags, hops, index = _nexthop.unpack_from(data, start)
        if length < _nexthop.size or start + length > stop:
            raise malformed(f"next hop of {length} bytes does not fit", start)
        hop: Object = {"dev": names.get(index, f"if{index}"), "weight": hops + 1}
        hop["flags"] = _set_bits(flags, _ROUTE_FLAGS)
        yield attributes(data, start + _nexthop.size, start + length, _GATEWAY, hop)
        start += (length + 3) & ~3


_GATEWAY: Fields = {5: ("gateway", ip_address), 18: ("via", _via)}


def _rule(data: bytes, start: int, stop: int, _names: Names) -> Object:
    family, dst_bits, src_bits, _tos, table, _r1, _r2, action, flags = _unpack(_rule_header, data, start, stop)
    rule: Object = {"family": _FAMILIES.get(family, str(family)), "priority": 0, "table": _table_name(table)}
    attributes(data, start + _rule_header.size, stop, _RULE, rule)
    whole = _ADDRESS_BITS.get(family, 0)
    rule.setdefault("src", "0" if src_bits else "all")
    if dst_bits:
        rule.setdefault("dst", "0")
    rule.update({f"{end}len": bits for end, bits in (("src", src_bits), ("dst", dst_bits)) if bits not in (0, whole)})
    if rule["table"] == "0":  # an action that looks nothing up
        del rule["table"]
    if rule.get("suppress_prefixlen") == 0xFFFFFFFF:
        del rule["suppress_prefixlen"]
    if rule.get("fwmask") == "0xffffffff":
        del rule["fwmask"]
    if rule.pop("l3mdev", False):
        rule["l3mdev"] = None
    if flags & 0x2:  # FIB_RULE_INVERT
        rule["not"] = None
    if action == 3:
        rule["nop"] = None
    elif action not in (1, 2):
        rule["action"] = _ROUTE_TYPES.get(action, str(action))
    return rule


def _neighbour(data: bytes, start: int, stop: int, names: Names) -> Object | None:
    _family, index, state, flags, _kind = _unpack(_neighbour_header, data, start, stop)
    if not state & ~NOARP & 0xFF and not flags & (PROXY | EXTERNALLY_LEARNED):
        return None  # `ip neigh` hides those that need no resolving
    found = attributes(data, start + _neighbour_header.size, stop, _NEIGHBOUR, {})
    found["dev"] = names.get(index, f"if{index}")
    found.update(dict.fromkeys(_set_bits(flags, _NEIGHBOUR_FLAGS)))
    found["state"] = _set_bits(state, _NEIGHBOUR_STATES) or ["NONE"]
    return found


class Question(NamedTuple):
    """One command of the ip tool: what to dump beside the links, for which families, and how to read it."""

    kind: int  # RTM_NEW*
    read: Callable[[bytes, int, int, Names], Object | None]
    families: tuple[int, ...] = (socket.AF_INET, socket.AF_INET6)
    header_bytes: int = 12


QUESTIONS: Mapping[str, Question] = {
    "link": Question(NEWLINK, _link, ()),
    "addr": Question(NEWADDR, _address, header_bytes=_address_header.size),
    "route": Question(NEWROUTE, _route),
    "rule": Question(NEWRULE, _rule),
    "neigh": Question(NEWNEIGH, _neighbour),
}


def _question(command: str) -> Question:
    if command not in QUESTIONS:
        raise BadInput(f"no ip command {command!r}; known: {', '.join(QUESTIONS)}")
    return QUESTIONS[command]


def read_ip(command: str) -> bytes:
    """Dump the links, which name the rest, and what the command shows; return the raw replies one after the other.

    Raises BadInput for an unknown command, and OSError with the kernel's errno.
    """
    question = _question(command)
    replies = exchange(NETLINK_ROUTE, NEWLINK + 2, bytes(_link_header.size) + SKIP_STATISTICS)
    for family in question.families:
        header = bytes([family]) + bytes(question.header_bytes - 1)
        replies += exchange(NETLINK_ROUTE, question.kind + 2, header)
    return replies


def parse_ip(command: str, data: bytes) -> list[Object]:
    """Turn raw replies into the objects that `ip -d -j <command>` prints: routes and rules of both families and of
    all tables, with their `family`; for `addr`, the links with their `addr_info`.

    Raises BadInput for an unknown command, NetlinkError (EBADMSG) for bytes that are no netlink messages.
    """
    question = _question(command)
    found = list(messages(data))
    links = [_link(data, start, stop, {}) for kind, _flags, start, stop in found if kind == NEWLINK]
    names = {link["ifindex"]: link.get("ifname", f"if{link['ifindex']}") for link in links}
    shown = (question.read(data, start, stop, names) for kind, _flags, start, stop in found if kind == question.kind)
    rows = [row for row in shown if row is not None]
    if command != "addr":
        return rows
    links = parse_ip("link", data)
    for link in links:
        link["addr_info"] = [row for row in rows if row["index"] == link["ifindex"]]
    for row in rows:
        del row["index"]
    return links


def ip(command: str) -> list[Object]:
    """Return what `ip -d -j <command>` prints, from the kernel itself; QUESTIONS holds the commands.

    Raises as `read_ip` and `parse_ip` do.
    """
    return parse_ip(command, read_ip(command))
