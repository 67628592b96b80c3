"""Header columns are those of `tshark -T fields`, packet for packet. Made with tshark 4.0.17; 4.4 names the same fields."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from rdmadiag.roce import capture, columns
from tests.roce import captures as made

PCAPS = Path(__file__).parent.parent / "data/pcaps"
pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
FIELDS = (
    "frame.number", "frame.len", "udp.srcport", "infiniband.bth.opcode", "infiniband.bth.se", "infiniband.bth.m", "infiniband.bth.padcnt",
    "infiniband.bth.tver", "infiniband.bth.p_key", "infiniband.bth.destqp", "infiniband.bth.a", "infiniband.bth.psn", "infiniband.reth.va",
    "infiniband.reth.r_key", "infiniband.reth.dmalen", "infiniband.aeth.syndrome", "infiniband.aeth.msn", "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt", "infiniband.atomicacketh.origremdt", "infiniband.immdt", "infiniband.ieth", "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
)  # fmt: skip
EXTENSIONS = {
    "infiniband.reth.va": ("RETH", 0, 8), "infiniband.reth.r_key": ("RETH", 8, 4), "infiniband.reth.dmalen": ("RETH", 12, 4),
    "infiniband.aeth.syndrome": ("AETH", 0, 1), "infiniband.aeth.msn": ("AETH", 1, 3), "infiniband.atomiceth.swapdt": ("AtomicETH", 12, 8),
    "infiniband.atomiceth.cmpdt": ("AtomicETH", 20, 8), "infiniband.atomicacketh.origremdt": ("AtomicAckETH", 0, 8),
    "infiniband.immdt": ("ImmDt", 0, 4), "infiniband.ieth": ("IETH", 0, 4), "infiniband.deth.q_key": ("DETH", 0, 4),
    "infiniband.deth.srcqp": ("DETH", 5, 3),
}  # fmt: skip
UNKNOWN_TO_TSHARK = {0x1C, 0x1D, 0x80, 0x81}
"""Opcodes whose extension headers tshark 4.0 does not take apart."""


def number(text: str) -> int | None:
    text = text.replace(":", "")
    if not text:
        return None
    if text in ("True", "False"):  # of a flag: from tshark 4.2 on
        return int(text == "True")
    return int(text, 16 if text.startswith("0x") or not text.isdigit() else 10)


def tshark(path: Path) -> dict[int, dict[str, str]]:
    command = [
        "tshark",
        "--disable-protocol",
        "tftp",
        "-r",
        str(path),
        "-T",
        "fields",
        "-E",
        "occurrence=f",
        "-Y",
        "infiniband.bth",
    ]
    for name in (*FIELDS, "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "frame.time_epoch"):
        command += ["-e", name]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [
        dict(
            zip(
                (*FIELDS, "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "frame.time_epoch"), line.split("\t"), strict=True
            )
        )
        for line in out.splitlines()
    ]
    return {int(row["frame.number"]): row for row in rows}


def compare(path: Path) -> int:
    """Compare a capture's columns with tshark's. Returns how many packets were compared."""
    theirs = tshark(path)
    compared = 0
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for chunk in capture.Capture(file, str(path)).chunks():
            c = columns.decode(chunk)
            own = {
                "frame.len": c.length, "udp.srcport": c.sport, "infiniband.bth.opcode": c.opcode, "infiniband.bth.se": c.flags >> 7,
                "infiniband.bth.m": c.flags >> 6 & 1, "infiniband.bth.padcnt": c.flags >> 4 & 3, "infiniband.bth.tver": c.flags & 15,
                "infiniband.bth.p_key": c.pkey, "infiniband.bth.destqp": c.destqp, "infiniband.bth.a": c.ackreq, "infiniband.bth.psn": c.psn,
            }  # fmt: skip
            dense = {name: (c.dense(*place), headers_there(c, place[0])) for name, place in EXTENSIONS.items()}
            for n, frame in enumerate(c.frame.tolist()):
                row = theirs.pop(frame)
                for name, values in own.items():
                    wanted = number(row[name])
                    if name == "udp.srcport" and c.roce1[n]:
                        continue
                    assert int(values[n]) == wanted, (path.name, frame, name)
                if int(c.opcode[n]) not in UNKNOWN_TO_TSHARK:
                    atomic = (
                        {"infiniband.reth.va": "AtomicETH", "infiniband.reth.r_key": "AtomicETH"}
                        if c.opcode[n] & 31 in (0x13, 0x14)
                        else {}
                    )
                    for name, (values, there) in dense.items():
                        if name in atomic:  # tshark names the fields of an AtomicETH like those of a RETH
                            place = (atomic[name], *EXTENSIONS[name][1:])
                            values, there = c.dense(*place), headers_there(c, place[0])
                        text = row[name].replace(":", "")
                        wanted = (
                            None
                            if not text
                            else int(text, 16)
                            if name in ("infiniband.ieth", "infiniband.immdt") and not text.startswith("0x")
                            else number(row[name])
                        )
                        assert (int(values[n]) if there[n] else None) == wanted, (path.name, frame, name)
                if not c.roce1[n]:
                    assert columns.address(*c.src[n]) == (row["ip.src"] or row["ipv6.src"]), (path.name, frame)
                    assert columns.address(*c.dst[n]) == (row["ip.dst"] or row["ipv6.dst"]), (path.name, frame)
                assert abs(int(c.time[n]) - round(float(row["frame.time_epoch"]) * 1e9)) < 1000
                compared += 1
    assert theirs == {}, "packets that only tshark takes for RoCE"
    return compared


def headers_there(c: columns.Columns, name: str) -> np.ndarray:
    there = np.zeros(len(c), bool)
    there[c.extension(name)[0]] = True
    return there


CAPTURES = sorted(path for path in PCAPS.parent.rglob("*") if re.search(r"\.pcap(ng)?(\.gz)?$", path.name))
"""Every capture of tests/data, wherever it lies."""


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_columns_of_a_capture_are_those_of_tshark(path: Path) -> None:
    assert compare(path) > 0


FRAMES = [
    (
        n * made.US,
        made.frame(
            made.bth(0x0A, 17, n, 1) + made.reth(n << 40, 7, 8) + bytes(8),
            src,
            dst,
            vlans=vlans,
            options=options,
            sport=sport,
        ),
    )
    for n, (src, dst, vlans, options, sport) in enumerate(
        [
            (made.A, made.B, (), b"", 69),
            (made.A, made.B, (5,), b"", 72),
            (made.A, made.B, (5, 6), b"\1" * 8, 0),
            ("2001:db8::1", "2001:db8::2", (7,), b"", 49152),
        ]
    )
]


@pytest.mark.parametrize(
    "name,data",
    [
        ("us, big end first", made.pcap(FRAMES, order=">")),
        ("ns, little end first", made.pcap(FRAMES, ns=True)),
        ("ns, big end first", made.pcap(FRAMES, ns=True, order=">")),
        ("pcapng", made.pcapng(FRAMES)),
        ("pcapng, big end first", made.pcapng(FRAMES, order=">")),
        ("cut", made.pcap(FRAMES, snaplen=90)),
        ("raw IP", made.pcap([(t, f[14:]) for t, f in FRAMES[:1]], link=101)),
        ("Linux cooked", made.pcap([(0, made.frame(made.bth(0x11, 9, 4) + made.aeth(0x1F, 3), link="sll"))], link=113)),
        (
            "Linux cooked v2",
            made.pcap([(0, made.frame(made.bth(0x11, 9, 4) + made.aeth(0x1F, 3), link="sll2"))], link=276),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_kind_of_file_and_link_reads_as_tshark_reads_it(name: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(data)
    assert compare(path) > 0


def test_a_long_capture_in_several_chunks_reads_as_tshark_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "CHUNK_BYTES", 10_000)
    made.long_capture(tmp_path / "x.pcap", 2000, 64, 96)
    assert len(list(capture.Capture(io.BytesIO((tmp_path / "x.pcap").read_bytes()), "x").chunks())) > 10
    assert compare(tmp_path / "x.pcap") == 2000
