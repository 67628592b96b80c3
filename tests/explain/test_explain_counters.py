"""The counter table, and how single counters are explained."""

import pytest

from rdmadiag.errors import BadInput
from rdmadiag.explain import counter, counters

ROWS = {(row[0], row[1]): row for row in counters.COUNTERS}


def signal(driver, name):
    return ROWS[driver, name][2]


def test_no_driver_has_a_counter_twice():
    assert len(ROWS) == len(counters.COUNTERS)


def test_every_signal_has_a_meaning_and_every_meaning_a_counter():
    assert {row[2] for row in counters.COUNTERS} == set(counters.MEANINGS)
    assert all(len(texts) == 3 and all(texts) for texts in counters.MEANINGS.values())


@pytest.mark.parametrize("row", counters.COUNTERS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_every_row_is_well_formed(row):
    driver, name, signal_name, side, bits, terminal, benign, kind = row
    assert driver in counters.DRIVERS and name and signal_name == signal_name.lower()
    assert side in ("requester", "responder", "both", "link") and bits in (4, 8, 16, 32, 64)
    assert (terminal, benign) in ((0, 0), (0, 1), (1, 0)) and kind in ("wraps", "saturates", "gauge")
    assert kind != "saturates" or driver == "pma"


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("rnr_retries_exceeded", {("mlx5", "req_rnr_retries_exceeded"), ("rxe", "retry_rnr_exceeded_err")}),
        (
            "transport_retries_exceeded",
            {
                ("mlx5", "req_transport_retries_exceeded"),
                ("rxe", "retry_exceeded_err"),
                ("bnxt_re", "max_retry_exceeded"),
            },
        ),
        ("rnr_naks_received", {("mlx5", "rnr_nak_retry_err"), ("rxe", "rcvd_rnr_err"), ("bnxt_re", "rnr_naks_rcvd")}),
        ("rnr_naks_sent", {("rxe", "send_rnr_err")}),
        ("ack_timeouts", {("mlx5", "local_ack_timeout_err"), ("bnxt_re", "to_retransmits")}),
        (
            "seq_err_naks_received",
            {("mlx5", "packet_seq_err"), ("rxe", "rcvd_seq_err"), ("bnxt_re", "seq_err_naks_rcvd")},
        ),
        (
            "out_of_sequence",
            {("mlx5", "out_of_sequence"), ("rxe", "out_of_seq_request"), ("bnxt_re", "oos_drop_count")},
        ),
        (
            "cnp_sent",
            {("mlx5", "np_cnp_sent"), ("irdma", "cnpSent"), ("bnxt_re", "tx_cnp_pkts"), ("hns", "tx_cnp_pkt")},
        ),
        ("link_downed", {("pma", "link_downed"), ("rxe", "link_downed"), ("ethtool", "link_down_events_phy")}),
    ],
)
def test_one_meaning_has_one_name_across_drivers(name, spellings):
    assert spellings <= {(row[0], row[1]) for row in counters.COUNTERS if row[2] == name}


def test_rnr_naks_alone_are_not_terminal_and_exceeded_retries_are():
    assert ROWS["mlx5", "rnr_nak_retry_err"][5] == 0
    assert ROWS["mlx5", "local_ack_timeout_err"][5] == 0
    for key in (
        ("mlx5", "req_rnr_retries_exceeded"),
        ("mlx5", "req_transport_retries_exceeded"),
        ("rxe", "retry_exceeded_err"),
        ("bnxt_re", "max_retry_exceeded"),
    ):
        assert ROWS[key][5] == 1


def test_flushes_and_congestion_control_are_benign():
    for key in (
        ("mlx5", "req_cqe_flush_error"),
        ("mlx5", "rp_cnp_handled"),
        ("mlx5", "np_cnp_sent"),
        ("pma", "VL15_dropped"),
        ("rxe", "ack_deferred"),
        ("ethtool", "rx_corrected_bits_phy"),
    ):
        assert ROWS[key][6] == 1, key
    assert ROWS["mlx5", "rp_cnp_ignored"][6] == 0


def test_pma_counters_have_the_widths_of_the_port_counters_attribute_and_saturate():
    widths = {
        "symbol_error": 16,
        "link_error_recovery": 8,
        "link_downed": 8,
        "local_link_integrity_errors": 4,
        "excessive_buffer_overrun_errors": 4,
        "VL15_dropped": 16,
        "port_xmit_wait": 32,
        "port_xmit_data": 64,
    }
    assert {name: ROWS["pma", name][4] for name in widths} == widths
    assert ROWS["pma", "link_downed"][7] == "saturates" and ROWS["pma", "port_xmit_data"][7] == "wraps"


def test_q_counters_have_32_bits_and_congestion_counters_64():
    assert ROWS["mlx5", "out_of_buffer"][4] == 32 and ROWS["mlx5", "vport_out_of_buffer"][4] == 32
    assert ROWS["mlx5", "np_cnp_sent"][4] == 64


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rx_prio3_pause", ("pause_received", 3)),
        ("tx_prio0_pause_duration", ("pause_sent_duration", 0)),
        ("rx_prio7_discards", ("rx_priority_discards", 7)),
        ("rx_err_lane_2_phy", ("lane_errors", None)),
        ("pfc_pri5_rx_duration_us", ("pause_received_duration", 5)),
        ("rx_pfc_ena_frames_pri4", ("pause_received", 4)),
        ("rx_discard_packets_cos1", ("rx_queue_discards", None)),
        ("rx_discards_phy", ("rx_port_discards", None)),
        ("rx_crc_errors_phy", ("rx_fcs_errors", None)),
        ("rx0_packets", (None, None)),
        ("", (None, None)),
        ("rx_prio_pause", (None, None)),
        ("rx_prio99999_pause", (None, None)),
        ("rx_prio{N}_pause", ("pause_received", None)),
    ],
)
def test_ethtool_names_give_signal_and_priority(name, expected):
    assert counters.ethtool_signal(name) == expected


def test_expanded_rows_join_by_the_names_that_the_kernel_prints():
    rows = {(row[0], row[1]): row for row in counters.expanded()}
    assert len(rows) == len(counters.expanded()) and not any("{" in name for _, name in rows)
    assert rows["ethtool", "rx_prio7_pause"][2] == counters.ethtool_signal("rx_prio7_pause")[0]
    assert rows["mlx5", "out_of_buffer"] == ROWS["mlx5", "out_of_buffer"]


def test_a_counter_says_where_it_is_read():
    places = {one["driver"]: one["file"] for one in counter.decode("link_downed")["where"]}
    assert places["pma"] == "/sys/class/infiniband/<device>/ports/<port>/counters/link_downed"
    assert places["rxe"].endswith("/hw_counters/link_downed")
    assert counter.decode("rx_prio3_pause")["where"][0]["file"] == "ethtool -S <netdev>: rx_prio3_pause"
    of_device = "/sys/class/infiniband/<device>/hw_counters/create_qp_err"
    assert counter.decode("create_qp_err")["where"][0]["file"] == of_device
    assert "ports/<port>" in counter.decode("rdma_read_wr_err")["where"][0]["file"]


def test_a_counter_is_found_by_signal_path_and_driver():
    assert len(counter.decode("transport_retries_exceeded")["where"]) >= 3
    assert counter.decode("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer")["name"] == "out_of_buffer"
    assert counter.decode("out_of_sequence", "rxe")["where"][0]["driver"] == "rxe"


def test_one_spelling_with_two_meanings_names_both():
    answer = counter.decode("tx_packets")
    assert answer["signal"] == "tx_packets"
    assert "ethernet_out_of_buffer" in counter.decode("rx_out_of_buffer")["other_signals"]


def test_an_unknown_counter_is_refused_with_the_nearest():
    with pytest.raises(BadInput, match="out_of_buffer"):
        counter.decode("out_of_bufer")
    with pytest.raises(BadInput, match=r"one of rxe.*mlx5"):
        counter.decode("out_of_buffer", "rxe")


def test_a_saturated_counter_says_at_which_value():
    assert "255" in counter.decode("link_downed", "pma")["where"][0]["width"]
