"""Results of perftest (ib_write_bw, ib_read_lat ...), text and JSON, and of the small tests: ibv_*_pingpong, rping, ibping."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rdmadiag.evidence.row import Json, Line, Row, Text
from rdmadiag.patterns import late
from rdmadiag.sources.devices import whole

TABLES = ("benchmark",)

Values = dict[str, Any]

MIB_GBPS = 8 * 1048576 / 1e9
"""What perftest calls MB/sec is 2^20 bytes: its value in Gbit/s."""

_TITLE = late(
    r"\s+(?P<test>(?:RDMA_Write|RDMA_Read|Send|Atomic|Raw|Write_with_imm|Write With Imm)[\w ]{0,40}?)"
    r"(?P<both> Bidirectional)?(?P<kind> (?:BW|Latency|Lat)[\w ]{0,40}?) (?:Post List )?Test\b"
)
_PAIRS = late(r"(?P<key>[A-Z#][\w .#*]{0,30}?)\s{0,20}:\s*(?P<text>[^\s:]+)")
_HEAD = late(r"\s*#bytes\s+#iterations\s+(?P<columns>\S.*)$")
_ROW = late(r"\s*(?P<numbers>\d{1,12}(?:\s+-?\d{1,15}(?:\.\d{1,9})?){3,10})\s*$")

_BANDWIDTHS: Mapping[str, tuple[str, float]] = {
    "BW peak[Gb/sec]": ("peak_gbps", 1.0),
    "BW average[Gb/sec]": ("bandwidth_gbps", 1.0),
    "BW peak[MB/sec]": ("peak_gbps", MIB_GBPS),
    "BW average[MB/sec]": ("bandwidth_gbps", MIB_GBPS),
    "BW peak[MiB/sec]": ("peak_gbps", MIB_GBPS),
    "BW average[MiB/sec]": ("bandwidth_gbps", MIB_GBPS),
    "t_typical[usec]": ("latency_us", 1.0),
    "t_avg[usec]": ("_average", 1.0),
    "t_max[usec]": ("latency_max_us", 1.0),
    "99% percentile[usec]": ("latency_p99_us", 1.0),
}
_COLUMN = late(r"BW (?:peak|average) ?\[\w+/sec\]|99(?:\.9)?% percentile\[usec\]|\S+")


def _columns(text: str) -> list[str]:
    return [found.replace(" [", "[") for found in _COLUMN.findall(text)]


class _Test:
    """The test whose table is being read: what its head says, and the columns of the table."""

    def __init__(self, title: re.Match[str]) -> None:
        self.values: Values = {
            "program": "perftest",
            "test": (title["test"] + title["kind"]).strip(),
            "bidirectional": int(bool(title["both"])),
        }
        self.columns: list[str] = []

    def head(self, line: str) -> None:
        """Take the pairs of a head line: two a line, the second after tabs or spaces."""
        for match in _PAIRS.finditer(line):
            key, text = match["key"].strip(), match["text"]
            if key == "Device" and "device" not in self.values:
                self.values["device"] = text
            elif key == "Link type":
                self.values["link_layer"] = {"IB": "InfiniBand"}.get(text, text)
            elif key == "Mtu":
                self._keep("mtu", text.partition("[")[0])
            elif key == "Number of qps":
                self._keep("qps", text)
            elif key == "GID index":
                self._keep("gid_index", text)

    def _keep(self, column: str, text: str) -> None:
        number = whole(text)
        if number is not None:
            self.values.setdefault(column, number)

    def row(self, numbers: Sequence[str], at: int) -> Iterator[Row]:
        """Return a row of the table; a column that is always 0 (a peak with -D) says nothing."""
        size = whole(numbers[0])
        found: Values = {"size_bytes": size, "iterations": whole(numbers[1])}
        for name, text in zip(self.columns, numbers[2:], strict=False):
            if name in _BANDWIDTHS and (value := float(text)) > 0:
                column, factor = _BANDWIDTHS[name]
                found[column] = round(value * factor, 6)
        if average := found.pop("_average", None):
            found.setdefault("latency_us", average)
        if found.keys() & {"bandwidth_gbps", "latency_us"}:
            yield Row("benchmark", {**self.values, **found}, at)


def parse(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse what perftest prints; notes between the lines (CPU frequency, warnings) are passed over."""
    test: _Test | None = None
    for number, text in lines:
        if title := _TITLE.match(text):
            test = _Test(title)
        elif head := _HEAD.match(text.rstrip()):
            test = test or _Test(_NO_TITLE)
            test.columns = _columns(head["columns"])
        elif test is not None and test.columns and (match := _ROW.match(text)):
            yield from test.row(match["numbers"].split(), number)
        elif test is not None and not test.columns:
            test.head(text)


_NO_TITLE: re.Match[str] = re.match(r"(?P<test>)(?P<kind>)(?P<both>)", "")  # type: ignore[assignment]


def parse_json(objects: list[dict[str, Any]]) -> Iterator[Row]:
    """Parse `--out_json`: test_info and results; units are named in the keys of results."""
    for entry in objects:
        information, results = entry.get("test_info"), entry.get("results")
        if not isinstance(information, dict) or not isinstance(results, dict):
            continue
        values: Values = {"program": "perftest", "test": str(information.get("test", ""))[:80]}
        if isinstance(information.get("Device"), str):
            values["device"] = information["Device"]
        for key, column in (("Number_of_qps", "qps"), ("Mtu", "mtu"), ("GID_index", "gid_index")):
            if (number := whole(information.get(key))) is not None:
                values[column] = number
        for key, column in (("MsgSize", "size_bytes"), ("n_iterations", "iterations")):
            if (number := whole(results.get(key))) is not None:
                values[column] = number
        gbits = information.get("report_format", "Gb/sec") != "MB/sec"
        for key, column in (("BW_average", "bandwidth_gbps"), ("BW_peak", "peak_gbps"), ("t_typical", "latency_us")):
            value = results.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9:
                factor = MIB_GBPS if column != "latency_us" and not gbits else 1.0
                values[column] = round(value * factor, 6)
        if values.keys() & {"bandwidth_gbps", "latency_us"}:
            yield Row("benchmark", values, 1)


# --- ibv_*_pingpong, ibping ---

_MOVED = late(r"(?P<bytes>\d{1,15}) bytes in (?P<seconds>\d+\.\d+) seconds = (?P<mbits>\d{1,9}\.\d+) Mbit/sec")
_PER_ITERATION = late(r"(?P<iterations>\d{1,12}) iters in \d+\.\d+ seconds = (?P<us>\d{1,9}\.\d+) usec/iter")
_LOST = late(r"(?P<sent>\d{1,9}) packets transmitted, (?P<received>\d{1,9}) received, \d+% packet loss")
_ROUND = late(r"rtt min/avg/max = (?P<low>[\d.]+)/(?P<average>[\d.]+)/(?P<high>[\d.]+) ms")


def parse_pingpong(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse the two closing lines of `ibv_rc_pingpong` and its kin."""
    moved: re.Match[str] | None = None
    for number, text in lines:
        if match := _MOVED.search(text):
            moved = match
        elif moved and (match := _PER_ITERATION.search(text)):
            iterations = int(match["iterations"])
            yield Row(
                "benchmark",
                {
                    "program": "pingpong",
                    "test": "pingpong",
                    "iterations": iterations,
                    "size_bytes": int(moved["bytes"]) // max(1, 2 * iterations),
                    "bandwidth_gbps": float(moved["mbits"]) / 1000,
                    "latency_us": float(match["us"]) / 2,
                },
                number,
            )
            moved = None


def parse_ibping(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse the statistics of `ibping`."""
    values: Values = {}
    at = 0
    for number, text in lines:
        if "ibping statistics ---" in text:
            values, at = {"program": "ibping", "test": "ibping"}, number
        elif values and (match := _LOST.match(text.strip())):
            values.update(sent=int(match["sent"]), received=int(match["received"]))
            yield Row("benchmark", values, at)
            values = {}


_PINGED = late(r"(?:server |client )?ping data: rdma-ping-\d{1,9}: ")


def parse_rping(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `rping -v`: how many pings came."""
    found = [number for number, text in lines if _PINGED.match(text.strip())]
    if found:
        yield Row("benchmark", {"program": "rping", "test": "rping", "received": len(found)}, found[0])


TEXTS: tuple[Text | Json, ...] = (
    Text(
        "perftest",
        (
            r"^ +(RDMA_Write|RDMA_Read|Send|Atomic|Write)[A-Za-z_ ]* (BW|Latency)[A-Za-z ]* Test",
            r"^ *#bytes +#iterations +(BW peak|t_min|t_avg)",
        ),
        parse,
    ),
    Json("perftest", (("test_info", "results"),), parse_json),
    Text("pingpong", (r"[0-9]+ bytes in [0-9.]+ seconds = [0-9.]+ Mbit/sec",), parse_pingpong),
    Text("rping", (r"^(server |client )?ping data: rdma-ping-[0-9]+: ",), parse_rping, ("rping",)),
    Text("ibping", (r"^--- .* ibping statistics ---",), parse_ibping),
)
