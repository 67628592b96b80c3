"""`rdma -d -j res show qp` of 100,000 QPs to answered rules, beside json.load of the same file."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from rdmadiag.diagnose import check
from tests.benchmarks import bench_netlink
from tests.benchmarks._timing import Ratio, pairs


def dump(path: Path, count: int) -> None:
    """Write what the rdma tool would print for this many queue pairs."""
    path.write_text(json.dumps(bench_netlink._decode(bench_netlink.recording(count))))


def measure(rounds: int = 7) -> list[Ratio]:
    """Return the ratio of a whole check of the file (in this process) to json.load of it, and netlink to json.loads."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "qp.json"
        dump(path, bench_netlink.QPS)

        def load() -> None:
            with path.open() as file:
                json.load(file)

        request = check.Request(given=(str(path),), budget=60.0)
        seconds, peer, ratio = pairs(lambda: check.check(request), load, rounds)
    netlink = bench_netlink.measure()
    return [
        Ratio("100,000 QPs, rdma JSON to answered rules", seconds, peer, ratio, "at most 4"),
        Ratio(
            "100,000 QPs, netlink bytes to objects",
            netlink["netlink_seconds"],
            netlink["json_seconds"],
            netlink["netlink_seconds"] / netlink["json_seconds"],
            "under 2 s",
        ),
    ]


def test_every_queue_pair_is_counted_and_is_a_row_where_a_query_names_them(tmp_path: Path) -> None:
    dump(tmp_path / "qp.json", 1000)
    request = check.Request(given=(str(tmp_path / "qp.json"),))
    assert check.check(request).evidence.db.execute("SELECT sum(qps) FROM qp_group").fetchone() == (1000,)
    _, rows, _ = check.query(request, "SELECT count(*), count(DISTINCT qpn) FROM qp")
    assert rows == [(1000, 1000)]
