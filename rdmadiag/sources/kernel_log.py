"""The kernel log: the node's own, and how to know a pasted one; rules' patterns are what reads its lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rdmadiag.errors import HostRefused, NotPresent
from rdmadiag.evidence.row import Line, Printed, Row, Text
from rdmadiag.host import Host

TABLES = ("kernel_event",)


def read(host: Host) -> Iterable[Printed]:
    """Hand over the whole log; its times are seconds since boot, as is its end."""
    yield Printed("dmesg", host.run("dmesg"), "dmesg", _uptime(host), _now(host))


def _uptime(host: Host) -> float | None:
    try:
        return float(host.read("/proc/uptime").split()[0])
    except (NotPresent, HostRefused, ValueError, IndexError):
        return None


def _now(host: Host) -> float | None:
    try:
        return float(host.run("date +%s"))
    except (NotPresent, HostRefused, ValueError):
        return None


def parse(lines: Sequence[Line]) -> Iterator[Row]:
    """Yield nothing: lines that matter are those that a rule's pattern matches."""
    yield from ()


_DAY = r"[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}"
_ISO = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
_ZONE = r"(Z|[+-][0-9]{2}:?[0-9]{2})"
_BDF = r"([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_DRIVERS = (
    r"(mlx[45]_(core|ib|en)|bnxt_(en|re)|ice|i40e|irdma|efa|erdma|ionic|hns3|hns_roce|cxgb4|iw_cxgb4|qede|qedr|"
    r"hfi1|mana|pcieport|nvme|nvidia|amdgpu|vfio-pci|snd_hda_intel)"
)

TEXTS = (
    Text(
        "dmesg",
        (
            r"^(<[0-9]+>)?\[[ 0-9]{1,8}[0-9]\.[0-9]{6}\][ \[]",  # more digits are seconds since 1970: UCX
            rf"^\[[A-Z][a-z]{{2}} {_DAY} [0-9]{{4}}\] ",
            rf"^{_DAY}(\.[0-9]+)? [^ ]+ kernel: ",
            rf"^{_ISO}([.,][0-9]+)?{_ZONE}? [^ ]+ kernel: ",
            rf"^{_ISO},[0-9]{{6}}{_ZONE} ",
            r"^[A-Z][a-z]{2} [0-9-]{10} [0-9:]{8}(\.[0-9]+)? [A-Z0-9+-]{3,5} [^ ]+ kernel: ",  # journalctl -o short-full
            r"^[0-9]{10}\.[0-9]{6} [^ ]+ kernel: ",  # journalctl -o short-unix
            r"^[0-9]+,[0-9]+,[0-9]+,[-c][^;]{0,40};",
            r"^(kern|user|daemon) *:[a-z]+ *: ",
            rf"^{_DRIVERS} {_BDF}:? ",
            r"^(infiniband [a-z0-9_]+|rdma_rxe|siw|nvidia[-_]peermem|nv_peer_mem|ib_core|ib_uverbs|mlx[45]_(core|ib)): ",
            r"^(nv_mem|NVRM:|DMAR:|AMD-Vi:|RDMA CMA:|EDAC|mce:|nvme nvme[0-9]+:|NETDEV WATCHDOG:) ",
        ),
        parse,
        ("dmesg",),
        log="kernel",
    ),
)
