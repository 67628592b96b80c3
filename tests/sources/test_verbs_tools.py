"""Tools of user space, in the shape of rdma-core 50 (devinfo.c, device_list.c, ibstat.c, ibstatus), mlnx-tools and iproute2 6.15.

Where a text follows a public thread, its place is named beside it.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_tree import lines, rows

from rdmadiag.evidence.row import Json, Text
from rdmadiag.evidence.scan import pattern_problem
from rdmadiag.sources import counters, resources, verbs_tools
from rdmadiag.sources.verbs_tools import (
    TEXTS,
    parse_devs,
    parse_gid_files,
    parse_ibdev2netdev,
    parse_ibstat,
    parse_ibstatus,
    parse_ibv_devices,
    parse_ibv_devinfo,
    parse_links,
    parse_rdma,
    parse_show_gids,
)

DEVINFO = """\
hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t28.42.1000
\tnode_guid:\t\t\ta088:c203:004f:10a4
\tsys_image_guid:\t\t\ta088:c203:004f:10a4
\tvendor_id:\t\t\t0x02c9
\tvendor_part_id:\t\t\t4129
\thw_ver:\t\t\t\t0x0
\tboard_id:\t\t\tMT_0000000838
\tphys_port_cnt:\t\t\t1
\tmax_mr_size:\t\t\t0xffffffffffffffff
\tmax_qp:\t\t\t\t131072
\tmax_qp_wr:\t\t\t32768
\tmax_cqe:\t\t\t4194303
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t1024 (3)
\t\t\tsm_lid:\t\t\t0
\t\t\tport_lid:\t\t0
\t\t\tport_lmc:\t\t0x00
\t\t\tlink_layer:\t\tEthernet
\t\t\tport_cap_flags:\t\t0x04010000
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t100.0 Gbps (128)
\t\t\tphys_state:\t\tLINK_UP (5)
\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:a288:c2ff:fe4f:10a4, RoCE v1
\t\t\tGID[  3]:\t\t::ffff:10.20.209.6, RoCE v2

hca_id:\tibp1
\ttransport:\t\t\tInfiniBand (0)
\tphys_port_cnt:\t\t\t1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tlink_layer:\t\tInfiniBand
\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:0255:0003:0010:1090

"""
IBSTAT = """\
CA 'mlx5_0'
\tCA type: MT4123
\tNumber of ports: 1
\tFirmware version: 20.28.2006
\tHardware version: 0
\tNode GUID: 0x0255000300101090
\tSystem image GUID: 0x0255000300101090
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 200
\t\tBase lid: 47
\t\tLMC: 0
\t\tSM lid: 1
\t\tCapability mask: 0x2651e848
\t\tPort GUID: 0x0255000300101090
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tNumber of ports: 2
\tPort 1:
\t\tState: Initializing
\t\tPhysical state: Polling
\t\tRate: 40 (FDR10)
\tPort 2:
\t\tState: Down
\t\tPhysical state: Disabled
"""
IBSTATUS = """\
Infiniband device 'mlx5_bond_0' port 1 status:
\tdefault gid:\t fe80:0000:0000:0000:0255:00ff:fe10:0b01
\tbase lid:\t 0x0
\tsm lid:\t\t 0x0
\tstate:\t\t 4: ACTIVE
\tphys state:\t 5: LinkUp
\trate:\t\t 25 Gb/sec (1X EDR)
\tlink_layer:\t Ethernet

Infiniband device 'rxe0' port 1 status:
\tdefault gid:\t unknown
\tstate:\t\t 1: DOWN

"""
SHOW_GIDS = """\
DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV
---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---
mlx5_0\t1\t4\tfe80:0000:0000:0000:0055:00ff:fe20:1001\t\t\tv1\tnet1
mlx5_0\t1\t6\t0000:0000:0000:0000:0000:ffff:0a14:010c\t10.20.1.12  \tv1\tnet1
mlx5_0\t1\t7\t0000:0000:0000:0000:0000:ffff:0a14:010c\t10.20.1.12  \tv2\tnet1
ibp1\t1\t0\tfe80:0000:0000:0000:0255:0003:0010:1090\t\t\tv1\t
n_gids_found=4
"""
DEVICES = """\
    device          \t   node GUID
    ------          \t----------------
    mlx5_0          \t0255000300101090
    rxe0            \t025500fffe10b707
"""
LINKS = """\
link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev enp26s0np0
link ibp1/1 subnet_prefix fe80:0000:0000:0000 lid 13399 sm_lid 49151 lmc 0 state DOWN physical_state POLLING
    caps: <SM, NOTICE>
"""
OLD_LINKS = "0/1: mlx5_0/1: state ACTIVE physical_state LINK_UP netdev eth0\n"
DEVS = "0: mlx5_0: node_type ca protocol roce fw 16.35.1012 node_guid a088:c203:004f:10a4 sys_image_guid a088:c203:004f:10a4\n"
IBDEV = """\
mlx5_0 port 1 ==> ib0 (Up)
0005:03:00.0 mlx5_1 (MT4129 - P3740-0002 ) NVIDIA IGX, 2-port QSFP     fw 28.37.0190 port 1 (DOWN  ) ==> eth2 (Down)
"""
GIDS = """\
fe80:0000:0000:0000:0255:00ff:fe10:0c78
0000:0000:0000:0000:0000:ffff:0a14:0b02
0000:0000:0000:0000:0000:0000:0000:0000
0000:0000:0000:0000:0000:0000:0000:0000
"""


def test_devinfo_gives_devices_ports_and_gids():
    found = list(parse_ibv_devinfo(lines(DEVINFO)))
    first, second = sorted(rows(found, "device"), key=lambda row: row["device"], reverse=True)
    assert first == {
        "device": "mlx5_0",
        "driver": "mlx5",
        "in_verbs": 1,
        "transport": "InfiniBand",
        "protocol": "roce",
        "fw_ver": "28.42.1000",
        "node_guid": "a088:c203:004f:10a4",
        "sys_image_guid": "a088:c203:004f:10a4",
        "vendor_id": 0x02C9,
        "vendor_part_id": 4129,
        "hw_ver": "0x0",
        "board_id": "MT_0000000838",
        "ports": 1,
        "max_mr_size_bytes": 2**63 - 1,
        "max_qp": 131072,
        "max_cqe": 4194303,
    }
    assert second == {"device": "ibp1", "in_verbs": 1, "transport": "InfiniBand", "ports": 1, "protocol": "ib"}
    assert rows(found, "port") == [
        {
            "device": "mlx5_0",
            "port": 1,
            "state": "ACTIVE",
            "max_mtu": 4096,
            "active_mtu": 1024,
            "sm_lid": 0,
            "lid": 0,
            "link_layer": "Ethernet",
            "capability": "0x04010000",
            "phys_state": "LinkUp",
            "rate_gbps": 400.0,
        },
        {"device": "ibp1", "port": 1, "state": "DOWN", "link_layer": "InfiniBand"},
    ]
    assert rows(found, "gid") == [
        {
            "device": "mlx5_0",
            "port": 1,
            "gid_index": 0,
            "gid": "fe80:0000:0000:0000:a288:c2ff:fe4f:10a4",
            "kind": "link_local",
            "type": "RoCE v1",
        },
        {
            "device": "mlx5_0",
            "port": 1,
            "gid_index": 3,
            "gid": "0000:0000:0000:0000:0000:ffff:0a14:d106",
            "kind": "ipv4",
            "ip": "10.20.209.6",
            "type": "RoCE v2",
        },
        {
            "device": "ibp1",
            "port": 1,
            "gid_index": 0,
            "gid": "fe80:0000:0000:0000:0255:0003:0010:1090",
            "kind": "link_local",
            "type": "IB",
        },
    ]
    assert rows(found, "verbs_list") == [{"tool": "ibv_devinfo", "devices": 2}]


def test_devinfo_with_spaces_for_tabs_is_read():
    text = "hca_id: rxe0\n        transport:                      InfiniBand (0)\n                port:   1\n"
    text += "                        state:                  PORT_ACTIVE (4)\n"
    found = list(parse_ibv_devinfo(lines(text)))
    assert rows(found, "port") == [{"device": "rxe0", "port": 1, "state": "ACTIVE"}]
    assert rows(found, "device")[0]["driver"] == "rxe"


def test_a_gid_line_of_devinfo_alone_is_a_gid_of_an_unknown_device():
    # Mooncake issue 1593
    text = "\t\t\tGID[  0]:               fe80:0000:0000:0000:0255:00ff:fe10:0e01, RoCE v1\n"
    assert rows(parse_ibv_devinfo(lines(text)), "gid") == [
        {"gid_index": 0, "gid": "fe80:0000:0000:0000:0255:00ff:fe10:0e01", "kind": "link_local", "type": "RoCE v1"}
    ]


def test_an_excerpt_of_one_port_is_a_port_of_an_unknown_device():
    # NCCL issue 769
    text = "\t\t\tphys_state:\t\tLINK_UP (5)\n\t\t\tGID[  1]:\t\tfe80::255:ff:fe10:1cfb, RoCE v2\n"
    found = list(parse_ibv_devinfo(lines(text)))
    assert rows(found, "port") == [{"phys_state": "LinkUp"}]
    assert rows(found, "gid")[0]["gid"] == "fe80:0000:0000:0000:0255:00ff:fe10:1cfb"
    assert rows(found, "device") == []


def test_states_picked_by_grep_are_one_port_each():
    text = "hca_id:\tmlx5_0\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\nhca_id:\tmlx5_1\n\t\t\tstate:\t\t\tPORT_DOWN (1)\n"
    assert [(row["device"], row["state"]) for row in rows(parse_ibv_devinfo(lines(text)), "port")] == [
        ("mlx5_0", "ACTIVE"),
        ("mlx5_1", "DOWN"),
    ]
    text = "\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tstate:\t\t\tPORT_DOWN (1)\n"
    assert [row["state"] for row in rows(parse_ibv_devinfo(lines(text)), "port")] == ["ACTIVE", "DOWN"]


def test_lists_of_devinfo_are_counted():
    assert rows(parse_ibv_devinfo(lines("No IB devices found\n")), "verbs_list") == [
        {"tool": "ibv_devinfo", "devices": 0}
    ]
    found = list(parse_ibv_devinfo(lines("2 HCAs found:\n\tmlx5_1\n\tmlx5_0\n\n")))
    assert rows(found, "verbs_list") == [{"tool": "ibv_devinfo", "devices": 2}]
    assert [row["device"] for row in rows(found, "device")] == ["mlx5_1", "mlx5_0"]
    (row,) = rows(parse_ibv_devinfo(lines("IB device 'mlx5_9' wasn't found\n")), "device")
    assert row["in_verbs"] == 0


def test_the_list_of_devices_is_read_and_counted():
    found = list(parse_ibv_devices(lines(DEVICES)))
    assert rows(found, "device") == [
        {"device": "mlx5_0", "driver": "mlx5", "node_guid": "0255:0003:0010:1090", "in_verbs": 1},
        {"device": "rxe0", "driver": "rxe", "node_guid": "0255:00ff:fe10:b707", "in_verbs": 1},
    ]
    assert rows(found, "verbs_list") == [{"tool": "ibv_devices", "devices": 2}]


def test_an_empty_list_of_devices_is_evidence():
    # rxe-dev issue 74
    head = "".join(DEVICES.splitlines(keepends=True)[:2])
    text = f"libibverbs: Warning: Driver rxe does not support the kernel ABI of 1 (supports 2 to 2)\n{head}"
    assert next(iter(parse_ibv_devices(lines(text)))) == verbs_tools._list_row("ibv_devices", 0, 2)


@pytest.mark.parametrize(
    ("parse", "text", "tool"),
    [
        (parse_ibv_devices, "Failed to get IB devices list: Function not implemented", "ibv_devices"),
        (parse_ibv_devinfo, "Failed to get IB devices list: Function not implemented", "ibv_devinfo"),
        (parse_ibstatus, "Fatal error:  No devices", "ibstatus"),
        (parse_rdma, "Failed to open NETLINK_RDMA socket", "rdma"),
    ],
)
def test_a_tool_that_found_nothing_to_list_is_an_empty_list(parse, text, tool):
    # As printed by rdma-core 44 and iproute2 6.1 on a kernel without RDMA.
    assert rows(parse(lines(text)), "verbs_list") == [{"tool": tool, "devices": 0}]


def test_ibstat_gives_devices_and_ports():
    found = list(parse_ibstat(lines(IBSTAT)))
    assert rows(found, "device")[0] == {
        "device": "mlx5_0",
        "driver": "mlx5",
        "hca_type": "MT4123",
        "ports": 1,
        "fw_ver": "20.28.2006",
        "hw_ver": "0",
        "node_guid": "0255:0003:0010:1090",
        "sys_image_guid": "0255:0003:0010:1090",
        "protocol": "ib",
    }
    assert rows(found, "port") == [
        {
            "device": "mlx5_0",
            "port": 1,
            "state": "ACTIVE",
            "phys_state": "LinkUp",
            "rate_gbps": 200.0,
            "lid": 47,
            "sm_lid": 1,
            "capability": "0x2651e848",
            "link_layer": "InfiniBand",
        },
        {"device": "mlx5_1", "port": 1, "state": "INIT", "phys_state": "Polling", "rate_gbps": 40.0},
        {"device": "mlx5_1", "port": 2, "state": "DOWN", "phys_state": "Disabled"},
    ]


def test_a_cut_ibstat_gives_what_is_there():
    # NCCL issue 1524
    text = "CA 'mlx5_0'\n\tCA type: MT4115\n\tPort 1:\n\t\tState: Active\n"
    found = list(parse_ibstat(lines(text)))
    assert rows(found, "port") == [{"device": "mlx5_0", "port": 1, "state": "ACTIVE"}]
    text = "CA 'mlx5_0'\n\t\tState: Active\nCA 'mlx5_1'\n\t\tState: Down\n"
    assert rows(parse_ibstat(lines(text)), "port") == [
        {"device": "mlx5_0", "state": "ACTIVE"},
        {"device": "mlx5_1", "state": "DOWN"},
    ]


def test_ibstatus_gives_ports_and_the_first_gid():
    found = list(parse_ibstatus(lines(IBSTATUS)))
    assert rows(found, "port") == [
        {
            "device": "mlx5_bond_0",
            "port": 1,
            "lid": 0,
            "sm_lid": 0,
            "state": "ACTIVE",
            "phys_state": "LinkUp",
            "rate_gbps": 25.0,
            "rate_text": "25 Gb/sec (1X EDR)",
            "link_layer": "Ethernet",
        },
        {"device": "rxe0", "port": 1, "state": "DOWN"},
    ]
    assert [(row["device"], row["gid_index"]) for row in rows(found, "gid")] == [("mlx5_bond_0", 0)]


def test_tools_in_one_text_do_not_take_each_others_lines():
    whole = IBSTATUS + DEVINFO + IBSTAT
    for parse, alone in ((parse_ibstatus, IBSTATUS), (parse_ibv_devinfo, DEVINFO), (parse_ibstat, IBSTAT)):
        for table in ("device", "port", "gid", "verbs_list"):
            assert rows(parse(lines(whole)), table) == rows(parse(lines(alone)), table)


def test_show_gids_reads_empty_cells():
    found = rows(parse_show_gids(lines(SHOW_GIDS)), "gid")
    assert [(row["device"], row["gid_index"], row.get("type"), row.get("ip"), row.get("netdev")) for row in found] == [
        ("mlx5_0", 4, "RoCE v1", None, "net1"),
        ("mlx5_0", 6, "RoCE v1", "10.20.1.12", "net1"),
        ("mlx5_0", 7, "RoCE v2", "10.20.1.12", "net1"),
        ("ibp1", 0, None, None, None),
    ]


def test_show_gids_of_an_old_release_has_neither_version_nor_netdev():
    # gloo issue 147
    text = "qedr0\t1\t1\t0000:0000:0000:0000:0000:ffff:0a14:0c64\t10.20.12.100\nn_gids_found=1\n"
    assert rows(parse_show_gids(lines(text)), "gid") == [
        {
            "device": "qedr0",
            "port": 1,
            "gid_index": 1,
            "gid": "0000:0000:0000:0000:0000:ffff:0a14:0c64",
            "kind": "ipv4",
            "ip": "10.20.12.100",
        }
    ]


def test_a_bare_list_of_gids_is_numbered_by_its_order():
    # rxe-dev issue 79
    assert [(row["gid_index"], row["kind"]) for row in rows(parse_gid_files(lines(GIDS)), "gid")] == [
        (0, "link_local"),
        (1, "ipv4"),
    ]


def test_one_gid_alone_is_no_list():
    assert list(parse_gid_files(lines(GIDS.splitlines()[0]))) == []


def test_a_long_list_sorted_by_text_is_sure_of_its_first_two_places_only():
    text = "".join(f"fe80:0000:0000:0000:0000:0000:0000:00{number:02x}\n" for number in range(1, 13))
    found = rows(parse_gid_files(lines(text)), "gid")
    assert [row.get("gid_index") for row in found] == [0, 1, *[None] * 10]


def test_a_list_of_gids_takes_its_device_from_the_command():
    found = rows(parse_gid_files(lines("$ cat /sys/class/infiniband/rxe0/ports/1/gids/*\n" + GIDS)), "gid")
    assert {(row["device"], row["port"]) for row in found} == {("rxe0", 1)}


def test_files_of_a_gid_table_are_put_together():
    base = "/sys/class/infiniband/mlx5_0/ports/1"
    text = (
        f"{base}/gids/0:fe80:0000:0000:0000:a288:c2ff:fe4f:10a4\n{base}/gids/1:0000:0000:0000:0000:0000:0000:0000:0000\n"
        f"{base}/gid_attrs/types/0:IB/RoCE v1\n{base}/gid_attrs/ndevs/0:eth0\n"
    )
    assert rows(parse_gid_files(lines(text)), "gid") == [
        {
            "device": "mlx5_0",
            "port": 1,
            "gid_index": 0,
            "gid": "fe80:0000:0000:0000:a288:c2ff:fe4f:10a4",
            "kind": "link_local",
            "type": "RoCE v1",
            "netdev": "eth0",
        }
    ]


def test_ibdev2netdev_gives_netdevs():
    found = list(parse_ibdev2netdev(lines(IBDEV)))
    assert rows(found, "port") == [
        {"device": "mlx5_0", "port": 1, "netdev": "ib0"},
        {"device": "mlx5_1", "port": 1, "state": "DOWN", "netdev": "eth2"},
    ]
    assert rows(found, "device") == [
        {"device": "mlx5_1", "driver": "mlx5", "bdf": "0005:03:00.0", "hca_type": "MT4129", "fw_ver": "28.37.0190"}
    ]


def test_ibdev2netdev_tells_whether_a_netdev_is_up():
    assert rows(parse_ibdev2netdev(lines("mlx5_3 port 1 ==> net1 (Down)")), "netdev") == [
        {"netdev": "net1", "operstate": "down"}
    ]


def test_of_the_ibdev2netdev_of_two_hosts_in_one_text_what_is_down_is_kept():
    # As pasted in tensorflow/tensorflow#11963.
    text = "S1\nmlx5_0 port 1 ==> ib0 (Down)\nmlx5_1 port 1 ==> ib1 (Up)\nS2\nmlx5_0 port 1 ==> ib0 (Up)\nmlx5_1 port 1 ==> ib1 (Up)"
    assert rows(parse_ibdev2netdev(lines(text)), "netdev") == [
        {"netdev": "ib0", "operstate": "down"},
        {"netdev": "ib1", "operstate": "up"},
    ]


def test_rdma_link_and_dev_are_read_in_both_forms():
    roce = {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "phys_state": "LinkUp", "link_layer": "Ethernet"}
    assert rows(parse_rdma(lines(LINKS)), "port") == [
        {**roce, "netdev": "enp26s0np0"},
        {
            "device": "ibp1",
            "port": 1,
            "state": "DOWN",
            "phys_state": "Polling",
            "link_layer": "InfiniBand",
            "lid": 13399,
            "sm_lid": 49151,
        },
    ]
    assert rows(parse_rdma(lines(OLD_LINKS)), "port") == [{**roce, "netdev": "eth0"}]
    device = {
        "device": "mlx5_0",
        "driver": "mlx5",
        "protocol": "roce",
        "fw_ver": "16.35.1012",
        "node_guid": "a088:c203:004f:10a4",
        "sys_image_guid": "a088:c203:004f:10a4",
    }
    assert rows(parse_rdma(lines(DEVS)), "device") == [device]
    dev = {"ifname": "mlx5_0", "node_type": "ca", "protocol": "roce", "fw": "16.35.1012"}
    guids = {"node_guid": "a088:c203:004f:10a4", "sys_image_guid": "a088:c203:004f:10a4"}
    assert rows(parse_devs([{**dev, **guids}]), "device") == [device]
    link = {"ifname": "mlx5_0", "port": 1, "state": "ACTIVE", "physical_state": "LINK_UP", "netdev": "eth0"}
    assert rows(parse_links([link]), "port") == [{**roce, "netdev": "eth0"}]


ALL = [*TEXTS, *counters.TEXTS, *resources.TEXTS]
STATISTIC = "link mlx5_0/1 rx_write_requests 0 rx_read_requests 3 out_of_buffer 135 duplicate_request 0\n"
SAMPLES = {
    "ibv_devinfo": (
        DEVINFO,
        "No IB devices found\n",
        "\t\t\tGID[  0]:\t\tfe80::1, RoCE v2\n",
        "1 HCA found:\n\tmlx5_0\n",
    ),
    "ibv_devices": (DEVICES, "Failed to get IB devices list: Function not implemented\n"),
    "ibstat": (IBSTAT, "\t\tState: Down\n"),
    "ibstatus": (IBSTATUS, "Fatal error:  No devices\n"),
    "show_gids": (SHOW_GIDS, "n_gids_found=0\n"),
    "gids": (GIDS,),
    "ibdev2netdev": (IBDEV,),
    "rdma link": (LINKS, OLD_LINKS, DEVS),
    "rdma res show": (
        "link mlx5_0/1 lqpn 1 type GSI state RTS sq-psn 0 comm [ib_core]\n",
        "0: mlx5_0: pd 3 cq 5 qp 4 cm_id 0 mr 2 ctx 1 srq 0\n",
        "dev mlx5_0 cqn 2 cqe 511 users 2 poll-ctx SOFTIRQ comm [ib_core]\n",
    ),
    "rdma statistic": (STATISTIC, "link mlx5_0/1 \n    rx_write_requests 0\n"),
    "grep hw_counters": ("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer:135\n",),
    "perfquery": ("# Port extended counters: Lid 274 port 1 (CapMask: 0x200)\nPortXmitData:....................5\n",),
    "ethtool -S": ("NIC statistics:\n     rx_packets: 1250\n", "     rx_prio3_pause: 17\n"),
}


@pytest.mark.parametrize(("tool", "text"), [(tool, text) for tool, texts in SAMPLES.items() for text in texts])
def test_a_text_is_claimed_by_its_own_tool_only(tool, text):
    claims = {
        known.tool
        for known in ALL
        if isinstance(known, Text)
        if any(re.search(sign, text, re.M) for sign in known.signs)
    }
    assert claims == {tool}


def test_all_signs_are_patterns_that_the_scanner_takes():
    assert [sign for text in ALL if isinstance(text, Text) for sign in text.signs if pattern_problem(sign)] == []


PARSERS = [text.parse for text in TEXTS if isinstance(text, Text)]
EVERYTHING = DEVINFO + IBSTAT + IBSTATUS + SHOW_GIDS + DEVICES + LINKS + OLD_LINKS + DEVS + IBDEV + GIDS
PIECES = sorted({piece for piece in re.split(r"(\s+|:|/)", EVERYTHING) if piece})


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=60).map("".join))
def test_parsers_never_raise(text):
    for parse in PARSERS:
        for row in parse(lines(text)):
            assert all(value is not None and value != "" for value in row.values.values())


@given(st.integers(0, len(EVERYTHING)), st.integers(0, len(EVERYTHING)))
def test_cut_texts_never_raise(start, stop):
    for parse in PARSERS:
        list(parse(lines(EVERYTHING[start:stop])))


ANY = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=3)
KEYS = st.sampled_from(["ifname", "port", "state", "physical_state", "netdev", "lid", "node_type", "fw", "node_guid"])


@given(st.lists(st.dictionaries(KEYS, ANY)))
def test_any_objects_are_read(objects):
    for text in TEXTS:
        if isinstance(text, Json):
            list(text.parse(objects))
