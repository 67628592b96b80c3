"""PCI functions: adapters, GPUs, bridges."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, gaps, lines, rows

from rdmadiag.evidence.row import Row
from rdmadiag.sources._lspci import TEXTS, parse_lspci
from rdmadiag.sources._pci_ids import family, role_of
from rdmadiag.sources.pci import parse_configuration, read

NIC = "/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0"
TREE = f"""\
/sys/bus/pci/devices/0000:21:00.0 -> ../../..{NIC.removeprefix("/sys")}
/sys/bus/pci/devices/0000:20:01.0 -> ../../../devices/pci0000:20/0000:20:01.0
/sys/bus/pci/devices/0000:00:1f.0/vendor:0x8086
/sys/bus/pci/devices/0000:00:1f.0/device:0x1234
/sys/bus/pci/devices/0000:00:1f.0/class:0x060100
/sys/devices/pci0000:20/0000:20:01.0/uevent:DRIVER=pcieport
/sys/devices/pci0000:20/0000:20:01.0/uevent:PCI_CLASS=60400
/sys/devices/pci0000:20/0000:20:01.0/uevent:PCI_ID=8086:352A
{NIC}/vendor:0x15b3
{NIC}/device:0x1021
{NIC}/class:0x020700
{NIC}/driver -> ../../../../bus/pci/drivers/mlx5_core
/sys/bus/pci/drivers/mlx5_core/
{NIC}/numa_node:1
{NIC}/current_link_speed:16.0 GT/s PCIe
{NIC}/max_link_speed:32.0 GT/s PCIe
{NIC}/current_link_width:8
{NIC}/max_link_width:16
{NIC}/iommu_group -> ../../../../kernel/iommu_groups/12
/sys/kernel/iommu_groups/12/type:DMA-FQ
{NIC}/revision:0x00
"""


def configuration(devctl=0x5930, acs=0x1D, extended=4096):
    """Return configuration space with a PCIe capability at 0x60, and ACS behind AER."""
    data = bytearray(extended)
    data[0:4] = bytes.fromhex("b3152110")
    data[0x34] = 0x40
    data[0x40:0x42] = b"\x01\x60"
    data[0x60:0x62] = b"\x10\x00"
    data[0x68:0x6A] = devctl.to_bytes(2, "little")
    if extended > 0x160:
        data[0x100:0x104] = (0x148 << 20 | 1 << 16 | 0x0001).to_bytes(4, "little")
        data[0x148:0x14C] = (0 << 20 | 1 << 16 | 0x000D).to_bytes(4, "little")
        data[0x14E:0x150] = acs.to_bytes(2, "little")
    return bytes(data)


def test_an_adapter_and_the_bridge_above_it_are_read():
    host = LiveTree(TREE, files={f"{NIC}/config": configuration()})
    nic, bridge = rows(read(host), "pci")
    assert nic == {
        "bdf": "0000:21:00.0",
        "vendor_id": 0x15B3,
        "device_id": 0x1021,
        "class": 0x020700,
        "name": "ConnectX-7",
        "driver": "mlx5_core",
        "role": "rdma",
        "parent_bdf": "0000:20:01.0",
        "revision": "00",
        "numa_node": 1,
        "iommu_group": 12,
        "iommu_type": "DMA-FQ",
        "current_speed_gts": 16.0,
        "max_speed_gts": 32.0,
        "current_width": 8,
        "max_width": 16,
        "max_payload_supported_bytes": 128,
        "max_payload_bytes": 256,
        "max_read_request_bytes": 4096,
        "relaxed_ordering": 1,
        "acs": "SrcValid,ReqRedir,CmpltRedir,UpstreamFwd",
    }
    assert (bridge["bdf"], bridge["role"], bridge["driver"]) == ("0000:20:01.0", "bridge", "pcieport")
    assert "iommu_type" not in bridge


def test_a_function_without_driver_is_unbound():
    (nic, *_) = rows(read(LiveTree("\n".join(line for line in TREE.splitlines() if "/driver" not in line))), "pci")
    assert nic["driver"] == ""


def test_a_gpu_has_the_size_of_its_largest_region():
    gpu = "/sys/bus/pci/devices/0000:41:00.0"
    resource = "0x0000000000000000 0x0000000000ffffff 0x14220c\n0x4000 0x1000003fff 0x14220c\n0x0 0x0 0x0"
    text = f"{gpu}/uevent:PCI_CLASS=30200\n{gpu}/uevent:PCI_ID=10DE:2330\n" + "".join(
        f"{gpu}/resource:{line}\n" for line in resource.splitlines()
    )
    (row,) = rows(read(LiveTree(text)), "pci")
    assert (row["role"], row["bar1_bytes"], row["iommu_type"]) == ("gpu", 1 << 36, "")


def test_configuration_space_of_a_user_has_no_answer_and_of_a_dead_function_says_so():
    assert parse_configuration(configuration()[:64]) == {}
    assert parse_configuration(b"\xff" * 256) == {"revision": "ff"}
    assert parse_configuration(configuration(extended=256)) == {
        "max_payload_supported_bytes": 128,
        "max_payload_bytes": 256,
        "max_read_request_bytes": 4096,
        "relaxed_ordering": 1,
    }
    assert parse_configuration(configuration(acs=0), virtual=True) == {"acs": ""}


@given(st.binary(max_size=5000))
def test_no_configuration_space_raises(data):
    parse_configuration(data)


@pytest.mark.parametrize(
    "vendor,device,code,role",
    [
        (0x15B3, 0x1021, 0x020700, "rdma"),
        (0x15B3, 0x1017, 0x020000, "rdma"),
        (0x15B3, 0x197B, 0x060400, "bridge"),
        (0x15B3, 0xCB84, 0x028000, "net"),
        (0x14E4, 0x16D7, 0x020000, "rdma"),
        (0x14E4, 0x1657, 0x020000, "net"),
        (0x14E4, 0x16EC, 0x020000, "net"),
        (0x8086, 0x1592, 0x020000, "rdma"),
        (0x8086, 0x1889, 0x020000, "net"),
        (0x8086, 0x1572, 0x020000, "net"),
        (0x1D0F, 0xEFA2, 0x020000, "rdma"),
        (0x1D0F, 0xEC20, 0x020000, "net"),
        (0x19E5, 0xA221, 0x020000, "net"),
        (0x19E5, 0xA226, 0x020000, "rdma"),
        (0x1425, 0x5410, 0x020000, "rdma"),
        (0x1425, 0x5010, 0x020000, "net"),
        (0x1077, 0x2261, 0x0C0400, "other"),
        (0x10DE, 0x2330, 0x030200, "gpu"),
        (0x10DE, 0x22A3, 0x068000, "other"),
        (0x1002, 0x74A1, 0x120000, "gpu"),
        (0x1A03, 0x2000, 0x030000, "other"),
        (0x144D, 0xA824, 0x010802, "nvme"),
    ],
)
def test_roles_are_told_by_family_and_class(vendor, device, code, role):
    assert role_of(vendor, device, code) == role


def test_families_do_not_overlap():
    from rdmadiag.sources._pci_ids import FAMILIES

    for ranges in FAMILIES.values():
        ordered = sorted(ranges)
        assert all(first <= last for first, last, _ in ordered)
        assert all(a[1] < b[0] for a, b in pairwise(ordered))
    assert family(0x15B3, 0xA2DC) == "BlueField-3 ConnectX-7"


LSPCI = """\
21:00.0 Infiniband controller [0207]: Mellanox Technologies MT2910 Family [ConnectX-7] [15b3:1021]
	Subsystem: Mellanox Technologies Device [15b3:0041]
	NUMA node: 1
	IOMMU group: 12
	Region 0: Memory at 3fffe000000 (64-bit, prefetchable) [size=32M]
	Capabilities: [60] Express (v2) Endpoint, MSI 00
		DevCap:	MaxPayload 512 bytes, PhantFunc 0, Latency L0s unlimited, L1 unlimited
		DevCtl:	CorrErr+ NonFatalErr+ FatalErr+ UnsupReq-
			RlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+ FLReset-
			MaxPayload 256 bytes, MaxReadReq 512 bytes
		LnkCap:	Port #0, Speed 32GT/s, Width x16, ASPM not supported
		LnkSta:	Speed 16GT/s (downgraded), Width x8 (downgraded)
		LnkCap2: Supported Link Speeds: 2.5-32GT/s, Crosslink- Retimer+ 2Retimers+ DRS-
	Kernel driver in use: mlx5_core
	Kernel modules: mlx5_core

10000:e0:01.0 PCI bridge [0604]: Intel Corporation Device [8086:352a] (rev 04) (prog-if 00 [Normal decode])
		ACSCtl:	SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
	Kernel modules: shpchp
41:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)
	Region 0: Memory at 4042000000 (64-bit, prefetchable) [size=16M]
	Region 2: Memory at 38000000000 (64-bit, prefetchable) [size=128G]
42:00.0 Ethernet controller: Mellanox Technologies ConnectX Family mlx5Gen Virtual Function (rev ff) (prog-if ff)
	!!! Unknown header type 7f
"""


def test_lspci_vvv_is_parsed_with_links_sizes_and_access_control():
    nic, bridge, gpu, dead = rows(parse_lspci(lines(LSPCI)), "pci")
    assert nic == {
        "bdf": "0000:21:00.0",
        "vendor_id": 0x15B3,
        "device_id": 0x1021,
        "class": 0x020700,
        "name": "Mellanox Technologies MT2910 Family [ConnectX-7]",
        "role": "rdma",
        "numa_node": 1,
        "iommu_group": 12,
        "max_payload_supported_bytes": 512,
        "max_payload_bytes": 256,
        "max_read_request_bytes": 512,
        "relaxed_ordering": 1,
        "max_speed_gts": 32.0,
        "max_width": 16,
        "current_speed_gts": 16.0,
        "current_width": 8,
        "downgraded": 1,
        "driver": "mlx5_core",
    }
    assert (bridge["bdf"], bridge["acs"], bridge["driver"]) == (
        "10000:e0:01.0",
        "SrcValid,ReqRedir,CmpltRedir,UpstreamFwd",
        "",
    )
    assert (gpu["role"], gpu["bar1_bytes"], gpu["revision"]) == ("gpu", 128 << 30, "a1")
    assert (dead["role"], dead["revision"], dead["vendor_id"]) == ("rdma", "ff", 0x15B3)


def test_the_link_state_is_where_the_row_was_read():
    found = [row for row in parse_lspci(lines(LSPCI)) if isinstance(row, Row)]
    assert [row.at for row in found] == [12, 17, 20, 23]


def test_an_excerpt_without_address_is_a_row_without_one():
    text = "\t\tLnkCap:\tPort #8, Speed 8GT/s, Width x4, ...\n\t\tLnkSta:\tSpeed 5GT/s, Width x1, ...\n"
    assert rows(parse_lspci(lines(text + text)), "pci") == 2 * [
        {"max_speed_gts": 8.0, "max_width": 4, "current_speed_gts": 5.0, "current_width": 1}
    ]


def test_each_access_control_line_of_an_excerpt_is_a_row():
    text = "# lspci -vvv | grep -i acsctl\n\t\tACSCtl: SrcValid+ TransBlk- ReqRedir+\n\t\tACSCtl: SrcValid- TransBlk- ReqRedir-\n"
    found = [row for row in parse_lspci(lines(text)) if isinstance(row, Row)]
    assert [(row.values, row.at) for row in found] == [({"acs": "SrcValid,ReqRedir"}, 2), ({"acs": ""}, 3)]


@pytest.mark.parametrize(
    "line,role,driver",
    [
        ("21:00.0 Ethernet controller: Mellanox Technologies MT27800 Family [ConnectX-5]", "rdma", None),
        ("0000:21:00.0 0200: 15b3:1017", "rdma", None),
        (
            "18:00.0 Ethernet controller: Broadcom Inc. and subsidiaries NetXtreme BCM5720 Gigabit Ethernet PCIe",
            "net",
            None,
        ),
        ("18:00.0 Ethernet controller: Intel Corporation Ethernet Controller E810-C for QSFP (rev 02)", "rdma", None),
        (
            "18:00.0 Ethernet controller: Intel Corporation Ethernet Controller X710 for 10GbE SFP+ (rev 02)",
            "net",
            None,
        ),
        ("00:1e.0 Ethernet controller: Amazon.com, Inc. Elastic Fabric Adapter (EFA)", "rdma", None),
        ("00:05.0 Ethernet controller: Amazon.com, Inc. Elastic Network Adapter (ENA)", "net", None),
        ("00:05.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)", "gpu", None),
        ("03:00.0 VGA compatible controller: ASPEED Technology, Inc. ASPEED Graphics Family (rev 41)", "other", None),
        ("03:00.0 Non-Volatile memory controller: Samsung Electronics Co Ltd NVMe SSD Controller PM9A3", "nvme", None),
    ],
)
def test_one_line_of_lspci_tells_the_role(line, role, driver):
    (row,) = rows(parse_lspci(lines(line)), "pci")
    assert (row["role"], row.get("driver")) == (role, driver)


def test_lspci_of_a_user_leaves_a_gap():
    text = "21:00.0 Ethernet controller: Mellanox Technologies MT27800 [ConnectX-5]\n\tCapabilities: <access denied>\n"
    (gap,) = gaps(parse_lspci(lines("00:00.0 Host bridge: Intel Corporation Device 09a2\n" + text)))
    assert (gap.tables, gap.kind, gap.how) == (("pci",), "not_permitted", "sudo lspci -vvv")


def test_an_excerpt_says_that_it_is_one():
    (gap,) = gaps(parse_lspci(lines("21:00.0 0200: 15b3:1017")))
    assert gap.kind == "not_given"


@given(st.text(), st.integers(0, len(LSPCI)))
def test_no_text_raises(text, cut):
    for kind in TEXTS:
        list(kind.parse(lines(text)))
        list(kind.parse(lines(LSPCI[:cut] + text + LSPCI[cut:])))


def test_a_tree_of_lspci_shows_which_bridge_is_above_what():
    # Layout of NVIDIA/nccl#246 (`lspci -tv`) and noonghunna/club-3090#1107 (`lspci -t`).
    text = """\
-+-[0000:d7]-+-05.0  Intel Corporation Device 2034
 |           \\-16.4  Intel Corporation Sky Lake-E M2PCI Registers
 +-[0000:20]-+-00.0
 |           +-03.1-[61-67]----00.0-[62-67]--+-02.0-[63]----00.0  Mellanox Technologies MT28908 Family [ConnectX-6]
 |           |                               \\-04.0-[64]----00.0  NVIDIA Corporation GA100 [A100 SXM4 40GB]
 |           \\-08.1-[22]--+-00.0
 |                        \\-00.4
 \\-[0000:00]-+-00.0
             \\-01.0
"""
    found = list(parse_lspci(lines(text)))
    parents = {row["bdf"]: (row["role"], row.get("parent_bdf")) for row in rows(found, "pci")}
    assert parents["0000:63:00.0"] == ("rdma", "0000:62:02.0")
    assert parents["0000:64:00.0"] == ("gpu", "0000:62:04.0")
    assert parents["0000:62:04.0"] == ("bridge", "0000:61:00.0")
    assert parents["0000:61:00.0"] == ("bridge", "0000:20:03.1")
    assert parents["0000:20:03.1"] == ("bridge", None)
    assert [gap.subject for gap in gaps(found)] == ["lspci -t"]


def test_a_user_who_may_not_read_configuration_space_gets_a_gap_for_what_is_in_it_alone():
    host = LiveTree(TREE, files={f"{NIC}/config": configuration()[:64]})
    host.root = False
    (gap,) = gaps(read(host))
    assert gap.tables[0] == "pci.acs" and gap.kind == "not_permitted"
    host.root = True
    assert gaps(read(host)) == []


def test_virtual_functions_know_their_physical_one():
    tree = TREE + f"{NIC}/sriov_numvfs:2\n{NIC}/sriov_totalvfs:8\n"
    vf = "/sys/bus/pci/devices/0000:21:00.2"
    tree += f"{vf}/uevent:PCI_CLASS=20700\n{vf}/uevent:PCI_ID=15B3:101E\n{vf}/physfn -> ../0000:21:00.0\n"
    found = {row["bdf"]: row for row in rows(read(LiveTree(tree)), "pci")}
    assert (found["0000:21:00.0"]["vfs"], found["0000:21:00.0"]["max_vfs"]) == (2, 8)
    assert found["0000:21:00.2"]["physical_bdf"] == "0000:21:00.0"
