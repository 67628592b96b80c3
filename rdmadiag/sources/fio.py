"""Results of fio, text and JSON: how fast the storage below a KV-cache store is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rdmadiag.evidence.row import Json, Line, Row, Text
from rdmadiag.patterns import late
from rdmadiag.sources.devices import whole

TABLES = ("benchmark",)

_JOB = late(r"(?P<name>\S.*?): \(groupid=\d+, jobs=\d+\): err=\s*(?P<error>\d{1,5})")
_SIZE = late(r"\S.*: \(g=\d+\): rw=\w+, bs=(?:\(R\) )?(?P<size>[\d.]+)(?P<unit>[KMG]?i?B?)")
_SIDE = late(r"\s+(?P<side>read|write)\s*: (?:.*\b)?BW=(?P<value>[\d.]+)(?P<unit>[KMG]i?B/s|B/s)", 2)
_OLD_SIDE = late(r"\s+(?P<side>read|write)\s*: io=\S+, bw=(?P<value>[\d.]+)(?P<unit>[KMG]i?B/s|B/s)", 2)
_P99 = late(r"\s+\|.*99\.00th=\[\s*(?P<value>\d{1,12})\]")
_PERCENTILES = late(r"\s+clat percentiles \((?P<unit>nsec|usec|msec)\):")

# fio since 2.99 prints KiB for 1024; before, KB was 1024 too.
_UNITS = {"B/s": 1, "KB/s": 1000, "MB/s": 10**6, "GB/s": 10**9, "KiB/s": 1 << 10, "MiB/s": 1 << 20, "GiB/s": 1 << 30}
_SIZES = {"": 1, "B": 1, "K": 1 << 10, "KiB": 1 << 10, "KB": 1 << 10, "M": 1 << 20, "MiB": 1 << 20, "MB": 1 << 20}
_MICROSECONDS = {"nsec": 1e-3, "usec": 1.0, "msec": 1e3}


def _gbps(value: str, unit: str, old: bool = False) -> float | None:
    factor = _UNITS.get(unit.replace("k", "K"), 1)
    if old:
        factor = {1000: 1 << 10, 10**6: 1 << 20, 10**9: 1 << 30}.get(factor, factor)
    try:
        return float(value) * factor * 8 / 1e9
    except ValueError:
        return None


def parse(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse fio's normal output: one row a job (or group of jobs) and direction."""
    size: int | None = None
    row: tuple[int, dict[str, Any]] | None = None
    error, unit = 0, ""
    for number, text in lines:
        if match := _SIZE.match(text):
            size = (
                int(float(match["size"].strip(".") or 0) * _SIZES.get(match["unit"], 1))
                if _plain(match["size"])
                else None
            )
        elif match := _JOB.match(text):
            error = int(match["error"])
        elif match := _SIDE.match(text) or _OLD_SIDE.match(text):
            if row:
                yield Row("benchmark", row[1], row[0])
            gbps = _gbps(match["value"], match["unit"], "io=" in text)
            row = (number, _known(match["side"].lower(), size, gbps, error)) if gbps is not None else None
        elif match := _PERCENTILES.match(text):
            unit = match["unit"]
        elif row and unit and (match := _P99.match(text)):
            row[1]["latency_p99_us"] = int(match["value"]) * _MICROSECONDS[unit]
            unit = ""
    if row:
        yield Row("benchmark", row[1], row[0])


def _plain(text: str) -> bool:
    return text.count(".") <= 1 and text.strip(".").replace(".", "").isdecimal() and len(text) < 16


def _known(side: str, size: int | None, gbps: float | None, error: int | None) -> dict[str, Any]:
    values = {
        "program": "fio",
        "test": side,
        "size_bytes": size,
        "bandwidth_gbps": gbps,
        "errors": error,
    }
    return {name: value for name, value in values.items() if value is not None}


def parse_json(objects: list[dict[str, Any]]) -> Iterator[Row]:
    """Parse `fio --output-format=json`: bandwidths of jobs, in bytes a second."""
    for entry in objects:
        options = entry.get("global options")
        jobs = entry.get("jobs")
        for job in jobs if isinstance(jobs, list) else ():
            if not isinstance(job, dict):
                continue
            own = job.get("job options")
            size = _size({**_mapping(options), **_mapping(own)}.get("bs"))
            for side in ("read", "write"):
                speed = whole(_mapping(job.get(side)).get("bw_bytes"))
                if speed:
                    yield Row("benchmark", _known(side, size, speed * 8 / 1e9, whole(job.get("error"))), 1)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_BS = late(r"(\d{1,9})([kKmM]?)(?:i?[bB])?$")


def _size(text: Any) -> int | None:
    match = _BS.match(text) if isinstance(text, str) else None
    return int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[match[2].upper()] if match else None


TEXTS: tuple[Text | Json, ...] = (
    Text(
        "fio",
        (
            r"^fio-[0-9]+\.[0-9]",
            r": \(groupid=[0-9]+, jobs=[0-9]+\): err= *[0-9]+",
            r"^ +(read|write) *: IOPS=[0-9.kM]+, BW=",
        ),
        parse,
        ("fio",),
    ),
    Json("fio", (("fio version", "jobs"),), parse_json, ("fio",)),
)
