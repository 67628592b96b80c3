"""Which versions go together: what a feature needs at least of kernel, firmware line, GPU driver and rdma-core.

Numbers compare within one component: kernel and rdma-core as major * 1000 + minor (5.12 is 5012), GPU driver and firmware
as their first number (550.144.03 is 550, firmware 28.42.1000 is line 28).
"""

from __future__ import annotations

from typing import NamedTuple


class Requirement(NamedTuple):
    """One need: `feature` of `subject` (driver, GPU architecture, PCI device id, or '*') needs at least `least` of `component`."""

    feature: str
    subject: str
    component: str
    least: int
    source: str


_OPEN = "NVIDIA driver README, Open Linux Kernel Modules"
_FIRMWARE = "NVIDIA networking firmware release notes: the first number of a firmware version names the adapter family"

REQUIREMENTS = (
    Requirement("dmabuf", "*", "kernel", 5012, "Linux 5.12 drivers/infiniband/core/umem_dmabuf.c"),
    Requirement("dmabuf", "mlx5", "kernel", 5012, "Linux 5.12 drivers/infiniband/hw/mlx5/mr.c"),
    Requirement("dmabuf", "efa", "kernel", 5016, "Linux 5.16 drivers/infiniband/hw/efa/efa_verbs.c"),
    Requirement("dmabuf", "irdma", "kernel", 6003, "Linux 6.3 drivers/infiniband/hw/irdma/verbs.c"),
    Requirement("dmabuf", "*", "rdma_core", 34000, "rdma-core 34 ibv_reg_dmabuf_mr"),
    Requirement("dmabuf", "nvidia", "gpu_driver", 515, _OPEN),
    Requirement("peermem", "nvidia", "gpu_driver", 470, "NVIDIA GPUDirect RDMA documentation, nvidia-peermem"),
    Requirement("start", "Hopper", "gpu_driver", 515, "NVIDIA data center driver release notes"),
    Requirement("start", "Blackwell", "gpu_driver", 560, "NVIDIA driver release notes: no branch up to 550 lists it"),
    Requirement("firmware line", "4113", "firmware", 10, _FIRMWARE),  # Connect-IB
    Requirement("firmware line", "4115", "firmware", 12, _FIRMWARE),  # ConnectX-4
    Requirement("firmware line", "4117", "firmware", 14, _FIRMWARE),  # ConnectX-4 Lx
    Requirement("firmware line", "4119", "firmware", 16, _FIRMWARE),  # ConnectX-5
    Requirement("firmware line", "4121", "firmware", 16, _FIRMWARE),  # ConnectX-5 Ex
    Requirement("firmware line", "4123", "firmware", 20, _FIRMWARE),  # ConnectX-6
    Requirement("firmware line", "4125", "firmware", 22, _FIRMWARE),  # ConnectX-6 Dx
    Requirement("firmware line", "4127", "firmware", 26, _FIRMWARE),  # ConnectX-6 Lx
    Requirement("firmware line", "4129", "firmware", 28, _FIRMWARE),  # ConnectX-7
    Requirement("firmware line", "4131", "firmware", 40, _FIRMWARE),  # ConnectX-8
    Requirement("firmware line", "41686", "firmware", 24, _FIRMWARE),  # BlueField-2
    Requirement("firmware line", "41692", "firmware", 32, _FIRMWARE),  # BlueField-3
)
