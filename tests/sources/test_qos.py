"""PFC, trust, DSCP, ETS, buffers, ECN and CNP of network devices."""

from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, gaps, lines, rows

from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import parse_tree
from rdmadiag.sources.qos import TEXTS, parse_cma, parse_dcb, parse_dcb_text, parse_mlnx_qos, read

# A GPU node in service, published with its mlnx_qos output (name changed); the layout is mlnx-tools' python/mlnx_qos.
MLNX_QOS = """\
root@gpu-008:~# mlnx_qos -i ens4np0
****** WARNING: lldpad service is running and may overwrite your settings ******
DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
        prio:0 dscp:07,06,05,04,03,02,01,00,
        prio:5 dscp:40,47,46,45,44,43,42,41,
        prio:6 dscp:48,
default priority:
Receive buffer size (bytes): 19872,220896,0,0,0,0,0,0,max_buffer_size=4151520
Cable len: 30
PFC configuration:
        priority    0   1   2   3   4   5   6   7
        enabled     0   0   0   0   0   1   0   0   \n\
        buffer      0   0   0   0   0   1   0   0   \n\
tc: 0 ratelimit: unlimited, tsa: ets, bw: 9%
         priority:  0
tc: 5 ratelimit: unlimited, tsa: strict
         priority:  5
"""


def test_mlnx_qos_tells_trust_pfc_buffers_and_classes():
    found = list(parse_mlnx_qos(lines(MLNX_QOS)))
    port = {}
    for row in rows(found, "qos"):
        port.update(row)
    assert port == {
        "netdev": "ens4np0",
        "lldpad": 1,
        "dcbx": "os",
        "trust": "dscp",
        "buffer_total_bytes": 4151520,
        "cable_length_m": 30,
    }
    on = [row["priority"] for row in rows(found, "qos_priority") if row.get("pfc")]
    assert on == [5]
    assert {row["dscp"]: row["priority"] for row in rows(found, "qos_dscp")}[46] == 5
    assert rows(found, "qos_buffer")[1] == {"netdev": "ens4np0", "buffer": 1, "size_bytes": 220896}
    assert rows(found, "qos_tc")[0] == {"netdev": "ens4np0", "tc": 0, "tsa": "ets", "bandwidth_percent": 9}
    assert {"netdev": "ens4np0", "priority": 5, "tc": 5} in rows(found, "qos_priority")


PFC = {
    "ifname": "eth2",
    "pfc_cap": 8,
    "delay": 7,
    "prio_pfc": [False, False, False, True, False, False, False, False],
    "requests": [0, 0, 0, 12, 0, 0, 0, 0],
    "indications": [0, 0, 0, 9, 0, 0, 0, 0],
}


def test_dcb_objects_become_rows():
    found = list(parse_dcb([{**PFC, "dscp_prio": [[26, 3, " "], [48, ":6"]], "order": ["dscp"], "host": True}]))
    assert rows(found, "qos") == [{"netdev": "eth2", "trust": "dscp", "dcbx": "os", "pfc_cap": 8, "cable_length_m": 7}]
    assert rows(found, "qos_priority")[3] == {
        "netdev": "eth2",
        "priority": 3,
        "pfc": 1,
        "pfc_sent": 12,
        "pfc_received": 9,
    }
    assert rows(found, "qos_dscp") == [
        {"netdev": "eth2", "dscp": 26, "priority": 3},
        {"netdev": "eth2", "dscp": 48, "priority": 6},
    ]


# formats: iproute2 dcb/dcb_pfc.c, dcb_ets.c, dcb_app.c, dcb_buffer.c
DCB = """\
$ dcb pfc show dev eth2
pfc-cap 8 macsec-bypass off delay 7
prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off
$ dcb app show dev eth2
dscp-prio AF31:3 CS6:6 11:0
$ dcb ets show dev eth2
tc-tsa 0:ets 1:strict
prio-tc 0:0 1:1
"""


def test_dcb_text_takes_its_netdev_from_the_prompt():
    found = list(parse_dcb_text(lines(DCB)))
    assert [row["priority"] for row in rows(found, "qos_priority") if row.get("pfc")] == [3]
    assert {row["dscp"]: row["priority"] for row in rows(found, "qos_dscp")} == {26: 3, 48: 6, 11: 0}
    assert {row["netdev"] for row in rows(found, "qos_tc")} == {"eth2"}
    assert rows(parse_dcb_text(lines(DCB.partition("\n")[2])), "qos")[0]["netdev"] == ""


# NCCL issue thread on GPU-initiated traffic: eight NICs with one global traffic class
TRAFFIC_CLASS = """\
$ grep . /sys/class/infiniband/mlx5_*/tc/1/traffic_class
/sys/class/infiniband/mlx5_1/tc/1/traffic_class:Global tclass=236
/sys/class/infiniband/mlx5_2/tc/1/traffic_class:Global tclass=236
$ cma_roce_mode -d mlx5_1 -p 1
RoCE v2
$ cma_roce_tos -d mlx5_1
106
$ cat /sys/class/infiniband/mlx5_3/tc/1/traffic_class
Global tclass=106
"""


def test_what_marks_roce_traffic_is_read_from_commands():
    assert rows(parse_cma(lines(TRAFFIC_CLASS)), "roce_setting") == [
        {"device": "mlx5_1", "port": 1, "traffic_class": 236},
        {"device": "mlx5_2", "port": 1, "traffic_class": 236},
        {"device": "mlx5_1", "port": 1, "cm_roce_mode": "RoCE v2"},
        {"device": "mlx5_1", "port": 1, "cm_roce_tos": 106},
        {"device": "mlx5_3", "port": 1, "traffic_class": 106},
    ]


# paths of MLNX_OFED and of kernel Documentation/ABI/testing/configfs-rdma_cm
SYSFS = """\
/sys/class/net/eth1/device/driver -> /sys/bus/pci/drivers/mlx5_core
/sys/bus/pci/drivers/mlx5_core/
/sys/class/net/eth1/qos/trust:dscp
/sys/class/net/eth1/qos/dscp2prio:dscp prio
/sys/class/net/eth1/qos/dscp2prio:26 3
/sys/class/net/eth1/qos/prio2buffer:0,0,0,1,0,0,0,0,
/sys/class/net/eth1/qos/buffer_size:19872,220896,0,0,0,0,0,0
/sys/class/net/eth1/ecn/roce_np/cnp_dscp:48
/sys/class/net/eth1/ecn/roce_np/cnp_802p_prio:6
/sys/class/net/eth1/ecn/roce_np/enable/3:1
/sys/class/net/eth1/ecn/roce_rp/enable/3:0
/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE
/sys/class/infiniband/mlx5_0/tc/1/traffic_class:Global tclass=106
/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode:RoCE v2
/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos:106
"""


def test_files_of_the_driver_are_read():
    found = list(read(LiveTree(SYSFS)))
    assert {"netdev": "eth1", "trust": "dscp"} in rows(found, "qos")
    assert {"netdev": "eth1", "cnp_dscp": 48, "cnp_priority": 6} in rows(found, "qos")
    assert {"netdev": "eth1", "priority": 3, "ecn_np": 1, "ecn_rp": 0} in rows(found, "qos_priority")
    assert {"netdev": "eth1", "priority": 3, "buffer": 1} in rows(found, "qos_priority")
    assert rows(found, "qos_dscp") == [{"netdev": "eth1", "dscp": 26, "priority": 3}]
    assert rows(found, "roce_setting") == [
        {"device": "mlx5_0", "port": 1, "traffic_class": 106, "cm_roce_mode": "RoCE v2", "cm_roce_tos": 106}
    ]


def test_the_notification_point_of_the_kernels_own_driver_is_in_debugfs():
    tree = """\
/sys/class/net/eth1/device -> ../../../devices/pci0000:00/0000:3b:00.0
/sys/devices/pci0000:00/0000:3b:00.0/numa_node:0
/sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/np_cnp_dscp:48
/sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/np_cnp_prio:6
/sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/np_min_time_between_cnps:2
"""
    (port,) = rows(read(LiveTree(tree + "/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE\n")), "qos")
    assert port == {"netdev": "eth1", "cnp_dscp": 48, "cnp_priority": 6, "min_time_between_cnps_us": 2}


def test_mlx5_of_the_kernel_trusts_dscp_while_it_has_an_entry_for_one():
    with_entry = {"ifname": "eth1", "dscp_prio": [[26, 3]], "prio_pfc": [False] * 8}
    for entry, trust in ((with_entry, "dscp"), ({**PFC, "ifname": "eth1"}, "pcp")):
        found = list(read(LiveTree(SYSFS.replace("qos/trust", "qos/other"), tables={"dcb": [entry]})))
        assert trust in [row.get("trust") for row in rows(found, "qos")]
    other = list(
        read(
            LiveTree(
                SYSFS.replace("mlx5_core", "bnxt_en").replace("qos/trust", "qos/other"), tables={"dcb": [with_entry]}
            )
        )
    )
    assert not any("trust" in row for row in rows(other, "qos"))


def test_a_captured_tree_without_dcb_leaves_a_gap_and_looks_at_no_configfs_that_is_not_there():
    tree = SYSFS.replace("/sys/kernel/config", "/else")
    found = list(read(CapturedHost(parse_tree(tree)[0])))
    assert [gap.kind for gap in gaps(found)] == ["not_given"]
    assert rows(found, "roce_setting") == [{"device": "mlx5_0", "port": 1, "traffic_class": 106}]


@given(st.data())
def test_a_cut_off_text_raises_nothing(data):
    whole = MLNX_QOS + DCB + TRAFFIC_CLASS
    cut, rest = data.draw(st.integers(0, len(whole))), data.draw(st.text(max_size=40))
    for kind in TEXTS[1:]:
        list(kind.parse(lines(whole[:cut] + rest)))


@given(
    st.text(max_size=60),
    st.sampled_from(["qos/trust", "qos/dscp2prio", "qos/prio2buffer", "qos/buffer_size", "ecn/roce_np/cnp_dscp"]),
)
def test_no_content_of_a_file_raises(content, name):
    files = {f"/sys/class/net/eth1/{name}": content.encode()}
    files["/sys/class/infiniband/mlx5_0/tc/1/traffic_class"] = content.encode()
    list(read(LiveTree("/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE\n", files=files)))
