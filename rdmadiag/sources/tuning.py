"""Kernel settings that bear on RDMA: sysctls, processor frequency and idle states, huge pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.host import Host, text_of
from rdmadiag.patterns import late

TABLES = ("sysctl", "cpu_governor", "idle_state", "hugepage")

SYSCTLS = ("vm.max_map_count", "vm.overcommit_memory", "vm.zone_reclaim_mode", "kernel.numa_balancing", "fs.file-max")
"""Read on a node; more names are taken from pasted texts (TEXT_PREFIXES)."""

CPU, HUGE = "/sys/devices/system/cpu", "/sys/kernel/mm/hugepages"
LINE_CHARACTERS = 1000


def read(host: Host) -> Iterable[Row | Gap]:
    """Read each part; one that the capture leaves out is a gap, one that the kernel does not have is nothing."""
    for table, part in (
        ("sysctl", _sysctls),
        ("cpu_governor", _governors),
        ("idle_state", _idle_states),
        ("hugepage", _huge_pages),
    ):
        try:
            yield from part(host)
        except NotPresent:
            continue
        except HostRefused as error:
            kind = "not_given" if isinstance(error, NotGiven) else "unreadable"
            yield Gap((table,), error.reason, kind, error.how, error.what)


def _sysctls(host: Host) -> Iterator[Row]:
    for name in SYSCTLS:
        path = f"/proc/sys/{name.replace('.', '/')}"
        try:
            value = host.read(path)
        except NotPresent:
            continue  # a kernel without NUMA has no numa_balancing
        yield Row("sysctl", {"name": name, "value": value.strip()}, path)


def _governors(host: Host) -> Iterator[Row]:
    found: Counter[tuple[str, str, str]] = Counter()
    where: dict[tuple[str, str, str], str] = {}
    for name in host.ls(CPU):
        path = f"{CPU}/{name}/cpufreq"
        if late(r"cpu\d{1,5}").fullmatch(name) and (governor := text_of(host, f"{path}/scaling_governor")):
            preference = text_of(host, f"{path}/energy_performance_preference")
            key = (text_of(host, f"{path}/scaling_driver"), governor, preference)
            found[key] += 1
            where.setdefault(key, path)
    for key, cpus in found.items():
        driver, governor, preference = key
        values = {"driver": driver, "governor": governor, "preference": preference, "cpus": cpus}
        yield Row("cpu_governor", values, where[key])


def _idle_states(host: Host) -> Iterator[Row]:
    folder = f"{CPU}/cpu0/cpuidle"
    for state in host.ls(folder):
        path = f"{folder}/{state}"
        name, latency = text_of(host, f"{path}/name"), text_of(host, f"{path}/latency")
        if name and late(r"\d{1,9}").fullmatch(latency):
            disabled = text_of(host, f"{path}/disable")
            values = {"state": name, "latency_microseconds": int(latency)}
            yield Row("idle_state", values | ({"disabled": int(disabled != "0")} if disabled else {}), path)


def _huge_pages(host: Host) -> Iterator[Row]:
    for folder in host.ls(HUGE):
        if match := late(r"hugepages-(\d{1,9})kB").fullmatch(folder):
            path = f"{HUGE}/{folder}"
            counts = {
                column: int(text)
                for column, file in (
                    ("total", "nr_hugepages"),
                    ("free", "free_hugepages"),
                    ("reserved", "resv_hugepages"),
                )
                if late(r"\d{1,15}").fullmatch(text := text_of(host, f"{path}/{file}"))
            }
            yield Row("hugepage", {"size_bytes": int(match[1]) * 1024, **counts}, path)


# --- texts ---

_SYSCTL = late(r"(?P<name>(?:vm|kernel|net|fs)\.[\w./-]{2,80})\s*=\s*(?P<value>\S.{0,200}?)\s*$")
TEXT_PREFIXES = ("vm.", "kernel.numa", "kernel.sched", "net.core.", "net.ipv4.", "net.ipv6.", "fs.")
_MEMINFO = late(
    r"(?P<key>HugePages_Total|HugePages_Free|HugePages_Rsvd|Hugepagesize):\s+(?P<value>\d{1,15})(?: kB)?\s*$"
)
_MEMINFO_COLUMNS: Mapping[str, str] = {
    "HugePages_Total": "total",
    "HugePages_Free": "free",
    "HugePages_Rsvd": "reserved",
}
_CPUPOWER_DRIVER = late(r"  driver: (?P<driver>[a-z][\w-]{1,30})\s*$")
_CPUPOWER_GOVERNOR = late(r"\s+The governor \"(?P<governor>[a-z]+)\" may decide")


def parse_sysctl(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `sysctl -a` and `sysctl NAME`; names that say nothing of RDMA are left out."""
    for number, text in lines:
        match = _SYSCTL.match(text[:LINE_CHARACTERS])
        if match and match["name"].startswith(TEXT_PREFIXES):
            yield Row("sysctl", {"name": match["name"].replace("/", "."), "value": match["value"]}, number)


def parse_meminfo(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse the huge pages of /proc/meminfo, which are those of the default size."""
    values: dict[str, int] = {}
    for number, text in lines:
        if match := _MEMINFO.match(text[:LINE_CHARACTERS]):
            if match["key"] == "Hugepagesize":
                yield Row("hugepage", {"size_bytes": int(match["value"]) * 1024, **values}, number)
                values = {}
            else:
                values[_MEMINFO_COLUMNS[match["key"]]] = int(match["value"])


def parse_cpupower(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `cpupower frequency-info` of one or all processors."""
    found: Counter[tuple[str, str, str]] = Counter()
    where: dict[tuple[str, str, str], int] = {}
    driver = ""
    for number, text in lines:
        if match := _CPUPOWER_DRIVER.match(text[:LINE_CHARACTERS]):
            driver = match["driver"]
        elif match := _CPUPOWER_GOVERNOR.match(text[:LINE_CHARACTERS]):
            key = (driver, match["governor"], "")
            found[key] += 1
            where.setdefault(key, number)
    for key, cpus in found.items():
        driver, governor, preference = key
        values = {"driver": driver, "governor": governor, "preference": preference, "cpus": cpus}
        yield Row("cpu_governor", values, where[key])


TEXTS = (
    Text(
        "sysctl",
        (
            r"^(vm\.max_map_count|kernel\.numa_balancing|vm\.zone_reclaim_mode|net\.core\.[rw]mem_max|vm\.nr_hugepages) = ",
        ),
        parse_sysctl,
        ("sysctl",),
    ),
    Text("/proc/meminfo", (r"^HugePages_Total: +[0-9]",), parse_meminfo),
    Text("cpupower frequency-info", (r"The governor \"[a-z]+\" may decide",), parse_cpupower, ("cpupower",)),
)
