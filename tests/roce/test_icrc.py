"""The ICRC: worked vectors of a kernel's packets, all captured packets, and one packet against many at once."""

from __future__ import annotations

import ipaddress
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmadiag.roce import capture, columns, icrc, packet
from tests.roce import captures as made

PCAPS = Path(__file__).parent.parent / "data/pcaps"
BAD = {"softroce-6.1-requester-lab": [315], "softroce-6.1-responder-lab": [3, 83], "synthetic-faults": [11]}
"""Frames whose ICRC was made wrong, by the oracles of the captures."""


def columns_of(data: bytes) -> list[columns.Columns]:
    import io

    return [columns.decode(chunk) for chunk in capture.Capture(io.BytesIO(data), "x").chunks()]


def test_the_icrc_of_a_kernels_ipv4_ack() -> None:
    head = bytes.fromhex("45020030cc27400040115a910a0000010a000002c24212b7001c0000")
    assert packet.packet_icrc(head + bytes.fromhex("1100ffff00000022000000641f000001"), 20) == 0x2AE48A47


def test_the_icrc_of_a_kernels_ipv6_ack() -> None:
    head = bytes.fromhex("60200000001c1140") + b"".join(ipaddress.ip_address(f"2001:db8::{n}").packed for n in (1, 2))
    rest = bytes.fromhex("c5d812b7001c00001100ffff00000022000000641f000001")
    assert packet.packet_icrc(head + rest, 40) == 0xD160987B


@pytest.mark.parametrize("path", sorted(PCAPS.glob("*.pcap")), ids=lambda path: path.stem)
def test_every_captured_packet_has_a_good_icrc_but_those_made_bad(path: Path) -> None:
    for c in columns_of(path.read_bytes()):
        state = c.icrc()
        assert (state != icrc.UNCHECKABLE).all()
        assert c.frame[state == icrc.BAD].tolist() == BAD.get(path.stem, [])


@pytest.mark.parametrize("path", sorted(PCAPS.glob("*.pcap")), ids=lambda path: path.stem)
def test_a_cut_packet_is_not_checkable_and_never_bad(path: Path) -> None:
    c = columns_of(path.read_bytes())[0]
    frames = [(int(t), c.data[a:b].tobytes()) for t, a, b in zip(c.time, c.l3 - 14, c.end, strict=True)]
    for cut in columns_of(made.pcap(frames, snaplen=57)):
        state = cut.icrc()
        assert (state[cut.length > 57] == icrc.UNCHECKABLE).all()
        assert (state == icrc.BAD).sum() <= len(BAD.get(path.stem, []))


def test_what_routers_change_changes_no_icrc() -> None:
    body = made.bth(0x0A, 17, 5) + made.reth(1, 2, 8) + bytes(8)
    for address in (("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")):
        plain = made.frame(body, *address)
        at = 14
        routed = bytearray(plain)
        if plain[at] >> 4 == 4:
            routed[at + 1], routed[at + 8] = 0xAB, 3
        else:
            routed[at] |= 0x0A
            routed[at + 1], routed[at + 7] = 0xB3, 3
        (c,) = columns_of(made.pcap([(0, plain), (1000, bytes(routed))]))
        assert c.icrc().tolist() == [icrc.GOOD, icrc.GOOD]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=8), st.integers(0, 0xFFFFFFFF))
def test_many_crcs_at_once_are_those_of_zlib(messages: list[bytes], state: int) -> None:
    size = min(map(len, messages))
    rows = np.array([list(message[:size]) for message in messages], np.uint8)
    assert icrc.crc32_rows(rows).tolist() == [zlib.crc32(row.tobytes()) for row in rows]
    states = np.full(len(rows), state, np.uint32)
    assert icrc.crc32_more(states, rows).tolist() == [zlib.crc32(row.tobytes(), state) for row in rows]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 300),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10).map(lambda n: bytes([1]) * 4 * n),
)
def test_one_packet_and_many_have_the_same_icrc(size: int, pad: int, six: bool, good: bool, options: bytes) -> None:
    body = made.bth(0x04, 17, 5, pad=pad) + bytes(range(size % 256)) + bytes(pad)
    src, dst = ("2001:db8::1", "2001:db8::2") if six else ("10.0.0.1", "10.0.0.2")
    (c,) = columns_of(made.pcap([(0, made.frame(body, src, dst, options=b"" if six else options, good=good))] * 3))
    assert c.icrc().tolist() == [icrc.GOOD if good else icrc.BAD] * 3


def test_headers_that_are_not_whole_are_refused() -> None:
    for head in (b"", b"\x45" + bytes(20), b"\x10" + bytes(60)):
        with pytest.raises(ValueError, match="wanted"):
            packet.packet_icrc(head, 20)
