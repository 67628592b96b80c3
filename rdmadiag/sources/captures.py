"""Packet captures (pcap, pcapng): flows, NAKs, resends, handshakes and pauses on the wire, by rdmadiag/roce."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from rdmadiag.evidence.row import Gap, Row, Text

TABLES = (
    "capture",
    "flow",
    "flow_nak",
    "flow_resend",
    "cm_handshake",
    "flow_control",
    "tap_loss",
    "tap_path",
    "tap_packet",
)
TEXTS: tuple[Text, ...] = ()


class Stream(Protocol):
    """What a capture is read from."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""


def capture(stream: Stream, path: str, progress: Callable[[int, int], None] | None = None) -> Iterable[Row | Gap]:
    """Read a capture to its end. `progress` is told bytes and packets read. Raises BadFile when it is no capture."""
    from rdmadiag.roce import analysis

    return rows(analysis.analyse(stream, path, progress), path)


def rows(found: Any, path: str) -> Iterable[Row | Gap]:
    """Return the rows of an analysed capture, and a gap for each thing that it leaves out."""
    items: list[Row | Gap] = [Row(table, values, path) for table, many in found.tables.items() for values in many]
    how = "capture again, or give a smaller part: editcap -A/-B, tcpdump -r FILE -w PART udp port 4791"
    items += [Gap(TABLES[1:-3], reason, "truncated", how, path) for reason in found.partial]
    (capture_row,) = found.tables["capture"]
    if not capture_row["roce2"] and not capture_row["roce1"]:
        reason = f"no RoCE packet is in it ({capture_row['other'] or 'it holds no packet'})"
        items.append(
            Gap(
                TABLES[1:-3],
                reason,
                "unreadable",
                "capture where RoCE passes: tcpdump -s 0 -w FILE udp port 4791",
                path,
            )
        )
    return items
