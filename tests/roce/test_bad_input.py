"""Captures that are cut off, damaged or hostile: a clear message, bounded memory, and what could be read is still said."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdmadiag.diagnose import wire
from rdmadiag.errors import BadFile
from rdmadiag.roce import analysis, capture, streams
from tests.roce import captures as made
from tests.roce.test_engine import clean

PCAPS = Path(__file__).parent.parent / "data/pcaps"
SMALL = made.pcap(clean(1, 5))
SMALL_NG = made.pcapng(clean(1, 5), dropped=3)


def analysed(data: bytes) -> analysis.Analysis:
    return analysis.analyse(io.BytesIO(data), "x")


@pytest.mark.parametrize("data", [SMALL, SMALL_NG], ids=["pcap", "pcapng"])
def test_a_file_cut_off_at_any_byte_says_where_and_keeps_what_came_before(data: bytes) -> None:
    packets = []
    for size in range(len(data)):
        try:
            found = analysed(data[:size])
        except BadFile as error:
            assert size < 24, error
            continue
        (row,) = found.tables["capture"]
        packets.append(row["packets"])
        whole = not found.partial
        assert whole or f"at byte {size}"[:7] in row["partial"]
        if row["partial"]:
            assert "the file ends inside a" in row["partial"]
    assert packets == sorted(packets) and packets[-1] >= 7


def test_a_cut_file_is_a_gap_of_kind_truncated(tmp_path: Path) -> None:
    (tmp_path / "x.pcap").write_bytes(SMALL[:-10])
    report = wire.look([str(tmp_path / "x.pcap")]).report
    assert {gap["kind"] for gap in report["gaps"]} == {"truncated"} and "packet 8" in report["gaps"][0]["reason"]
    assert report["summary"]["exit_code"] == 3 and report["flows"][0]["packets"] == 4


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_never_raise(seed: int) -> None:
    chance = random.Random(seed)
    source = [*sorted(PCAPS.glob("*.pcap"))][seed % 7].read_bytes()[:60_000]
    for _ in range(15):
        data = bytearray(source)
        for _ in range(chance.choice((1, 5, 200))):
            data[chance.randrange(24, len(data))] = chance.randrange(256)
        found = analysed(bytes(data))
        assert found.tables["capture"][0]["packets"] >= 0


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.binary(max_size=200)), max_size=12),
    st.sampled_from([0, 1, 101, 113, 197, 228, 229, 247, 276, 9999]),
    st.booleans(),
)
def test_any_packets_of_any_link_type_are_taken(packets: list[tuple[int, bytes]], link: int, ng: bool) -> None:
    found = analysed(made.pcapng(packets, link) if ng else made.pcap(packets, link))
    assert found.tables["capture"][0]["packets"] == len(packets) and not found.partial


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=120), st.sampled_from([b"", b"\x45\0\0\x80", b"\x60\0\0\0"]), st.integers(0, 255))
def test_any_bytes_behind_a_udp_header_are_taken(body: bytes, _: bytes, opcode: int) -> None:
    packet = made.frame(bytes([opcode]) + body + bytes(12))
    found = analysed(made.pcap([(0, packet), (1, packet[: len(packet) // 2])]))
    assert found.tables["capture"][0]["packets"] == 2


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_pcapng_blocks_are_taken_or_refused(rest: bytes) -> None:
    found = analysed(made.pcapng([]) + rest)
    assert found.tables["capture"][0]["packets"] >= 0


def test_a_record_that_claims_4_gb_is_named(tmp_path: Path) -> None:
    data = SMALL + struct.pack("<IIII", 0, 0, 0xFFFFFFF0, 64) + bytes(64)
    (row,) = analysed(data).tables["capture"]
    assert (
        row["packets"] == 8
        and "claims 4294967280 bytes" in row["partial"]
        and f"at byte {len(SMALL)}" in row["partial"]
    )


def test_hostile_pcapng_blocks_are_named() -> None:
    head = made.pcapng([])
    for block, words in (
        (struct.pack("<II", 6, 0xFFFFFFFC), "a block that claims"),
        (struct.pack("<II", 6, 4) + bytes(20), "a block that claims 4 bytes"),
        (made.block(6, struct.pack("<IIIII", 7, 0, 0, 0, 0)), "which no block before it describes"),
        (made.block(6, struct.pack("<IIIII", 0, 0, 0, 0x7FFFFFFF, 0)), "has room for"),
        (made.block(6, b""), "shorter than its fields"),
        (b"\n\r\r\n" + struct.pack("<II", 28, 0) + bytes(16), "byte-order magic"),
    ):
        (row,) = analysed(head + block + bytes(64)).tables["capture"]
        assert words in (row["partial"] or ""), (words, row["partial"])


def test_nested_vlan_tags_have_an_end() -> None:
    deep = made.frame(made.bth(0x11, 1, 1) + made.aeth(0x1F), vlans=tuple(range(1, 40)))
    shallow = made.frame(made.bth(0x11, 1, 1) + made.aeth(0x1F), vlans=tuple(range(1, 8)))
    (row,) = analysed(made.pcap([(0, deep), (1, shallow)])).tables["capture"]
    assert row["roce2"] == 1 and "more VLAN tags than 8: 1" in row["other"]


def test_fragments_roce1_and_native_infiniband_are_named() -> None:
    fragment = bytearray(made.frame(made.bth(0x0A, 1, 1) + made.reth(0, 1, 8) + bytes(8)))
    fragment[14 + 6 : 14 + 8] = b"\x20\x00"
    (row,) = analysed(made.pcap([(0, bytes(fragment))])).tables["capture"]
    assert row["fragments"] == 1 and row["roce2"] == 0
    (row,) = analysed(made.pcap([(0, bytes(60))], link=197)).tables["capture"]
    assert row["native_ib"] == 1
    (row,) = analysed((PCAPS / "scapy-uts-rocev1-write-ack.pcap").read_bytes()).tables["capture"]
    assert row["roce1"] == 2 and row["icrc_good"] == 2


def test_more_streams_than_the_limit_are_counted_and_marked_partial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams.Streams.__init__, "__defaults__", (100,))
    frames = [(n, made.frame(made.bth(0x0A, n, 5, 1) + made.reth(0, 1, 8) + bytes(8), ip_id=n)) for n in range(300)]
    found = analysed(made.pcap(frames))
    assert len(found.tables["flow"]) == 100
    assert any("200 packets of streams beyond the first 100" in text for text in found.partial)


def test_no_capture_is_an_error_that_says_what_was_wanted(tmp_path: Path) -> None:
    for name, data in (("text", b"hello, this is no capture\n"), ("empty", b""), ("short", b"\xd4\xc3\xb2\xa1")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadFile, match="wanted"):
            wire.look([str(tmp_path / name)])


def test_a_stream_that_breaks_off_keeps_what_came() -> None:
    class Breaks(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(200 if size is None or size < 0 else min(size, 200))
            if not data:
                raise OSError(5, "Input/output error")
            return data

    (row,) = analysis.analyse(Breaks(SMALL), "x").tables["capture"]
    assert row["packets"] == 8 and "Input/output error" in row["partial"]


def test_a_snapped_capture_is_read_for_its_headers() -> None:
    found = analysed(made.pcap(clean(1, 50), snaplen=60))
    (row,) = found.tables["capture"]
    assert row["cut"] == 98 and row["icrc_bad"] == 0 and row["roce2"] == 98
    assert capture.LINK_NAMES[1] == row["links"]
