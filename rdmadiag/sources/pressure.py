"""How busy a node is: processors and memory (/proc/stat, /proc/loadavg, /proc/meminfo, /proc/pressure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rdmadiag.evidence.row import Gap, Row, Text
from rdmadiag.host import Host, text_of
from rdmadiag.patterns import late

TABLES = ("pressure",)
TEXTS: tuple[Text, ...] = ()
RESOURCES = ("cpu", "memory", "io")
_MEMINFO = late(r"^(?P<name>MemTotal|MemAvailable|SwapTotal|SwapFree):\s{1,20}(?P<kib>\d{1,15}) kB$")
_COLUMNS = {
    "MemTotal": "memory_total_kib",
    "MemAvailable": "memory_available_kib",
    "SwapTotal": "swap_total_kib",
    "SwapFree": "swap_free_kib",
}
_PSI = late(r"^(?P<kind>some|full) avg10=(?P<share>\d{1,3}\.\d{1,2}) avg60=")


def read(host: Host) -> Iterable[Row | Gap]:
    """Read all of it; a kernel without pressure information (CONFIG_PSI) leaves those columns unknown."""
    values: dict[str, Any] = {}
    values |= parse_stat(text_of(host, "/proc/stat"))
    values |= parse_loadavg(text_of(host, "/proc/loadavg"))
    values |= parse_meminfo(text_of(host, "/proc/meminfo"))
    for resource in RESOURCES:
        values |= parse_pressure(resource, text_of(host, f"/proc/pressure/{resource}"))
    if values:
        yield Row("pressure", values, "/proc/stat, /proc/meminfo, /proc/pressure")


def parse_stat(text: str) -> dict[str, Any]:
    """Return processors and running threads of /proc/stat (proc(5)); never raises."""
    processors = len(late(r"(?m)^cpu\d+ ").findall(text))
    running = late(r"(?m)^procs_running (\d{1,9})$").search(text)
    found: dict[str, Any] = {"processors": processors} if processors else {}
    return found | ({"running": int(running[1])} if running else {})


def parse_loadavg(text: str) -> dict[str, Any]:
    """Return the load average of one minute of /proc/loadavg; never raises."""
    match = late(r"(\d{1,6}\.\d{2}) \d{1,6}\.\d{2} ").match(text)
    return {"load1": float(match[1])} if match else {}


def parse_meminfo(text: str) -> dict[str, Any]:
    """Return amounts of /proc/meminfo; never raises."""
    found = (_MEMINFO.match(line) for line in text.splitlines()[:200])
    return {_COLUMNS[match["name"]]: int(match["kib"]) for match in found if match}


def parse_pressure(resource: str, text: str) -> dict[str, Any]:
    """Return the shares of 10 s of one file of /proc/pressure (Documentation/accounting/psi.rst); never raises."""
    found = (_PSI.match(line) for line in text.splitlines()[:4])
    return {f"{resource}_{match['kind']}_share": round(float(match["share"]) / 100, 4) for match in found if match}
