"""mlxlink: link, counters, FEC bins and module, as text, excerpt and JSON."""

from live_tree import lines, rows

from rdmadiag.sources.mlxlink import parse, parse_objects, place_of

# Published output: A100 nodes with ConnectX-6 HDR (mft 4.24); a ConnectX-7 NDR with a passive cable (MFT 4.35);
# facebookresearch/gcm's check of `mlxlink -m` (OSFP module); numbers of serial kind replaced.
HDR = """\
root@node-a:~# mlxlink -d /dev/mst/mt4123_pciconf0 -c

Operational Info
----------------
State                           : Active
Physical state                  : LinkUp
Speed                           : IB-HDR
Width                           : 2x
FEC                             : RS-FEC - (544,514) + PLR
Loopback Mode                   : No Loopback
Auto Negotiation                : ON

Supported Info
--------------
Enabled Link Speed              : 0x00000075 (HDR,EDR,FDR,QDR,SDR)
Supported Cable Speed           : 0x0000007f (HDR,EDR,FDR,FDR10,QDR,DDR,SDR)

Troubleshooting Info
--------------------
Status Opcode                   : 0
Group Opcode                    : N/A
Recommendation                  : No issue was observed

Tool Information
----------------
Firmware Version                : 20.36.1010
amBER Version                   : 2.13
MFT Version                     : mft 4.24.0-72

Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]     : 8034.2
Symbol Errors                   : 0
Symbol BER                      : 15E-255
Effective Physical Errors       : 0
Effective Physical BER          : 15E-255
Raw Physical Errors Per Lane    : 32379149,224947
Raw Physical BER                : 1E-7
Link Down Counter               : 2
Link Error Recovery Counter     : 0
"""

MODULE = """\
Module Info
-----------
Temperature [C]                    : 49 [-10..80]
Voltage [mV]                       : 3189.4 [3100..3500]
Bias Current [mA]                  : 9.210,9.264,9.054,9.142 [7..11]
Rx Power Current [dBm]             : 1.945,1.892,-9.167,2.025 [-5.003..3.998]
Identifier                         : OSFP
Module FW Fault                    : 0
Tx Fault [per lane]                : 0,0,0,0
Rx LOS [per lane]                  : 0,0,1,0
"""

PASSIVE = """\
Temperature [C]                    : 0 [0..0]
Bias Current [mA]                  : 0,0,0,0 [0..0]
Identifier                         : OSFP
Cable Technology                   : Copper cable, passive, unequalized
Cable Type                         : Passive copper cable
Vendor Name                        : FS
Vendor Part Number                 : OSFPFL-400G-PC01
"""

HISTOGRAM = """\
Histogram of FEC Errors
-----------------------
Header                             : Range    Occurrences
Bin 0                              : [0]      908070224
Bin 1                              : [1]      1720
Bin 2                              : [2]      3
Bin 3                              : [3]      0
"""


def test_counters_and_state_of_a_link_are_read_with_the_name_from_the_prompt():
    (row,) = rows(parse(lines(HDR)), "link")
    assert row == {
        "mst": "/dev/mst/mt4123_pciconf0",
        "state": "Active",
        "phys_state": "LinkUp",
        "speed": "IB-HDR",
        "width": 2,
        "fec": "RS-FEC - (544,514) + PLR",
        "status_opcode": 0,
        "recommendation": "No issue was observed",
        "minutes": 8034.2,
        "symbol_errors": 0,
        "symbol_ber": 0.0,
        "effective_errors": 0,
        "effective_ber": 0.0,
        "raw_ber": 1e-7,
        "link_down": 2,
        "link_recoveries": 0,
    }


def test_each_operational_info_begins_another_link():
    assert len(rows(parse(lines(HDR + HDR.split("\n", 1)[1])), "link")) == 2


def test_a_module_says_which_flags_and_which_readings_are_wrong():
    (row,) = rows(parse(lines(MODULE)), "link")
    assert row["faults"] == "Rx LOS: 0,0,1,0"
    assert row["out_of_range"] == "Rx Power Current [dBm] 1.945,1.892,-9.167,2.025 [-5.003..3.998]"
    assert row["temperature_celsius"] == 49.0


def test_a_passive_cable_has_no_readings():
    (row,) = rows(parse(lines(PASSIVE)), "link")
    assert row == {"cable": "OSFP", "vendor": "FS", "part_number": "OSFPFL-400G-PC01"}


def test_the_highest_bin_of_the_fec_histogram_is_kept():
    (row,) = rows(parse(lines(HISTOGRAM)), "link")
    assert (row["fec_bins"], row["fec_highest_bin"]) == (4, 2)


def test_json_has_the_same_fields():
    # MrBr-github/lshca#11 has the form; the histogram is as readers of the JSON take it apart.
    output = {
        "Operational Info": {"State": "Active", "Physical state": "LinkUp", "Speed": "IB-EDR", "Width": "4x"},
        "Physical Counters and BER Info": {"Raw Physical BER": "2E-9", "Effective Physical Errors": "0",
                                           "Raw Physical Errors Per Lane": {"values": ["1", "2"]}},
        "Histogram of FEC Errors": {"Header": {"values": ["Range", "Occurrences"]}, "Bin 0": {"values": ["[0]", "7"]},
                                    "Bin 1": {"values": ["[1:3]", "2"]}},
    }  # fmt: skip
    (row,) = rows(parse_objects([{"result": {"output": output}, "status": {"code": 0}}]), "link")
    assert (row["raw_ber"], row["width"], row["effective_errors"]) == (2e-9, 4, 0)
    assert (row["fec_bins"], row["fec_highest_bin"]) == (2, 1)


def test_other_json_with_a_result_is_no_link():
    assert rows(parse_objects([{"result": "ok", "status": 1}, {"result": {"output": [1]}}]), "link") == []


def test_an_adapter_is_named_in_one_of_three_ways():
    assert place_of("mlx5_0") == {"device": "mlx5_0"}
    assert place_of("03:00.0") == {"bdf": "0000:03:00.0"}
    assert place_of("mt4129_pciconf0") == {"mst": "/dev/mst/mt4129_pciconf0"}
    assert place_of("$dev") == {}
