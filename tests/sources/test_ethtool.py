"""Settings of network devices, FEC and pause statistics, and modules, as ethtool prints them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, gaps, lines, rows

from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.tree import parse_tree
from rdmadiag.sources._module_json import parse_module_json
from rdmadiag.sources.ethtool import TEXTS, parse_driver, parse_features, parse_module, parse_settings, read

# kernel netdev list, "[PATCH] Add support to dump ... FEC stats" (ice), and ethtool's own layout of -g, -a, -c
SETTINGS = """\
Settings for ens21f0np0:
\tSpeed: 100000Mb/s
\tLanes: 4
\tDuplex: Full
\tAuto-negotiation: on
\tLink detected: yes
$ ethtool -I --show-fec ens21f0np0
FEC parameters for ens21f0np0:
Supported/Configured FEC encodings: Auto RS BaseR
Active FEC encoding: RS
Statistics:
  corrected_blocks: 181
  uncorrectable_blocks: 3
$ ethtool -g ens21f0np0
Ring parameters for ens21f0np0:
Pre-set maximums:
RX:\t\t8192
RX Mini:\tn/a
TX:\t\t8192
Current hardware settings:
RX:\t\t1024
RX Mini:\tn/a
TX:\t\t512
$ ethtool -I -a ens21f0np0
Pause parameters for ens21f0np0:
Autonegotiate:\toff
RX:\t\ton
TX:\t\toff
Statistics:
  tx_pause_frames: 0
  rx_pause_frames: 6230
$ ethtool -c ens21f0np0
Coalesce parameters for ens21f0np0:
Adaptive RX: on  TX: on
rx-usecs:\t8
tx-usecs: n/a
$ ethtool -l ens21f0np0
Channel parameters for ens21f0np0:
Pre-set maximums:
RX:\t\tn/a
Combined:\t63
Current hardware settings:
Combined:\t32
"""


def test_settings_of_one_netdev_come_from_seven_texts():
    found = list(parse_settings(lines(SETTINGS)))
    merged = {}
    for row in rows(found, "netdev_setting"):
        merged.update(row)
    assert merged == {
        "netdev": "ens21f0np0",
        "lanes": 4,
        "autoneg": 1,
        "fec_configured": "Auto, RS, BaseR",
        "fec": "RS",
        "rx_ring_max": 8192,
        "tx_ring_max": 8192,
        "rx_ring": 1024,
        "tx_ring": 512,
        "pause_autoneg": 0,
        "pause_rx": 1,
        "pause_tx": 0,
        "adaptive_rx": 1,
        "rx_usecs": 8,
        "channels_max": 63,
        "channels": 32,
    }
    assert rows(found, "netdev") == [
        {"netdev": "ens21f0np0", "speed_mbps": 100000},
        {"netdev": "ens21f0np0", "carrier": 1},
    ]
    assert [(row["kind"], row["counter"], row["value"]) for row in rows(found, "counter")] == [
        ("fec", "corrected_blocks", 181),
        ("fec", "uncorrectable_blocks", 3),
        ("pause", "tx_pause_frames", 0),
        ("pause", "rx_pause_frames", 6230),
    ]


def test_error_bins_of_fec_are_counters():
    text = "FEC parameters for eth2:\nActive FEC encoding: RS\nStatistics:\n  fec_bit_err_0: 445\n  fec_bit_err_5_to_9: 2\n"
    assert [(row["counter"], row["value"]) for row in rows(parse_settings(lines(text)), "counter")] == [
        ("fec_bit_err_0", 445),
        ("fec_bit_err_5_to_9", 2),
    ]


def test_json_of_ethtool_k():
    objects = [{"ifname": "eth0", "large-receive-offload": {"active": True, "fixed": False, "requested": True}}]
    assert rows(parse_features(objects), "netdev_setting") == [{"netdev": "eth0", "lro": 1}]


def test_ethtool_i_takes_its_netdev_from_the_prompt():
    text = "driver: mlx5_core\nversion: 6.1.0\nfirmware-version: 22.35.1012 (MT_0000000359)\nbus-info: 0000:21:00.0\n"
    values = {"driver": "mlx5_core", "fw_ver": "22.35.1012 (MT_0000000359)", "bdf": "0000:21:00.0"}
    assert rows(parse_driver(lines("# ethtool -i ens1f0np0\n" + text)), "netdev") == [{"netdev": "ens1f0np0", **values}]
    assert rows(parse_driver(lines(text)), "netdev") == [values]


# values of a published dump of an SFP+ with weak light (netdev list); names of ethtool's sfpdiag.c and qsfp.c
MODULE = """\
# ethtool -m eth2
\tIdentifier                                : 0x03 (SFP)
\tVendor name                               : ALCATEL
\tVendor PN                                 : 3FE46541AA
\tLaser bias current                        : 9.558 mA
\tLaser output power                        : 1.6278 mW / 2.12 dBm
\tReceiver signal average optical power     : 0.0157 mW / -18.04 dBm
\tModule temperature                        : 49.95 degrees C / 121.91 degrees F
\tModule voltage                            : 3.3399 V
\tModule temperature high alarm             : Off
\tLaser rx power low alarm                  : On
\tLaser rx power low warning                : On
\tModule temperature high alarm threshold   : 95.00 degrees C / 203.00 degrees F
"""
# netdev list, "ethtool: report Loss of Lock, of Signal and Tx Faults"
LOST = """\
$ ethtool -m swp13
\tIdentifier                                : 0x11 (QSFP28)
\tVendor PN                                 : MFA1A00-C003
\tRcvr signal avg optical power(Channel 1)  : 0.8714 mW / -0.60 dBm
\tRcvr signal avg optical power(Channel 2)  : 0.0000 mW / -inf dBm
\tRx loss of signal                         : [ No, Yes, No, No ]
\tTx loss of signal                         : None
"""


def test_a_module_tells_its_light_and_its_alarms():
    module, lane = rows(parse_module(lines(MODULE)), "optics")
    assert module == {
        "netdev": "eth2",
        "lane": 0,
        "identifier": "SFP",
        "vendor": "ALCATEL",
        "part": "3FE46541AA",
        "temperature_c": 49.95,
        "voltage_v": 3.3399,
        "alarms": "Laser rx power low alarm",
        "warnings": "Laser rx power low warning",
    }
    assert lane == {"netdev": "eth2", "lane": 1, "bias_ma": 9.558, "tx_power_dbm": 2.12, "rx_power_dbm": -18.04}


def test_lost_light_is_told_lane_by_lane():
    module, first, second = rows(parse_module(lines(LOST)), "optics")
    assert module["alarms"] == "Rx loss of signal (lane 2)"
    assert (first["rx_power_dbm"], second["rx_power_dbm"]) == (-0.6, -40.0)


SYSFS = """\
/sys/class/net/eth1/device/numa_node:0
/sys/class/net/eth1v0/device/physfn/numa_node:0
/sys/class/net/br0/mtu:1500
"""


def test_modules_are_asked_of_physical_functions_only():
    asked = []

    class Host(LiveTree):
        def objects(self, command):
            asked.append(command)
            return super().objects(command)

    tables = {
        "ethtool -g": [{"ifname": "eth1", "rx": 1024, "rx-max": 8192}],
        "ethtool -m eth1": [
            {
                "ifname": "eth1",
                "identifier": "QSFP28",
                "alarms": ["Tx fault (lane 1)"],
                "warnings": [],
                "lanes": [{"lane": 1, "bias_ma": 7.0}],
            }
        ],
    }
    found = list(read(Host(SYSFS, tables=tables)))
    assert "ethtool -m eth1" in asked and not any("eth1v0" in command and "-m" in command for command in asked)
    assert rows(found, "netdev_setting") == [{"netdev": "eth1", "rx_ring": 1024, "rx_ring_max": 8192}]
    assert [row["lane"] for row in rows(found, "optics")] == [0, 1]
    assert rows(found, "optics")[0]["alarms"] == "Tx fault (lane 1)"


def test_a_captured_tree_leaves_one_gap():
    found = list(read(CapturedHost(parse_tree(SYSFS)[0])))
    assert [gap.kind for gap in gaps(found)] == ["not_given"]


@pytest.mark.parametrize("text", [SETTINGS, MODULE, LOST])
@given(st.data())
def test_a_cut_off_text_raises_nothing(text, data):
    cut = data.draw(st.integers(0, len(text)))
    rest = data.draw(st.text(max_size=40))
    for kind in TEXTS[:3]:
        list(kind.parse(lines(text[:cut] + rest)))


def test_json_of_a_module_has_light_in_dbm_and_flags_by_lane():
    entry = {
        "ifname": "eth1",
        "identifier_description": "SFP",
        "vendor_pn": " X ",
        "module_temperature": 40.5,
        "laser_output_power": 1.0,
        "rx_power": {"value": 0.0, "type": "x"},
        "tx_fault": True,
        "rx_los": [False, True],
        "module_voltage_low_warning": True,
    }
    module, lane = rows(parse_module_json([entry, {"identifier": 3}]), "optics")
    assert (module["temperature_c"], module["part"]) == (40.5, "X")
    assert (module["alarms"], module["warnings"]) == ("Tx fault, Rx los (lane 2)", "Module voltage low warning")
    assert (lane["lane"], lane["tx_power_dbm"], lane["rx_power_dbm"]) == (1, 0.0, -40.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(["value", "values", "type"]), x, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["ifname", "identifier_description", "rx_power", "tx_fault", "laser_bias_current"]), JSON
    )
)
def test_no_json_of_a_module_raises(entry):
    list(parse_module_json([{"identifier_description": "SFP", **entry}]))
