"""One table of every driver's counters: the kernel's spelling, its common meaning, and how to read it.

Sources (kernel 6.12 unless said): drivers/infiniband/core/sysfs.c (PMA), hw/mlx5/counters.c, hw/mlx4/main.c,
sw/rxe/rxe_hw_counters.c, hw/bnxt_re/hw_counters.c, hw/irdma/verbs.c, hw/efa/efa_verbs.c, hw/hns/hns_roce_main.c,
hw/erdma/erdma_verbs.c; Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst and
mlx5 core/en_stats.c (ethtool), ethernet/broadcom/bnxt/bnxt_ethtool.c. Readings: NVIDIA's texts and faults measured on
ConnectX-6.

Every check imports this module: plain tuples and dictionaries, nothing computed that can be written down.
"""

from __future__ import annotations

from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.explain._meanings import MEANINGS

HELP = "all counters of one driver, or the drivers when none is named"
EXAMPLES = (("rxe",), ("mlx5",), ())

__all__ = [
    "BY_NAME",
    "COUNTERS",
    "DRIVERS",
    "EXAMPLES",
    "HELP",
    "MEANINGS",
    "Row",
    "decode",
    "ethtool_signal",
    "expanded",
    "template",
]

Row = tuple[str, str, str, str, int, int, int, str]
"""driver, counter, signal, side, bits, terminal, benign, kind.

driver: the driver whose hw_counters hold it, `pma` for the counters/ folder, `ethtool` (mlx5) and `bnxt_en` for
`ethtool -S`,
`fec` and `pause` for `ethtool -I`, `netdev` for /sys/class/net.
side: requester, responder, both (or neither: the device), link. bits: width of the value as read.
terminal: 1 when one increment means that a QP died. benign: 1 when it moves in health. kind: `wraps` back to 0 at its
width, `saturates` (stays at its highest value until it is reset), or `gauge` (a level: no delta).
"""

_Short = tuple[str, str, str, int, int]  # counter, signal, side, terminal, benign


def _rows(driver: str, bits: int, kind: str, rows: tuple[_Short, ...]) -> tuple[Row, ...]:
    return tuple([(driver, row[0], row[1], row[2], bits, row[3], row[4], kind) for row in rows])


_MLX5_Q: tuple[_Short, ...] = (
    ("rx_write_requests", "write_requests_received", "responder", 0, 1),
    ("rx_read_requests", "read_requests_received", "responder", 0, 1),
    ("rx_atomic_requests", "atomic_requests_received", "responder", 0, 1),
    ("rx_dct_connect", "dct_connects_received", "responder", 0, 1),
    ("out_of_buffer", "out_of_buffer", "responder", 0, 0),
    ("out_of_sequence", "out_of_sequence", "responder", 0, 0),
    ("duplicate_request", "duplicate_requests", "responder", 0, 0),
    ("rnr_nak_retry_err", "rnr_naks_received", "requester", 0, 0),
    ("packet_seq_err", "seq_err_naks_received", "requester", 0, 0),
    ("implied_nak_seq_err", "missing_responses", "requester", 0, 0),
    ("local_ack_timeout_err", "ack_timeouts", "requester", 0, 0),
    ("resp_local_length_error", "local_length_errors", "responder", 1, 0),
    ("resp_cqe_error", "cqe_errors", "responder", 0, 1),
    ("req_cqe_error", "cqe_errors", "requester", 0, 1),
    ("req_remote_invalid_request", "remote_invalid_requests", "requester", 1, 0),
    ("req_remote_access_errors", "remote_access_errors", "requester", 1, 0),
    ("resp_remote_access_errors", "remote_access_errors", "responder", 1, 0),
    ("resp_cqe_flush_error", "cqe_flush_errors", "responder", 0, 1),
    ("req_cqe_flush_error", "cqe_flush_errors", "requester", 0, 1),
    ("req_transport_retries_exceeded", "transport_retries_exceeded", "requester", 1, 0),
    ("req_rnr_retries_exceeded", "rnr_retries_exceeded", "requester", 1, 0),
    ("roce_adp_retrans", "adaptive_retransmissions", "requester", 0, 0),
    ("roce_adp_retrans_to", "adaptive_retransmission_timeouts", "requester", 0, 0),
    ("roce_slow_restart", "slow_restarts", "requester", 0, 0),
    ("roce_slow_restart_cnps", "slow_restart_cnps", "requester", 0, 0),
    ("roce_slow_restart_trans", "slow_restart_transitions", "requester", 0, 0),
)
_MLX5_WIDE: tuple[_Short, ...] = (
    ("rp_cnp_ignored", "cnp_ignored", "requester", 0, 0),
    ("rp_cnp_handled", "cnp_handled", "requester", 0, 1),
    ("np_ecn_marked_roce_packets", "ecn_marked", "responder", 0, 1),
    ("np_cnp_sent", "cnp_sent", "responder", 0, 1),
    ("rx_icrc_encapsulated", "icrc_errors", "link", 0, 0),
    ("cc_rx_ce_pkts", "ecn_marked", "responder", 0, 1),
    ("cc_rx_cnp_pkts", "cnp_received", "requester", 0, 1),
    ("cc_tx_cnp_pkts", "cnp_sent", "responder", 0, 1),
    ("rdma_tx_packets", "tx_packets", "both", 0, 1),
    ("rdma_tx_bytes", "tx_bytes", "both", 0, 1),
    ("rdma_rx_packets", "rx_packets", "both", 0, 1),
    ("rdma_rx_bytes", "rx_bytes", "both", 0, 1),
)
_MLX4: tuple[_Short, ...] = (
    ("rq_num_lle", "local_length_errors", "responder", 1, 0),
    ("sq_num_lle", "local_length_errors", "requester", 1, 0),
    ("rq_num_lqpoe", "local_qp_operation_errors", "responder", 1, 0),
    ("sq_num_lqpoe", "local_qp_operation_errors", "requester", 1, 0),
    ("rq_num_lpe", "local_protection_errors", "responder", 1, 0),
    ("sq_num_lpe", "local_protection_errors", "requester", 1, 0),
    ("rq_num_wrfe", "cqe_flush_errors", "responder", 0, 1),
    ("sq_num_wrfe", "cqe_flush_errors", "requester", 0, 1),
    ("sq_num_mwbe", "memory_management_errors", "requester", 1, 0),
    ("sq_num_bre", "bad_responses", "requester", 1, 0),
    ("sq_num_rire", "remote_invalid_requests", "requester", 1, 0),
    ("rq_num_rire", "remote_invalid_requests", "responder", 1, 0),
    ("sq_num_rae", "remote_access_errors", "requester", 1, 0),
    ("rq_num_rae", "remote_access_errors", "responder", 1, 0),
    ("sq_num_roe", "remote_operation_errors", "requester", 1, 0),
    ("sq_num_tree", "transport_retries_exceeded", "requester", 1, 0),
    ("sq_num_rree", "rnr_retries_exceeded", "requester", 1, 0),
    ("rq_num_rnr", "rnr_naks_sent", "responder", 0, 0),
    ("sq_num_rnr", "rnr_naks_received", "requester", 0, 0),
    ("rq_num_oos", "out_of_sequence", "responder", 0, 0),
    ("sq_num_oos", "seq_err_naks_received", "requester", 0, 0),
    ("rq_num_dup", "duplicate_requests", "responder", 0, 0),
    ("sq_num_to", "ack_timeouts", "requester", 0, 0),
    ("num_cqovf", "completion_errors", "both", 1, 0),
    ("rq_num_udsdprd", "out_of_buffer", "responder", 0, 0),
)
_RXE: tuple[_Short, ...] = (
    ("sent_pkts", "tx_packets", "both", 0, 1),
    ("rcvd_pkts", "rx_packets", "both", 0, 1),
    ("sent_bytes", "tx_bytes", "both", 0, 1),  # seen with Linux 7.3, not with 6.1
    ("rcvd_bytes", "rx_bytes", "both", 0, 1),
    ("duplicate_request", "duplicate_requests", "responder", 0, 0),
    ("out_of_seq_request", "out_of_sequence", "responder", 0, 0),
    ("out_of_sequence", "out_of_sequence", "responder", 0, 0),  # its name in older kernels
    ("rcvd_rnr_err", "rnr_naks_received", "requester", 0, 0),
    ("send_rnr_err", "rnr_naks_sent", "responder", 0, 0),
    ("rcvd_seq_err", "seq_err_naks_received", "requester", 0, 0),
    ("ack_deferred", "acks_deferred", "requester", 0, 1),
    ("retry_exceeded_err", "transport_retries_exceeded", "requester", 1, 0),
    ("retry_rnr_exceeded_err", "rnr_retries_exceeded", "requester", 1, 0),
    ("completer_retry_err", "retransmissions", "requester", 0, 0),
    ("send_err", "tx_errors", "both", 0, 0),
    ("link_downed", "link_downed", "link", 0, 0),
    ("rdma_sends", "sends_sent", "requester", 0, 1),
    ("rdma_recvs", "sends_received", "responder", 0, 1),
)
_BNXT_LEVELS: tuple[_Short, ...] = (
    *[
        (f"{part}_{thing}", f"{part}_{thing}", "both", 0, 1)
        for part in ("active", "watermark")
        for thing in ("pds", "ahs", "qps", "rc_qps", "ud_qps", "srqs", "cqs", "mrs", "mws")
    ],
    ("db_fifo_register", "doorbell_fifo_level", "both", 0, 1),
)
_BNXT: tuple[_Short, ...] = (
    ("resize_cq_cnt", "cq_resizes", "both", 0, 1),
    ("rx_pkts", "rx_packets", "both", 0, 1),
    ("rx_bytes", "rx_bytes", "both", 0, 1),
    ("tx_pkts", "tx_packets", "both", 0, 1),
    ("tx_bytes", "tx_bytes", "both", 0, 1),
    ("recoverable_errors", "recoverable_errors", "both", 0, 0),
    ("tx_roce_errors", "tx_errors", "both", 0, 0),
    ("tx_roce_discards", "tx_discards", "both", 0, 0),
    ("rx_roce_errors", "rx_errors", "both", 0, 0),
    ("rx_roce_discards", "rx_discards", "both", 0, 0),
    ("to_retransmits", "ack_timeouts", "requester", 0, 0),
    ("seq_err_naks_rcvd", "seq_err_naks_received", "requester", 0, 0),
    ("max_retry_exceeded", "transport_retries_exceeded", "requester", 1, 0),
    ("rnr_naks_rcvd", "rnr_naks_received", "requester", 0, 0),
    ("missing_resp", "missing_responses", "requester", 0, 0),
    ("unrecoverable_err", "unrecoverable_errors", "both", 1, 0),
    ("bad_resp_err", "bad_responses", "requester", 1, 0),
    ("local_qp_op_err", "local_qp_operation_errors", "requester", 1, 0),
    ("local_protection_err", "local_protection_errors", "requester", 1, 0),
    ("mem_mgmt_op_err", "memory_management_errors", "requester", 1, 0),
    ("remote_invalid_req_err", "remote_invalid_requests", "requester", 1, 0),
    ("remote_access_err", "remote_access_errors", "requester", 1, 0),
    ("remote_op_err", "remote_operation_errors", "requester", 1, 0),
    ("dup_req", "duplicate_requests", "responder", 0, 0),
    ("res_exceed_max", "remote_invalid_requests", "responder", 1, 0),
    ("res_length_mismatch", "remote_invalid_requests", "responder", 1, 0),
    ("res_exceeds_wqe", "local_length_errors", "responder", 1, 0),
    ("res_opcode_err", "remote_invalid_requests", "responder", 1, 0),
    ("res_rx_invalid_rkey", "remote_access_errors", "responder", 1, 0),
    ("res_rx_domain_err", "remote_access_errors", "responder", 1, 0),
    ("res_rx_no_perm", "remote_access_errors", "responder", 1, 0),
    ("res_rx_range_err", "remote_access_errors", "responder", 1, 0),
    ("res_tx_invalid_rkey", "remote_access_errors", "responder", 1, 0),
    ("res_tx_domain_err", "remote_access_errors", "responder", 1, 0),
    ("res_tx_no_perm", "remote_access_errors", "responder", 1, 0),
    ("res_tx_range_err", "remote_access_errors", "responder", 1, 0),
    ("res_irrq_oflow", "remote_invalid_requests", "responder", 1, 0),
    ("res_unsup_opcode", "remote_invalid_requests", "responder", 1, 0),
    ("res_unaligned_atomic", "remote_invalid_requests", "responder", 1, 0),
    ("res_rem_inv_err", "remote_invalidate_errors", "responder", 1, 0),
    ("res_mem_err", "local_memory_errors", "responder", 1, 0),
    ("res_srq_err", "srq_errors", "responder", 1, 0),
    ("res_cmp_err", "completion_errors", "responder", 1, 0),
    ("res_invalid_dup_rkey", "remote_access_errors", "responder", 1, 0),
    ("res_wqe_format_err", "local_qp_operation_errors", "responder", 1, 0),
    ("res_cq_load_err", "context_load_errors", "responder", 1, 0),
    ("res_srq_load_err", "context_load_errors", "responder", 1, 0),
    ("res_tx_pci_err", "pcie_errors", "responder", 1, 0),
    ("res_rx_pci_err", "pcie_errors", "responder", 1, 0),
    ("oos_drop_count", "out_of_sequence", "responder", 0, 0),
    ("tx_atomic_req", "atomic_requests_sent", "requester", 0, 1),
    ("tx_read_req", "read_requests_sent", "requester", 0, 1),
    ("tx_read_resp", "read_responses_sent", "responder", 0, 1),
    ("tx_write_req", "write_requests_sent", "requester", 0, 1),
    ("tx_send_req", "sends_sent", "requester", 0, 1),
    ("tx_roce_only_pkts", "tx_roce_packets", "both", 0, 1),
    ("tx_roce_only_bytes", "tx_roce_bytes", "both", 0, 1),
    ("rx_atomic_req", "atomic_requests_received", "responder", 0, 1),
    ("rx_read_req", "read_requests_received", "responder", 0, 1),
    ("rx_read_resp", "read_responses_received", "requester", 0, 1),
    ("rx_write_req", "write_requests_received", "responder", 0, 1),
    ("rx_send_req", "sends_received", "responder", 0, 1),
    ("rx_roce_only_pkts", "rx_roce_packets", "both", 0, 1),
    ("rx_roce_only_bytes", "rx_roce_bytes", "both", 0, 1),
    ("rx_roce_good_pkts", "rx_roce_good_packets", "both", 0, 1),
    ("rx_roce_good_bytes", "rx_roce_good_bytes", "both", 0, 1),
    ("rx_out_of_buffer", "out_of_buffer", "responder", 0, 0),
    ("tx_cnp_pkts", "cnp_sent", "responder", 0, 1),
    ("rx_cnp_pkts", "cnp_received", "requester", 0, 1),
    ("rx_ecn_marked_pkts", "ecn_marked", "responder", 0, 1),
    ("pacing_reschedule", "doorbell_pacing_reschedules", "both", 0, 1),
    ("pacing_complete", "doorbell_pacing_completions", "both", 0, 1),
    ("pacing_alerts", "doorbell_pacing_alerts", "both", 0, 0),
)
_IRDMA: tuple[_Short, ...] = (
    ("ip4InDiscards", "rx_discards", "both", 0, 0),
    ("ip4InTruncatedPkts", "rx_truncated_packets", "both", 0, 0),
    ("ip4OutNoRoutes", "tx_no_routes", "both", 0, 0),
    ("ip6InDiscards", "rx_discards", "both", 0, 0),
    ("ip6InTruncatedPkts", "rx_truncated_packets", "both", 0, 0),
    ("ip6OutNoRoutes", "tx_no_routes", "both", 0, 0),
    ("tcpRetransSegs", "tcp_retransmissions", "requester", 0, 0),
    ("tcpInOptErrors", "rx_tcp_option_errors", "both", 0, 0),
    ("tcpInProtoErrors", "rx_tcp_protocol_errors", "both", 0, 0),
    ("rxVlanErrors", "rx_vlan_errors", "both", 0, 0),
    ("ip4InOctets", "rx_ip_bytes", "both", 0, 1),
    ("ip4InPkts", "rx_ip_packets", "both", 0, 1),
    ("ip4InReasmRqd", "rx_ip_fragments", "both", 0, 0),
    ("ip4InMcastPkts", "rx_multicast_packets", "both", 0, 1),
    ("ip4InMcastOctets", "rx_multicast_bytes", "both", 0, 1),
    ("ip4OutOctets", "tx_ip_bytes", "both", 0, 1),
    ("ip4OutPkts", "tx_ip_packets", "both", 0, 1),
    ("ip4OutSegRqd", "tx_ip_fragments", "both", 0, 0),
    ("ip4OutMcastPkts", "tx_multicast_packets", "both", 0, 1),
    ("ip4OutMcastOctets", "tx_multicast_bytes", "both", 0, 1),
    ("ip6InOctets", "rx_ip_bytes", "both", 0, 1),
    ("ip6InPkts", "rx_ip_packets", "both", 0, 1),
    ("ip6InReasmRqd", "rx_ip_fragments", "both", 0, 0),
    ("ip6InMcastPkts", "rx_multicast_packets", "both", 0, 1),
    ("ip6InMcastOctets", "rx_multicast_bytes", "both", 0, 1),
    ("ip6OutOctets", "tx_ip_bytes", "both", 0, 1),
    ("ip6OutPkts", "tx_ip_packets", "both", 0, 1),
    ("ip6OutSegRqd", "tx_ip_fragments", "both", 0, 0),
    ("ip6OutMcastPkts", "tx_multicast_packets", "both", 0, 1),
    ("ip6OutMcastOctets", "tx_multicast_bytes", "both", 0, 1),
    ("tcpInSegs", "rx_tcp_segments", "both", 0, 1),
    ("tcpOutSegs", "tx_tcp_segments", "both", 0, 1),
    ("iwInRdmaReads", "read_requests_received", "responder", 0, 1),
    ("iwInRdmaSends", "sends_received", "responder", 0, 1),
    ("iwInRdmaWrites", "write_requests_received", "responder", 0, 1),
    ("iwOutRdmaReads", "read_requests_sent", "requester", 0, 1),
    ("iwOutRdmaSends", "sends_sent", "requester", 0, 1),
    ("iwOutRdmaWrites", "write_requests_sent", "requester", 0, 1),
    ("iwRdmaBnd", "memory_window_binds", "requester", 0, 1),
    ("iwRdmaInv", "invalidations", "both", 0, 1),
    ("cnpHandled", "cnp_handled", "requester", 0, 1),
    ("cnpIgnored", "cnp_ignored", "requester", 0, 0),
    ("cnpSent", "cnp_sent", "responder", 0, 1),
    ("RxUDP", "rx_packets", "both", 0, 1),
    ("TxUDP", "tx_packets", "both", 0, 1),
    ("RxECNMrkd", "ecn_marked", "responder", 0, 1),
)
_EFA: tuple[_Short, ...] = (
    ("tx_bytes", "tx_bytes", "both", 0, 1),
    ("tx_pkts", "tx_packets", "both", 0, 1),
    ("rx_bytes", "rx_bytes", "both", 0, 1),
    ("rx_pkts", "rx_packets", "both", 0, 1),
    ("rx_drops", "rx_discards", "both", 0, 0),
    ("send_bytes", "send_bytes", "requester", 0, 1),
    ("send_wrs", "sends_sent", "requester", 0, 1),
    ("recv_bytes", "receive_bytes", "responder", 0, 1),
    ("recv_wrs", "sends_received", "responder", 0, 1),
    ("rdma_read_wrs", "read_requests_sent", "requester", 0, 1),
    ("rdma_read_bytes", "read_bytes", "requester", 0, 1),
    ("rdma_read_wr_err", "read_errors", "requester", 0, 0),
    ("rdma_read_resp_bytes", "read_response_bytes", "responder", 0, 1),
    ("rdma_write_wrs", "write_requests_sent", "requester", 0, 1),
    ("rdma_write_bytes", "write_bytes", "requester", 0, 1),
    ("rdma_write_wr_err", "write_errors", "requester", 0, 0),
    ("rdma_write_recv_bytes", "write_bytes_received", "responder", 0, 1),
    ("retrans_bytes", "retransmitted_bytes", "requester", 0, 0),  # this and the next four: kernels after 6.12
    ("retrans_pkts", "retransmissions", "requester", 0, 0),
    ("retrans_timeout_events", "ack_timeouts", "requester", 0, 0),
    ("unresponsive_remote_events", "unresponsive_remotes", "requester", 0, 0),
    ("impaired_remote_conn_events", "impaired_connections", "requester", 0, 0),
    ("submitted_cmds", "commands_submitted", "both", 0, 1),
    ("completed_cmds", "commands_completed", "both", 0, 1),
    ("cmds_err", "command_errors", "both", 0, 0),
    ("no_completion_cmds", "command_timeouts", "both", 0, 0),
    ("keep_alive_rcvd", "keep_alives_received", "both", 0, 1),
    ("alloc_pd_err", "alloc_pd_errors", "both", 0, 0),
    ("create_qp_err", "create_qp_errors", "both", 0, 0),
    ("create_cq_err", "create_cq_errors", "both", 0, 0),
    ("reg_mr_err", "reg_mr_errors", "both", 0, 0),
    ("alloc_ucontext_err", "open_device_errors", "both", 0, 0),
    ("create_ah_err", "create_ah_errors", "both", 0, 0),
    ("mmap_err", "mmap_errors", "both", 0, 0),
)
_HNS: tuple[_Short, ...] = (
    ("rx_rc_pkt", "rx_rc_packets", "both", 0, 1),
    ("rx_uc_pkt", "rx_uc_packets", "both", 0, 1),
    ("rx_ud_pkt", "rx_ud_packets", "both", 0, 1),
    ("rx_xrc_pkt", "rx_xrc_packets", "both", 0, 1),
    ("rx_pkt", "rx_packets", "both", 0, 1),
    ("rx_err_pkt", "rx_errors", "both", 0, 0),
    ("rx_cnp_pkt", "cnp_received", "requester", 0, 1),
    ("tx_rc_pkt", "tx_rc_packets", "both", 0, 1),
    ("tx_uc_pkt", "tx_uc_packets", "both", 0, 1),
    ("tx_ud_pkt", "tx_ud_packets", "both", 0, 1),
    ("tx_xrc_pkt", "tx_xrc_packets", "both", 0, 1),
    ("tx_pkt", "tx_packets", "both", 0, 1),
    ("tx_err_pkt", "tx_errors", "both", 0, 0),
    ("tx_cnp_pkt", "cnp_sent", "responder", 0, 1),
    ("trp_get_mpt_err_pkt", "remote_access_errors", "responder", 0, 0),
    ("trp_get_irrl_err_pkt", "read_queue_errors", "responder", 0, 0),
    ("ecn_doorbell", "ecn_doorbells", "both", 0, 1),
    ("rx_buffer", "rx_buffer_level", "both", 0, 1),
    ("trp_rx_sof", "rx_frames_started", "both", 0, 1),
    ("cq_cqe", "cqes_written", "both", 0, 1),
    ("cq_poe", "cq_polls", "both", 0, 1),
    ("cq_notify", "cq_notifications", "both", 0, 1),
)
_ERDMA: tuple[_Short, ...] = (
    ("tx_reqs_cnt", "requests_sent", "requester", 0, 1),
    ("tx_packets_cnt", "tx_packets", "both", 0, 1),
    ("tx_bytes_cnt", "tx_bytes", "both", 0, 1),
    ("tx_disable_drop_cnt", "tx_discards", "both", 0, 0),
    ("tx_bps_limit_drop_cnt", "tx_rate_limit_drops", "both", 0, 0),
    ("tx_pps_limit_drop_cnt", "tx_rate_limit_drops", "both", 0, 0),
    ("rx_packets_cnt", "rx_packets", "both", 0, 1),
    ("rx_bytes_cnt", "rx_bytes", "both", 0, 1),
    ("rx_disable_drop_cnt", "rx_discards", "both", 0, 0),
    ("rx_bps_limit_drop_cnt", "rx_rate_limit_drops", "both", 0, 0),
    ("rx_pps_limit_drop_cnt", "rx_rate_limit_drops", "both", 0, 0),
)
_PMA: tuple[Row, ...] = (
    ("pma", "port_xmit_data", "tx_bytes_div4", "both", 64, 0, 1, "wraps"),
    ("pma", "port_rcv_data", "rx_bytes_div4", "both", 64, 0, 1, "wraps"),
    ("pma", "port_xmit_packets", "tx_packets", "both", 64, 0, 1, "wraps"),
    ("pma", "port_rcv_packets", "rx_packets", "both", 64, 0, 1, "wraps"),
    ("pma", "unicast_xmit_packets", "tx_unicast_packets", "both", 64, 0, 1, "wraps"),
    ("pma", "unicast_rcv_packets", "rx_unicast_packets", "both", 64, 0, 1, "wraps"),
    ("pma", "multicast_xmit_packets", "tx_multicast_packets", "both", 64, 0, 1, "wraps"),
    ("pma", "multicast_rcv_packets", "rx_multicast_packets", "both", 64, 0, 1, "wraps"),
    ("pma", "symbol_error", "symbol_errors", "link", 16, 0, 0, "saturates"),
    ("pma", "link_error_recovery", "link_error_recoveries", "link", 8, 0, 0, "saturates"),
    ("pma", "link_downed", "link_downed", "link", 8, 0, 0, "saturates"),
    ("pma", "port_rcv_errors", "rx_errors", "link", 16, 0, 0, "saturates"),
    ("pma", "port_rcv_remote_physical_errors", "rx_remote_physical_errors", "link", 16, 0, 0, "saturates"),
    ("pma", "port_rcv_switch_relay_errors", "rx_switch_relay_errors", "link", 16, 0, 0, "saturates"),
    ("pma", "port_xmit_discards", "tx_discards", "link", 16, 0, 0, "saturates"),
    ("pma", "port_xmit_constraint_errors", "tx_constraint_errors", "link", 8, 0, 0, "saturates"),
    ("pma", "port_rcv_constraint_errors", "rx_constraint_errors", "link", 8, 0, 0, "saturates"),
    ("pma", "local_link_integrity_errors", "local_link_integrity_errors", "link", 4, 0, 0, "saturates"),
    ("pma", "excessive_buffer_overrun_errors", "buffer_overruns", "link", 4, 0, 0, "saturates"),
    ("pma", "VL15_dropped", "vl15_dropped", "link", 16, 0, 1, "saturates"),
    ("pma", "port_xmit_wait", "tx_wait", "link", 32, 0, 1, "saturates"),
)
# {N} stands for a number: see ethtool_signal.
_ETHTOOL: tuple[_Short, ...] = (
    ("rx_prio{N}_pause", "pause_received", "link", 0, 1),
    ("rx_prio{N}_pause_duration", "pause_received_duration", "link", 0, 1),
    ("rx_prio{N}_pause_transition", "pause_received_transitions", "link", 0, 1),
    ("tx_prio{N}_pause", "pause_sent", "link", 0, 1),
    ("tx_prio{N}_pause_duration", "pause_sent_duration", "link", 0, 1),
    ("rx_prio{N}_bytes", "rx_priority_bytes", "link", 0, 1),
    ("rx_prio{N}_packets", "rx_priority_packets", "link", 0, 1),
    ("tx_prio{N}_bytes", "tx_priority_bytes", "link", 0, 1),
    ("tx_prio{N}_packets", "tx_priority_packets", "link", 0, 1),
    ("rx_prio{N}_discards", "rx_priority_discards", "link", 0, 0),
    ("rx_prio{N}_buf_discard", "rx_priority_buffer_discards", "link", 0, 0),
    ("rx_prio{N}_cong_discard", "rx_priority_congestion_discards", "link", 0, 0),
    ("rx_prio{N}_marked", "rx_priority_ecn_marked", "link", 0, 0),
    ("rx_global_pause", "global_pause_received", "link", 0, 0),
    ("rx_global_pause_duration", "global_pause_received_duration", "link", 0, 0),
    ("rx_global_pause_transition", "global_pause_received_transitions", "link", 0, 0),
    ("tx_global_pause", "global_pause_sent", "link", 0, 0),
    ("tx_global_pause_duration", "global_pause_sent_duration", "link", 0, 0),
    ("rx_pause_ctrl_phy", "pause_frames_received", "link", 0, 1),
    ("tx_pause_ctrl_phy", "pause_frames_sent", "link", 0, 1),
    ("tx_pause_storm_warning_events", "pause_storm_warnings", "link", 0, 0),
    ("tx_pause_storm_error_events", "pause_storm_errors", "link", 0, 0),
    ("rx_discards_phy", "rx_port_discards", "link", 0, 0),
    ("tx_discards_phy", "tx_port_discards", "link", 0, 0),
    ("tx_errors_phy", "tx_port_errors", "link", 0, 0),
    ("rx_out_of_buffer", "ethernet_out_of_buffer", "both", 0, 0),
    ("rx_if_down_packets", "rx_interface_down_discards", "both", 0, 1),
    ("dev_out_of_buffer", "device_queue_out_of_buffer", "both", 0, 0),
    ("dev_internal_queue_oob", "device_queue_out_of_buffer", "both", 0, 0),
    ("rx_wqe_err", "ethernet_receive_errors", "both", 0, 0),
    ("tx_cqe_err", "ethernet_send_errors", "both", 0, 0),
    ("rx_buffer_passed_thres_phy", "rx_buffer_over_threshold", "link", 0, 0),
    ("rx_crc_errors_phy", "rx_fcs_errors", "link", 0, 0),
    ("rx_symbol_err_phy", "rx_coding_errors", "link", 0, 0),
    ("rx_pcs_symbol_err_phy", "fec_uncorrected_errors", "link", 0, 0),
    ("rx_corrected_bits_phy", "fec_corrected_bits", "link", 0, 1),
    ("rx_err_lane_{N}_phy", "lane_errors", "link", 0, 1),
    ("link_down_events_phy", "link_downed", "link", 0, 0),
    ("rx_oversize_pkts_phy", "rx_oversize_packets", "link", 0, 0),
    ("rx_oversize_pkts_buffer", "rx_oversize_packets", "link", 0, 0),
    ("rx_out_of_range_len_phy", "rx_length_errors", "link", 0, 0),
    ("rx_in_range_len_errors_phy", "rx_length_errors", "link", 0, 0),
    ("rx_undersize_pkts_phy", "rx_undersize_packets", "link", 0, 0),
    ("rx_fragments_phy", "rx_fragments", "link", 0, 0),
    ("rx_jabbers_phy", "rx_jabbers", "link", 0, 0),
    ("rx_unsupported_op_phy", "rx_unsupported_control_frames", "link", 0, 0),
    ("rx_bits_phy", "rx_wire_bits", "link", 0, 1),
    ("rx_packets_phy", "rx_wire_packets", "link", 0, 1),
    ("tx_packets_phy", "tx_wire_packets", "link", 0, 1),
    ("rx_bytes_phy", "rx_wire_bytes", "link", 0, 1),
    ("tx_bytes_phy", "tx_wire_bytes", "link", 0, 1),
    ("module_unplug", "module_unplugs", "link", 0, 0),
    ("module_bus_stuck", "module_bus_errors", "link", 0, 0),
    ("module_high_temp", "module_over_temperatures", "link", 0, 0),
    ("module_bad_shorted", "module_shorts", "link", 0, 0),
    ("rx_pci_signal_integrity", "pcie_rx_signal_errors", "link", 0, 0),
    ("tx_pci_signal_integrity", "pcie_tx_signal_errors", "link", 0, 0),
    ("outbound_pci_stalled_rd_events", "pcie_read_stall_seconds", "both", 0, 0),
    ("outbound_pci_stalled_wr_events", "pcie_write_stall_seconds", "both", 0, 0),
    ("outbound_pci_buffer_overflow", "pcie_buffer_overflows", "both", 0, 0),
    ("rx_vport_rdma_unicast_packets", "rx_unicast_packets", "both", 0, 1),
    ("rx_vport_rdma_unicast_bytes", "rx_unicast_bytes", "both", 0, 1),
    ("tx_vport_rdma_unicast_packets", "tx_unicast_packets", "both", 0, 1),
    ("tx_vport_rdma_unicast_bytes", "tx_unicast_bytes", "both", 0, 1),
    ("rx_vport_rdma_multicast_packets", "rx_multicast_packets", "both", 0, 1),
    ("rx_vport_rdma_multicast_bytes", "rx_multicast_bytes", "both", 0, 1),
    ("tx_vport_rdma_multicast_packets", "tx_multicast_packets", "both", 0, 1),
    ("tx_vport_rdma_multicast_bytes", "tx_multicast_bytes", "both", 0, 1),
    ("rx_vport_unicast_packets", "rx_ethernet_packets", "both", 0, 1),
    ("rx_vport_unicast_bytes", "rx_ethernet_bytes", "both", 0, 1),
    ("tx_vport_unicast_packets", "tx_ethernet_packets", "both", 0, 1),
    ("tx_vport_unicast_bytes", "tx_ethernet_bytes", "both", 0, 1),
    ("rx_steer_missed_packets", "rx_steering_misses", "both", 0, 0),
)
_ETHTOOL_LEVELS: tuple[_Short, ...] = (
    ("outbound_pci_stalled_rd", "pcie_read_stall_percent", "both", 0, 1),
    ("outbound_pci_stalled_wr", "pcie_write_stall_percent", "both", 0, 1),
)
_BNXT_EN: tuple[_Short, ...] = (
    ("rx_pfc_frames", "pfc_frames_received", "link", 0, 1),
    ("tx_pfc_frames", "pfc_frames_sent", "link", 0, 1),
    ("rx_pfc_ena_frames_pri{N}", "pause_received", "link", 0, 1),
    ("tx_pfc_ena_frames_pri{N}", "pause_sent", "link", 0, 1),
    ("pfc_pri{N}_rx_duration_us", "pause_received_duration", "link", 0, 1),
    ("pfc_pri{N}_rx_transitions", "pause_received_transitions", "link", 0, 1),
    ("pfc_pri{N}_tx_duration_us", "pause_sent_duration", "link", 0, 1),
    ("pfc_pri{N}_tx_transitions", "pause_sent_transitions", "link", 0, 1),
    ("rx_discard_bytes_cos{N}", "rx_queue_discard_bytes", "link", 0, 0),
    ("rx_discard_packets_cos{N}", "rx_queue_discards", "link", 0, 0),
)
_FEC: tuple[_Short, ...] = (
    ("corrected_blocks", "fec_corrected_blocks", "link", 0, 1),
    ("corrected_bits", "fec_corrected_bits", "link", 0, 1),
    ("uncorrectable_blocks", "fec_uncorrected_errors", "link", 0, 0),
)
_PAUSE: tuple[_Short, ...] = (
    ("rx_pause_frames", "pause_frames_received", "link", 0, 1),
    ("tx_pause_frames", "pause_frames_sent", "link", 0, 1),
)
_VPORT = tuple([("vport_" + row[0], *row[1:]) for row in _MLX5_Q])  # switchdev: another vport's q-counters

COUNTERS: tuple[Row, ...] = (
    *_rows("mlx5", 32, "wraps", _MLX5_Q),
    *_rows("mlx5", 32, "wraps", _VPORT),
    *_rows("mlx5", 64, "wraps", _MLX5_WIDE),
    *_rows("mlx4", 32, "wraps", _MLX4),
    *_rows("rxe", 64, "wraps", _RXE),
    *_rows("bnxt_re", 64, "gauge", _BNXT_LEVELS),
    *_rows("bnxt_re", 64, "wraps", _BNXT),
    *_rows("irdma", 64, "wraps", _IRDMA),
    *_rows("efa", 64, "wraps", _EFA),
    *_rows("hns", 64, "wraps", _HNS),
    *_rows("erdma", 64, "wraps", _ERDMA),
    *_PMA,
    *_rows("ethtool", 64, "wraps", _ETHTOOL),
    *_rows("ethtool", 64, "gauge", _ETHTOOL_LEVELS),
    *_rows("bnxt_en", 64, "wraps", _BNXT_EN),
    *_rows("fec", 64, "wraps", _FEC),
    *_rows("pause", 64, "wraps", _PAUSE),
    ("netdev", "carrier_changes", "carrier_changes", "link", 32, 0, 0, "wraps"),
)
"""Every known counter; (driver, counter) is unique."""

BY_NAME: dict[tuple[str, str], Row] = {(row[0], row[1]): row for row in COUNTERS}
"""Row by (driver, counter)."""

DRIVERS = (
    "mlx5",
    "mlx4",
    "rxe",
    "bnxt_re",
    "irdma",
    "efa",
    "hns",
    "erdma",
    "pma",
    "ethtool",
    "bnxt_en",
    "fec",
    "pause",
    "netdev",
)


def expanded() -> list[Row]:
    """Return the rows with {N} written out as 0 to 7, so that a counter joins by its name as the kernel prints it."""
    rows: list[Row] = []
    for row in COUNTERS:
        numbers = range(8) if "{N}" in row[1] else (0,)
        rows += [(row[0], row[1].replace("{N}", str(number)), *row[2:]) for number in numbers]
    return rows


_MARKS = (("_prio", True), ("_pri", True), ("lane_", False), ("_cos", False))


def template(name: str) -> tuple[str, int | None, bool]:
    """Return an `ethtool -S` name with its number as {N}, the number, and whether that is a priority.

    rx_prio3_pause gives ("rx_prio{N}_pause", 3, True); a name without such a number gives (name, None, False).
    """
    for mark, is_priority in _MARKS:
        at = name.find(mark) + len(mark)
        if at >= len(mark) and "0" <= name[at : at + 1] <= "9":
            end = at + 1
            while "0" <= name[end : end + 1] <= "9":
                end += 1
            if end - at <= 3:
                return f"{name[:at]}{{N}}{name[end:]}", int(name[at:end]), is_priority
    return name, None, False


def ethtool_signal(name: str) -> tuple[str | None, int | None]:
    """Return signal and priority of an `ethtool -S` counter of mlx5 or bnxt_en: (None, None) for one not known.

    The priority is None for counters of the whole port, of a lane and of a CoS queue.
    """
    known, value, is_priority = template(name)
    row = BY_NAME.get(("ethtool", known)) or BY_NAME.get(("bnxt_en", known))
    if row is None:
        return None, None
    return row[2], value if is_priority else None


def decode(*words: str) -> dict[str, Any]:
    """List a driver's counters, or the drivers. Raises BadInput, listing the drivers, for an unknown one."""
    if not words:
        return {
            "name": "counters",
            "number": len(COUNTERS),
            "meaning": "counters that are known, by driver",
            "drivers": {driver: sum(row[0] == driver for row in COUNTERS) for driver in DRIVERS},
            "next": ["rdmadiag explain counters DRIVER", "rdmadiag explain counter NAME"],
            "sources": ["kernel drivers/infiniband (hw_counters tables)"],
        }
    driver = words[0].lower().replace("-", "_")
    if driver not in DRIVERS or len(words) > 1:
        from rdmadiag.explain._words import refuse

        error: BadInput = refuse("driver", " ".join(words), "one name", DRIVERS)
        raise error
    rows = [row for row in COUNTERS if row[0] == driver]
    return {
        "name": driver,
        "number": len(rows),
        "meaning": f"counters of {driver}",
        "counters": [
            {
                "counter": row[1],
                "signal": row[2],
                "side": row[3],
                "bits": row[4],
                "terminal": bool(row[5]),
                "benign": bool(row[6]),
                "kind": row[7],
            }
            for row in rows
        ],
        "next": ["rdmadiag explain counter NAME"],
        "sources": ["kernel drivers/infiniband (hw_counters tables)"],
    }
