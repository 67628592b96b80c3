"""Network devices, addresses and routes: /sys/class/net, rtnetlink, and the texts of ip and ifconfig."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.log_line import prompt_command
from rdmadiag.evidence.row import Gap, Json, Line, Row, Text
from rdmadiag.host import Host, link_of, text_of
from rdmadiag.patterns import late

TABLES = ("netdev", "addr", "route")
ROOT = "/sys/class/net"
Values = dict[str, Any]

_BDF = late(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_ADDRESS = r"[0-9a-fA-F:.]{2,45}"


def read(host: Host) -> Iterable[Row | Gap]:
    """Read sysfs for what the hardware says, then netlink for kinds, masters, addresses and routes."""
    yield from _sysfs(host)
    yield from _netlink(host, "ip addr", ("addr",), parse_links_json)
    yield from _netlink(host, "ip route", ("route",), parse_routes_json)


def _sysfs(host: Host) -> Iterator[Row | Gap]:
    try:
        names = host.ls(ROOT)
    except NotPresent:
        return
    except HostRefused as error:
        yield _gap(("netdev",), error, ROOT)
        return
    for name in names:
        if name != "bonding_masters":
            yield Row("netdev", {"netdev": name, **_netdev(host, f"{ROOT}/{name}")}, f"{ROOT}/{name}")


def _netlink(host: Host, command: str, tables: tuple[str, ...], parse: Any) -> Iterator[Row | Gap]:
    try:
        objects = host.objects(command)
    except NotPresent:
        return
    except HostRefused as error:
        yield _gap(tables, error, command)
        return
    for row in parse(objects):
        yield row._replace(at=f"netlink: {command}")


def _gap(tables: tuple[str, ...], error: HostRefused, subject: str) -> Gap:
    kind = "not_given" if isinstance(error, NotGiven) else "unreadable"
    return Gap(tables, error.reason, kind, error.how, subject)


# --- /sys/class/net ---


def _netdev(host: Host, path: str) -> Values:
    flags = text_of(host, f"{path}/flags")
    admin_up = int(flags, 16) & 1 if late(r"0x[0-9a-f]{1,8}").fullmatch(flags) else None
    values = {
        "ifindex": _number(host, f"{path}/ifindex"),
        "mtu_bytes": _number(host, f"{path}/mtu"),
        "operstate": text_of(host, f"{path}/operstate") or None,
        "admin_up": admin_up,
        "carrier": _number(host, f"{path}/carrier") if admin_up else None,
        "address": text_of(host, f"{path}/address") or None,
        "carrier_changes": _number(host, f"{path}/carrier_changes"),
        "master": _name(host, f"{path}/master"),
        **_hardware(host, path),
    }
    return {name: value for name, value in values.items() if value is not None}


def _hardware(host: Host, path: str) -> Values:
    # `device` is there for hardware only; virtio, USB and the like have another bus between it and PCI.
    device = link_of(host, f"{path}/device")
    bus = late(r"^DEVTYPE=(\S+)", re.M).search(text_of(host, f"{path}/uevent"))
    if not device:
        return {"kind": bus[1], "speed_mbps": _speed(host, path)} if bus else {}
    numa_node = _number(host, f"{path}/device/numa_node")
    return {
        "driver": _name(host, f"{path}/device/driver"),
        "bdf": next((part for part in reversed(device.split("/")) if _BDF.match(part)), None),
        "numa_node": numa_node if numa_node is not None and numa_node >= 0 else None,
        "speed_mbps": _speed(host, path),
        "kind": bus[1] if bus else "",
    }


def _speed(host: Host, path: str) -> int | None:
    speed = _number(host, f"{path}/speed")  # EINVAL when down, -1 when unknown
    return speed if speed is not None and 0 < speed < 0x7FFFFFFF else None


def _number(host: Host, path: str) -> int | None:
    return _integer(text_of(host, path))


def _integer(value: object) -> int | None:
    if isinstance(value, str):
        return int(value) if late(r"-?[0-9]{1,18}").fullmatch(value) else None
    return value if isinstance(value, int) and abs(value) < 1 << 63 else None


def _name(host: Host, path: str) -> str | None:
    target = link_of(host, path)
    return target.rpartition("/")[2] if target else None


# --- ip -j ---


def parse_links_json(objects: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """Parse `ip -j addr` and `ip -j link`: a row of netdev for each link, of addr for each address."""
    for link in objects:
        name = link.get("ifname")
        if isinstance(name, str):
            yield Row("netdev", _known(_link_values(name, link)), 1)
            for address in _dicts(link.get("addr_info")):
                if isinstance(address.get("local"), str):
                    yield Row("addr", _known(_address_values(name, address)), 1)


def _link_values(name: str, link: Values) -> Values:
    flags = link.get("flags") if isinstance(link.get("flags"), list) else None
    information = link.get("linkinfo")
    kind, data = (information.get(key) if isinstance(information, dict) else None for key in ("info_kind", "info_data"))
    return {
        "netdev": name,
        "ifindex": _integer(link.get("ifindex")),
        "mtu_bytes": _integer(link.get("mtu")),
        "operstate": _lower(link.get("operstate")),
        "address": _string(link.get("address")),
        "master": _string(link.get("master")),
        "lower": _string(link.get("link")),
        "vlan_id": _integer(data.get("id")) if kind == "vlan" and isinstance(data, dict) else None,
        "egress_priorities": _egress_map(data) if kind == "vlan" and isinstance(data, dict) else None,
        "kind": _string(kind) or ("" if "promiscuity" in link else None),  # with -d a plain device has no linkinfo
        **_flag_values(flags),
    }


def _egress_map(data: Values) -> str:
    # ip -d leaves the key out where the map is empty.
    pairs = [(_integer(pair.get("from")), _integer(pair.get("to"))) for pair in _dicts(data.get("egress_qos"))]
    return ",".join(f"{tos}:{tag}" for tos, tag in pairs if tos is not None and tag is not None)


def _flag_values(flags: Iterable[object] | None) -> Values:
    if flags is None:
        return {}
    words = {word for word in flags if isinstance(word, str)}
    admin_up = int("UP" in words)
    return {"admin_up": admin_up, "carrier": int("LOWER_UP" in words) if admin_up else None}


def _address_values(name: str, address: Values) -> Values:
    return {
        "netdev": name,
        "family": _string(address.get("family")),
        "address": address["local"],
        "prefix": _integer(address.get("prefixlen")),
        "scope": _string(address.get("scope")),
    }


def parse_routes_json(objects: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """Parse `ip -j route`: a row for each next hop; the table `local` says no more than the addresses do."""
    for route in objects:
        if isinstance(route.get("dst"), str) and route.get("table") != "local":
            for hop in _dicts(route.get("nexthops")) or [route]:
                yield Row("route", _known(_route_values(route, hop)), 1)


def _route_values(route: Values, hop: Values) -> Values:
    via = hop.get("via")
    return {
        "dst": route["dst"],
        "gateway": _string(hop.get("gateway")) or (_string(via.get("host")) if isinstance(via, dict) else None),
        "netdev": _string(hop.get("dev")) or _string(route.get("dev")),
        "src": _string(route.get("prefsrc")),
        "metric": _integer(route.get("metric")),
        "table": str(route.get("table", "main")),
        "type": _string(route.get("type")) or "unicast",
    }


def _known(values: Values) -> Values:
    return {name: value for name, value in values.items() if value is not None}


def _dicts(value: object) -> list[Values]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _lower(value: object) -> str | None:
    return value.lower() if isinstance(value, str) else None


# --- ip addr, ip link, ip route ---

_HEAD = late(r"(?P<index>\d{1,9}): (?P<name>[^:@\s]+)(?:@(?P<lower>[^:\s]+))?: <(?P<flags>[A-Z0-9_,-]*)>(?P<rest>.*)")
_SHORT = late(r"(?P<name>[\w.-]+)(?:@\S+)? +(?P<state>UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT)\b(?P<rest>.*)")
_ONE = late(r"\d{1,9}: (?P<name>[^:@\s]+) +inet")
_INET = late(rf"(?P<family>inet6?) (?P<address>{_ADDRESS})(?: peer {_ADDRESS})?(?:/(?P<prefix>\d{{1,3}}))?\b")
_PLAIN = late(r" promiscuity \d+ .*numtxqueues ")  # with -d, a kind breaks this line
_SHORT_INET = late(rf" (?P<address>{_ADDRESS})/(?P<prefix>\d{{1,3}})\b")
_KINDS = (
    *("vlan", "bond", "bridge", "veth", "macvlan", "ipvlan", "macvtap", "vxlan", "vrf", "tun", "dummy", "team"),
    *("ipoib", "gre", "gretap", "ip6gre", "geneve", "wireguard", "vti", "ipip", "sit", "ifb", "netkit", "rmnet"),
)


def parse_ip(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ip addr` and `ip link`, with -d, -o and -br too."""
    name = ""
    for number, text in lines:
        if match := _HEAD.match(text) or _SHORT.match(text):
            name = match["name"]
            yield Row("netdev", _known(_ip_head(match)), number)
            yield from _short_addresses(match, number)
        else:
            one = _ONE.match(text)
            name = one["name"] if one else name
            yield from (
                Row(table, _known({"netdev": name, **values}), number) for table, values in _ip_line(text) if name
            )


def _ip_head(match: re.Match[str]) -> Values:
    groups, rest = match.groupdict(), match["rest"]
    flags = groups.get("flags") or _group(r"<([A-Z0-9_,-]+)>", rest)
    lower = groups.get("lower")
    state = groups.get("state") or _group(r" state (\w+)", rest)
    return {
        "netdev": match["name"],
        "ifindex": _integer(groups.get("index")),
        "mtu_bytes": _integer(_group(r" mtu (\d+)", rest)),
        "operstate": _lower(state),
        "lower": lower if lower and lower != "NONE" and not late(r"if\d+").fullmatch(lower) else None,
        "master": _group(r" master (\S+)", rest),
        "address": _group(r"link/\S+ ([0-9a-f:]{11,59})", rest),
        **_flag_values(flags.split(",") if flags is not None else None),
    }


def _short_addresses(match: re.Match[str], number: int) -> Iterator[Row]:
    if "state" not in match.groupdict():
        return
    for found in _SHORT_INET.finditer(match["rest"]):
        family = "inet6" if ":" in found["address"] else "inet"
        values = {
            "netdev": match["name"],
            "family": family,
            "address": found["address"],
            "prefix": int(found["prefix"]),
        }
        yield Row("addr", values, number)


def _ip_line(text: str) -> Iterator[tuple[str, Values]]:
    if match := _INET.search(text):
        scope = _group(r" scope (\w+)", text)
        yield "addr", {**match.groupdict(), "prefix": _integer(match["prefix"]), "scope": scope}
    elif address := _group(r"^\s+link/\S+ ([0-9a-f:]{11,59})", text):
        yield "netdev", {"address": address, "kind": "" if _PLAIN.search(text) else None}
    elif (kind := _group(r"^\s{4,}([a-z0-9]+) ", text)) in _KINDS:
        number = _group(r"^\s+vlan protocol \S+ id (\d{1,4})\b", text)
        yield "netdev", {"kind": kind, "vlan_id": _integer(number)}
    elif (pairs := _group(r"^\s+(?:ingress-qos-map \{[ 0-9:]*\} )?egress-qos-map \{([ 0-9:]*)\}", text)) is not None:
        yield "netdev", {"egress_priorities": ",".join(pairs.split())}


def _group(pattern: str, text: str) -> str | None:
    match = late(pattern).search(text)
    return match[1] if match else None


_TYPES = ("unicast", "local", "broadcast", "multicast", "anycast", "blackhole", "unreachable", "prohibit", "throw")
_ROUTE = late(
    rf"\s*(?:(?P<type>{'|'.join(_TYPES)}) )?(?P<dst>default|{_ADDRESS}(?:/\d{{1,3}})?)(?P<rest>(?: \S+)+| ?)$"
)
_HOP = late(r"\s+nexthop (?P<rest>.*)")
_ROUTE_WORDS = {"via": "gateway", "dev": "netdev", "src": "src", "metric": "metric", "table": "table"}


def parse_route(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ip route` (show and get), with next hops on lines of their own."""
    table: str | None = None
    route: Values = {}
    for number, text in lines:
        if command := prompt_command(text):
            table = _group(r" table (\w+)", command) or "main"
        elif (match := _ROUTE.match(text.rstrip())) and ("dev " in text or match["type"] or " proto " in text):
            route = {"dst": match["dst"], "type": match["type"] or "unicast", "table": table, **_words(match["rest"])}
            if "netdev" in route or match["type"]:
                yield Row("route", _known(route), number)
        elif (hop := _HOP.match(text)) and route:
            yield Row("route", _known({**route, **_words(hop["rest"])}), number)


def _words(text: str) -> Values:
    words = text.split()
    pairs = {_ROUTE_WORDS[word]: value for word, value in pairwise(words) if word in _ROUTE_WORDS}
    if "metric" in pairs:
        return {**pairs, "metric": _integer(pairs["metric"])}
    return dict(pairs)


# --- ifconfig ---

_IFCONFIG = late(
    r"(?P<name>[A-Za-z][\w.-]*)(?:: flags=\d+<(?P<flags>[A-Z0-9_,]*)>  mtu (?P<mtu>\d{1,9})|\s+Link encap:)"
)
_IFCONFIG_INET = late(r"\s+inet (?:addr:)?(?P<address>[\d.]+) .*?(?:netmask |Mask:)(?P<mask>[\d.]+)")
_IFCONFIG_INET6 = late(rf"\s+inet6 (?:addr: )?(?P<address>{_ADDRESS})(?:/|  prefixlen )(?P<prefix>\d{{1,3}})")
_IFCONFIG_SCOPE = late(r"<(link|global|host|site)>|Scope:(Link|Global|Host|Site)")
_IFCONFIG_ADDRESS = late(r"\s+(?:ether|infiniband) ([0-9A-Fa-f:]{17,59})|.*HWaddr ([0-9A-Fa-f:]{17,59})")
_IFCONFIG_OLD = late(r"\s+(?P<flags>(?:[A-Z]+ )+) MTU:(?P<mtu>\d{1,9})")


def parse_ifconfig(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ifconfig`, the form of net-tools 2 and the old one."""
    name = ""
    for number, text in lines:
        if head := _IFCONFIG.match(text):
            name = head["name"]
            yield Row("netdev", _known({"netdev": name, **_ifconfig_head(text, head["flags"], head["mtu"])}), number)
        elif name and (old := _IFCONFIG_OLD.match(text)):
            yield Row("netdev", _known({"netdev": name, **_ifconfig_head("", old["flags"], old["mtu"])}), number)
        elif name and (address := _ifconfig_address(text)):
            yield Row("addr", _known({"netdev": name, **address}), number)
        elif name and (match := _IFCONFIG_ADDRESS.match(text)):
            yield Row("netdev", {"netdev": name, "address": (match[1] or match[2]).lower()}, number)


def _ifconfig_head(text: str, flags: str | None, mtu: str | None) -> Values:
    address = _IFCONFIG_ADDRESS.match(text)
    words = late(r"[ ,]").split(flags) if flags is not None else []
    admin_up = int("UP" in words) if words else None
    carrier = int("RUNNING" in words) if admin_up else None
    hardware = (address[1] or address[2]).lower() if address else None
    return {"mtu_bytes": _integer(mtu), "admin_up": admin_up, "carrier": carrier, "address": hardware}


def _ifconfig_address(text: str) -> Values | None:
    scope = _IFCONFIG_SCOPE.search(text)
    if match := _IFCONFIG_INET.match(text):
        return {"family": "inet", "address": match["address"], "prefix": _mask_bits(match["mask"])}
    if match := _IFCONFIG_INET6.match(text):
        word = (scope[1] or scope[2]).lower() if scope else None
        return {"family": "inet6", "address": match["address"], "prefix": int(match["prefix"]), "scope": word}
    return None


_RXE_CFG = late(r"  (\S{1,15}) +(yes|no) +([a-z]\w*) ")


def parse_rxe_cfg(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse the list of interfaces that `rxe_cfg` prints; columns without a value are blank."""
    for number, text in lines:
        if match := _RXE_CFG.match(text):
            yield Row("netdev", {"netdev": match[1], "carrier": int(match[2] == "yes"), "driver": match[3]}, number)


def _mask_bits(mask: str) -> int | None:
    try:
        return ipaddress.ip_network(f"0.0.0.0/{mask}").prefixlen
    except ValueError:
        return None


TEXTS = (
    Text(
        "ip addr",
        (
            r"^\d+: [^:\s]+: <[A-Z0-9_,-]*> mtu \d+",
            r"^\d+: \S+ +inet6? [0-9a-f:.]+/\d+ ",
            r"^[\w.@-]+ +(UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT) +([0-9a-f]{2}:|[0-9a-f.:]+/\d+ )",
            r"^\s+inet6? [0-9a-f:.]+/\d+ .*scope (global|link|host)",
        ),
        parse_ip,
        ("ip",),
    ),
    Text(
        "ip route",
        (
            r"^default (via [0-9a-f.:]+ )?dev \S+",
            r"^(blackhole|unreachable|prohibit) [0-9a-f.:]+/\d+",
            r"^[0-9a-f.:]+(/\d+)? (via [0-9a-f.:]+ )?dev \S+ .*(proto|scope|src|metric|uid) ",
            r"^\s+nexthop via [0-9a-f.:]+ dev ",
        ),
        parse_route,
        ("ip",),
    ),
    Text("ifconfig", (r"^\S+: flags=\d+<[A-Z0-9_,]*>  mtu \d+", r"^\S+ +Link encap:"), parse_ifconfig, ("ifconfig",)),
    Text("rxe_cfg", (r"^  Name +Link +Driver +Speed +NMTU",), parse_rxe_cfg, ("rxe_cfg",)),
    Json("ip -j addr", (("ifname", "flags", "mtu"), ("ifname", "addr_info")), parse_links_json, ("ip",)),
    Json(
        "ip -j route",
        (("dst", "dev", "flags"), ("dst", "nexthops"), ("dst", "gateway", "dev")),
        parse_routes_json,
        ("ip",),
    ),
)
