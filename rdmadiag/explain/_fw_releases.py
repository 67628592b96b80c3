"""Which firmware each release of the mlx5 driver (MLNX_OFED, DOCA-OFED) was published with, by part id.

Source: the list of supported firmware that NVIDIA's network operator ships
(github.com/Mellanox/network-operator, manifests/state-nic-configuration-operator/040-supported-nic-firmware-configmap.yaml). That list
has ConnectX-4 Lx under the part id of ConnectX-4 (1013); firmware 14.x is that of the Lx (1015).
"""

from __future__ import annotations

from collections.abc import Iterator

SOURCE = "Mellanox/network-operator, 040-supported-nic-firmware-configmap.yaml"

# Part ids: ConnectX-4 Lx, 5, 5 Ex, 6, 6 Dx, 6 Lx, 7, 8, BlueField-2, BlueField-3.
PART_IDS = (0x1015, 0x1017, 0x1019, 0x101B, 0x101D, 0x101F, 0x1021, 0x1023, 0xA2D6, 0xA2DC)
_FIRST = ("14", "16", "16", "20", "22", "26", "28", "40", "24", "32")  # firmware versions of one chip begin alike

# The rest of the version, in the order of PART_IDS; '' where that release did not name the adapter.
_FIRMWARE = {
    "25.01": (
        *("32.1900", "35.4030", "35.4030", "43.2026", "44.1036", "44.1036", "44.1036", "", "44.1036", "44.1036"),
    ),
    "25.04": (
        *("32.1900", "35.4030", "35.4030", "43.2566", "45.1016", "45.1016", "45.1016", "45.1016", "45.1020", "45.1020"),
    ),
    "25.07": (
        *("32.1010", "35.4554", "35.4554", "43.3608", "46.1006", "46.1006", "46.1006", "46.1006", "46.1006", "46.1006"),
    ),
    "25.10": (
        *("32.1010", "35.4554", "35.4554", "43.3608", "47.0422", "47.0422", "47.0422", "47.0422", "47.0422", "47.0422"),
    ),
}


def rows() -> Iterator[tuple[str, int, str, str]]:
    """Return (release, part id, firmware version, source) of each pair."""
    for release, versions in _FIRMWARE.items():
        for part, first, rest in zip(PART_IDS, _FIRST, versions, strict=True):
            if rest:
                yield release, part, f"{first}.{rest}", SOURCE
