"""GPUs by the kernel's files and by the texts of nvidia-smi."""

from live_tree import LiveTree, lines, rows

from rdmadiag.sources.gpus import parse_csv, parse_driver, parse_query, parse_table, parse_topology, parse_version, read

# nvidia-smi -q of an H800: repository of notes in the public code corpus, driver 525.105.17; the sections that matter.
QUERY = """\
==============NVSMI LOG==============

Timestamp                                 : Fri Jun 30 17:20:02 2023
Driver Version                            : 525.105.17
CUDA Version                              : 12.0

Attached GPUs                             : 8
GPU 00000000:18:00.0
    Product Name                          : NVIDIA H800
    Product Brand                         : NVIDIA
    Product Architecture                  : Hopper
    Persistence Mode                      : Enabled
    GPU Virtualization Mode
        Virtualization Mode               : None
        Host VGPU Mode                    : N/A
    FB Memory Usage
        Total                             : 81559 MiB
        Reserved                          : 516 MiB
        Used                              : 0 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
        Used                              : 1 MiB
        Free                              : 131071 MiB
    Conf Compute Protected Memory Usage
        Total                             : 0 MiB
"""

TREE = """\
/sys/bus/pci/devices/0000:18:00.0/uevent:DRIVER=nvidia
/sys/bus/pci/devices/0000:18:00.0/uevent:PCI_CLASS=30200
/sys/bus/pci/devices/0000:18:00.0/uevent:PCI_ID=10DE:2330
/sys/bus/pci/devices/0000:2a:00.0/uevent:DRIVER=nvidia
/sys/bus/pci/devices/0000:2a:00.0/uevent:PCI_CLASS=30200
/sys/bus/pci/devices/0000:2a:00.0/uevent:PCI_ID=10DE:2901
/sys/bus/pci/devices/0000:c1:00.0/uevent:DRIVER=amdgpu
/sys/bus/pci/devices/0000:c1:00.0/uevent:PCI_CLASS=120000
/sys/bus/pci/devices/0000:c1:00.0/uevent:PCI_ID=1002:74A1
/sys/bus/pci/devices/0000:c1:00.0/mem_info_vram_total:206141652992
/sys/bus/pci/devices/0000:c1:00.0/mem_info_vis_vram_total:206141652992
/sys/class/kfd/kfd/topology/nodes/2/properties:domain 0
/sys/class/kfd/kfd/topology/nodes/2/properties:location_id 49408
/sys/class/kfd/kfd/topology/nodes/2/properties:gfx_target_version 90402
/sys/module/amdgpu/version:6.8.5
/proc/driver/nvidia/version:NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  565.57.01  Release Build  (dvs-builder@U16-A24-9-2)  Thu Oct 10 12:15:00 UTC 2024
/proc/driver/nvidia/params:EnableStreamMemOPs: 1
/proc/driver/nvidia/params:RegistryDwords: "PeerMappingOverride=1;"
/proc/driver/nvidia/gpus/0000:18:00.0/information:Model: 		 NVIDIA H100 80GB HBM3
"""


def test_what_the_kernel_shows_of_gpus_is_read_without_a_library():
    hopper, blackwell, amd = rows(read(LiveTree(TREE)), "gpu")
    assert hopper == {
        "bdf": "0000:18:00.0",
        "gpu": 0,
        "vendor": "nvidia",
        "driver_version": "565.57.01",
        "flavour": "open",
        "name": "NVIDIA H100 80GB HBM3",
        "architecture": "Hopper",
        "compute_capability": "9.0",
    }
    assert (blackwell["gpu"], blackwell["architecture"], blackwell["compute_capability"]) == (1, "Blackwell", "10.0")
    assert (amd["gpu"], amd["architecture"], amd["driver_version"]) == (0, "gfx942", "6.8.5")
    assert amd["bar1_bytes"] == amd["memory_bytes"] == 206141652992
    parameters = rows(read(LiveTree(TREE)), "module_parameter")
    assert {"module": "nvidia", "parameter": "RegistryDwords", "value": "PeerMappingOverride=1;"} in parameters


def test_the_flavour_of_the_driver_is_told_by_its_version_line():
    proprietary = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.144.03  Wed Dec 18 2024"
    assert parse_version(proprietary) == {"driver_version": "550.144.03", "flavour": "proprietary"}
    assert parse_version("NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release")["flavour"] == "open"
    (row,) = rows(parse_driver(lines(f"[ 1.0] {proprietary}")), "gpu")
    assert row["flavour"] == "proprietary"


def test_nvidia_smi_q_is_parsed_by_sections():
    (row,) = rows(parse_query(lines(QUERY)), "gpu")
    assert row == {
        "bdf": "0000:18:00.0",
        "gpu": 0,
        "vendor": "nvidia",
        "driver_version": "525.105.17",
        "name": "NVIDIA H800",
        "architecture": "Hopper",
        "persistence": 1,
        "virtualization": "None",
        "memory_bytes": 81559 << 20,
        "bar1_bytes": 131072 << 20,
        "bar1_used_bytes": 1 << 20,
    }


def test_the_table_and_the_csv_of_nvidia_smi_are_parsed():
    table = """\
| NVIDIA-SMI 550.127.05             Driver Version: 550.127.05     CUDA Version: 12.4     |
|   0  NVIDIA A40                     Off |   00000000:4F:00.0 Off |                    0 |
|  0%   29C    P8             23W /  300W |       1MiB /  46068MiB |      0%      Default |
|   1  NVIDIA A100-SXM4-80GB...  On   | 00000000:52:00.0 Off |                    0 |
"""
    first, second = rows(parse_table(lines(table)), "gpu")
    assert (first["bdf"], first["persistence"], first["name"]) == ("0000:4f:00.0", 0, "NVIDIA A40")
    assert first["memory_bytes"] == 46068 << 20
    assert (second["persistence"], second["driver_version"]) == (1, "550.127.05")
    csv = "index, name, pci.bus_id, compute_cap\n0, NVIDIA H20, 00000000:08:00.0, 9.0\n1, x"
    (row,) = rows(parse_csv(lines(csv)), "gpu")
    assert row == {
        "gpu": 0,
        "name": "NVIDIA H20",
        "bdf": "0000:08:00.0",
        "compute_capability": "9.0",
        "vendor": "nvidia",
    }


def test_a_topology_names_devices_by_its_legend_or_in_its_head():
    new = """\
	GPU0	GPU1	NIC0	NIC1	CPU Affinity	NUMA Affinity	GPU NUMA ID
GPU0	 X 	NV18	PIX	SYS	0-55	0		N/A
GPU1	NV18	 X 	SYS	NODE	56-111	1		N/A
NIC0	PIX	SYS	 X 	SYS
NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""
    found = rows(parse_topology(lines(new)), "gpu_path")
    assert {(row["gpu"], row["device"]): row["path"] for row in found} == {
        (0, "mlx5_0"): "PIX",
        (0, "mlx5_1"): "SYS",
        (1, "mlx5_0"): "SYS",
        (1, "mlx5_1"): "NODE",
    }
    old = "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\nGPU0\t X \tPHB\tPIX\t0-19\nGPU1\tPHB\t X \tPHB\t0-19\n"
    assert [row["path"] for row in rows(parse_topology(lines(old)), "gpu_path")] == ["PIX", "PHB"]
