"""What SONiC and Cumulus Linux print of PFC, its watchdog, ECN, drops and watermarks."""

from hypothesis import given
from hypothesis import strategies as st
from live_tree import lines, rows

from rdmadiag.sources.switches import parse_cumulus, parse_sonic

# sonic-net/sonic-utilities: doc/Command-Reference.md, tests/pfcwd_input, tests/ecn_input
SONIC = """\
admin@leaf1:~$ show pfc counters
  Port Rx    PFC0    PFC1    PFC2    PFC3    PFC4    PFC5    PFC6    PFC7
---------  ------  ------  ------  ------  ------  ------  ------  ------
Ethernet0       0       0       0  12,014       0       0       0       0

  Port Tx    PFC0    PFC1    PFC2    PFC3    PFC4    PFC5    PFC6    PFC7
---------  ------  ------  ------  ------  ------  ------  ------  ------
Ethernet0       0       0       0      90       0       0       0     N/A

admin@leaf1:~$ show pfcwd stats
      QUEUE       STATUS    STORM DETECTED/RESTORED    TX OK/DROP    RX OK/DROP    TX LAST OK/DROP    RX LAST OK/DROP
-----------  -----------  -------------------------  ------------  ------------  -----------------  -----------------
Ethernet0:3      stormed                        1/0       100/300       100/300              0/200              0/200
Ethernet4:3  operational                        2/2       100/100       100/100                0/0                0/0
admin@leaf1:~$ show pfcwd config
Changed polling interval to 600ms
     PORT    ACTION    DETECTION TIME    RESTORATION TIME    HISTORY
---------  --------  ----------------  ------------------  ---------
Ethernet0      drop               600                 601    disable
admin@leaf1:~$ show ecn
Profile: **AZURE_LOSSLESS**
-----------------------  -------
red_max_threshold        2097152
ecn                      ecn_all
green_min_threshold      1048576
green_max_threshold      2097152
green_drop_probability   5
-----------------------  -------

admin@leaf1:~$ show buffer_pool watermark
Shared pool maximum occupancy:
                 Pool    Bytes
---------------------  -------
ingress_lossless_pool        0
           lossy_pool     2464

admin@leaf1:~$ show priority-group watermark headroom
Ingress headroom per PG:
      Port    PG0    PG1    PG2    PG3    PG4    PG5    PG6    PG7
----------  -----  -----  -----  -----  -----  -----  -----  -----
 Ethernet0      0      0      0   9216      0      0      0      0

admin@leaf1:~$ show priority-group drop counters
Ingress PG dropped packets:
      Port    PG0    PG1    PG2    PG3    PG4    PG5    PG6    PG7
----------  -----  -----  -----  -----  -----  -----  -----  -----
 Ethernet0      0      0      0      7      0      0      0      0

admin@leaf1:~$ show queue watermark unicast
Egress shared pool occupancy per unicast queue:
      Port    UC0    UC1    UC2    UC3    UC4    UC5    UC6    UC7
----------  -----  -----  -----  -----  -----  -----  -----  -----
 Ethernet0      0      0      0    416      0      0      0      0

admin@leaf1:~$ show pfc priority
Interface    Lossless priorities
-----------  ---------------------
Ethernet0    3,4
admin@leaf1:~$ show queue counters Ethernet0
     Port    TxQ    Counter/pkts    Counter/bytes    Drop/pkts    Drop/bytes
---------  -----  --------------  ---------------  -----------  ------------
Ethernet0    UC3           1,024          819,200           55        4,400
"""


def counters(found):
    return {(row["port"], row["priority"], row["name"]): row["value"] for row in rows(found, "switch_counter")}


def test_sonic_tables_become_counters_and_settings():
    found = list(parse_sonic(lines(SONIC)))
    got = counters(found)
    assert {key: value for key, value in got.items() if value} == {
        ("Ethernet0", 3, "pfc_received"): 12014,
        ("Ethernet0", 3, "pfc_sent"): 90,
        ("Ethernet0", 3, "storms_detected"): 1,
        ("Ethernet0", 3, "storm_tx_dropped"): 300,
        ("Ethernet0", 3, "storm_rx_dropped"): 300,
        ("Ethernet4", 3, "storms_detected"): 2,
        ("Ethernet4", 3, "storms_restored"): 2,
        ("Ethernet4", 3, "storm_tx_dropped"): 100,
        ("Ethernet4", 3, "storm_rx_dropped"): 100,
        ("lossy_pool", None, "pool_watermark_bytes"): 2464,
        ("Ethernet0", 3, "headroom_watermark_bytes"): 9216,
        ("Ethernet0", 3, "pg_dropped"): 7,
        ("Ethernet0", 3, "queue_watermark_bytes"): 416,
        ("Ethernet0", 3, "queue_dropped"): 55,
    }
    assert ("Ethernet0", 7, "pfc_sent") not in got, "N/A is not 0"
    assert {row["text"] for row in rows(found, "switch_counter") if row["name"] == "storms_detected"} == {
        "stormed",
        "operational",
    }
    assert {(row["port"], row["name"]): row["value"] for row in rows(found, "switch_setting")} == {
        ("Ethernet0", "pfcwd_action"): "drop",
        ("Ethernet0", "pfcwd_detection_ms"): "600",
        ("Ethernet0", "pfcwd_restoration_ms"): "601",
        ("Ethernet0", "pfc_priorities"): "3,4",
        ("AZURE_LOSSLESS", "ecn"): "on",
        ("AZURE_LOSSLESS", "ecn_min_bytes"): "1048576",
        ("AZURE_LOSSLESS", "ecn_max_bytes"): "2097152",
        ("AZURE_LOSSLESS", "ecn_probability"): "5",
    }


# Cumulus Linux user guide (RoCE), and a published validation of `nv show qos roce`
CUMULUS = """\
cumulus@switch:mgmt:~$ nv show qos roce
                    operational            applied
------------------  ---------------------  ---------------------
state                                      enabled
mode                lossless-single-ipool  lossless-single-ipool
pfc
  pfc-priority      3
  rx-enabled        enabled
  tx-enabled        disabled
congestion-control
  congestion-mode   ECN
  enabled-tc        0,3
  min-threshold     146.48 KB
  max-threshold     1.43 MB
  probability       100
trust
  trust-mode        pcp,dscp
cumulus@switch:mgmt:~$ nv show interface swp16 qos roce counters
                               operational   applied  description
-----------------------------  ------------  -------  ------------------------------------------------------
rx-stats
  rx-non-roce-stats
    no-buffer-discard          55                     Rx buffer discards for non-RoCE traffic
  rx-pfc-stats
    pause-duration             0                      Rx PFC pause duration for RoCE traffic
    pause-packets              12                     Rx PFC pause packets for RoCE traffic
  rx-roce-stats
    no-buffer-discard          4                      Rx buffer discards for RoCE traffic
"""


def test_cumulus_sections_become_settings_and_counters():
    found = list(parse_cumulus(lines(CUMULUS)))
    assert {row["name"]: row["value"] for row in rows(found, "switch_setting")} == {
        "roce_state": "enabled",
        "roce_mode": "lossless-single-ipool",
        "pfc_priorities": "3",
        "pfc_rx": "on",
        "pfc_tx": "off",
        "ecn": "on",
        "ecn_tcs": "0,3",
        "ecn_min_bytes": "149996",
        "ecn_max_bytes": "1499464",
        "ecn_probability": "100",
        "trust": "pcp,dscp",
    }
    assert counters(found) == {
        ("swp16", None, "pfc_received_us"): 0,
        ("swp16", None, "pfc_received"): 12,
        ("swp16", None, "discarded"): 4,
    }, "discards of other traffic are not those of RoCE"


@given(st.data())
def test_a_cut_off_text_raises_nothing(data):
    whole = SONIC + CUMULUS
    cut, rest = data.draw(st.integers(0, len(whole))), data.draw(st.text(max_size=60))
    list(parse_sonic(lines(whole[:cut] + rest)))
    list(parse_cumulus(lines(whole[:cut] + rest)))
