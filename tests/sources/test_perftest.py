"""Results of perftest, pingpong, ibping, nccl-tests, fio and fi_info."""

import pytest
from live_tree import lines, rows

from rdmadiag.sources import fio, libfabric, nccl_tests, perftest

# linux-rdma/perftest#240 (head), #234 (iterations of a run with -D, whose average is made to fit), a published run on HDR (last row)
WRITE = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 2\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : ON
 CQ Moderation   : 1
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 3
 rdma_cm QPs\t : OFF
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x2da6 PSN 0x38f9aa RKey 0x201200 VAddr 0x007f67c0644240
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:72
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 3393.665000 != 1500.000000. CPU Frequency is not max.
 65536      664644           0.00               4153.90\t\t   0.066462
 8388608    5000             23326.82            23317.65\t\t   0.002915
---------------------------------------------------------------------------------------
"""

LATENCY = """\
                    RDMA_Write Latency Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Link type       : IB
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 2       1000          1.79           5.41         1.87     \t       1.88        \t0.18   \t\t2.03    \t5.41
"""

# NVIDIA/nccl-tests#232 and #294
NCCL = """\
# nThread 1 nGpus 1 minBytes 2097152 maxBytes 17179869184 step: 2(factor) warmup iters: 10 iters: 10 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid 895544 on     node-a device  0 [0x19] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 739786 on     node-b device  0 [0x19] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     2097152        524288     float     sum      -1    113.2   18.53   18.53      0    93.35   22.46   22.46      0
    33554432       8388608     float     sum      -1    812.3   41.31   41.31      0    808.2   41.52   41.52      2
# Out of bounds values : 2 FAILED
# Avg bus bandwidth    : 31.9
"""

# NVIDIA/nccl#527: old releases print an error in the last column
NCCL_OLD = """\
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
      131072         32768     float     sum    406.8    0.32    0.62  7e-07    468.9    0.28    0.54  7e-07
"""

# s3fs-fuse/s3fs-fuse#2079
FIO = """\
randread-dep1: (g=0): rw=randread, bs=(R) 2048KiB-2048KiB, (W) 2048KiB-2048KiB, (T) 2048KiB-2048KiB, ioengine=libaio, iodepth=1
...
fio-3.1
Starting 16 threads
Jobs: 16 (f=16): [r(16)][100.0%][r=6138MiB/s,w=0KiB/s][r=3069,w=0 IOPS][eta 00m:00s]
randread-dep1: (groupid=0, jobs=16): err= 0: pid=12123: Tue Dec 20 08:33:20 2022
   read: IOPS=3068, BW=6137MiB/s (6435MB/s)(1798GiB/300005msec)
    slat (usec): min=74, max=12609, avg=203.88, stdev=51.32
    clat (usec): min=566, max=12230, avg=5004.69, stdev=897.46
    clat percentiles (usec):
     |  1.00th=[ 3032],  5.00th=[ 3523], 10.00th=[ 3851], 20.00th=[ 4228],
     | 99.00th=[ 7242], 99.50th=[ 7635], 99.90th=[ 8455], 99.95th=[ 8848],
"""

FI_INFO = """\
provider: verbs;ofi_rxm
    fabric: IB-0xfe80000000000000
    domain: mlx5_0
    version: 113.20
    type: FI_EP_RDM
    protocol: FI_PROTO_RXM
provider: tcp;ofi_rxm
    fabric: 10.20.0.0/24
    domain: ens3
    version: 113.20
    type: FI_EP_RDM
    protocol: FI_PROTO_RXM
"""


def test_a_bandwidth_test_has_its_head_and_a_row_a_size():
    first, last = rows(perftest.parse(lines(WRITE)), "benchmark")
    assert "peak_gbps" not in first, "with -D no peak is measured"
    assert last == {
        "program": "perftest",
        "test": "RDMA_Write BW",
        "bidirectional": 0,
        "device": "mlx5_0",
        "qps": 2,
        "link_layer": "Ethernet",
        "gid_index": 3,
        "mtu": 4096,
        "size_bytes": 8388608,
        "iterations": 5000,
        "peak_gbps": pytest.approx(195.679, abs=0.01),
        "bandwidth_gbps": pytest.approx(195.603, abs=0.01),
    }


def test_gigabits_are_taken_as_they_are_and_both_directions_are_said():
    text = WRITE.replace("BW Test", "Bidirectional BW Test").replace("MB/sec", "Gb/sec")
    last = rows(perftest.parse(lines(text)), "benchmark")[-1]
    assert (last["bandwidth_gbps"], last["bidirectional"]) == (23317.65, 1)


def test_a_latency_test_has_typical_and_tail():
    (row,) = rows(perftest.parse(lines(LATENCY)), "benchmark")
    assert (row["latency_us"], row["latency_max_us"], row["latency_p99_us"]) == (1.87, 5.41, 2.03)
    assert row["link_layer"] == "InfiniBand"


def test_json_of_perftest_names_its_unit():
    entry = {
        "test_info": {"test": "RDMA_Write_BW", "Device": "mlx5_3", "Number_of_qps": 2},
        "results": {"MsgSize": 65536, "BW_average": 376.4},
    }
    (row,) = rows(perftest.parse_json([entry]), "benchmark")
    assert (row["bandwidth_gbps"], row["qps"], row["size_bytes"]) == (376.4, 2, 65536)


def test_a_pingpong_has_size_and_latency_of_one_way():
    text = "8192000 bytes in 0.01 seconds = 9250.49 Mbit/sec\n1000 iters in 0.01 seconds = 7.08 usec/iter\n"
    (row,) = rows(perftest.parse_pingpong(lines(text)), "benchmark")
    assert (row["size_bytes"], row["latency_us"], row["bandwidth_gbps"]) == (4096, 3.54, pytest.approx(9.25049))


def test_ibping_counts_what_came_back():
    text = "--- node-b.(none) (Lid 5) ibping statistics ---\n10 packets transmitted, 0 received, 100% packet loss, time 10000 ms\n"
    (row,) = rows(perftest.parse_ibping(lines(text)), "benchmark")
    assert (row["sent"], row["received"]) == (10, 0)


def test_rping_counts_its_pings():
    # forms of rdma-core's rping -v
    text = "server ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr\nserver ping data: rdma-ping-1: BCDE\n"
    (row,) = rows(perftest.parse_rping(lines(text)), "benchmark")
    assert row == {"program": "rping", "test": "rping", "received": 2}


def test_a_collective_has_bus_bandwidth_hosts_and_wrong_elements():
    first, last = rows(nccl_tests.parse(lines(NCCL)), "benchmark")
    assert (last["bandwidth_gbps"], last["hosts"], last["ranks"], last["errors"]) == (pytest.approx(332.16), 2, 2, 2)
    assert first["errors"] == 0


def test_the_error_of_old_releases_is_no_count_of_wrong_elements():
    (row,) = rows(nccl_tests.parse(lines(NCCL_OLD)), "benchmark")
    assert "errors" not in row and row["bandwidth_gbps"] == pytest.approx(4.96)


def test_fio_has_bandwidth_block_size_and_tail():
    (row,) = rows(fio.parse(lines(FIO)), "benchmark")
    assert row["test"] == "read" and row["size_bytes"] == 2048 << 10 and row["errors"] == 0
    assert row["bandwidth_gbps"] == pytest.approx(6137 * 1048576 * 8 / 1e9) and row["latency_p99_us"] == 7242


def test_json_of_fio_has_the_same():
    entry = {
        "fio version": "fio-3.35",
        "jobs": [
            {
                "jobname": "r",
                "error": 0,
                "job options": {"bs": "1M"},
                "read": {"bw_bytes": 10**9},
                "write": {"bw_bytes": 0},
            }
        ],
    }
    assert rows(fio.parse_json([entry]), "benchmark") == [
        {"program": "fio", "test": "read", "size_bytes": 1 << 20, "bandwidth_gbps": 8.0, "errors": 0}
    ]


def test_fi_info_lists_providers_with_their_devices():
    found = rows(libfabric.parse(lines(FI_INFO)), "fabric_provider")
    assert [(row["provider"], row["domain"]) for row in found] == [("verbs;ofi_rxm", "mlx5_0"), ("tcp;ofi_rxm", "ens3")]
