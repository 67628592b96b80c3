"""ethtool and DCB over netlink and by ioctl: made-up messages, hostile bytes, and this machine's own tools as judges.

No driver here has DCB, FEC, pause or a module: those are decoded from messages made after the kernel's own structures.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.errors import BadInput
from rdmadiag.host.live import LiveHost
from rdmadiag.netlink import NetlinkError, dcbnl, ethnl, ethtool, module, parse_dcb, parse_ethtool, wire

REPLY = 21  # the family's number, as the kernel gives it out


def u8(number: int, value: int) -> bytes:
    return wire.attribute(number, struct.pack("=B", value))


def u32(number: int, value: int) -> bytes:
    return wire.attribute(number, struct.pack("=I", value))


def u64(number: int, value: int) -> bytes:
    return wire.attribute(number, struct.pack("=Q", value))


def nest(number: int, *parts: bytes) -> bytes:
    return wire.attribute(number | 0x8000, b"".join(parts))


def message(kind: int, *parts: bytes) -> bytes:
    payload = b"".join(parts)
    return struct.pack("=IHHII", 16 + len(payload), kind, 2, 1, 0) + payload


def about(name: str, *parts: bytes) -> bytes:
    return message(REPLY, bytes([1, 1, 0, 0]), nest(1, u32(1, 4), wire.attribute(2, name.encode() + b"\0")), *parts)


def bitset(*bits: int) -> bytes:
    value = sum(1 << bit for bit in bits).to_bytes(16, "little")
    return u32(2, 128) + wire.attribute(4, value) + wire.attribute(5, value)


# --- ethtool ---


def test_fec_with_its_counters_and_error_bins() -> None:
    statistics = nest(
        5,
        wire.attribute(2, struct.pack("=3Q", 30, 10, 20)),
        wire.attribute(3, struct.pack("=Q", 4)),
        nest(5, u32(2, 0), u32(3, 0), u64(4, 999)),
        nest(5, u32(2, 5), u32(3, 9), u32(4, 2)),
    )
    data = about("eth1", nest(2, bitset(50, 51)), u8(3, 1), u32(4, 50), statistics)
    assert parse_ethtool("--show-fec", data) == [
        {
            "ifname": "eth1",
            "config": ["Auto", "RS", "BaseR"],
            "active": ["RS"],
            "statistics": {
                "corrected_blocks": {"total": 30, "lanes": [10, 20]},
                "uncorrectable_blocks": {"total": 4},
                "hist": [{"bin_low": 0, "bin_high": 0, "total": 999}, {"bin_low": 5, "bin_high": 9, "total": 2}],
            },
        }
    ]


def test_pause_rings_and_coalescing() -> None:
    data = about("eth1", u8(2, 0), u8(3, 1), u8(4, 0), nest(5, u64(2, 7), u64(3, 8)))
    assert parse_ethtool("-a", data) == [
        {
            "ifname": "eth1",
            "autonegotiate": False,
            "rx": True,
            "tx": False,
            "statistics": {"tx_pause_frames": 7, "rx_pause_frames": 8},
        }
    ]
    assert parse_ethtool("-g", about("eth1", u32(2, 8192), u32(6, 1024), u32(9, 512))) == [
        {"ifname": "eth1", "rx-max": 8192, "rx": 1024, "tx": 512}
    ]
    assert parse_ethtool("-c", about("eth1", u32(2, 8), u32(6, 16), u8(11, 1), u8(12, 0))) == [
        {"ifname": "eth1", "rx-usecs": 8, "tx-usecs": 16, "adaptive-rx": True, "adaptive-tx": False}
    ]


def test_features_are_named_by_the_kernel() -> None:
    bits = nest(3, nest(1, u32(1, 0), wire.attribute(2, b"rx-lro\0")), nest(1, wire.attribute(2, b"new-feature\0")))
    (entry,) = parse_ethtool("-k", about("eth1", nest(4, bits)))
    assert entry["large-receive-offload"] == {"active": True}
    assert entry["generic-receive-offload"] == {"active": False}


def test_an_unknown_option_names_the_known_ones() -> None:
    with pytest.raises(BadInput, match="--show-fec"):
        ethtool("--reset")


@given(st.binary(max_size=120), st.sampled_from(sorted(ethnl.QUESTIONS)))
def test_hostile_bytes_are_refused_or_skipped(data: bytes, option: str) -> None:
    try:
        parse_ethtool(option, message(REPLY, data) + data)
        parse_dcb(message(dcbnl.GETDCB, data) + data)
    except NetlinkError as error:
        assert error.errno == errno.EBADMSG


# --- the same, of this machine ---


@pytest.fixture
def pair() -> Iterator[str]:
    """Two netdevs that are each other's wire, in this namespace; gone afterwards."""
    name = f"q{os.getpid() % 100000}"
    command = ["ip", "link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b"]
    if not shutil.which("ip") or os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs ip, root and a kernel with veth (CONFIG_VETH)")
    try:
        yield f"{name}a"
    finally:
        subprocess.run(["ip", "link", "del", f"{name}a"], check=False)


def _tool(*words: str) -> Any:
    if not shutil.which("ethtool"):
        pytest.skip("needs ethtool")
    done = subprocess.run(["ethtool", "--json", *words], capture_output=True, text=True)
    return json.loads(done.stdout)[0] if done.returncode == 0 and done.stdout.startswith("[") else None


def _read(option: str) -> dict[str, dict[str, Any]]:
    try:
        return {entry["ifname"]: entry for entry in ethtool(option)}
    except OSError as error:
        pytest.skip(f"this kernel has no ethtool netlink: {error}")


def test_features_of_a_veth_are_those_that_ethtool_prints(pair: str) -> None:
    judge, entry = _tool("-k", pair), _read("-k")[pair]
    if judge is None:
        pytest.skip("this ethtool prints no JSON of features")
    assert len(entry) > 5
    for name, value in entry.items():
        if name != "ifname":
            assert value["active"] is judge[name]["active"], name


def test_channels_and_speed_of_a_veth(pair: str) -> None:
    assert _read("-l")[pair]["rx"] >= 1
    assert _read("")[pair]["speed"] in (10000, 0xFFFFFFFF)
    assert pair not in _read("-a"), "veth has no pause frames, and a setting that is not there is left out"


def test_counters_of_a_veth_are_those_of_ethtool_without_its_queues(pair: str) -> None:
    found = ethnl.statistics(pair)
    printed = (
        subprocess.run(["ethtool", "-S", pair], capture_output=True, text=True).stdout
        if shutil.which("ethtool")
        else ""
    )
    assert "peer_ifindex" in found
    assert not [name for name in found if "queue_" in name]
    if printed:
        assert f"peer_ifindex: {found['peer_ifindex']}" in printed


def test_the_driver_of_a_veth(pair: str) -> None:
    assert ethnl.driver_information(pair)["driver"] == "veth"
    assert LiveHost().objects(f"ethtool -i {pair} nosuch0") == [{"ifname": pair, **ethnl.driver_information(pair)}], (
        "a netdev that has gone is left out"
    )


# --- ioctl ---


def test_names_and_values_of_statistics_belong_together() -> None:
    names = ["rx_prio3_pause", "tx_prio3_pause", "rx0_packets", "ch1_poll", "rx_discards_phy"]

    def ask(_name: str, buffer: bytearray) -> None:
        command = struct.unpack_from("=I", buffer)[0]
        if command == 0x37:
            struct.pack_into("=QI", buffer, 8, 2, len(names))
        elif command == 0x1B:
            for place, name in enumerate(names):
                struct.pack_into("=32s", buffer, 12 + 32 * place, name.encode())
        else:
            struct.pack_into(f"={len(names)}Q", buffer, 8, *range(10, 10 + len(names)))

    assert ethnl.statistics("eth1", ask) == {"rx_prio3_pause": 10, "tx_prio3_pause": 11, "rx_discards_phy": 14}


def test_a_driver_without_statistics_has_none() -> None:
    assert ethnl.statistics("eth1", lambda _name, buffer: None) == {}


# --- DCB ---


def test_dcb_objects_of_an_adapter() -> None:
    pfc = struct.pack("=BBBxH2x8Q8Q", 8, 0b1000, 0, 7, *[0, 0, 0, 12, 0, 0, 0, 0], *[0, 0, 0, 9, 0, 0, 0, 0])
    ets = (
        bytes([0, 8, 0])
        + bytes([10, 10, 10, 70, 0, 0, 0, 0])
        + bytes(8)
        + bytes([2, 2, 2, 2, 0, 0, 0, 255])
        + bytes(range(8))
        + bytes(24)
    )
    buffer = bytes([0, 0, 0, 1, 0, 0, 0, 0]) + struct.pack("=9I", 19872, 220896, 0, 0, 0, 0, 0, 0, 262016)
    app = b"".join(wire.attribute(1, struct.pack("=BBH", *entry)) for entry in ((5, 3, 26), (1, 2, 0), (9, 9, 9)))
    ieee = nest(
        13,
        wire.attribute(1, ets),
        wire.attribute(2, pfc),
        nest(3, app),
        wire.attribute(7, struct.pack("=8Q", 8000, *[0] * 7)),
        wire.attribute(10, buffer),
        nest(11, u8(13, 5), u8(13, 24)),
    )
    data = message(dcbnl.GETDCB, bytes([0, 21, 0, 0]), wire.attribute(1, b"eth1\0"), ieee, u8(14, 0x09))
    (entry,) = parse_dcb(data)
    assert entry["ifname"] == "eth1"
    assert entry["prio_pfc"] == [False, False, False, True, False, False, False, False]
    assert (entry["requests"][3], entry["indications"][3], entry["delay"]) == (12, 9, 7)
    assert (entry["tc_bw"][3], entry["tc_tsa"][3], entry["tc_tsa"][7], entry["prio_tc"][5]) == (70, "ets", "vendor", 5)
    assert (entry["dscp_prio"], entry["default_prio"]) == ([[26, 3]], [2])
    assert (entry["prio_buffer"][3], entry["buffer_size"][1], entry["total_size"]) == (1, 220896, 262016)
    assert entry["tc_maxrate"][0] == 1_000_000
    assert entry["order"] == ["dscp", "pcp"]
    assert entry["host"] and entry["ieee"] and "lld_managed" not in entry


def test_sizes_of_the_structures_are_those_of_the_kernel() -> None:
    assert struct.calcsize("=BBBxH2x8Q8Q") == 136, "struct ieee_pfc, aligned to 8"
    assert struct.calcsize("=8B9I") == 44, "struct dcbnl_buffer"


def test_a_machine_without_dcb_says_so() -> None:
    try:
        entries = dcbnl.dcb("")
    except OSError as error:
        assert error.errno in (errno.EOPNOTSUPP, errno.EPERM)
    else:
        assert all("ifname" in entry for entry in entries)


# --- modules ---


def _pages(pages: dict[tuple[int, int, int], bytes]) -> module.Page:
    return lambda page, offset, address: pages.get((page, offset, address), b"")


def _qsfp28() -> tuple[bytearray, bytearray]:
    low, upper = bytearray(128), bytearray(128)
    low[0] = 0x11
    low[3] = 0b0010  # Rx lost on lane 2
    low[6] = 0x20  # temperature high warning
    low[9] = 0x04  # rx power of lane 2, low alarm
    struct.pack_into(">h", low, 22, int(41.5 * 256))
    struct.pack_into(">H", low, 26, 32940)
    struct.pack_into(">4H", low, 34, 8714, 0, 9000, 9100)
    struct.pack_into(">4H", low, 42, 3500, 3500, 3500, 3500)
    struct.pack_into(">4H", low, 50, 10000, 10000, 10000, 10000)
    upper[20:36] = b"Mellanox        "
    upper[40:56] = b"MFA1A00-C003    "
    return low, upper


def test_a_qsfp28_module_with_a_dark_lane() -> None:
    low, upper = _qsfp28()
    found = module.module("eth1", _pages({(0, 0, 0x50): bytes(low), (0, 128, 0x50): bytes(upper)}))
    assert (found["identifier"], found["vendor"], found["part"]) == ("QSFP28", "Mellanox", "MFA1A00-C003")
    assert (found["temperature_c"], found["voltage_v"]) == (41.5, 3.294)
    assert found["alarms"] == ["Rx loss of signal (lane 2)", "Laser rx power low alarm (lane 2)"]
    assert found["warnings"] == ["Module temperature high warning"]
    assert [lane["rx_power_dbm"] for lane in found["lanes"]] == [-0.6, -40.0, -0.46, -0.41]
    assert found["lanes"][0]["bias_ma"] == 7.0


def test_a_copper_cable_measures_nothing() -> None:
    low, upper = _qsfp28()
    upper[19] = 0xA0
    found = module.module("eth1", _pages({(0, 0, 0x50): bytes(low), (0, 128, 0x50): bytes(upper)}))
    assert "temperature_c" not in found and "lanes" not in found
    assert found["alarms"] == []


def test_a_cmis_module_tells_its_lanes() -> None:
    low, upper, lanes, first = bytearray(128), bytearray(128), bytearray(128), bytearray(128)
    low[0] = 0x19
    low[9] = 0x20  # voltage low alarm
    struct.pack_into(">h", low, 14, 55 * 256)
    struct.pack_into(">H", low, 16, 32000)
    upper[1:17] = b"NVIDIA          "
    upper[20:36] = b"MMS4X00-NM      "
    lanes[7] = 0b1  # 135: Tx fault, lane 1
    lanes[22] = 0b10  # 150: rx power low alarm, lane 2
    struct.pack_into(">2H", lanes, 26, 12000, 12500)
    struct.pack_into(">2H", lanes, 42, 4000, 4000)
    struct.pack_into(">2H", lanes, 58, 11000, 900)
    first[32] = 0b01000  # bias in units of 4 uA
    pages = {(0, 0, 0x50): low, (0, 128, 0x50): upper, (0x11, 128, 0x50): lanes, (1, 128, 0x50): first}
    found = module.module("eth1", _pages({place: bytes(page) for place, page in pages.items()}))
    assert (found["identifier"], found["vendor"], found["temperature_c"]) == ("OSFP", "NVIDIA", 55.0)
    assert found["alarms"] == ["Module voltage low alarm", "Tx fault (lane 1)", "Laser rx power low alarm (lane 2)"]
    assert [(lane["lane"], lane["rx_power_dbm"], lane["bias_ma"]) for lane in found["lanes"]] == [
        (1, 0.41, 16.0),
        (2, -10.46, 16.0),
    ]


def test_an_sfp_with_weak_light() -> None:
    low, page = bytearray(128), bytearray(128)
    low[0], low[92] = 0x03, 0x60
    low[20:36], low[40:56] = b"ALCATEL         ", b"3FE46541AA      "
    struct.pack_into(">hHHHH", page, 96, int(49.95 * 256), 33399, 4779, 16278, 157)
    page[113], page[117] = 0x40, 0x40  # rx power low alarm and warning
    found = module.module("eth1", _pages({(0, 0, 0x50): bytes(low), (0, 0, 0x51): bytes(page)}))
    assert (found["alarms"], found["warnings"]) == (["Laser rx power low alarm"], ["Laser rx power low warning"])
    assert found["lanes"] == [{"lane": 1, "rx_power_dbm": -18.04, "tx_power_dbm": 2.12, "bias_ma": 9.558}]


@given(st.binary(max_size=256), st.integers(0, 255))
def test_no_module_raises(data: bytes, kind: int) -> None:
    page = bytes([kind]) + data
    assert isinstance(module.module("eth1", lambda *_: page[:128]), dict)
