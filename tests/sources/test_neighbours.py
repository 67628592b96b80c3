"""Neighbours, policy rules, sysctls, bonds and LLDP."""

import json

from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, gaps, lines, rows

from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import parse_tree
from rdmadiag.sources import bonds, lldp, neighbours, sysctls

# iproute2: ip/ipneigh.c, ip/iprule.c
NEIGH = """\
10.0.0.2 dev eth1 lladdr 02:00:00:00:00:02 STALE
fe80::1 dev eth1 lladdr 02:00:00:00:00:09 router REACHABLE
10.0.0.9 dev eth1  FAILED
"""
RULE = """\
0:\tfrom all lookup local
101:\tfrom 10.0.1.2 lookup 101
200:\tfrom 10.0.0.0/24 to 10.9.0.0/16 iif eth1 blackhole
"""


def test_neighbours_have_a_state_and_an_address_when_resolved():
    assert rows(neighbours.parse_neighbours(lines(NEIGH)), "neighbour") == [
        {"address": "10.0.0.2", "netdev": "eth1", "lladdr": "02:00:00:00:00:02", "state": "STALE"},
        {"address": "fe80::1", "netdev": "eth1", "lladdr": "02:00:00:00:00:09", "state": "REACHABLE"},
        {"address": "10.0.0.9", "netdev": "eth1", "state": "FAILED"},
    ]


def test_policy_rules_say_which_table_is_asked():
    _, looked_up, dropped = rows(neighbours.parse_rules(lines(RULE)), "policy_rule")
    assert looked_up == {"priority": 101, "src": "10.0.1.2", "table": "101"}
    assert dropped == {
        "priority": 200,
        "src": "10.0.0.0/24",
        "dst": "10.9.0.0/16",
        "iif": "eth1",
        "action": "blackhole",
    }


def test_netlink_gives_the_same_and_its_absence_is_a_gap():
    tables = {
        "ip neigh": [{"dst": "10.0.0.9", "dev": "eth1", "state": ["FAILED"]}],
        "ip rule": [{"family": "inet", "priority": 101, "src": "10.0.1.0", "srclen": 24, "table": "101"}],
    }
    found = list(neighbours.read(LiveTree("", tables=tables)))
    assert rows(found, "neighbour") == [{"netdev": "eth1", "address": "10.0.0.9", "state": "FAILED"}]
    assert rows(found, "policy_rule") == [{"priority": 101, "src": "10.0.1.0/24", "family": "inet", "table": "101"}]
    assert len(gaps(list(neighbours.read(CapturedHost(parse_tree("")[0]))))) == 2


PROC = """\
/proc/sys/net/ipv4/conf/all/rp_filter:1
/proc/sys/net/ipv4/conf/eth1.100/rp_filter:2
/proc/sys/net/ipv4/neigh/default/gc_thresh3:1024
/proc/sys/net/ipv4/tcp_rmem:4096\t131072\t6291456
"""


def test_sysctls_are_named_as_sysctl_names_them():
    found = rows(sysctls.read(LiveTree(PROC)), "sysctl")
    assert {row["name"]: row["value"] for row in found} == {
        "net.ipv4.conf.all.rp_filter": "1",
        "net.ipv4.conf.eth1.100.rp_filter": "2",
        "net.ipv4.neigh.default.gc_thresh3": "1024",
        "net.ipv4.tcp_rmem": "4096 131072 6291456",
    }


# kernel drivers/net/bonding/bond_procfs.c
BOND = """\
$ cat /proc/net/bonding/bond0
Bonding Mode: IEEE 802.3ad Dynamic link aggregation
Transmit Hash Policy: layer3+4 (1)
MII Status: up
MII Polling Interval (ms): 100

Slave Interface: eth1
MII Status: up
Link Failure Count: 0
Aggregator ID: 1

Slave Interface: eth2
MII Status: down
Link Failure Count: 4
Aggregator ID: 2
"""
BOND_SYSFS = """\
/sys/class/net/bonding_masters:bond0
/sys/class/net/bond0/bonding/mode:802.3ad 4
/sys/class/net/bond0/bonding/xmit_hash_policy:layer3+4 1
/sys/class/net/bond0/bonding/miimon:100
/sys/class/net/eth1/master -> ../bond0
/sys/class/net/eth1/bonding_slave/mii_status:up
/sys/class/net/eth1/bonding_slave/link_failure_count:0
/sys/class/net/eth1/bonding_slave/ad_aggregator_id:1
"""


def merged(found, table, netdev):
    values = {}
    for row in rows(found, table):
        if row["netdev"] == netdev:
            values.update(row)
    return values


def test_a_bond_and_its_slaves_read_alike_from_sysfs_and_procfs():
    text, files = list(bonds.parse(lines(BOND))), list(bonds.read(LiveTree(BOND_SYSFS)))
    assert merged(text, "bond", "bond0") == merged(files, "bond", "bond0")
    assert merged(text, "bond_slave", "eth1") == merged(files, "bond_slave", "eth1")
    assert merged(text, "bond_slave", "eth2") == {
        "netdev": "eth2",
        "bond": "bond0",
        "mii_status": "down",
        "link_failures": 4,
        "aggregator_id": 2,
    }


# lldpd: src/client/display.c, text_writer.c, json_writer.c; addresses made up
LLDPCLI = """\
LLDP neighbors:
-------------------------------------------------------------------------------
Interface:    eth1, via: LLDP, RID: 1, Time: 0 day, 00:15:32
  Chassis:
    ChassisID:    mac 00:1a:2b:3c:4d:5e
    SysName:      leaf-3
    SysDescr:     SONiC Software Version
    MgmtIP:       192.0.2.3
    Capability:   Bridge, on
  Port:
    PortID:       ifname Ethernet48
    PortDescr:    rail 1, node 7
    TTL:          120
-------------------------------------------------------------------------------
"""
WANT = {
    "netdev": "eth1",
    "switch": "leaf-3",
    "switch_port": "Ethernet48",
    "port_description": "rail 1, node 7",
    "chassis": "00:1a:2b:3c:4d:5e",
    "management_ip": "192.0.2.3",
}
JSON = {
    "lldp": {
        "interface": [
            {
                "eth1": {
                    "via": "LLDP",
                    "chassis": {
                        "leaf-3": {
                            "id": {"type": "mac", "value": "00:1a:2b:3c:4d:5e"},
                            "mgmt-ip": ["192.0.2.3", "fe80::1"],
                        }
                    },
                    "port": {"id": {"type": "ifname", "value": "Ethernet48"}, "descr": "rail 1, node 7"},
                }
            }
        ]
    }
}
JSON0 = {
    "lldp": [
        {
            "interface": [
                {
                    "name": "eth1",
                    "chassis": [
                        {
                            "id": [{"type": "mac", "value": "00:1a:2b:3c:4d:5e"}],
                            "name": [{"value": "leaf-3"}],
                            "mgmt-ip": [{"value": "192.0.2.3"}],
                        }
                    ],
                    "port": [
                        {"id": [{"type": "ifname", "value": "Ethernet48"}], "descr": [{"value": "rail 1, node 7"}]}
                    ],
                }
            ]
        }
    ]
}


def tlv(kind, value):
    return (kind << 9 | len(value)).to_bytes(2, "big") + value


def frame():
    return (
        bytes.fromhex("0180c200000e001a2b3c4d5e88cc")
        + tlv(1, b"\x04" + bytes.fromhex("001a2b3c4d5e"))
        + tlv(2, b"\x05Ethernet48")
        + tlv(3, b"\0\x78")
        + tlv(4, b"rail 1, node 7")
        + tlv(5, b"leaf-3")
        + tlv(8, bytes([5, 1, 192, 0, 2, 3, 2, 0, 0, 0, 1, 0]))
        + tlv(0, b"")
    )


def test_switch_and_port_come_from_every_form():
    assert rows(lldp.parse(lines(LLDPCLI)), "lldp") == [WANT]
    assert rows(lldp.parse_json([JSON]), "lldp") == [WANT]
    assert rows(lldp.parse_json([JSON0]), "lldp") == [WANT]
    kept = len(frame()).to_bytes(8, "little") + frame()
    tree = LiveTree("/sys/class/net/eth1/ifindex:4\n", files={"/run/systemd/netif/lldp/4": kept})
    assert rows(lldp.read(tree), "lldp") == [WANT]


def test_networkctl_is_read_by_its_headings():
    text = (
        "LINK CHASSIS ID        SYSTEM NAME CAPS        PORT ID    PORT DESCRIPTION\n"
        "eth1 00:1a:2b:3c:4d:5e leaf-3      ..b.r...... Ethernet48 rail 1, node 7\n"
        "\n1 neighbor(s) listed.\n"
    )
    assert rows(lldp.parse_networkctl(lines(text)), "lldp") == [
        {key: value for key, value in WANT.items() if key != "management_ip"}
    ]


@given(st.binary(max_size=200))
def test_no_frame_raises(data):
    list(lldp.frames(data))
    lldp.neighbour(bytes(12) + b"\x88\xcc" + data)


@given(st.data())
def test_no_text_and_no_json_raises(data):
    whole = NEIGH + RULE + BOND + LLDPCLI
    cut, rest = data.draw(st.integers(0, len(whole))), data.draw(st.text(max_size=40))
    for module in (bonds, lldp, neighbours):
        for kind in module.TEXTS:
            if hasattr(kind, "signs"):
                list(kind.parse(lines(whole[:cut] + rest)))
    broken = (
        json.dumps(JSON)
        .replace("{", "[", data.draw(st.integers(0, 2)))
        .replace('"id"', data.draw(st.sampled_from(['"id"', '"x"'])))
    )
    try:
        objects = json.loads(broken)
    except ValueError:
        return
    list(lldp.parse_json([objects] if isinstance(objects, dict) else []))
