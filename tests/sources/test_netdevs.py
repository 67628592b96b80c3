"""Network devices, addresses and routes."""

import json

from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, gaps, lines, rows

from rdmadiag.evidence.row import Json
from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import parse_tree
from rdmadiag.sources.netdevs import (
    TEXTS,
    parse_ifconfig,
    parse_ip,
    parse_links_json,
    parse_route,
    parse_routes_json,
    parse_rxe_cfg,
    read,
)

SYSFS = """\
/sys/class/net/ens1f0np0 -> ../../devices/pci0000:20/0000:20:01.0/0000:21:00.0/net/ens1f0np0
/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0/net/ens1f0np0/device -> ../..
/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0/driver -> ../../../../bus/pci/drivers/mlx5_core
/sys/bus/pci/drivers/mlx5_core/
/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0/numa_node:-1
/sys/class/net/ens1f0np0/ifindex:4
/sys/class/net/ens1f0np0/mtu:9000
/sys/class/net/ens1f0np0/operstate:up
/sys/class/net/ens1f0np0/flags:0x1003
/sys/class/net/ens1f0np0/carrier:1
/sys/class/net/ens1f0np0/speed:200000
/sys/class/net/ens1f0np0/carrier_changes:7
/sys/class/net/ens1f0np0/uevent:INTERFACE=ens1f0np0
/sys/class/net/bond0/flags:0x1002
/sys/class/net/bond0/uevent:DEVTYPE=bond
/sys/class/net/bond0/speed:-1
/sys/class/net/bonding_masters:bond0
"""
LINKS = [
    {"ifname": "bond0", "flags": ["BROADCAST", "UP", "LOWER_UP"], "mtu": 9000, "operstate": "UP", "promiscuity": 0,
     "linkinfo": {"info_kind": "bond"},
     "addr_info": [{"family": "inet", "local": "10.20.3.2", "prefixlen": 24, "scope": "global"}]},
]  # fmt: skip


def test_sysfs_gives_speed_driver_and_pci_address():
    found = list(read(LiveTree(SYSFS)))
    bond, port = rows(found, "netdev")
    assert port == {
        "netdev": "ens1f0np0",
        "ifindex": 4,
        "mtu_bytes": 9000,
        "operstate": "up",
        "admin_up": 1,
        "carrier": 1,
        "carrier_changes": 7,
        "driver": "mlx5_core",
        "bdf": "0000:21:00.0",
        "speed_mbps": 200000,
        "kind": "",
    }
    assert bond == {"netdev": "bond0", "admin_up": 0, "kind": "bond"}


def test_netlink_gives_kinds_addresses_and_routes():
    found = list(read(LiveTree(tables={"ip addr": LINKS, "ip route": [{"dst": "default", "dev": "bond0"}]})))
    assert rows(found, "netdev")[0]["kind"] == "bond"
    assert rows(found, "addr") == [
        {"netdev": "bond0", "family": "inet", "address": "10.20.3.2", "prefix": 24, "scope": "global"}
    ]
    assert rows(found, "route") == [{"dst": "default", "netdev": "bond0", "table": "main", "type": "unicast"}]


def test_a_captured_tree_without_netlink_leaves_gaps():
    found = list(read(CapturedHost(parse_tree(SYSFS)[0])))
    assert [(gap.tables, gap.kind) for gap in gaps(found)] == [(("addr",), "not_given"), (("route",), "not_given")]
    assert len(rows(found, "netdev")) == 2


IP_ADDR = """\
2: ens1f0np0: <BROADCAST,MULTICAST,SLAVE,UP,LOWER_UP> mtu 9000 qdisc mq master bond0 state UP group default qlen 1000
    link/ether 02:00:00:10:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0 minmtu 68 maxmtu 9978 numtxqueues 8
    bond_slave state ACTIVE mii_status UP
3: eth1: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc mq state DOWN group default qlen 1000
    link/ether 02:00:00:10:00:02 brd ff:ff:ff:ff:ff:ff
4: net1@if7: <BROADCAST,MULTICAST> mtu 1500 qdisc noop state DOWN group default
    veth numtxqueues 1
    inet 10.20.1.12/24 brd 10.20.1.255 scope global net1
       valid_lft forever preferred_lft forever
    inet6 fe80::55:ff:fe20:1001/64 scope link
"""


def test_ip_addr_is_parsed_with_flags_masters_and_kinds():
    found = list(parse_ip(lines(IP_ADDR)))
    bonded, no_carrier, down = (row for row in rows(found, "netdev") if "mtu_bytes" in row)
    assert (bonded["master"], bonded["carrier"], bonded["operstate"]) == ("bond0", 1, "up")
    assert (no_carrier["admin_up"], no_carrier["carrier"]) == (1, 0)
    assert down == {"netdev": "net1", "ifindex": 4, "mtu_bytes": 1500, "operstate": "down", "admin_up": 0}
    assert {"netdev": "net1", "kind": "veth"} in rows(found, "netdev")
    assert {"netdev": "ens1f0np0", "address": "02:00:00:10:00:01", "kind": ""} in rows(found, "netdev")
    assert [row["address"] for row in rows(found, "addr")] == ["10.20.1.12", "fe80::55:ff:fe20:1001"]


def test_ip_addr_on_one_line_and_in_brief():
    one = list(
        parse_ip(lines("2: eth0    inet 10.20.0.5/24 brd 10.20.0.255 scope global eth0\\       valid_lft forever"))
    )
    assert rows(one, "addr") == [
        {"netdev": "eth0", "family": "inet", "address": "10.20.0.5", "prefix": 24, "scope": "global"}
    ]
    brief = list(parse_ip(lines("eth0@if3         UP             10.20.0.5/24 fe80::1/64 ")))
    assert rows(brief, "netdev") == [{"netdev": "eth0", "operstate": "up"}]
    assert [row["prefix"] for row in rows(brief, "addr")] == [24, 64]


def test_ip_route_is_parsed_with_tables_and_next_hops():
    text = """\
$ ip route show table 100
default via 10.20.0.1 dev eth0 proto dhcp src 10.20.0.5 metric 100
10.20.0.0/24 dev eth0 proto kernel scope link src 10.20.0.5
blackhole 10.21.0.0/16
10.22.0.0/16 proto static
	nexthop via 10.20.0.1 dev eth0 weight 1
	nexthop via 10.20.1.1 dev eth1 weight 1
"""
    found = rows(parse_route(lines(text)), "route")
    assert found[0] == {"dst": "default", "type": "unicast", "table": "100", "gateway": "10.20.0.1", "netdev": "eth0",
                        "src": "10.20.0.5", "metric": 100}  # fmt: skip
    assert [(row["dst"], row["type"], row.get("netdev")) for row in found[1:]] == [
        ("10.20.0.0/24", "unicast", "eth0"),
        ("10.21.0.0/16", "blackhole", None),
        ("10.22.0.0/16", "unicast", "eth0"),
        ("10.22.0.0/16", "unicast", "eth1"),
    ]


def test_json_of_ip_is_parsed_as_netlink_is():
    route = {"dst": "10.22.0.0/16", "nexthops": [{"gateway": "10.20.0.1", "dev": "eth0"}, {"via": {"host": "fe80::1"}}]}
    assert [row.get("gateway") for row in rows(parse_routes_json([route]), "route")] == ["10.20.0.1", "fe80::1"]
    assert rows(parse_links_json(LINKS), "netdev")[0]["mtu_bytes"] == 9000
    assert rows(parse_routes_json([{"dst": "127.0.0.1", "table": "local"}]), "route") == []


def test_ifconfig_is_parsed_in_both_forms():
    new = """\
bond0: flags=5187<UP,BROADCAST,RUNNING,MASTER,MULTICAST>  mtu 9000
        inet 10.20.3.2  netmask 255.255.255.0  broadcast 10.20.3.255
        inet6 fe80::255:ff:fe10:b01  prefixlen 64  scopeid 0x20<link>
        ether 02:55:00:10:0b:01  txqueuelen 1000  (Ethernet)
"""
    old = """\
eth0      Link encap:Ethernet  HWaddr 02:55:00:10:0B:01
          inet addr:10.20.3.2  Bcast:10.20.3.255  Mask:255.255.240.0
          inet6 addr: fe80::255:ff:fe10:b01/64 Scope:Link
          UP BROADCAST MULTICAST  MTU:1500  Metric:1
"""
    found = list(parse_ifconfig(lines(new)))
    assert rows(found, "netdev") == [
        {"netdev": "bond0", "mtu_bytes": 9000, "admin_up": 1, "carrier": 1},
        {"netdev": "bond0", "address": "02:55:00:10:0b:01"},
    ]
    assert [(row["address"], row["prefix"]) for row in rows(found, "addr")] == [
        ("10.20.3.2", 24),
        ("fe80::255:ff:fe10:b01", 64),
    ]
    found = list(parse_ifconfig(lines(old)))
    assert rows(found, "netdev") == [
        {"netdev": "eth0", "address": "02:55:00:10:0b:01"},
        {"netdev": "eth0", "mtu_bytes": 1500, "admin_up": 1, "carrier": 0},
    ]
    assert [row["prefix"] for row in rows(found, "addr")] == [20, 64]


def test_the_interfaces_that_rxe_cfg_lists():
    # SoftRoCE/rxe-dev#55; the address replaced.
    text = (
        "  Name   Link  Driver  Speed  NMTU  IPv4_addr    RDEV  RMTU\n"
        "  p4p2   yes   r8169          1500  192.168.7.2              \n"
        "  wlan0  no    ath9k          1500                           "
    )
    assert [row.values for row in parse_rxe_cfg(lines(text))] == [
        {"netdev": "p4p2", "carrier": 1, "driver": "r8169"},
        {"netdev": "wlan0", "carrier": 0, "driver": "ath9k"},
    ]


@given(st.text(), st.integers(0, len(IP_ADDR)))
def test_no_text_raises(text, cut):
    for kind in TEXTS:
        if not isinstance(kind, Json):
            list(kind.parse(lines(text)))
            list(kind.parse(lines(IP_ADDR[:cut] + text + IP_ADDR[cut:])))


KEYS = ["ifname", "flags", "mtu", "addr_info", "local", "linkinfo", "dst", "nexthops", "via", "table", "metric"]
JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
)


@given(st.lists(JSON.filter(lambda value: isinstance(value, dict)), max_size=3))
def test_no_json_raises(objects):
    for parse in (parse_links_json, parse_routes_json):
        for row in parse(json.loads(json.dumps(objects))):
            assert all(isinstance(value, (str, int)) for value in row.values.values())


def vlan(**data):
    information = {"info_kind": "vlan", "info_data": {"id": 100, **data}}
    return {"ifname": "eth0.100", "link": "eth0", "promiscuity": 0, "linkinfo": information}


def test_a_vlan_says_which_priorities_its_tags_carry():
    mapped, plain = (
        rows(parse_links_json([link]), "netdev")[0] for link in (vlan(egress_qos=[{"from": 0, "to": 3}]), vlan())
    )
    assert (mapped["egress_priorities"], plain["egress_priorities"]) == ("0:3", "")
    text = "9: eth0.100@eth0: <UP> mtu 1500\n    vlan protocol 802.1Q id 100 <REORDER_HDR> \n      egress-qos-map { 0:3 4:5 } numtxqueues 1"
    assert {"netdev": "eth0.100", "egress_priorities": "0:3,4:5"} in rows(parse_ip(lines(text)), "netdev")
