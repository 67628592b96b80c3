"""Adapter families that can do RDMA by their PCI ids, and the roles of functions."""

from __future__ import annotations

from collections.abc import Mapping

from rdmadiag.patterns import late

MELLANOX, NVIDIA, AMD, INTEL = 0x15B3, 0x10DE, 0x1002, 0x8086
HABANA, HUAWEI, CHELSIO, CORNELIS = 0x1DA3, 0x19E5, 0x1425, 0x434E

# Adapter families that can do RDMA: first and last device id, name. Functions that only do Ethernet, storage or
# management are left out, and so are virtual functions that get RDMA only from some firmware (bnxt, iavf, qede).
FAMILIES: Mapping[int, tuple[tuple[int, int, str], ...]] = {
    MELLANOX: (
        (0x01F6, 0x0221, "ConnectX or BlueField in flash recovery mode"),
        (0x1002, 0x1002, "ConnectX-2 virtual function"),
        (0x1003, 0x1006, "ConnectX-3"),
        (0x1007, 0x1010, "ConnectX-3 Pro"),
        (0x1011, 0x1012, "Connect-IB"),
        (0x1013, 0x1014, "ConnectX-4"),
        (0x1015, 0x1016, "ConnectX-4 Lx"),
        (0x1017, 0x1018, "ConnectX-5"),
        (0x1019, 0x101A, "ConnectX-5 Ex"),
        (0x101B, 0x101C, "ConnectX-6"),
        (0x101D, 0x101D, "ConnectX-6 Dx"),
        (0x101E, 0x101E, "ConnectX virtual function"),
        (0x101F, 0x101F, "ConnectX-6 Lx"),
        (0x1021, 0x1021, "ConnectX-7"),
        (0x1023, 0x1023, "ConnectX-8"),
        (0x1025, 0x1025, "ConnectX-9"),
        (0x1027, 0x1027, "ConnectX-10"),
        (0x2101, 0x2101, "ConnectX-10 NVLink-C2C"),
        (0x6340, 0x6778, "ConnectX or ConnectX-2"),
        (0xA2D2, 0xA2D3, "BlueField ConnectX-5"),
        (0xA2D6, 0xA2D6, "BlueField-2 ConnectX-6 Dx"),
        (0xA2DC, 0xA2DC, "BlueField-3 ConnectX-7"),
        (0xA2DF, 0xA2DF, "BlueField-4 ConnectX-8"),
    ),
    0x14E4: (
        (0x1605, 0x1606, "BCM5745x RDMA"),
        (0x1614, 0x1614, "BCM57454"),
        (0x16D6, 0x16D9, "BCM57412 to BCM57417"),
        (0x16E2, 0x16E3, "BCM57416, BCM57417"),
        (0x16EB, 0x16EB, "BCM57412 RDMA partition"),
        (0x16ED, 0x16ED, "BCM57414 RDMA partition"),
        (0x16EF, 0x16EF, "BCM57416 RDMA partition"),
        (0x16F1, 0x16F1, "BCM57452"),
        (0x1750, 0x1752, "BCM5750x"),
        (0x1760, 0x1763, "BCM5760x"),
        (0x1803, 0x1805, "BCM5750x RDMA partition"),
        (0x1807, 0x1807, "BCM5750x RDMA virtual function"),
        (0x1809, 0x1809, "BCM5750x RDMA virtual function"),
        (0xD802, 0xD804, "BCM588xx Stingray"),
    ),
    INTEL: (
        (0x12D1, 0x12DE, "E830"),
        (0x1591, 0x1593, "E810-C"),
        (0x1599, 0x159B, "E810-XXV"),
        (0x24F0, 0x24F1, "Omni-Path HFI 100"),
        (0x37CE, 0x37D0, "X722"),  # 0x37d1 is its 1GbE port, a management port as a rule
        (0x37D2, 0x37D3, "X722"),
    ),
    0x1D0F: ((0xEFA0, 0xEFAF, "Elastic Fabric Adapter"),),
    HUAWEI: ((0xA222, 0xA228, "HNS RDMA"), (0xA22F, 0xA22F, "HNS RDMA virtual function")),
    0x1DD8: ((0x1002, 0x1003, "Pensando DSC"),),
    0x1DED: ((0x107F, 0x107F, "Elastic RDMA Adapter"), (0x5007, 0x5007, "Elastic RDMA Adapter")),
    # The middle digit of a Chelsio id is the physical function; only the fourth carries RDMA.
    CHELSIO: ((0x4400, 0x44FF, "Chelsio T4"), (0x5400, 0x54FF, "Chelsio T5"), (0x6400, 0x64FF, "Chelsio T6")),
    0x1077: (
        (0x1634, 0x1634, "FastLinQ QL45000"),
        (0x1644, 0x1644, "FastLinQ QL45000"),
        (0x1654, 0x1656, "FastLinQ QL45000"),
        (0x8070, 0x8070, "FastLinQ QL41000"),
    ),
    CORNELIS: ((0x0000, 0xFFFF, "Cornelis Omni-Path"),),
    0x1414: ((0x00BA, 0x00BA, "Microsoft Azure Network Adapter"),),
    0x15AD: ((0x0820, 0x0820, "VMware paravirtual RDMA"),),
    0x1137: ((0x00CF, 0x00CF, "Cisco VIC usNIC"),),
}
_NET_CLASS, _NVME_CLASS, _BRIDGE_CLASS = 0x02, 0x0108, 0x0604
_GPU_CLASSES: Mapping[int, tuple[int, ...]] = {
    NVIDIA: (0x0300, 0x0302),
    AMD: (0x0300, 0x0302, 0x0380, 0x1200),
    INTEL: (0x0300, 0x0302, 0x0380),
    HABANA: (0x1200,),
    HUAWEI: (0x1200,),
}


def family(vendor: int, device: int) -> str | None:
    """Return the name of the RDMA adapter family that a PCI id belongs to."""
    return next((name for first, last, name in FAMILIES.get(vendor, ()) if first <= device <= last), None)


def role_of(vendor: int, device: int, code: int) -> str:
    """Return a function's role by its ids and its 24-bit class code."""
    base = code >> 8
    if base == _BRIDGE_CLASS:
        return "bridge"
    if family(vendor, device):
        return "rdma"
    if base >> 8 == _NET_CLASS:
        return "net"
    if base in _GPU_CLASSES.get(vendor, ()):
        return "gpu"
    return "nvme" if base == _NVME_CLASS else "other"


def gigatransfers(text: str) -> float | None:
    """Return the number of a link speed such as `32.0 GT/s PCIe` [GT/s]."""
    match = late(r"(\d{1,4}(?:\.\d+)?) ?GT/s").match(text)
    return float(match[1]) if match else None
