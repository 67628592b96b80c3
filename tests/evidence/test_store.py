"""Rows of one thing are merged, counters get deltas where they mean something, every row knows its origin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.evidence.row import Gap, Row, Rows
from rdmadiag.evidence.store import Evidence, log_columns, table_names, tables


def all_rows(evidence, table):
    cursor = evidence.db.execute(f'SELECT * FROM "{table}"')
    return [dict(zip([c[0] for c in cursor.description], row, strict=True)) for row in cursor]


@pytest.fixture
def evidence():
    return Evidence()


def test_a_known_value_fills_a_null_and_the_first_known_value_stays(evidence):
    evidence.add("n", {"device": "mlx5_0", "fw_ver": None, "hw_ver": "0x0"}, "device", "a")
    evidence.add("n", {"device": "mlx5_0", "fw_ver": "28.1", "hw_ver": "0x1"}, "device", "b")
    (row,) = all_rows(evidence, "device")
    assert (row["fw_ver"], row["hw_ver"], row["origin"]) == ("28.1", "0x0", "a, b")


def test_an_origin_is_named_once_and_a_part_of_a_longer_one_is_another(evidence):
    for origin in ("f:12", "f:1", "f:12"):
        evidence.add("n", {"device": "mlx5_0", "hw_ver": "1"}, "device", origin)
    assert all_rows(evidence, "device")[0]["origin"] == "f:12, f:1"


def test_the_origins_of_a_row_that_thousands_of_lines_fill_stay_short(evidence):
    for number in range(5000):
        evidence.add_item("n", "s", Row("device", {"device": "mlx5_0", "hw_ver": "1"}, number), "file")
    assert len(all_rows(evidence, "device")[0]["origin"]) < 300


def test_nodes_are_apart(evidence):
    evidence.add("a", {"device": "mlx5_0"}, "device", "x")
    evidence.add("b", {"device": "mlx5_0"}, "device", "x")
    evidence.finish()
    assert evidence.nodes() == ["a", "b"] and len(all_rows(evidence, "device")) == 2


def test_a_place_is_a_path_of_the_node_or_file_and_line(evidence):
    evidence.add_item("n", "s", Row("module", {"module": "a"}, "/proc/modules"))
    evidence.add_item("n", "s", Row("module", {"module": "b"}, 7), "lsmod.txt")
    evidence.add_item("n", "s", Row("module", {"module": "c"}, "/proc/modules"), "node.tgz")
    assert [row["origin"] for row in all_rows(evidence, "module")] == [
        "/proc/modules",
        "lsmod.txt:7",
        "node.tgz:/proc/modules",
    ]


def test_many_rows_come_at_once(evidence):
    evidence.add_item(
        "n", "s", Rows("resource", ("device", "name"), ((f"mlx5_{n}", "qp") for n in range(1000)), 1), "qp.json"
    )
    assert evidence.db.execute("SELECT count(*), min(origin), max(node) FROM resource").fetchone() == (
        1000,
        "qp.json:1",
        "n",
    )


def test_a_column_that_does_not_exist_is_refused(evidence):
    with pytest.raises(ValueError, match="no column nosuch"):
        evidence.add("n", {"nosuch": 1}, "device", "x")


def test_a_gap_is_noted_for_each_of_its_tables(evidence):
    evidence.gap(None, "s", Gap(("port", "gid"), "why", "timeout", "how", "mlx5_0"))
    assert [(g["table"], g["kind"], g["subject"], g["node"]) for g in all_rows(evidence, "gap")] == [
        ("port", "timeout", "mlx5_0", None),
        ("gid", "timeout", "mlx5_0", None),
    ]


def counter(value, name="duplicate_request", kind="hw_counters", **more):
    return Row(
        "counter", {"device": "mlx5_0", "port": 1, "kind": kind, "counter": name, "value": value, **more}, "/path"
    )


@pytest.mark.parametrize(
    "first,last,wanted",
    [
        (counter(10), counter(14), ("two samples", 4, 2.0)),
        (counter(10), counter(10), ("two samples", 0, 0.0)),
        (counter(10), counter(3), ("reset", None, None)),
        (None, counter(3), ("one sample", None, None)),
        (counter(10), counter(None), ("unreadable", None, None)),
        (counter(None), counter(3), ("one sample", None, None)),
        (counter(9, "symbol_error", "counters"), counter(65535, "symbol_error", "counters"), ("saturated", None, None)),
        (None, counter(65535, "symbol_error", "counters"), ("saturated", None, None)),
        (counter(9, "symbol_error"), counter(65535, "symbol_error"), ("two samples", 65526, 32763.0)),
        (counter(1, "active_qps"), counter(5, "active_qps"), ("one sample", None, None)),
    ],
)
def test_a_delta_is_given_where_it_means_something(evidence, first, last, wanted):
    if first:
        evidence.sample("n", first, 100.0)
    evidence.add_counter("n", last, 102.0)
    (row,) = all_rows(evidence, "counter")
    assert (row["state"], row["delta"], row["per_second"]) == wanted


def test_two_samples_at_one_moment_are_one(evidence):
    evidence.sample("n", counter(1), 5.0)
    evidence.add_counter("n", counter(2), 5.0)
    assert all_rows(evidence, "counter")[0]["state"] == "one sample"


def test_a_counter_without_a_netdev_is_merged_too(evidence):
    evidence.add_counter("n", counter(5), 1.0)
    evidence.add_item("n", "s", counter(7, state="one sample"), "pasted.txt")
    (row,) = all_rows(evidence, "counter")
    assert row["value"] == 5 and row["origin"] == "/path, pasted.txt:/path"


def test_a_log_line_learns_device_from_pci_address_and_back(evidence):
    evidence.add("n", {"device": "mlx5_3", "bdf": "0000:18:00.0"}, "device", "x")
    evidence.add("n", {"device": "mlx5_3", "port": 1, "netdev": "eth3"}, "port", "x")
    for values in ({"bdf": "0000:18:00.0"}, {"device": "mlx5_3"}, {"netdev": "eth3"}, {"bdf": "0000:99:00.0"}):
        evidence.add("n", {"log": "kernel", **values}, "log", "x")
    evidence.finish()
    assert [(r["device"], r["bdf"], r["netdev"]) for r in all_rows(evidence, "log")] == [
        ("mlx5_3", "0000:18:00.0", "eth3"),
        ("mlx5_3", "0000:18:00.0", "eth3"),
        ("mlx5_3", None, "eth3"),
        (None, "0000:99:00.0", None),
    ]


def test_the_first_error_of_a_program_is_the_first_that_is_no_flush(evidence):
    for flush in (1, 0, 0):
        evidence.add("n", {"program": "ucx", "flush": flush}, "completion", "x")
    evidence.finish()
    assert [row["first"] for row in all_rows(evidence, "completion")] == [0, 1, 0]


def test_every_column_is_documented():
    found = tables()
    assert set(table_names()) <= set(found)
    for table in found.values():
        assert table.meaning and table.columns
        assert all(column.meaning for column in table.columns), table.name
    assert {"kernel_event", "app_event", "signal"} <= set(found)
    assert {column.name for column in found["log"].columns} == log_columns()


def test_half_a_surrogate_pair_is_shown_as_none(evidence):
    evidence.add("n", {"module": "a\ud800b"}, "module", "x")
    assert all_rows(evidence, "module")[0]["module"] == "a?b"


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["RTS", "ERR"]), st.none() | st.integers(0, 9))
        ),
        max_size=3,
    )
)
def test_queue_pairs_are_counted_by_owner_over_all_that_lists_them(listings):
    evidence = Evidence(keep_qps=False)
    columns = ("device", "port", "type", "state", "pid", "comm", "qpn")
    for n, listing in enumerate(listings):
        rows = [(f"{device}{n}", n, "RC", state, 7, "x", qpn) for device, state, qpn in listing]
        evidence.add_item("n", "resources", Rows("qp", columns, rows, 1), f"file{n}")
        for row in rows[:1]:
            evidence.add("n", dict(zip(columns, row, strict=True)), "qp", f"file{n}:9")
    evidence.finish()
    wanted = {}
    for n, listing in enumerate(listings):
        for device, state, qpn in [*listing, *listing[:1]]:
            wanted.setdefault((f"{device}{n}", n, state), []).append(qpn)
    found = {row[:3]: row[3:] for row in evidence.db.execute("SELECT device, port, state, * FROM qp_group")}
    names = [column[1] for column in evidence.db.execute("PRAGMA table_info(qp_group)")]
    for key, qpns in wanted.items():
        row = dict(zip(names, found.pop(key), strict=True))
        known = [qpn for qpn in qpns if qpn is not None]
        assert row["qps"] == len(qpns)
        assert (row["first_qpn"], row["last_qpn"]) == (min(known, default=None), max(known, default=None))
    assert not found
