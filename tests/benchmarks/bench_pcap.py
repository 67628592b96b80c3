"""Header columns and whole diagnosis of 200,000 packets beside `tshark -T fields` of the same columns; memory of small and large files."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from rdmadiag.roce import analysis, capture, columns
from tests.benchmarks._timing import Ratio, pairs, peak_bytes, process
from tests.roce.captures import long_capture

PACKETS = 200_000
FIELDS = (
    "frame.number", "frame.time_epoch", "frame.len", "ip.src", "ip.dst", "ip.dsfield", "ip.ttl", "ip.id", "udp.srcport",
    "infiniband.bth.opcode", "infiniband.bth.se", "infiniband.bth.m", "infiniband.bth.padcnt", "infiniband.bth.tver",
    "infiniband.bth.p_key", "infiniband.bth.destqp", "infiniband.bth.a", "infiniband.bth.psn", "infiniband.reth.va",
    "infiniband.reth.r_key", "infiniband.reth.dmalen", "infiniband.aeth.syndrome", "infiniband.aeth.msn",
)  # fmt: skip
EXTENSIONS = (("RETH", 0, 8), ("RETH", 8, 4), ("RETH", 12, 4), ("AETH", 0, 1), ("AETH", 1, 3))


def header_columns(path: Path) -> int:
    """Read a capture into the columns that FIELDS names. Returns the packets."""
    count = 0
    with path.open("rb") as file:
        for chunk in capture.Capture(file, str(path)).chunks():
            c = columns.decode(chunk)
            for extension in EXTENSIONS:
                c.dense(*extension)
            count += len(c)
    return count


def diagnosis(path: Path) -> int:
    """Analyse a capture whole. Returns the packets."""
    with path.open("rb") as file:
        return int(analysis.analyse(file, str(path)).tables["capture"][0]["packets"])


def measure(rounds: int = 5) -> list[Ratio]:
    """Return times against tshark's (ratio below 1: faster), and the peak memory of files of 10 MB and 2 GB."""
    if shutil.which("tshark") is None:
        return []
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for what, snaplen, times in (("cut to 96 bytes", 96, (25, 10)), ("of 1 KiB, whole", 1 << 18, (8, 5))):
            path = Path(folder) / f"{snaplen}.pcap"
            long_capture(path, PACKETS, 1024, snaplen)
            tshark = ["tshark", "--disable-protocol", "tftp", "-r", str(path), "-T", "fields"]
            peer = process([*tshark, *[word for name in FIELDS for word in ("-e", name)]])
            for name, work, wanted in (
                ("header columns", header_columns, times[0]),
                ("diagnosis", diagnosis, times[1]),
            ):
                assert work(path) == PACKETS
                ours, theirs, ratio = pairs(lambda work=work, path=path: work(path), peer, rounds)  # type: ignore[misc]
                note = f"{1 / ratio:.1f} times as fast, {PACKETS / ours / 1e6:.2f} M packets/s"
                found.append(
                    Ratio(f"{name}, {PACKETS} packets {what}", ours, theirs, ratio, f"at most 1/{wanted}", note)
                )
        found.append(_memory(Path(folder)))
    return found


def _memory(folder: Path) -> Ratio:
    peaks, seconds = [], []
    for name, packets in (("10 MB", 10_000), ("2 GB", 2_000_000)):
        path = folder / "m.pcap"
        long_capture(path, packets, 1024, 1 << 18)
        import time

        start = time.perf_counter()
        peaks.append(peak_bytes([sys.executable, "-m", "rdmadiag", "pcap", str(path)]))
        seconds.append(time.perf_counter() - start)
        path.unlink()
        assert name
    note = f"peak {peaks[0] >> 20} MB for 10 MB, {peaks[1] >> 20} MB for 2 GB (wanted under 256)"
    return Ratio(
        "rdmadiag pcap of 10 MB and of 2 GB, memory", seconds[1], seconds[0], peaks[1] / peaks[0], "flat", note
    )


def test_the_capture_of_the_benchmark_is_read_whole_and_is_clean(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    long_capture(path, 5000, 1024, 1 << 18)
    assert header_columns(path) == 5000
    with path.open("rb") as file:
        tables = analysis.analyse(file, "x").tables
    (row,) = tables["capture"]
    assert row["icrc_good"] == 5000 and row["icrc_bad"] == 0
    assert {flow["state"] for flow in tables["flow"]} <= {"idle", "in progress"} and not any(
        f["resends"] for f in tables["flow"]
    )
