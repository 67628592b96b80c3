"""Failed completions in logs: every format with its age, one row a line, and nothing from lines that only talk."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import hyperscan
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmadiag.evidence.row import Line
from rdmadiag.evidence.store import tables
from rdmadiag.sources import completions
from rdmadiag.sources._completion_formats import FORMATS, SIGNS

NCCL = "node-b:4639:4652 [0] "


def lines(text: str) -> list[Line]:
    return [Line(number, part) for number, part in enumerate(text.split("\n"), 1)]


def rows(text: str) -> list[dict]:
    return [row.values for row in completions.parse(lines(text))]


def only(text: str) -> dict:
    found = rows(text)
    assert len(found) == 1, found
    return found[0]


DUMP = """mlx5: node-a: got completion with error:
00000000 00000000 00000000 00000000
00000000 00000000 00000000 00000000
00000007 00000000 00000000 00000000
00000000 92005204 0a03ac2e 007517d2"""
KERNEL = """[  408.372201] infiniband mlx5_0: mlx5_handle_error_cqe:332:(pid 0): WC error: 4, Message: local protection error
[  408.380187] cqe_dump: 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[  408.380189] cqe_dump: 00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[  408.380191] cqe_dump: 00000020: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[  408.380192] cqe_dump: 00000030: 00 00 00 00 a9 00 52 04 00 00 01 e9 00 23 5a d2"""

# text, columns that must come out so (others are free)
EXAMPLES: list[tuple[str, dict]] = [
    # NCCL: one generation each
    (
        NCCL
        + "transport/net_ib.cc:839 NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129",
        {
            "program": "nccl",
            "format": "nccl<2.10",
            "wc_status": 12,
            "wc_name": "RETRY_EXC_ERR",
            "vendor_err": 129,
            "pid": 4639,
            "flush": 0,
        },
    ),
    (
        "NCCL WARN NET/IB : Got completion with error 5, opcode 32616, len 32616, vendor err 249",
        {"format": "nccl<2.10", "wc_status": 5, "vendor_err": 249, "flush": 1},
    ),
    (
        NCCL + "transport/net_ib.cc:1190 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<47888> with error 12, "
        "opcode 0, len 0, vendor err 129",
        {"format": "nccl<2.18", "peer": "10.0.0.1", "wc_status": 12},
    ),
    (
        "NCCL WARN NET/IB : Got completion from peer fd00::1<5> with error 4, opcode 0, len 0, vendor err 81",
        {"format": "nccl<2.18", "peer": "fd00::1", "wc_status": 4, "vendor_err": 81},
    ),
    (
        "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<47888> with error 10, opcode 0, len 0, vendor err 136 "
        "(Send) "
        "localGid ::ffff:10.0.0.2 remoteGids::ffff:10.0.0.1",
        {
            "format": "nccl<2.20",
            "opcode": "Send",
            "wc_status": 10,
            "vendor_err": 136,
            "local_gid": "0000:0000:0000:0000:0000:ffff:0a00:0002",
            "remote_gid": "0000:0000:0000:0000:0000:ffff:0a00:0001",
        },
    ),
    (
        "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<47888> with error 12, opcode 0, len 0, vendor err 129 "
        "(Recv)",
        {"format": "nccl<2.20", "opcode": "Recv"},
    ),
    (
        NCCL + "transport/net_ib.cc:1696 NCCL WARN NET/IB : Got completion from peer 10.20.15.2<47888> with status=5 "
        "opcode=1 len=0 vendor err 249 (Recv) localGid fe80::255:ff:fe10:9c94 remoteGidsfe80::255:ff:fe10:9fa0",
        {
            "format": "nccl<2.22",
            "wc_status": 5,
            "flush": 1,
            "vendor_err": 249,
            "peer": "10.20.15.2",
            "local_gid": "fe80:0000:0000:0000:0255:00ff:fe10:9c94",
            "pid": 4639,
        },
    ),
    (
        "NCCL WARN NET/IB : Got completion from peer 10.20.15.2<47888> with status=12 opcode=-1 len=32696 vendor err 129 "
        "(Send)",
        {"format": "nccl<2.22", "wc_status": 12},
    ),
    (
        "NCCL WARN NET/IB: Got completion from peer 10.0.0.1<47888> with status=12 opcode=32698 len=32696 vendor err 129 "
        "(Send) localGid fe80::1 remoteGidsfe80::2 hca mlx5_0",
        {"format": "nccl<2.28.7", "device": "mlx5_0", "remote_gid": "fe80:0000:0000:0000:0000:0000:0000:0002"},
    ),
    (
        "2026-01-02T03:04:05.678Z stdout F node-a:1:2 [3] NCCL WARN NET/IB: Got completion from peer 10.0.0.1<4> with "
        "status=13 opcode=0 len=0 vendor err 135 (Send) hca mlx5_bond_0",
        {
            "format": "nccl<2.28.7",
            "device": "mlx5_bond_0",
            "wc_status": 13,
            "time": "2026-01-02T03:04:05.678Z",
            "pid": 1,
        },
    ),
    (
        "NCCL WARN NET/IB: Got completion from peer 10.0.0.1<47888> with status=IBV_WC_RETRY_EXC_ERR(12) "
        "opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send localGid fe80::1 remoteGidsfe80::2 hca mlx5_0",
        {
            "format": "nccl<2.29",
            "wc_status": 12,
            "vendor_err": 129,
            "opcode": "Send",
            "device": "mlx5_0",
            "local_gid": "fe80:0000:0000:0000:0000:0000:0000:0001",
        },
    ),
    (
        "NCCL WARN NET/IB: Got completion from peer 10.0.0.1<47888> with status=IBV_WC_WR_FLUSH_ERR(5) "
        "opcode=IBV_WC_RECV(128) reqSize=0 vendor_err=249 req_type=Recv hca mlx5_0",
        {"format": "nccl<2.29", "flush": 1},
    ),
    (
        "NCCL WARN NET/IB: Got completion from peer 10.0.0.1<47888> with status=IBV_WC_RETRY_EXC_ERR(12) "
        "opcode=IBV_WC_RECV(128) vendor_err=129  localGid fe80::1 remoteGidsfe80::2 hca mlx5_3",
        {
            "format": "nccl>=2.29",
            "device": "mlx5_3",
            "wc_status": 12,
            "peer": "10.0.0.1",
            "remote_gid": "fe80:0000:0000:0000:0000:0000:0000:0002",
        },
    ),
    (
        "NCCL WARN NET/IB: Got completion from peer 10.0.0.1<47888> with status=IBV_WC_LOC_PROT_ERR(4) "
        "opcode=IBV_WC_SEND(0) vendor_err=81  hca mlx5_0",
        {"format": "nccl>=2.29", "vendor_err": 81, "wc_status": 4},
    ),
    (
        "NCCL WARN NET/IB/GIN: Got completion from peer 10.0.0.1<1> with status=12 opcode=0 len=0 vendor err 129 (Send) "
        "hca mlx5_0",
        {"format": "nccl>=2.28.7", "wc_status": 12, "device": "mlx5_0"},
    ),
    (
        "kp-0:3468:3905 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.216.210.236<54862> with "
        "status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fd00::1 remoteGidsfd00::2",
        {"format": "nccl plugin", "wc_status": 12, "pid": 3468},
    ),
    (
        "NET/IBP:Got completion from peer 7.6.13.83<36315> with status=12 opcode=32698 len=32696 vendor err 129 (Send)",
        {"format": "nccl plugin", "wc_status": 12},
    ),
    (
        "NCCL INFO NET/IB: ncclIbResiliencyHandleCompletionError: Got completion with error (devIndex=0, "
        "wc->status=(IBV_WC_RETRY_EXC_ERR)12, wc->opcode=(IBV_WC_SEND)0, wc->wr_id=3, wc->qp_num=291, wc->byte_len=0)",
        {"format": "nccl>=2.30", "wc_status": 12, "qpn": 291},
    ),
    # MVAPICH
    (
        "[cn4021:mpi_rank_198][handle_cqe] src/mpid/ch3/channels/mrail/src/gen2/ibv_channel_manager.c:547: [] Got "
        "completion with error 12, vendor code=0x81, dest rank=196",
        {"program": "mvapich", "wc_status": 12, "vendor_err": 0x81, "peer": "196"},
    ),
    ("[ibv_poll_cq] from rank 3, status 12, vendor code=0x81", {"program": "mvapich", "vendor_err": 0x81}),
    # libfabric, EFA and its plugin
    (
        "ip-1:451707:453373 [4] nccl_ofi_platform.h:125 NCCL WARN NET/OFI Request 0x7f (SEND) completed with error: "
        "err: 5, "
        "flags: 0, prov_errno: 7, strerror: Remote memory registration is invalid, len: 0",
        {"program": "aws-ofi-nccl", "format": "aws-ofi-nccl>=1.21", "wc_status": 10, "vendor_err": 7, "opcode": "SEND"},
    ),
    (
        "NCCL WARN NET/OFI Request 0x7fbb944701b8 completed with error. RC: 107. Error: 4124 (Unresponsive receiver "
        "(connection previously established)). Completed length: 0, Request: { dev: 1, size: 0, direction: SEND }",
        {"format": "aws-ofi-nccl<1.21", "wc_status": 20, "vendor_err": 13, "opcode": "SEND"},
    ),
    (
        "NCCL WARN NET/OFI Request 0x1 seq 7 completed with error. RC: 5. Flags: 0. Error: 12 (transport retry counter "
        "exceeded). Completed length: 0",
        {"wc_status": 12, "program": "aws-ofi-nccl"},
    ),
    (
        "libfabric:451707:1708520807::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: Invalid address My EFA "
        "addr: fi_addr_efa://[fe80::13:c2ff:fe6f:f03d]:0:1072483550 My host id: i-0db7083f3fcbebb65 Peer EFA addr: "
        "fi_addr_efa://[fe80::b8:aff:fe44:425]:0:947699476 Peer host id: i-0ce6d3d57139f053c (7)",
        {
            "program": "libfabric",
            "wc_status": 10,
            "vendor_err": 7,
            "pid": 451707,
            "peer": "i-0ce6d3d57139f053c",
            "remote_gid": "fe80:0000:0000:0000:00b8:0aff:fe44:0425",
        },
    ),
    (
        "libfabric:1:2::efa:cq:efa_cq_handle_error():105<info> Encountered error during CQ polling. err: Input/output "
        "error "
        "(5), prov_errno: Unreachable remote - never received a response (15)",
        {"wc_status": 20, "vendor_err": 15},
    ),
    (
        "E0801 15:40:04.429156    1049 libfabric_rail.cpp:757] CQ read failed on rail 0 with error: Input/output error "
        "prov_errno: 9 len: 0",
        {"program": "nixl", "wc_status": 15, "vendor_err": 9},
    ),
    # UCX
    (
        "[node-a:24275:0:24275] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 "
        "hw_synd 0/0)\n[node-a:24275:0:24275] ib_mlx5_log.c:177  RC QP 0x12 wqe[3]: SEND s-e [va 0x1 len 8 lkey 0x2] "
        "[rqpn 0x34 dlid=0 sl=0 port=1 src_path_bits=0 dgid=::ffff:10.0.0.9 flow_label=0xffffffff sgid_index=3 "
        "traffic_class=106]",
        {
            "program": "ucx",
            "format": "ucx>=1.6",
            "device": "mlx5_0",
            "port": 1,
            "wc_status": 12,
            "vendor_err": 0x81,
            "qpn": 0x12,
            "opcode": "SEND",
            "pid": 24275,
            "remote_gid": "0000:0000:0000:0000:0000:ffff:0a00:0009",
        },
    ),
    (
        "[1642768358.178128] [node2:42970:0]     ib_mlx5_log.c:177  UCX  ERROR Local protection error on mlx5_1:1/IB "
        "(synd "
        "0x4 vend 0x51 hw_synd 0/159) DCI QP 0xa9f wqe[0]: RDMA_WRITE s-- [rqpn 0xa66 rlid 703]",
        {
            "wc_status": 4,
            "vendor_err": 0x51,
            "device": "mlx5_1",
            "qpn": 0xA9F,
            "opcode": "RDMA_WRITE",
            "time": "1642768358.178128",
        },
    ),
    (
        "[n:25113:0:25113] ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 "
        "hw_synd 0/0)\n[n:25113:0:25113] ib_mlx5_log.c:143  DCI QP 0x1610 wqe[0]: SEND s-e [rqpn 0x224a4 rmac "
        "02:55:00:10:df:c8 sgix 0 dgid fe80::55:ff:fe10:dfc8 tc 0] [inl len 18]",
        {"qpn": 0x1610, "remote_gid": "fe80:0000:0000:0000:0055:00ff:fe10:dfc8"},
    ),
    ("IBV_WC_RETRY_EXC_ERR (status=12, vendor_err=0xa)", {"program": "unknown", "wc_status": 12, "vendor_err": 10}),
    ("Local protection on mlx5_2:1/RoCE (synd 0x4 vend 0x52 hw_synd 0/0)", {"wc_status": 4, "device": "mlx5_2"}),
    (
        "ib_mlx5_log.c:177 Remote access error on mlx5_0:2/RoCE (synd 0x13 vend 0x88 hw_synd 0/0)",
        {"wc_status": 10, "port": 2},
    ),
    (
        "[ast1815:6807 :0:6807] ib_mlx5_log.c:115  FATAL: Error on mlx5_3:1 QP 0xe6d7 wqe[7821]: Transport retry count "
        "exceeded (synd 0x15 vend 0x81) opcode SEND",
        {"format": "ucx<1.6", "device": "mlx5_3", "qpn": 0xE6D7, "wc_status": 12, "opcode": "SEND", "pid": 6807},
    ),
    (
        "ib_mlx5_log.c:113 UCX ERROR Error on QP 0x1a wqe[12]: Local QP operation (synd 0x2 vend 0x68) opcode RDMA_READ",
        {"format": "ucx<1.6", "wc_status": 2, "vendor_err": 0x68, "qpn": 0x1A},
    ),
    (
        "rc_verbs_iface.c:126 UCX  ERROR send completion with error: transport retry counter exceeded [qpn 0x12 wrid 0x34 "
        "vendor_err 0x81]\n[rqpn 0x56 dlid=0 sl=0 port=1 src_path_bits=0 dgid=fe80::9 sgid_index=0 traffic_class=0]",
        {
            "program": "ucx",
            "format": "ucx>=1.11",
            "qpn": 0x12,
            "vendor_err": 0x81,
            "wc_status": 12,
            "remote_gid": "fe80:0000:0000:0000:0000:0000:0000:0009",
        },
    ),
    (
        "send completion with error: remote access error [qpn 0x12 wrid 0x34vendor_err 0x88]",
        {"format": "ucx>=1.11", "wc_status": 10, "vendor_err": 0x88},
    ),
    (
        "send completion with error: Work Request Flushed Error qpn 0x1 wrid 0x2 vendor_err 0xf9",
        {"format": "ucx<1.11", "flush": 1},
    ),
    (
        "dc_verbs.c:614  UCX  ERROR Send completion with error on qp 0x6214: remote access error syndrome 0x88",
        {"format": "ucx<1.7", "qpn": 0x6214, "wc_status": 10, "vendor_err": 0x88},
    ),
    (
        "[h:29626:0:29626] rc_verbs_impl.h:122  Fatal: receive completion[0] with error on mlx5_2/0x4489390: Work Request "
        "Flushed Error, vendor_err 0xf9 wr_id 0x7fffd1c3ec6d",
        {"format": "ucx>=1.3", "device": "mlx5_2", "flush": 1, "pid": 29626},
    ),
    (
        "E0101 00:00:00.000001 12 nixl_agent.cpp:1 NIXL_ERR_REMOTE_DISCONNECT: Transport retry count exceeded on "
        "mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)",
        {"program": "nixl", "wc_status": 12},
    ),
    # perftest and rdma-core examples
    (
        "Completion with error at client\n  Failed status 4: wr_id 0 syndrom 0x51\nscnt=811, ccnt=683",
        {"program": "perftest", "format": "perftest<25.10", "wc_status": 4, "vendor_err": 0x51},
    ),
    (
        " Completion with error at client Failed status 12: wr_id 0 syndrom 0x81 scnt=128, ccnt=0",
        {"program": "perftest", "wc_status": 12, "vendor_err": 0x81},
    ),
    (" Failed status 12: qp_num 291 wr_id 0 syndrom 0x81", {"format": "perftest<26.01", "qpn": 291}),
    (
        " Completion with error at server\n Failed status-transport retry counter exceeded (12): wr_id 0 syndrom 0x81",
        {"program": "perftest", "format": "perftest>=26.01", "wc_status": 12, "vendor_err": 0x81},
    ),
    ("Failed status transport retry counter exceeded (12) for wr_id 2", {"program": "ibv_pingpong", "wc_status": 12}),
    ("cq completion failed status 10", {"program": "rping", "wc_status": 10}),
    # device libraries and GPUs
    (DUMP, {"program": "libmlx5", "wc_status": 4, "vendor_err": 0x52, "qpn": 0x3AC2E, "opcode": "SEND"}),
    (
        "mlx5: vegas06: got completion with error:\n00000000 00000000 00000000 00000000\n00000000 00000000 00000000 "
        "00000000\n00000000 00000000 00000000 00000000\n00000000 00008813 08006214 0000f6d2",
        {"program": "libmlx5", "wc_status": 10, "vendor_err": 0x88, "qpn": 0x6214, "opcode": "RDMA_WRITE"},
    ),
    (
        "mlx4: local QP operation err (QPN 00048, WQE index 0, vendor syndrome 70, opcode = 5e)",
        {"program": "libmlx4", "wc_status": 2, "vendor_err": 0x70, "qpn": 0x48},
    ),
    (
        "ionic_0: cqe with error transport retry counter exceeded for 0x1 (npg), qpid 4 cqid 7",
        {"program": "libionic", "wc_status": 12, "qpn": 4},
    ),
    (
        "[3] got completion with err:\n   syndrome=0x15, vendor_err_synd=0x81, hw_err_synd=0, hw_synd_type=0,\n"
        "   wqe_counter=0x1, s_wqe_opcode_qpn=0x8001234,",
        {"program": "nvshmem", "wc_status": 12, "qpn": 0x1234},
    ),
    (
        "got completion with err: syndrome=0x13, vendor_err_synd=0x88, hw_err_synd=0, hw_synd_type=0, wqe_counter=3 "
        "wqe_qpn=34120008",
        {"program": "nixl", "wc_status": 10, "qpn": 0x1234},
    ),
    ("ibgda_poll_cq failed with error=21.", {"program": "nvshmem", "wc_status": 12}),
    (
        "ibrc.cpp:progress_send:1071: non-zero status: 4 ibv_poll_cq failed, status: 4",
        {"program": "nvshmem", "wc_status": 4},
    ),
    (
        "Got ibdevx completion with error. hws: 0 ves: 81, syn: 15",
        {"program": "nvshmem", "wc_status": 12, "vendor_err": 0x81},
    ),
    # kernel
    (
        KERNEL,
        {
            "program": "mlx5_ib",
            "format": "mlx5_ib wc error",
            "device": "mlx5_0",
            "wc_status": 4,
            "vendor_err": 0x52,
            "qpn": 0x1E9,
            "opcode": "NOP",
            "time": "408.372201",
        },
    ),
    ("\n".join(KERNEL.split("\n")[1:]), {"format": "mlx5_ib cqe_dump", "wc_status": 4, "vendor_err": 0x52}),
    (
        "infiniband mlx5_0: mlx5_handle_error_cqe:333:(pid 0): WC error: 10, message: remote access error\ninfiniband "
        "mlx5_0: dump_cqe:272:(pid 0): dump error cqe\n00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
        "00\n00000010: "
        "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n00000020: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n"
        "00000030: 00 00 00 00 00 00 88 13 08 03 61 b3 1e a1 4d d2",
        {"wc_status": 10, "vendor_err": 0x88, "qpn": 0x361B3, "device": "mlx5_0"},
    ),
    (
        "[1.000001] mlx5_ib: dump_cqe:238:(pid 7): dump error cqe\n[1.000002] 00000000 00000000 00000000 "
        "00000000\n[1.000003] "
        "00000000 00000000 00000000 00000000\n[1.000004] 00000000 00000000 00000000 00000000\n[1.000005] 00000000 "
        "00008914 10000123 00000fd2",
        {
            "program": "mlx5_ib",
            "format": "mlx5_ib dump error cqe",
            "wc_status": 11,
            "qpn": 0x123,
            "opcode": "RDMA_READ",
        },
    ),
    (
        "[15601.662157] infiniband rocep33s0f0: mlx5_poll_one:527:(pid 0): Responder error cqe on cqn "
        "0x406:\n[15601.662158] "
        "infiniband rocep33s0f0: mlx5_poll_one:530:(pid 0): syndrome 0x5, vendor syndrome 0xf9",
        {"format": "mlx5_ib debug", "device": "rocep33s0f0", "flush": 1, "vendor_err": 0xF9},
    ),
    (
        "mlx5_core 0000:03:00.0 enp3s0: Error cqe on cqn 0x456, ci 0x12, qn 0x789, opcode 0xd, syndrome 0x4, vendor "
        "syndrome "
        "0x51",
        {"program": "mlx5_core", "wc_status": 4, "vendor_err": 0x51},
    ),
    (
        "bnxt_en 0000:01:00.0: FP: CQ Processed Req wr_id[12] = 0x7f001 with status 0xa",
        {"program": "bnxt_re", "wc_status": 12, "vendor_err": 10},
    ),
    (
        "infiniband bnxt_re0: QPLIB: FP: CQ Processed Req wr_id[1] = 0x2 with status 0xb",
        {"flush": 1, "device": "bnxt_re0"},
    ),
    ("QPLIB: QP 0x2c wr_id[3] = 0x7f vendor type 0x0 with vendor status 0x7", {"wc_status": 10, "qpn": 0x2C}),
    (
        "[  99.000001] infiniband rxe0: qp#17 make_send_cqe: non-flush error status = 12",
        {"program": "rdma_rxe", "device": "rxe0", "qpn": 17, "wc_status": 12},
    ),
    ("rdma_rxe: non-flush error status = 10", {"program": "rdma_rxe", "wc_status": 10}),
    (
        "[ 1207.682077] ice 0000:07:00.1 rocep7s0f1: abnormal ae_id = 0x50a bool qp=1 qp_id = 5, ae_src=5",
        {"program": "irdma", "device": "rocep7s0f1", "qpn": 5, "wc_status": 12},
    ),
    ("infiniband irdma0: abnormal ae_id = 0x20d bool qp=1 qp_id = 7", {"wc_status": 10, "device": "irdma0", "qpn": 7}),
    (
        "nvme nvme0: RECV for CQE 0x00000000abcdef01 failed with status WR flushed (5)",
        {"program": "nvme_rdma", "flush": 1, "opcode": "RECV"},
    ),
    ("SEND for CQE 0x0000000012345678 failed with status transport retry counter exceeded (12).", {"wc_status": 12}),
    (
        "RDS/IB: send completion on <::ffff:10.0.0.1,::ffff:10.0.0.2,0> had status 12 (transport retry counter exceeded), "
        "vendor err 0x81, disconnecting and reconnecting",
        {"program": "rds", "peer": "::ffff:10.0.0.2", "vendor_err": 0x81, "wc_status": 12},
    ),
    ("ib0: failed send event (status=12, wrid=3 vend_err 0x81)", {"program": "ib_ipoib", "vendor_err": 0x81}),
    ("ib0: failed cm send event (status=12, wrid=3 vend_err 81)", {"program": "ib_ipoib", "vendor_err": 0x81}),
    (
        "iser: iser_err_comp: command failure: local protection error (4) vend_err 0x52",
        {"program": "ib_iser", "wc_status": 4, "vendor_err": 0x52},
    ),
    (
        "libiscsi:3 wr id 562a18da7690 status 1 vend_err d7",
        {"program": "libiscsi", "wc_status": 1, "vendor_err": 0xD7},
    ),
    (
        "isert: isert_cq_comp_err: transport retry counter exceeded (12): wr id ffff8800 vend_err 81",
        {"program": "isert", "wc_status": 12, "vendor_err": 0x81},
    ),
    # Mooncake
    (
        "Worker: Process failed for slice (opcode: 1, source_addr: 0x14b11801f040, length: 65536, dest_addr: "
        "0x14600f020000, "
        "local_nic: mlx5_7, peer_nic: 10.20.7.32:14127@mlx5_4, dest_rkey: 1359727, retry_cnt: 0): transport retry counter "
        "exceeded",
        {
            "program": "mooncake",
            "format": "mooncake<0.3.12",
            "device": "mlx5_7",
            "peer": "10.20.7.32",
            "peer_device": "mlx5_4",
            "wc_status": 12,
            "opcode": "WRITE",
        },
    ),
    (
        "E0603 20:16:59.104586 27322 worker_pool.cpp:271] Worker: Process failed for slice (opcode: 0, source_addr: 0x1, "
        "length: 1, dest_addr: 140532604981264, local_nic: mlx5_bond_0, peer_nic: [fd00::7]:15729@mlx5_bond_1, "
        "dest_rkey: 2, "
        "retry_cnt: 1, max_retry_cnt: 9): remote access error",
        {
            "format": "mooncake>=0.3.12",
            "opcode": "READ",
            "wc_status": 10,
            "peer": "[fd00::7]",
            "peer_device": "mlx5_bond_1",
            "time": "0603 20:16:59.104586",
        },
    ),
    (
        "I0822 01:02:03.000001 5 workers.cpp:665] Detected error WQE for slice 0x7f (opcode: 1, source_addr: 0x1, "
        "dest_addr: "
        "0x2, length: 3, local_nic: mlx5_0): local protection error",
        {"format": "mooncake tent", "wc_status": 4},
    ),
    ("E0822 01:02:03.000001 5 rdma_transport.cpp:835] Notification completion failed: 12, qp_num=345", {"qpn": 345}),
    (
        "I0822 01:02:03.000001 5 worker_pool.cpp:641] Worker: WR flush error (peer_nic: 10.0.0.1:1234@mlx5_0), "
        "redispatching",
        {"flush": 1, "peer_device": "mlx5_0"},
    ),
    # SPDK
    (
        "nvme_rdma.c:1946:nvme_rdma_qpair_process_completions: *ERROR*: CQ error on Queue Pair 0x1, Response Index 7 "
        "(12): "
        "transport retry counter exceeded",
        {"program": "spdk", "format": "spdk<21.10", "wc_status": 12},
    ),
    (
        "rdma.c: 2689: *ERROR*: CQ error on CQ 0x7f, Request 0x123 (5): Work Request Flushed Error",
        {"format": "spdk<20.04", "flush": 1},
    ),
    (
        "[2020-08-05 15:08:46.450456] rdma.c:3918:nvmf_rdma_poller_poll: *ERROR*: Error on CQ 0x7fb64c021d80, request "
        "0x140420817435824, type 2, status: (5): Work Request Flushed Error",
        {"format": "spdk>=20.04", "flush": 1, "time": "2020-08-05 15:08:46.450456"},
    ),
    (
        "*ERROR*: WC error, qid 1, qp state 1, request 0x1 type 1, status: (12): transport retry counter exceeded",
        {"format": "spdk>=21.10", "wc_status": 12},
    ),
    (
        "mlx5_dma.c: 145:mlx5_cqe_err: *WARNING*: Error on QP 0x12 wqe[003]: Remote access (synd 0x13 vend 0x88 hw 0x0) "
        "opcode "
        "RDMA_READ",
        {"program": "spdk", "format": "spdk mlx5", "wc_status": 10, "opcode": "RDMA_READ", "qpn": 0x12},
    ),
    (
        "accel_mlx5.c:2304: *WARNING*: RDMA: qp 0x1, task 0x2, WC status 4, core 1",
        {"format": "spdk accel", "wc_status": 4},
    ),
    # gloo, tensorpipe, 3FS, Ceph, UCCL
    (
        "wc->status == IBV_WC_SUCCESS. 5 vs 0. Send for slot 0: Work Request Flushed Error",
        {"program": "gloo", "wc_status": 5, "flush": 1, "opcode": "Send"},
    ),
    (
        "terminate: [enforce fail at gloo/transport/ibverbs/pair.cc:493] wc->status == IBV_WC_SUCCESS. 12 vs 0. Memory "
        "region "
        "recv for slot 1: transport retry counter exceeded",
        {"program": "gloo", "wc_status": 12, "opcode": "recv"},
    ),
    (
        "V0101 tensorpipe Transport context 1 got work completion for request 3 for QP 291 with status transport retry "
        "counter "
        "exceeded and opcode SEND (byte length: 0)",
        {"program": "tensorpipe", "qpn": 291, "wc_status": 12},
    ),
    (
        "[2025-03-19T09:48:35.130991880+08:00 IBPoll:1 IBSocket.cc:460 ERROR] IBSocket 10.0.0.1:1 get failed WC {WR: "
        "RDMA/1, "
        "error: transport retry counter exceeded, vendor_error: 129}, closed false",
        {"program": "3fs", "vendor_err": 129, "wc_status": 12},
    ),
    (
        "2017-02-23 09:39:33.740991 7f69 1 RDMAStack polling work request returned error for buffer(0x7f) "
        "status(12:RETRY_EXC_ERR)",
        {"program": "ceph", "wc_status": 12},
    ),
    (
        "RDMAStack handle_tx_event send work request returned error for buffer(0x7f) status(10): REM_ACCESS_ERR",
        {"program": "ceph", "wc_status": 10},
    ),
    (
        "RDMAStack handle_tx_event Work Request Flushed Error: this connection's qp=291 should be down while this WR=3 "
        "still "
        "in flight.",
        {"program": "ceph", "qpn": 291, "flush": 1},
    ),
    (
        "RDMAStack handle_tx_event connection between server and client not working. Disconnect this now",
        {"wc_status": 12},
    ),
    (
        "[WARN chi-098 1468470 1468470 pollOnce rdma/providers/ib_data_channel_impl.cc:202] pollOnce - channel_id: 4, "
        "CQE error, "
        "wr_id=3, status=2 (local QP operation error), opcode=1, byte_len=0, vendor_err=0x3, qp_num=0x2c91, wc_flags=0x0",
        {"program": "uccl", "wc_status": 2, "vendor_err": 3, "qpn": 0x2C91},
    ),
    ("pollOnce - channel_id: 4, WR_FLUSH_ERR, qp_num=0x2c91", {"program": "uccl", "flush": 1}),
    # Open MPI
    (
        "[[41034,1],0][btl_openib_component.c:3556:handle_wc] from node1 to: node2 error polling LP CQ with status RETRY "
        "EXCEEDED ERROR status number 12 for wr_id 11e8e00 opcode 0  vendor error 129 qp_idx 3",
        {"program": "openmpi", "peer": "node2", "wc_status": 12, "vendor_err": 129},
    ),
    (
        "error polling HP CQ with status WORK REQUEST FLUSHED ERROR status number 5 for wr_id 1 opcode 1 vendor err 249 "
        "qp_idx 0",
        {"flush": 1, "vendor_err": 249},
    ),
    (
        'The InfiniBand retry count between two MPI processes has been\nexceeded.  "Retry count" is defined in the '
        "InfiniBand "
        "spec 1.2\n\n  Local host:   node1\n  Local device: mlx4_0\n  Peer host:    node2",
        {"program": "openmpi", "wc_status": 12, "device": "mlx4_0", "peer": "node2"},
    ),
    (
        'The OpenFabrics "receiver not ready" retry count on a per-peer\nconnection between two MPI processes has '
        "been exceeded.",
        {"program": "openmpi", "wc_status": 13},
    ),
    # rdmadiag
    (
        "2026-11-30T13:02:11Z rxe1: QP 17: work request 1 ended with REM_ACCESS_ERR, vendor syndrome 0x0",
        {"program": "rdmadiag", "device": "rxe1", "qpn": 17, "wc_status": 10, "vendor_err": 0},
    ),
    (
        "QP 291: work request 4 ended with WR_FLUSH_ERR, vendor syndrome 0xf9 (rdmadiag explain wc-status WR_FLUSH_ERR)",
        {"program": "rdmadiag", "qpn": 291, "wc_status": 5, "flush": 1, "vendor_err": 0xF9},
    ),
    # any program
    ("number 0 got bad completion with status: 0xc, vendor syndrome: 0x81", {"wc_status": 12, "vendor_err": 0x81}),
    ("Error transport retry counter exceeded", {"program": "unknown", "wc_status": 12}),
    ("transport retry counter exceeded", {"program": "unknown", "wc_status": 12, "format": "status text"}),
    ("RuntimeError: Transport Retry Counter Exceeded", {"wc_status": 12}),
    ("poll CQ failed: RNR retry counter exceeded (13)", {"wc_status": 13}),
    (
        "ERROR 05-27 13:26:09 [mooncake_connector.py:463] transfer failed: remote access error",
        {"program": "mooncake", "wc_status": 10, "time": "05-27 13:26:09"},
    ),
    (
        "(EngineCore_DP0 pid=335952) ERROR 06-08 14:45:44 [nixl_connector.py:551] backend said: local protection error",
        {"program": "nixl", "wc_status": 4, "pid": 335952},
    ),
    (
        "[2026-01-02 03:04:05 TP0] sglang ERROR: KVTransferError: IBV_WC_REM_ACCESS_ERR",
        {"program": "sglang", "wc_status": 10},
    ),
    (
        "In tensorpipe::channel::cuda_gdr: ibv error: memory management operation error",
        {"program": "tensorpipe", "wc_status": 6},
    ),
    (
        "DeepEP: ibgda QP 0x12 completion status 12 vendor err 0x81",
        {"program": "nvshmem", "wc_status": 12, "vendor_err": 0x81},
    ),
    ("RDMA op failed: wc.status=12 vendor_err=129", {"wc_status": 12, "vendor_err": 129, "program": "unknown"}),
    ("poll_cq: wc status fatal error (19)", {"wc_status": 19}),
    ("work completion error: general error (opcode 1)", {"wc_status": 21}),
]


@pytest.mark.parametrize(("text", "wanted"), EXAMPLES, ids=[text[:60] for text, _ in EXAMPLES])
def test_a_format_is_decoded_to_one_row_with_its_columns(text: str, wanted: dict) -> None:
    found = only(text)
    assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("text", [text for text, _ in EXAMPLES], ids=[text[:60] for text, _ in EXAMPLES])
def test_a_row_is_the_same_behind_prefixes_and_in_container_json(text: str) -> None:
    plain = {name: value for name, value in only(text).items() if name not in ("text", "time", "pid")}
    for prefix in ("[pod/decode-0/worker] ", "2026-01-02T03:04:05.678901234Z stderr F ", "app-1  | "):
        found = only("\n".join(prefix + part for part in text.split("\n")))
        assert {name: value for name, value in found.items() if name not in ("text", "time", "pid")} == plain
    records = [
        json.dumps({"log": part + "\n", "stream": "stderr", "time": "2026-01-02T03:04:05Z"})
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        for part in text.split("\n")
    ]
    found = only("\n".join(records))
    assert found["time"] == "2026-01-02T03:04:05Z"
    assert {name: value for name, value in found.items() if name not in ("text", "time", "pid")} == plain


@functools.cache
def signs_compiled() -> Any:
    database = hyperscan.Database()
    flags = [hyperscan.HS_FLAG_SINGLEMATCH] * len(SIGNS)
    database.compile(expressions=[sign.encode() for sign in SIGNS], flags=flags, ids=list(range(len(SIGNS))))
    return database


@pytest.mark.parametrize("text", [text for text, _ in EXAMPLES], ids=[text[:60] for text, _ in EXAMPLES])
def test_the_lines_that_signs_match_and_six_after_them_give_the_same_row(text: str) -> None:
    database = signs_compiled()
    noise = "\n".join(f"step {number} loss 0.5" for number in range(30))
    every = lines(f"{noise}\n{text}\n{noise}")
    kept: set[int] = set()
    for place, line in enumerate(every):
        hits: list[int] = []
        database.scan(line.text.encode(), match_event_handler=lambda number, *rest, hits=hits: hits.append(number))
        if hits:
            kept.update(range(place, place + 7))
    found = [row.values for row in completions.parse([line for place, line in enumerate(every) if place in kept])]
    whole = [row.values for row in completions.parse(every)]
    assert len(found) == len(whole) == 1
    if "Peer host" not in text:
        assert found == whole


def test_signs_are_patterns_for_hyperscan_each_with_a_literal_of_several_characters() -> None:
    for sign in SIGNS:
        hyperscan.Database().compile(expressions=[sign.encode()])
        assert (
            max(len(part) for part in re.split(r"\\.|\[[^]]*\]|\{[^}]*\}|[().?*+|^$]", sign.removeprefix("(?i)"))) >= 4
        ), sign


def test_every_format_has_two_examples_or_is_a_variant_of_one_program() -> None:
    seen: dict[str, int] = {}
    for text, _ in EXAMPLES:
        program = only(text)["program"]
        seen[program] = seen.get(program, 0) + 1
    once = {
        "libmlx4",
        "libionic",
        "rping",
        "ibv_pingpong",
        "mlx5_core",
        "rds",
        "ib_iser",
        "isert",
        "libiscsi",
        "3fs",
        "gpunetio",
        "sglang",
    }
    assert {form.program for form in FORMATS} - set(seen) <= {"gpunetio"}
    assert {program for program, count in seen.items() if count < 2} <= once


def test_rows_have_columns_of_the_table_and_numbers_are_numbers() -> None:
    kinds = {column.name: column.type for column in tables()["completion"].columns}
    for text, _ in EXAMPLES:
        for name, value in only(text).items():
            assert isinstance(value, int if kinds[name] == "INTEGER" else str), (name, value)
        assert "first" not in only(text)


# Value that mlx5_ib looks up as a wc status is a CQE syndrome: the text is another error's.
@pytest.mark.parametrize(
    ("text", "vendor", "status"),
    [
        ("general error", "0x81", 12),
        ("fatal error", "0x88", 10),
        ("response timeout error", "0x89", 11),
        ("invalid EE context state", "0x8a", 9),
        ("invalid EE context number", "0x31", 8),
        ("operation aborted", "0x20", 7),
        ("local protection error", "0x52", 4),
        ("WR flushed", "0xf9", 5),
        ("unrecognized status", "0x87", 13),
        ("unrecognized status", "0x93", 16),
        ("unrecognized status", "0x41", None),
    ],
)
def test_the_text_of_an_mlx5_qp_event_is_read_as_the_syndrome_that_it_is(
    text: str, vendor: str, status: int | None
) -> None:
    found = only(f"[ 12.345678] infiniband mlx5_0: rocep2s0/1: QP 137 error: {text} ({vendor} 0x0 0x0)")
    assert (found["device"], found["port"], found["qpn"], found["vendor_err"]) == ("rocep2s0", 1, 137, int(vendor, 16))
    assert found.get("wc_status") == status


def test_vendor_meaning_follows_the_driver_of_the_device() -> None:
    assert "ACK timeout" in only(EXAMPLES[0][0])["vendor_meaning"]
    assert "remote" in only("FP: CQ Processed Req wr_id[1] = 0x2 with status 0x7")["vendor_meaning"]
    assert "vendor_meaning" not in only(
        "CQE error, wr_id=3, status=2 (local QP operation error), vendor_err=0x3, qp_num=0x1"
    )


def test_dumps_in_a_row_and_a_row_glued_to_the_next_message_stay_apart() -> None:
    glued = (
        DUMP + "[1496344648.549828] [vegas06:14872:0] dc_verbs.c:614  UCX  ERROR Send completion with error on "
        "qp 0x6183: remote access error syndrome 0x88\n" + DUMP
    )
    found = rows(glued)
    assert [row["program"] for row in found] == ["libmlx5", "ucx", "libmlx5"]
    assert [row["qpn"] for row in found] == [0x3AC2E, 0x6183, 0x3AC2E]
    assert len(rows(KERNEL + "\n" + KERNEL)) == 2


def test_a_kernel_debug_line_after_its_dump_is_the_same_completion() -> None:
    more = (
        "\n[  408.380193] infiniband mlx5_0: mlx5_poll_one:527:(pid 0): Requestor error cqe on cqn 0x406:"
        "\n[  408.380194] infiniband mlx5_0: mlx5_poll_one:530:(pid 0): syndrome 0x4, vendor syndrome 0x52"
    )
    assert len(rows(KERNEL + more)) == 1


def test_a_dump_cut_short_says_that_there_was_an_error_but_not_which() -> None:
    found = only(DUMP.split("\n")[0])
    assert "wc_status" not in found and found["flush"] == 0


def test_rows_come_in_order_with_the_number_of_their_line() -> None:
    text = "\n".join(
        ["quiet", "Failed status 12: wr_id 0 syndrom 0x81", "quiet", "Failed status 5: wr_id 0 syndrom 0xf9"]
    )
    assert [(row.at, row.values["flush"]) for row in completions.parse(lines(text))] == [(2, 0), (4, 1)]


def test_a_line_that_two_formats_fit_gives_one_row_of_the_more_specific() -> None:
    text = (
        NCCL + "NCCL WARN NET/IB: Got completion from peer 10.0.0.1<1> with status=IBV_WC_RETRY_EXC_ERR(12) "
        "opcode=X(0) vendor_err=129  hca mlx5_0 # transport retry counter exceeded"
    )
    assert only(text)["format"] == "nccl>=2.29"


QUIET = [
    "retry_cnt: 7",
    "NCCL_IB_RETRY_CNT=7",
    "rnr_retry: 7, timeout: 14",
    "UCX_RC_RETRY_COUNT=7",
    "If you see 'transport retry counter exceeded', check the GID index.",
    "INFO: status 12 means transport retry counter exceeded",
    "I0603 20:16:59.104586 27322 docs.cpp:1] known texts: transport retry counter exceeded, remote access error",
    "# transport retry counter exceeded",
    "- `remote access error`: the rkey is stale",
    "| 12 | transport retry counter exceeded |",
    '    [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",',
    "    case IBV_WC_RETRY_EXC_ERR:",
    '        return "remote access error";',
    "if (wc.status == IBV_WC_WR_FLUSH_ERR) {",
    "The transport retry counter exceeded error is common on lossy fabrics.",
    "How to fix transport retry counter exceeded?",
    "IBV_WC_RETRY_EXC_ERR (12) - Transport Retry Counter Exceeded: "
    "the local "
    "transport timeout retry counter was exceeded",
    "HINT: In many cases this error occurs when ACS is enabled",
    "NCCL INFO HINT: In many cases this error occurs when the NCCL_IB_TIMEOUT is set too short.",
    "NCCL WARN NET/IB : mlx5_0:1 Got async event : local access violation work queue error",
    "Got completion from peer 10.0.0.1<1> with status=0 opcode=0 len=8 wr_id=3 r=0x1 type=1",
    "NET/IB: Send: Got completion for a send request (req=0x1, comm=0x2, id=3, devIndex=0, qp_num=291)",
    "FATAL general error in the config parser",
    "ERROR: aborted error recovery",
    "foo.c:1:10: fatal error: x.h: No such file or directory",
    "HTTP status 500 vendor error page",
    "mlx5_cmd_check:795:(pid 24275): ALLOC_UAR(0x802) op_mod(0x0) failed, status limits exceeded(0x8), syndrome "
    "(0x5a7939)",
    "ice 0000:07:00.1 rocep7s0f1: abnormal ae_id = 0x401 bool qp=1 qp_id = 1, ae_src=5",
    "Completion with error at client",
    "Failed status: pending",
    "CQ error, abort requests after transport retry counter exceeded if the controller is reset",
    "mlx5_0/1: QP 137 error: success (0x0 0x0 0x0)",
    "Worker: Process failed for slice (opcode: 1, source_addr: 0x1, local_nic: ub0, peer_nic: a:1@ub1, "
    "dest_seg_tokenid: 3, "
    "retry_cnt: 0): 9, jfc idx : 1",
    "got work completion for request 3 for QP 291 with status success and opcode SEND (byte length: 0)",
    "libfabric:1:2::efa:cq:x():1<warn> err: 12, message: Out of memory (4105)",
    "RDS/IB: connected to 10.0.0.1",
    "exited with status 12",
    "wc -l status.txt",
    '  "status 12 retry exceeded, bnxt vendor_err 0xa",',
    "00000030: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
]


@pytest.mark.parametrize("text", QUIET, ids=[text[:60] for text in QUIET])
def test_lines_that_only_talk_give_no_row(text: str) -> None:
    assert rows(text) == []


def test_a_healthy_nccl_log_gives_no_row() -> None:
    text = [
        "node-a:8637:8637 [0] NCCL INFO Bootstrap : Using eth0:10.20.3.2<0>",
        "node-a:8637:8637 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)",
        "node-a:8637:9195 [0] NCCL INFO NCCL_IB_RETRY_CNT set by environment to 7.",
        "node-a:8637:9195 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.",
        "node-a:8637:9195 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.20.3.2<0>",
        "node-a:8637:9195 [0] NCCL INFO NET/IB: NCCL_IB_RETURN_ASYNC_EVENTS set to 1",
        "node-a:8637:9195 [0] NCCL INFO GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
    ]
    for channel in range(64):
        text += [
            f"node-a:8637:9195 [0] NCCL INFO Channel {channel:02d}/0 : 0[0] -> 8[0] [send] via "
            f"NET/IB/{channel % 8}/GDRDMA",
            f"node-a:8637:9195 [0] NCCL INFO NET/IB: NCCL Dev {channel % 8} IbDev 0 Port 1 qpn {channel} mtu 5 "
            f"GID 3 "
            "(0/10614140AFFFF0000) fifoRkey=0x1 fifoLkey=0x1",
        ]
    text += [
        "node-a:8637:9195 [0] NCCL INFO ncclCommInitRank comm 0x5581 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId "
        "9b000 "
        "commId 0x1 - Init COMPLETE"
    ]
    assert len(text) > 100 and rows("\n".join(text)) == []


def test_a_healthy_ucx_log_gives_no_row() -> None:
    text = [
        "[1642768358.178128] [node2:42970:0]     ucp_context.c:2339 UCX  INFO  Version 1.19.0 (loaded from "
        "/lib/libucp.so.0)",
        "[1642768358.178334] [node2:42970:0]          parser.c:1916 UCX  INFO  UCX_* env variables: "
        "UCX_LOG_LEVEL=debug "
        "UCX_RC_RETRY_COUNT=7 UCX_RC_TIMEOUT=1s",
        "#            self cfg#0  rma_bw(52000 MB/s), error handling: no",
        "[1642768358.178411] [node2:42970:0]      ucp_worker.c:1867 UCX  INFO    ep_cfg[2]: tag(rc_mlx5/mlx5_1:1);",
    ]
    for number in range(120):
        text += [
            f"[1642768358.{number:06d}] [node2:42970:0]          mpool.c:100  UCX  DEBUG mpool ucp_am_bufs: "
            f"align 64, "
            f"maxelems 4294967295, elemsize {number}",
            f"[1642768358.{number:06d}] [node2:42970:0]     ib_device.c:800  UCX  DEBUG device "
            f"'mlx5_{number % 8}' port 1 "
            "link layer Ethernet, ROCE v2, gid index 3, retry 7, completion vector 0",
        ]
    assert len(text) > 100 and rows("\n".join(text)) == []


_PIECES = [part for text, _ in EXAMPLES for part in text.split("\n")] + QUIET


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=200),
            st.sampled_from(_PIECES),
            st.builds(
                lambda part, cut, junk: part[:cut] + junk + part[cut:],
                st.sampled_from(_PIECES),
                st.integers(0, 200),
                st.text(max_size=8),
            ),
        ),
        max_size=12,
    )
)
def test_no_text_makes_the_parser_raise_or_give_two_rows_for_a_line(parts: list[str]) -> None:
    found = list(completions.parse([Line(number, part) for number, part in enumerate(parts, 1)]))
    assert len({row.at for row in found}) == len(found)
    for row in found:
        assert row.values.get("wc_status") is None or 0 < row.values["wc_status"] < 24
        assert row.values["flush"] == int(row.values.get("wc_status") == 5)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 23), st.integers(0, 255), st.integers(-1, 2**31 - 1))
def test_an_nccl_line_gives_back_the_numbers_that_were_printed(status: int, vendor: int, junk: int) -> None:
    found = only(
        f"NCCL WARN NET/IB : Got completion with error {status}, opcode {junk}, len {junk}, vendor err {vendor}"
    )
    assert (found["wc_status"], found["vendor_err"]) == (status, vendor) and "opcode" not in found


def test_long_lines_of_repeated_words_are_read_to_their_end() -> None:
    for filler in (
        "a",
        "(",
        "0",
        " ",
        "wc ",
        "status=",
        "completion ",
        "00000000 ",
        "host:1:2 [",
        "NET/IB: ",
        "mlx5_0:",
    ):
        for cue in (
            "got completion from peer ",
            "synd 0x",
            "vend status",
            "transport retry counter exceeded ",
            "fatal error",
            "vendor code=0x",
        ):
            assert (
                list(completions.parse([Line(1, (filler * 40000)[:40000] + cue + (filler * 40000)[:40000])]))
                is not None
            )
            list(completions.parse([Line(1, cue + (filler * 4000)[:3900])]))
            list(completions.parse([Line(1, (filler * 4000)[:3900] + cue)]))


def test_perftest_says_how_many_requests_went_well_before() -> None:
    failed = "  Failed status 4: wr_id 0 syndrom 0x51"
    assert only(f"Completion with error at client\n{failed}\nscnt=811, ccnt=683")["completed"] == 683
    other_end = f"Completion with error at server\n{failed}\nrcnt=12\n\nscnt=811, ccnt=683"
    assert "completed" not in only(other_end)
    first, second = rows(f"{failed}\n{failed}\nscnt=811, ccnt=683")
    assert "completed" not in first
    assert second["completed"] == 683
