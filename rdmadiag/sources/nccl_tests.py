"""Results of nccl-tests and rccl-tests: bus bandwidth a size, wrong elements, and over how many hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rdmadiag.evidence.row import Line, Row, Text
from rdmadiag.patterns import late

TABLES = ("benchmark",)

_RANK = late(r"#\s+Rank\s+(?P<rank>\d{1,6})(?:\s+Group\s+\d+)?\s+Pid\s+\d+ on\s+(?P<host>\S+)")
_HEAD = late(r"#\s+nThread \d+ nGpus \d+ minBytes ")
_TITLE = late(r"#\s+Collective test starting: (?P<test>\w+)_perf")
_FLOAT = r"(?:\d{1,9}(?:\.\d{1,4})?)"
_OUT, _IN = (
    rf"{_FLOAT}\s+{_FLOAT}\s+(?P<{place}_busbw>{_FLOAT})\s+(?P<{place}_wrong>N/A|[\d.e+-]{{1,12}})"
    for place in ("out", "in")
)
_ROW = late(
    r"(?:\[[^\]]*\]<std\w+>: ?)?\s*(?P<size>\d{1,15})\s+(?P<count>\d{1,15})"
    r"\s+(?P<type>(?:u?int\d+|float\d*|half|double|bfloat16|fp8_\w+|f8\w+))"
    rf"(?:\s+(?P<op>sum|prod|min|max|avg|mulsum|none|all))?(?:\s+-?\d+)?\s+{_OUT}(?:\s+{_IN})?\s*$"
)
_GB_GBPS = 8.0
"""nccl-tests' GB/s is 10^9 bytes a second: its value in Gbit/s."""


def parse(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse the table of a collective; the last column is `#wrong` (a count), in old releases an error (a float)."""
    ranks: dict[str, str] = {}
    counted = False  # since nccl-tests 2.13 the last column counts wrong elements
    test = ""
    for number, text in lines:
        if _HEAD.match(text):
            ranks = {}
        elif match := _TITLE.match(text):
            test = match["test"]
        elif match := _RANK.match(text):
            ranks[match["rank"]] = match["host"]
        elif "algbw" in text and "busbw" in text:
            counted = "#wrong" in text
        elif match := _ROW.match(text):
            yield Row("benchmark", {**_hosts(ranks), **_values(match.groupdict(), counted, test)}, number)


def _hosts(ranks: dict[str, str]) -> dict[str, int]:
    return {"ranks": len(ranks), "hosts": len(set(ranks.values()))} if ranks else {}


def _values(found: dict[str, Any], counted: bool, test: str) -> dict[str, Any]:
    busbw = max(float(found[name]) for name in ("out_busbw", "in_busbw") if found[name] is not None)
    values: dict[str, Any] = {
        "program": "nccl-tests",
        "test": test or "collective",
        "size_bytes": int(found["size"]),
        "bandwidth_gbps": round(busbw * _GB_GBPS, 6),
    }
    wrong = [found[name] for name in ("out_wrong", "in_wrong") if found[name] and found[name].isdecimal()]
    if counted and wrong:
        values["errors"] = sum(map(int, wrong))
    return values


TEXTS = (
    Text(
        "nccl-tests",
        (
            r"^#? +size +count +type( +redop)?.*algbw +busbw",
            r"^#  +Rank +[0-9]+ (Group +[0-9]+ )?Pid +[0-9]+ on ",
            r"^# Avg bus bandwidth",
        ),
        parse,
        (
            "all_reduce_perf",
            "all_gather_perf",
            "sendrecv_perf",
            "alltoall_perf",
            "reduce_scatter_perf",
            "broadcast_perf",
        ),
    ),
)
