"""Devices, ports and GIDs of /sys/class/infiniband, in the shape of Linux 6.12 (drivers/infiniband/core/sysfs.c)."""

from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, gaps, rows

from rdmadiag.errors import HostRefused
from rdmadiag.explain.gid import full_gid
from rdmadiag.sources.devices import (
    driver_of,
    gid_type,
    gid_values,
    physical_values,
    port_of_link,
    rate_values,
    read,
    state_values,
    whole,
)

ROCE = """\
/sys/class/infiniband/mlx5_0 -> ../../devices/pci0000:00/0000:00:01.0/0000:1a:00.0/infiniband/mlx5_0
/sys/class/infiniband/mlx5_0/device -> ../../../0000:1a:00.0
/sys/devices/pci0000:00/0000:00:01.0/0000:1a:00.0/driver -> ../../../../bus/pci/drivers/mlx5_core
/sys/devices/pci0000:00/0000:00:01.0/0000:1a:00.0/numa_node:1
/sys/devices/pci0000:00/0000:00:01.0/0000:1a:00.0/vendor:0x15b3
/sys/devices/pci0000:00/0000:00:01.0/0000:1a:00.0/device:0x1021
/sys/class/infiniband/mlx5_0/fw_ver:28.42.1000
/sys/class/infiniband/mlx5_0/node_guid:a088:c203:004f:10a4
/sys/class/infiniband/mlx5_0/sys_image_guid:a088:c203:004f:10a4
/sys/class/infiniband/mlx5_0/board_id:MT_0000000838
/sys/class/infiniband/mlx5_0/hca_type:MT4129
/sys/class/infiniband/mlx5_0/hw_rev:0
/sys/class/infiniband/mlx5_0/node_type:1: CA
/sys/class/infiniband/mlx5_0/node_desc:rxe-lab mlx5_0
/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE
/sys/class/infiniband/mlx5_0/ports/1/phys_state:5: LinkUp
/sys/class/infiniband/mlx5_0/ports/1/rate:400 Gb/sec (4X NDR)
/sys/class/infiniband/mlx5_0/ports/1/lid:0x0
/sys/class/infiniband/mlx5_0/ports/1/sm_lid:0x0
/sys/class/infiniband/mlx5_0/ports/1/cap_mask:0x00010000
/sys/class/infiniband/mlx5_0/ports/1/link_layer:Ethernet
/sys/class/infiniband/mlx5_0/ports/1/gids/0:fe80:0000:0000:0000:a288:c2ff:fe4f:10a4
/sys/class/infiniband/mlx5_0/ports/1/gids/1:0000:0000:0000:0000:0000:0000:0000:0000
/sys/class/infiniband/mlx5_0/ports/1/gids/10:2001:0db8:0000:0000:0000:0000:0000:0001
/sys/class/infiniband/mlx5_0/ports/1/gids/4:0000:0000:0000:0000:0000:ffff:0a14:010c
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0:IB/RoCE v1
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/4:RoCE v2
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/10:RoCE v2
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0:eth0
/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/4:eth0.100
/sys/class/infiniband_verbs/abi_version:6
/sys/class/infiniband_verbs/uverbs3/ibdev:mlx5_0
"""
TYPES = "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/"


class Refusing(LiveTree):
    """A node whose files below some paths answer with one error; notes what was read."""

    def __init__(self, text, reason, below):
        super().__init__(text)
        self.reason, self.below, self.asked = reason, below, []

    def read(self, path):
        if path.startswith(self.below):
            self.asked.append(path)
            raise HostRefused(path, self.reason)
        return super().read(path)


def test_a_roce_device_is_read_whole():
    found = list(read(LiveTree(ROCE)))
    assert rows(found, "device") == [
        {
            "device": "mlx5_0",
            "driver": "mlx5",
            "protocol": "roce",
            "fw_ver": "28.42.1000",
            "node_guid": "a088:c203:004f:10a4",
            "sys_image_guid": "a088:c203:004f:10a4",
            "vendor_id": 0x15B3,
            "vendor_part_id": 0x1021,
            "board_id": "MT_0000000838",
            "hca_type": "MT4129",
            "hw_ver": "0",
            "bdf": "0000:1a:00.0",
            "numa_node": 1,
            "ports": 1,
            "uverbs": "uverbs3",
        }
    ]
    assert rows(found, "port") == [
        {
            "device": "mlx5_0",
            "port": 1,
            "state": "ACTIVE",
            "phys_state": "LinkUp",
            "link_layer": "Ethernet",
            "rate_gbps": 400.0,
            "rate_text": "400 Gb/sec (4X NDR)",
            "lid": 0,
            "sm_lid": 0,
            "netdev": "eth0",
            "capability": "0x00010000",
        }
    ]
    assert gaps(found) == []


def test_filled_gids_are_read_in_the_order_of_the_table_with_their_types():
    found = rows(read(LiveTree(ROCE)), "gid")
    assert [(row["gid_index"], row.get("type"), row["kind"], row.get("ip"), row.get("netdev")) for row in found] == [
        (0, "RoCE v1", "link_local", None, "eth0"),
        (4, "RoCE v2", "ipv4", "10.20.1.12", "eth0.100"),
        (10, "RoCE v2", "ipv6", "2001:db8::1", None),
    ]


def test_the_type_of_an_unused_index_is_no_gap():
    host = Refusing(ROCE, "Invalid argument (EINVAL)", TYPES)
    found = list(read(host))
    assert gaps(found) == []
    assert [row["gid_index"] for row in rows(found, "gid")] == [0, 4, 10]
    assert host.asked == [TYPES + index for index in ("0", "4", "10")]


def test_an_unused_index_that_answers_einval_is_no_gap():
    host = Refusing(ROCE, "Invalid argument (EINVAL)", "/sys/class/infiniband/mlx5_0/ports/1/gids/1")
    found = list(read(host))
    assert gaps(found) == []
    assert [row["gid_index"] for row in rows(found, "gid")] == [0, 4]


def test_a_restricted_function_is_set_aside_at_its_first_refusal():
    host = Refusing(ROCE, "Invalid argument (EINVAL)", "/sys/class/infiniband/mlx5_0/ports/1/state")
    found = list(read(host))
    assert [row["device"] for row in rows(found, "device")] == ["mlx5_0"]
    assert rows(found, "port") == rows(found, "gid") == []
    (gap,) = gaps(found)
    assert (gap.tables, gap.kind, gap.subject) == (("port", "gid"), "restricted", "mlx5_0")
    assert len(host.asked) == 1


def test_a_port_without_a_rate_keeps_what_else_is_known():
    host = Refusing(ROCE, "Invalid argument (EINVAL)", "/sys/class/infiniband/mlx5_0/ports/1/rate")
    (port,) = rows(read(host), "port")
    assert port["state"] == "ACTIVE"
    assert "rate_gbps" not in port


def test_numa_node_minus_one_is_not_known():
    (device,) = rows(read(LiveTree(ROCE.replace("numa_node:1", "numa_node:-1"))), "device")
    assert "numa_node" not in device


def test_uverbs_is_found_below_the_function_when_the_class_does_not_say():
    text = ROCE.replace("/sys/class/infiniband_verbs/uverbs3/ibdev:mlx5_0\n", "")
    text += "/sys/devices/pci0000:00/0000:00:01.0/0000:1a:00.0/infiniband_verbs/uverbs7/ibdev:x\n"
    (device,) = rows(read(LiveTree(text)), "device")
    assert device["uverbs"] == "uverbs7"


def test_netlink_adds_the_netdev_and_the_protocol():
    tables = {
        "rdma link show": [{"ifname": "mlx5_0", "port": 1, "state": "ACTIVE", "netdev": "bond0", "netdev_index": 9}],
        "rdma dev show": [{"ifname": "mlx5_0", "node_type": "ca", "protocol": "roce", "fw": "1"}],
    }
    found = list(read(LiveTree(ROCE, tables=tables)))
    assert rows(found, "port")[0]["netdev"] == "bond0"
    assert rows(found, "device")[0]["protocol"] == "roce"
    assert rows(found, "device")[0]["fw_ver"] == "28.42.1000"


def test_an_infiniband_port_finds_its_netdev_by_port_number():
    text = "".join(
        f"/sys/class/infiniband/mlx4_0/ports/{port}/{name}\n"
        for port in (1, 2)
        for name in ("state:4: ACTIVE", "link_layer:InfiniBand", "lid:0x1f", "gid_attrs/types/0:IB/RoCE v1")
    )
    text += "/sys/class/infiniband/mlx4_0/ports/1/gids/0:fe80:0000:0000:0000:0255:0003:0010:1090\n"
    text += "/sys/class/infiniband/mlx4_0/device/net/ib0/dev_port:0\n"
    text += "/sys/class/infiniband/mlx4_0/device/net/ib1/dev_port:1\n"
    found = list(read(LiveTree(text)))
    assert [(row["netdev"], row["lid"]) for row in rows(found, "port")] == [("ib0", 31), ("ib1", 31)]
    assert rows(found, "gid")[0]["type"] == "IB"
    assert rows(found, "device")[0]["protocol"] == "ib"


def test_soft_devices_are_known_by_their_description_or_their_parent_file():
    for text, driver in (
        ("/sys/class/infiniband/lab0/node_desc:rxe\n", "rxe"),
        ("/sys/class/infiniband/lab0/parent:eth0\n", "rxe"),
        ("/sys/class/infiniband/lab0/node_desc:Software iWARP stack\n", "siw"),
    ):
        assert rows(read(LiveTree(text)), "device")[0]["driver"] == driver


def test_iwarp_has_its_protocol_and_no_roce_type():
    text = (
        "/sys/class/infiniband/siw0/node_type:4: RNIC\n"
        "/sys/class/infiniband/siw0/ports/1/link_layer:Ethernet\n"
        "/sys/class/infiniband/siw0/ports/1/gids/0:0255:00ff:fe10:0000:0000:0000:0000:0001\n"
        "/sys/class/infiniband/siw0/ports/1/gid_attrs/types/0:IB/RoCE v1\n"
    )
    found = list(read(LiveTree(text)))
    assert rows(found, "device")[0]["protocol"] == "iw"
    assert "type" not in rows(found, "gid")[0]


def test_driver_names_come_from_the_module_then_from_the_name():
    assert driver_of("rocep1s0", "mlx5_core") == "mlx5"
    assert driver_of("sf0", "mlx5_core.sf") == "mlx5"
    assert driver_of("bnxt_re0", "bnxt_en") == "bnxt_re"
    assert driver_of("mlx5_bond_0") == "mlx5"
    assert driver_of("rxe0", "virtio_net") == "rxe"
    assert driver_of("x0", "new_driver") == "new_driver"
    assert driver_of("x0") is None


def test_states_are_read_in_all_spellings():
    for text in ("4: ACTIVE", "ACTIVE", "PORT_ACTIVE (4)"):
        assert state_values(text) == {"state": "ACTIVE"}
    for text in ("5: LinkUp", "LINK_UP", "LINK_UP (5)"):
        assert physical_values(text) == {"phys_state": "LinkUp"}
    assert state_values("unknown") == physical_values("0: <unknown>") == {}


def test_rates_may_have_a_fraction():
    assert rate_values("2.5 Gb/sec (1X SDR)")["rate_gbps"] == 2.5
    assert rate_values("unknown") == {}


def test_gids_are_written_in_full():
    assert full_gid("::ffff:10.0.0.1") == "0000:0000:0000:0000:0000:ffff:0a00:0001"
    assert full_gid("fe80::255:ff:fe10:1cfb") == "fe80:0000:0000:0000:0255:00ff:fe10:1cfb"
    assert full_gid("mlx5_0") is full_gid("\ud800") is full_gid("a\0") is None
    assert gid_type("IB/RoCE v1", "InfiniBand") == "IB"
    assert gid_type("IB/RoCE v1", None) is None


def test_a_link_of_an_old_release_has_its_port_in_its_name():
    link = {"ifname": "mlx5_0/1", "state": "ACTIVE", "lid": 5, "sm_lid": 1}
    assert port_of_link(link) == {
        "device": "mlx5_0",
        "port": 1,
        "state": "ACTIVE",
        "link_layer": "InfiniBand",
        "lid": 5,
        "sm_lid": 1,
    }


def test_integers_fit_the_evidence():
    assert whole("0xffffffffffffffff") == whole(2**70) == (1 << 63) - 1
    assert whole("12x") is whole(True) is whole(None) is whole("") is whole("9" * 5000) is None
    assert whole(" 0x1F ") == 31


@given(st.text())
def test_word_readers_never_raise(text):
    state_values(text), physical_values(text), rate_values(text), driver_of(text, text, text), whole(text)
    if gid := full_gid(text):
        assert gid_values(gid)["gid"] == gid


@given(
    st.dictionaries(
        st.sampled_from(["ifname", "port", "state", "lid", "netdev", "physical_state"]), st.text() | st.integers()
    )
)
def test_any_object_of_a_link_is_read(link):
    port_of_link(link)


@given(
    st.binary(max_size=40), st.sampled_from([line.partition(":")[0] for line in ROCE.splitlines() if "/ports/" in line])
)
def test_any_content_of_a_port_file_is_read(content, path):
    host = LiveTree(ROCE)
    real = host._resolve(path)
    host.tree.entries[real] = content
    assert rows(read(host), "device")


def test_a_port_state_that_cannot_be_read_is_a_gap():
    found = list(read(Refusing(ROCE, "Permission denied (EACCES)", "/sys/class/infiniband/mlx5_0/ports/1/state")))
    (gap,) = gaps(found)
    assert (gap.tables, gap.kind, gap.subject) == (("port",), "unreadable", "mlx5_0/1")
    (port,) = rows(found, "port")
    assert "state" not in port
