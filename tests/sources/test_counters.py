"""Counters, in the shape of Linux 6.12, iproute2 5.1 and 6.15, infiniband-diags (libibmad/fields.c), ethtool 6.1."""

from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, gaps, lines, rows

from rdmadiag.errors import HostRefused
from rdmadiag.sources.counters import (
    TEXTS,
    parse_ethtool,
    parse_files,
    parse_perfquery,
    parse_statistic,
    parse_statistic_objects,
    read,
)

TREE = """\
/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:2
/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data:230594473983377
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/lifespan:10
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer:135
/sys/class/infiniband/rdmap0/hw_counters/submitted_cmds:9
/sys/class/infiniband/rdmap0/ports/1/hw_counters/rx_drops:1
"""
ONE_LINE = (
    "link mlx5_0/1 rx_write_requests 0 rx_read_requests 3 out_of_buffer 135 duplicate_request 0 rnr_nak_retry_err 7 \n"
)
MANY_LINES = """\
link mlx5_0/1
    rx_write_requests 0
    rx_read_requests 3
    out_of_buffer 135
link mlx5_1/1 cntn 4 qp-type RC pid 20 comm ib_write_bw
    rx_write_requests 99
    LQPN: <178>
link rocep0s9/1
    sent_pkts 12
"""
PERFQUERY = """\
$ perfquery -x -C mlx5_0
# Port extended counters: Lid 274 port 1 (CapMask: 0x5300 CapMask2: 0x0000002)
PortSelect:......................1
CounterSelect:...................0x0000
PortXmitData:....................4372366170488
PortUnicastXmitPkts:.............5
SymbolErrorCounter:..............0
LinkDownedCounter:...............255
"""
ETHTOOL = """\
$ ethtool -S enp26s0np0
NIC statistics:
     rx_packets: 1250
     rx_prio3_pause: 17
     [0]: rx_ucast_packets: 4
     tx0_packets: 12
$ date
"""


def seen(found):
    return [(row["device"], row["port"], row["counter"], row["value"]) for row in rows(found, "counter")]


def test_counters_of_ports_and_of_devices_are_read():
    assert seen(read(LiveTree(TREE))) == [
        ("mlx5_0", 1, "out_of_buffer", 135),
        ("mlx5_0", 1, "link_downed", 2),
        ("mlx5_0", 1, "port_xmit_data", 230594473983377),
        ("rdmap0", None, "submitted_cmds", 9),
        ("rdmap0", 1, "rx_drops", 1),
    ]


def test_a_counter_that_the_port_does_not_have_is_unreadable():
    (row,) = rows(read(LiveTree("/sys/class/infiniband/siw0/ports/1/counters/link_downed:N/A (no PMA)\n")), "counter")
    assert (row["value"], row["state"]) == (None, "unreadable")


class Counting(LiveTree):
    """A node that refuses the files of counters/, and notes what was read."""

    def __init__(self, reason):
        super().__init__(TREE)
        self.reason, self.asked = reason, []

    def read(self, path):
        self.asked.append(path)
        if "/counters/" in path:
            raise HostRefused(path, self.reason)
        return super().read(path)


def test_a_restricted_function_is_left_at_its_first_refusal_and_others_are_read():
    host = Counting("Invalid argument (EINVAL)")
    found = list(read(host))
    (gap,) = gaps(found)
    assert (gap.tables, gap.kind, gap.subject) == (("counter",), "restricted", "mlx5_0")
    assert sum("/counters/" in path for path in host.asked) == 1
    assert ("rdmap0", 1, "rx_drops", 1) in seen(found)


def test_a_skipped_device_is_not_touched():
    host = Counting("Invalid argument (EINVAL)")
    assert gaps(read(host, frozenset({"mlx5_0"}))) == []
    assert not any("mlx5_0" in path for path in host.asked)


def test_a_denied_file_is_no_restricted_function():
    (gap,) = gaps(read(Counting("not permitted (EACCES)")))
    assert gap.kind == "unreadable"


def test_statistic_on_one_line_is_read():
    assert seen(parse_statistic(lines(ONE_LINE)))[-1] == ("mlx5_0", 1, "rnr_nak_retry_err", 7)
    assert len(seen(parse_statistic(lines(ONE_LINE)))) == 5


def test_statistic_of_ports_is_read_and_that_of_single_qps_is_passed_over():
    found = list(parse_statistic(lines(MANY_LINES)))
    assert seen(found) == [
        ("mlx5_0", 1, "rx_write_requests", 0),
        ("mlx5_0", 1, "rx_read_requests", 3),
        ("mlx5_0", 1, "out_of_buffer", 135),
        ("rocep0s9", 1, "sent_pkts", 12),
    ]
    assert {row["state"] for row in rows(found, "counter")} == {"one sample"}
    assert [row.at for row in found] == [2, 3, 4, 9]


def test_statistic_takes_no_queue_pair_for_counters():
    text = "link mlx5_0/1 lqpn 7 rqpn 8 type RC state RTS rq-psn 1 sq-psn 2 pdn 3 pid 4 comm python3"
    assert list(parse_statistic(lines(text))) == []


def test_statistic_objects_are_read():
    objects = [
        {"ifname": "mlx5_0", "port": 1, "rx_write_requests": 5, "out_of_buffer": 2**64 - 1},
        {"ifname": "mlx5_0", "port": 1, "cntn": 4, "lqpn": [178], "rx_write_requests": 9},
    ]
    assert seen(parse_statistic_objects(objects)) == [
        ("mlx5_0", 1, "rx_write_requests", 5),
        ("mlx5_0", 1, "out_of_buffer", 2**63 - 1),
    ]


def test_dumped_files_are_read_with_whole_and_with_short_paths():
    text = """\
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer:135
/sys/devices/pci0000:00/0000:1a:00.0/infiniband/mlx5_3/ports/2/counters/link_downed:1
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/lifespan:10
/sys/class/infiniband/rdmap0/hw_counters/submitted_cmds:9
mlx5_1/ports/1/counters/symbol_error:N/A (no PMA)
grep: /sys/class/infiniband/mlx5_4/ports/1/counters/link_downed: Invalid argument
"""
    assert seen(parse_files(lines(text))) == [
        ("mlx5_0", 1, "out_of_buffer", 135),
        ("mlx5_3", 2, "link_downed", 1),
        ("rdmap0", None, "submitted_cmds", 9),
        ("mlx5_1", 1, "symbol_error", None),
        ("mlx5_4", 1, "link_downed", None),
    ]


def test_a_dump_below_the_port_takes_the_device_from_the_command():
    text = "$ cd /sys/class/infiniband/mlx5_2/ports/1 && grep -r . hw_counters\nhw_counters/out_of_sequence:8\n"
    assert seen(parse_files(lines(text))) == [("mlx5_2", 1, "out_of_sequence", 8)]
    text = "$ cd /sys/class/infiniband/mlx5_2/ports\n./2/counters/link_downed:1\n"
    assert seen(parse_files(lines(text))) == [("mlx5_2", 2, "link_downed", 1)]


def test_show_counters_is_read_without_the_counters_of_the_connection_manager():
    text = "$ show_counters mlx5_0\nPort 1 hw counters:\nout_of_buffer: 4\nlifespan: 10\nPort 1 cm counters:\nreq: 7\n"
    assert seen(parse_files(lines(text))) == [("mlx5_0", 1, "out_of_buffer", 4)]


def test_perfquery_is_read_in_the_kernels_spelling():
    assert seen(parse_perfquery(lines(PERFQUERY))) == [
        ("mlx5_0", 1, "port_xmit_data", 4372366170488),
        ("mlx5_0", 1, "unicast_xmit_packets", 5),
        ("mlx5_0", 1, "symbol_error", 0),
        ("mlx5_0", 1, "link_downed", 255),
    ]


def test_perfquery_of_another_port_names_no_device():
    found = seen(parse_perfquery(lines(PERFQUERY.replace("-C mlx5_0", "-C mlx5_0 274 1"))))
    assert found[0][:2] == (None, 1)


def test_ethtool_counters_belong_to_the_netdev_of_the_prompt():
    found = rows(parse_ethtool(lines(ETHTOOL)), "counter")
    assert [(row["netdev"], row["kind"], row["counter"], row["value"]) for row in found] == [
        ("enp26s0np0", "ethtool", "rx_packets", 1250),
        ("enp26s0np0", "ethtool", "rx_prio3_pause", 17),
        ("enp26s0np0", "ethtool", "[0]: rx_ucast_packets", 4),
        ("enp26s0np0", "ethtool", "tx0_packets", 12),
    ]


def test_an_excerpt_of_ethtool_without_its_head_is_read():
    (row,) = rows(parse_ethtool(lines("     rx_prio3_pause: 17\nlid: 5\n")), "counter")
    assert (row["netdev"], row["counter"], row["value"]) == (None, "rx_prio3_pause", 17)


PARSERS = (parse_statistic, parse_files, parse_perfquery, parse_ethtool)
WORDS = st.sampled_from(
    [
        *(
            "link mlx5_0/1",
            " ",
            "\n",
            "\t",
            ":",
            "/",
            "./",
            "1/",
            "hw_counters/",
            "counters/a",
            "ports/1/",
            "infiniband/",
        ),
        *(
            "NIC statistics:",
            "9" * 30,
            "rx_a 5",
            "PortXmitData:....5",
            "Port 1 hw counters:",
            "cntn 4",
            "# Port counters: port 1",
        ),
    ]
)


@given(st.lists(WORDS | st.text(max_size=5)).map("".join))
def test_parsers_never_raise(text):
    for parse in PARSERS:
        for row in parse(lines(text)):
            assert row.values["value"] is None or isinstance(row.values["value"], int)


@given(st.integers(0, 2000))
def test_cut_texts_never_raise(place):
    whole = MANY_LINES + ONE_LINE + PERFQUERY + ETHTOOL + TREE
    for parse in PARSERS:
        list(parse(lines(whole[:place])))


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=4)


@given(st.lists(st.dictionaries(st.sampled_from(["ifname", "port", "tx_bytes", "lqpn", "cntn"]), JSON)))
def test_any_objects_are_read(objects):
    for row in parse_statistic_objects(objects):
        assert isinstance(row.values["device"], str)


def test_tools_are_named_once():
    assert len({(text.tool, type(text)) for text in TEXTS}) == len(TEXTS)


NETS = """\
/sys/class/infiniband/mlx5_0/device/net/eth1/mtu:4200
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer:3
/sys/class/net/eth1/device/numa_node:0
/sys/class/net/eth1/carrier_changes:7
/sys/class/net/veth9/carrier_changes:2
"""
ASKED = {
    "ethtool -S eth1": [{"ifname": "eth1", "rx_prio3_pause": 12}],
    "ethtool -a": [
        {"ifname": "eth1", "statistics": {"rx_pause_frames": 4}},
        {"ifname": "veth9", "statistics": {"rx_pause_frames": 9}},
    ],
    "ethtool --show-fec": [
        {
            "ifname": "eth1",
            "statistics": {
                "uncorrectable_blocks": {"total": 2, "lanes": [2, 0]},
                "hist": [{"bin_low": 0, "bin_high": 0, "total": 8}, {"bin_low": 5, "bin_high": 9, "total": 1}],
            },
        }
    ],
    "rdma statistic show link": [{"ifname": "mlx5_0", "port": 1, "out_of_buffer": 3, "cc_rx_cnp_pkts": 44}],
}


def test_netdevs_of_adapters_have_counters_of_four_kinds():
    found = rows(read(LiveTree(NETS, tables=ASKED)), "counter")
    assert {(row["kind"], row["counter"]): row["value"] for row in found if row.get("netdev")} == {
        ("netdev", "carrier_changes"): 7,
        ("ethtool", "rx_prio3_pause"): 12,
        ("pause", "rx_pause_frames"): 4,
        ("fec", "uncorrectable_blocks"): 2,
        ("fec", "fec_bit_err_0"): 8,
        ("fec", "fec_bit_err_5_to_9"): 1,
    }


def test_optional_counters_come_by_netlink_and_only_what_sysfs_lacks():
    found = [row for row in rows(read(LiveTree(NETS, tables=ASKED)), "counter") if row.get("device")]
    assert [(row["counter"], row["value"]) for row in found] == [("out_of_buffer", 3), ("cc_rx_cnp_pkts", 44)]


def test_the_netdev_of_an_adapter_that_is_set_aside_is_not_asked():
    found = rows(
        read(LiveTree(NETS, tables={**ASKED, "ethtool -a": [], "ethtool --show-fec": []}), frozenset({"mlx5_0"})),
        "counter",
    )
    assert found == []


def test_counters_of_a_netdev_are_of_its_rdma_device():
    from rdmadiag.evidence.store import Evidence

    evidence = Evidence()
    evidence.add("n", {"device": "mlx5_0", "driver": "mlx5"}, "device", "x")
    evidence.add("n", {"device": "mlx5_0", "port": 1, "netdev": "eth1"}, "port", "x")
    for row in read(LiveTree(NETS, tables=ASKED)):
        evidence.sample("n", row, 0.0)
        grown = row._replace(values={**row.values, "value": row.values["value"] + 5})
        evidence.add_counter("n", grown, 10.0)
    evidence.finish()
    found = evidence.db.execute(
        "SELECT device, port, netdev, name, delta FROM signal WHERE netdev = 'eth1' AND device IS NOT NULL"
    ).fetchall()
    assert ("mlx5_0", 1, "eth1", "fec_uncorrected_errors", 5) in found
    assert ("mlx5_0", 1, "eth1", "carrier_changes", 5) in found
    assert ("mlx5_0", 1, "eth1", "pause_received", 5) in found
