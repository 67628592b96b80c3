"""mst status, mlxconfig, flint, mlxfwmanager, mlxreg."""

from live_tree import lines, rows

from rdmadiag.sources.firmware_tools import (
    parse_dump,
    parse_flint,
    parse_fwmanager,
    parse_mlxconfig,
    parse_mlxreg,
    parse_mst,
)

# k8snetworkplumbingwg/sriov-network-device-plugin#601, sriov-network-operator#786
MST = """\
MST modules:
------------
    MST PCI module is not loaded
    MST PCI configuration module loaded
PCI devices:
------------
DEVICE_TYPE             MST                           PCI       RDMA            NET                                     NUMA
ConnectX7(rev:0)        /dev/mst/mt4129_pciconf8      e3:00.0   mlx5_10         net-ib7                                 3

ConnectX7(rev:0)        /dev/mst/mt4129_pciconf7      a2:00.0   mlx5_9          net-ib8                                 3
"""

# kubeovn/kube-ovn#2685 (with -e), sriov-network-device-plugin#601 (Next Boot only)
CONFIG = """\
Device #1:
----------

Device type:        ConnectX6LX
Name:               MCX631102AC-ADA_Ax
Description:        ConnectX-6 Lx EN adapter card; 25GbE ; Dual-port SFP28; PCIe 4.0 x8; Crypto and Secure Boot
Device:             0108:00:00.0

Configurations:                                          Default             Current         Next Boot
        MEMIC_SIZE_LIMIT                            _256KB(1)        _256KB(1)        _256KB(1)
*       ROCE_CONTROL                                ROCE_ENABLE(2)  DEVICE_DEFAULT(0) ROCE_ENABLE(2)
        PCI_WR_ORDERING                             per_mkey(0)     per_mkey(0)     force_relax(1)
        NUM_OF_VFS                                  0               8               8
"""

# mwrnd/innova2_flex_xcku15p_notes#7; FW Version(Running) as flint prints it before a reset
FLINT = """\
$ sudo flint -d 03:00.0 q
Image type:            FS4
FW Version:            28.42.1000
FW Version(Running):   28.39.1002
FW Release Date:       8.8.2024
Product Version:       28.42.1000
Description:           UID                GuidsNumber
Base GUID:             e09d730300126474        16
PSID:                  MT_0000000838
Security Attributes:   N/A
"""

# sonic-net/sonic-buildimage#13465, mwrnd/innova2_flex_xcku15p_notes#5
MANAGER = """\
Querying Mellanox devices firmware ...

Device #1:
----------

  Device Type:      ConnectX6DX
  Part Number:      MCX623106AN-CDA_Ax
  Description:      ConnectX-6 Dx EN adapter card; 100GbE; Dual-port QSFP56; PCIe 4.0/3.0 x16;
  PSID:             MT_0000000359
  PCI Device Name:  /dev/mst/mt4125_pciconf0
  Base GUID:        0c42a103007d22d4
  Versions:         Current        Available
     FW             22.32.0498     22.36.1010
     PXE            3.6.0500       3.6.0500

  Status:           Update required

Device #2:
----------

  Device Type:      ConnectX5
  PSID:             MT_0000000158
  PCI Device Name:  pci0:6:0:0
  Versions:         Current        Available
     FW             16.24.4020     N/A

  Status:           No matching image found
"""

REGISTER = """\
# mlxreg -d mlx5_0 --reg_name ROCE_ACCEL --get
Field Name                                 | Data
===============================================
roce_adp_retrans_en                        | 0x00000001
roce_slow_restart_en                       | 0x00000000
"""


def test_mst_status_joins_the_names_of_an_adapter():
    first, second = rows(parse_mst(lines(MST)), "mst")
    assert first == {"mst": "/dev/mst/mt4129_pciconf8", "bdf": "0000:e3:00.0", "device": "mlx5_10", "netdev": "ib7"}
    assert second["device"] == "mlx5_9"


def test_mst_status_without_v_names_the_pci_address_in_the_line_below():
    text = [
        "/dev/mst/mt4115_pciconf0         - PCI configuration cycles access.",
        "                                   domain:bus:dev.fn=0000:81:00.0 addr.reg=88 data.reg=92 cr_bar.gw_offset=-1",
    ]
    assert rows(parse_mst(lines("\n".join(text))), "mst") == [
        {"mst": "/dev/mst/mt4115_pciconf0", "bdf": "0000:81:00.0"}
    ]


def test_settings_have_what_is_in_force_and_what_comes_at_the_next_boot():
    found = {row["setting"]: row for row in rows(parse_mlxconfig(lines(CONFIG)), "fw_setting")}
    assert list(found) == ["MEMIC_SIZE_LIMIT", "ROCE_CONTROL", "PCI_WR_ORDERING", "NUM_OF_VFS"]
    assert found["PCI_WR_ORDERING"] == {
        "bdf": "0108:00:00.0",
        "setting": "PCI_WR_ORDERING",
        "default_value": "per_mkey(0)",
        "default_number": 0,
        "value": "per_mkey(0)",
        "number": 0,
        "next_value": "force_relax(1)",
        "next_number": 1,
    }
    assert found["NUM_OF_VFS"]["number"] == 8


def test_one_column_is_the_next_boot_unless_its_head_says_current():
    text = "Configurations:                              Next Boot\n        SRIOV_EN                    False(0)            \n"
    (row,) = rows(parse_mlxconfig(lines(text)), "fw_setting")
    assert (row["next_number"], row.get("number")) == (0, None)
    (row,) = rows(parse_mlxconfig(lines(text.replace("Next Boot", "Current"))), "fw_setting")
    assert row["number"] == 0


def test_flint_says_that_another_firmware_runs_than_the_one_in_the_flash():
    (row,) = rows(parse_flint(lines(FLINT)), "fw_image")
    assert row == {"bdf": "0000:03:00.0", "fw_ver": "28.42.1000", "running": "28.39.1002", "board_id": "MT_0000000838"}


def test_mlxfwmanager_lists_each_device_with_what_it_offers():
    first, second = rows(parse_fwmanager(lines(MANAGER)), "fw_image")
    assert first["available"] == "22.36.1010" and first["status"] == "Update required"
    assert first["mst"] == "/dev/mst/mt4125_pciconf0"
    assert "available" not in second and "mst" not in second


def test_a_register_is_read_field_by_field():
    found = rows(parse_mlxreg(lines(REGISTER)), "register")
    assert found[0] == {"device": "mlx5_0", "register": "ROCE_ACCEL", "field": "roce_adp_retrans_en", "value": 1}
    assert found[1]["value"] == 0


def test_a_register_dump_is_known_and_said_to_be_no_evidence():
    (gap,) = parse_dump(lines("0x00000000 0x000e0000\n0x00000004 0x00000000"))
    assert gap.tables == ("register",)
    assert "published" in gap.reason
    assert list(parse_dump([])) == []
