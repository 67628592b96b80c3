"""Resources, in the shape of iproute2 6.15 (rdma/res*.c) and of older releases where they differ."""

from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, gaps, lines, rows

from rdmadiag.errors import HostRefused
from rdmadiag.evidence.row import Json
from rdmadiag.sources import resources
from rdmadiag.sources.resources import TEXTS, parse_text, read, summary_rows

QP = {
    "ifindex": 0,
    "ifname": "mlx5_0",
    "port": 1,
    "lqpn": 1090,
    "rqpn": 2201,
    "type": "RC",
    "state": "RTS",
    "rq-psn": 11,
    "sq-psn": 12,
    "path-mig-state": "MIGRATED",
    "pdn": 5,
    "pid": 4242,
    "comm": "python3",
}
GSI = {
    "ifindex": 0,
    "ifname": "mlx5_0",
    "port": 1,
    "lqpn": 1,
    "type": "GSI",
    "state": "RTS",
    "sq-psn": 0,
    "comm": "ib_core",
}
MR = {
    "ifindex": 0,
    "ifname": "mlx5_0",
    "mrn": 4,
    "rkey": "1f00",
    "mrlen": 65536,
    "pdn": 5,
    "pid": 4242,
    "comm": "python3",
}
CQ = {"ifindex": 0, "ifname": "mlx5_0", "cqn": 2, "cqe": 511, "users": 2, "poll-ctx": "SOFTIRQ", "comm": "ib_core"}
TEXT = """\
0: mlx5_0: pd 3 cq 5 qp 4 cm_id 0 mr 2 ctx 1 srq 0
link mlx5_0/1 lqpn 1 type GSI state RTS sq-psn 0 comm [ib_core]
link mlx5_0/1 lqpn 1090 rqpn 2201 type RC state RTS rq-psn 11 sq-psn 12 path-mig-state MIGRATED pdn 5 pid 42 comm my app
    drv_sq_wqe_cnt 64
link mlx5_1/- lqpn 9 type UD state RESET sq-psn 0 pid 7 comm a
dev mlx5_0 mrn 4 rkey 0x1f00 lkey 0x1f00 iova 0x7f0000 mrlen 65536 pdn 5 pid 4242 comm python3
dev mlx5_0 cqn 2 cqe 511 users 2 poll-ctx SOFTIRQ adaptive-moderation on comm [ib_core]
link mlx5_0/1 cm-idn 0 lqpn 35 qp-type RC state CONNECT ps TCP pid 5 comm rping src-addr 10.0.0.1:7174
"""


def block_rows(found):
    return [
        {name: value for name, value in zip(block.columns, values, strict=True) if value is not None}
        for block in found
        if type(block).__name__ == "Rows"
        for values in block.tuples
    ]


def parse_json(objects):
    """Parse as the first JSON form that knows one of the objects."""
    for text in TEXTS:
        if isinstance(text, Json) and any(set(form) <= entry.keys() for form in text.keys for entry in objects):
            return text.tool, list(text.parse(objects))
    raise AssertionError("not known")


def test_queue_pairs_keep_their_owner():
    tool, found = parse_json([GSI, QP])
    assert tool == "rdma res show qp"
    assert block_rows(found) == [
        {"device": "mlx5_0", "port": 1, "qpn": 1, "type": "GSI", "state": "RTS", "sq_psn": 0, "comm": "[ib_core]"},
        {
            "device": "mlx5_0",
            "port": 1,
            "qpn": 1090,
            "rqpn": 2201,
            "type": "RC",
            "state": "RTS",
            "rq_psn": 11,
            "sq_psn": 12,
            "path_mig_state": "MIGRATED",
            "pdn": 5,
            "pid": 4242,
            "comm": "python3",
        },
    ]


def test_memory_regions_and_completion_queues_are_read():
    assert parse_json([MR])[0] == "rdma res show mr"
    assert block_rows(parse_json([MR])[1]) == [
        {"device": "mlx5_0", "mrn": 4, "rkey": "1f00", "mrlen_bytes": 65536, "pdn": 5, "pid": 4242, "comm": "python3"}
    ]
    assert block_rows(parse_json([CQ])[1]) == [
        {"device": "mlx5_0", "cqn": 2, "cqe": 511, "users": 2, "poll_ctx": "SOFTIRQ", "comm": "[ib_core]"}
    ]
    assert block_rows(parse_json([{**MR, "rkey": "0x1f00"}])[1])[0]["rkey"] == "1f00"


def test_connections_and_protection_domains_are_counted():
    cm_id = {"ifname": "mlx5_0", "port": 1, "cm-idn": 0, "lqpn": 35, "qp-type": "RC", "state": "CONNECT", "ps": "TCP"}
    tool, found = parse_json([cm_id, cm_id])
    assert (tool, rows(found, "resource")) == (
        "rdma res show cm_id",
        [{"device": "mlx5_0", "name": "cm_id", "current": 2}],
    )
    tool, found = parse_json([{"ifname": "mlx5_0", "pdn": 1, "local_dma_lkey": "0", "users": 4, "comm": "ib_core"}])
    assert (tool, rows(found, "resource")) == ("rdma res show pd", [{"device": "mlx5_0", "name": "pd", "current": 1}])


def test_the_summary_is_one_row_a_kind():
    tool, found = parse_json(
        [{"ifindex": 0, "ifname": "mlx5_0", "pd": 3, "cq": 5, "qp": 4, "cm_id": 0, "mr": 2, "ctx": 1}]
    )
    assert tool == "rdma res show"
    assert {row["name"]: row["current"] for row in rows(found, "resource")} == {
        "pd": 3, "cq": 5, "qp": 4, "cm_id": 0, "mr": 2, "ctx": 1,
    }  # fmt: skip


def test_text_is_read_like_json():
    found = list(parse_text(lines(TEXT)))
    assert rows(found, "qp") == [
        {"device": "mlx5_0", "port": 1, "qpn": 1, "type": "GSI", "state": "RTS", "sq_psn": 0, "comm": "[ib_core]"},
        {**block_rows(parse_json([QP])[1])[0], "pid": 42, "comm": "my app"},
        {"device": "mlx5_1", "qpn": 9, "type": "UD", "state": "RESET", "sq_psn": 0, "pid": 7, "comm": "a"},
    ]
    assert rows(found, "mr") == [{**block_rows(parse_json([MR])[1])[0], "lkey": "1f00", "iova": "7f0000"}]
    assert rows(found, "cq") == block_rows(parse_json([CQ])[1])
    assert {row["name"]: row["current"] for row in rows(found, "resource")}["mr"] == 2


def test_texts_of_old_releases_are_read():
    text = """\
link mlx5_0/lqpn 1 type GSI state RTS sq-psn 0 comm ib_core
ifindex 0 ifname rocep0s9 cqn 0 cqe 1023 users 2
1: mlx5_1: qp 4 cq 5 mr 0 pd 3
"""
    found = list(parse_text(lines(text)))
    assert rows(found, "qp")[0]["qpn"] == 1
    assert rows(found, "cq") == [{"device": "rocep0s9", "cqn": 0, "cqe": 1023, "users": 2}]
    assert len(rows(found, "resource")) == 4


def test_a_live_node_is_read_by_netlink():
    tables = {"rdma res show": [{"ifname": "mlx5_0", "qp": 4}], "rdma res show qp": [QP], "rdma res show mr": [MR]}
    found = list(read(LiveTree(tables=tables)))
    assert rows(found, "resource") == [{"device": "mlx5_0", "name": "qp", "current": 4}]
    assert [block.table for block in found if type(block).__name__ == "Rows"] == ["qp", "mr"]
    assert gaps(found) == []


def test_a_refused_kind_is_a_gap_and_the_others_are_read():
    class Refusing(LiveTree):
        def objects(self, command):
            if command == "rdma res show qp":
                raise HostRefused(command, "not permitted (EPERM)", "run as root")
            return super().objects(command)

    found = list(read(Refusing(tables={"rdma res show cq": [CQ]})))
    (gap,) = gaps(found)
    assert (gap.tables, gap.how) == (("qp",), "run as root")
    assert len(block_rows(found)) == 1


def test_a_hundred_thousand_queue_pairs_are_one_block_of_rows():
    objects = [{**QP, "lqpn": number} for number in range(100_000)]
    block = resources.rows("qp", objects)
    assert block.tuples[-1][2] == 99_999


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=3
)
KEYS = st.sampled_from(
    sorted({*QP, *MR, *CQ, "lkey", "iova", "pd", "cq", "qp", "mr", "ps", "cm-idn", "local_dma_lkey"})
)


@given(st.lists(st.dictionaries(KEYS, VALUE), min_size=1))
def test_any_objects_become_values_of_the_right_kind(objects):
    for text in TEXTS:
        if isinstance(text, Json):
            for found in text.parse(objects):
                if type(found).__name__ == "Rows":
                    for values in found.tuples:
                        for (_, _, kind), value in zip(resources._COLUMNS[found.table], values, strict=True):
                            wanted = int if kind == "number" else str
                            assert value is None or (type(value) is wanted and (wanted is str or abs(value) < 2**63))
    list(summary_rows(objects))


@given(st.lists(st.sampled_from([*TEXT.split(), "\n", "link ", "dev "]) | st.text(max_size=4)).map(" ".join))
def test_text_never_raises(text):
    list(parse_text(lines(text)))


@given(st.integers(0, len(TEXT)))
def test_cut_text_never_raises(place):
    list(parse_text(lines(TEXT[:place])))


def test_connections_domains_contexts_and_bound_counters_come_by_netlink():
    tables = {
        "rdma res show cm_id": [
            {"ifname": "mlx5_0", "port": 1, "cm-idn": 3, "lqpn": 17, "qp-type": "RC", "state": "CONNECT", "ps": "TCP",
             "src-addr": "10.0.0.1:4791", "dst-addr": "10.0.0.2:4791", "pid": 9, "comm": "kv"},
            {"ifname": "mlx5_0", "state": "LISTEN", "ps": "TCP", "comm": "nvmet_rdma"},
        ],
        "rdma res show pd": [{"ifname": "mlx5_0", "pdn": 5, "users": 2, "ctxn": 1, "pid": 9, "comm": "kv"}],
        "rdma res show ctx": [{"ifname": "mlx5_0", "ctxn": 1, "pid": 9, "comm": "kv"}],
        "rdma statistic qp show": [
            {"ifname": "mlx5_0", "port": 1, "cntn": 4, "qp-type": "RC", "pid": 9, "comm": "kv", "lqpn": [17, 18], "out_of_sequence": 6}
        ],
        "rdma system show": [{"netns": "exclusive", "copy-on-fork": True}],
    }  # fmt: skip
    found = list(read(LiveTree("", tables=tables)))
    blocks = {
        item.table: [dict(zip(item.columns, row, strict=True)) for row in item.tuples]
        for item in found
        if hasattr(item, "tuples")
    }
    assert blocks["cm_id"][0]["dst"] == "10.0.0.2:4791"
    assert blocks["cm_id"][1]["comm"] == "[nvmet_rdma]", "a kernel owner is in brackets"
    assert blocks["pd"][0]["users"] == 2
    assert blocks["context"] == [{"device": "mlx5_0", "ctxn": 1, "pid": 9, "comm": "kv"}]
    assert rows(found, "qp_counter") == [
        {"device": "mlx5_0", "port": 1, "cntn": 4, "qp_type": "RC", "qpns": "17,18", "pid": 9, "comm": "kv",
         "counter": "out_of_sequence", "value": 6}
    ]  # fmt: skip
    assert rows(found, "node") == [{"rdma_netns": "exclusive"}]
