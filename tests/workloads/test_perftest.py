"""perftest's reader on what perftest printed in a lab (tests/data/workloads) and elsewhere (tests/data/faults)."""

from __future__ import annotations

from rdmadiag.workloads import Setting, load
from rdmadiag.workloads._contract import checked
from rdmadiag.workloads.perftest import Reader
from tests.workloads import DATA, HOSTS, notes


def test_a_server_is_ready_when_it_waits() -> None:
    found = notes(Reader(server=True), (DATA / "ib_write_bw.server.txt").read_text())
    assert [note.kind for note in found][:1] == ["ready"]


def test_a_client_claims_bytes_row_by_row() -> None:
    found = notes(Reader(server=False), (DATA / "ib_write_bw.client.txt").read_text())
    assert found[0].kind == "ready" and found[0].values["carrier"] == "rdma"
    claims = [note.values["bytes"] for note in found if note.kind == "progress"]
    assert [size // 65536 for size in claims] == [298, 397, 728, 919, 1025]
    rates = [note.values["value"] for note in found if note.values.get("name") == "bandwidth_gbps"]
    assert len(rates) == 5 and 0.06 < rates[0] < 0.07
    assert not [note for note in found if note.kind == "error"]


def test_a_read_claims_all_its_bytes_at_the_end() -> None:
    found = notes(Reader(server=False), (DATA / "ib_read_bw.client.txt").read_text())
    assert [note.values["bytes"] for note in found if note.kind == "progress"] == [50 * 65536]


def test_a_latency_test_gives_typical_and_99th_percentile() -> None:
    found = notes(Reader(server=False), (DATA / "ib_write_lat.client.txt").read_text())
    names = {note.values["name"] for note in found if note.kind == "metric"}
    assert names == {"latency_us", "latency_p99_us", "latency_max_us"}


def test_a_failed_completion_keeps_status_and_syndrome() -> None:
    # An mlx5 node whose server was killed (tests/data/faults/README.md).
    text = (DATA.parent / "faults/server-process-killed/client/client.log").read_text()
    errors = [note.values for note in notes(Reader(server=False), text) if note.kind == "error"]
    assert errors[-1]["status"] == 12 and errors[-1]["vendor_err"] == 0x81
    assert errors[-1]["words"] == "Failed status 12: wr_id 0 syndrom 0x81"


def test_with_iterations_perftest_ends_by_itself() -> None:
    values = checked(load("perftest").PARAMETERS, {"iterations": 10, "test": "ib_send_bw"})
    ends = load("perftest").ends(Setting(values, *HOSTS))
    assert "--run_infinitely" not in ends["client"].argv and ends["client"].seconds == 0
    assert ends["client"].argv[-1] == "10.0.100.2"
