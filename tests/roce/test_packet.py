"""One frame as bytes: fields by name are those that the capture columns read, and a changed frame that is sealed is valid."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmadiag.errors import BadInput
from rdmadiag.explain import opcode
from rdmadiag.roce import capture, columns, headers, icrc, packet
from tests.roce import captures as made

OPCODES = [
    value for value in range(256) if opcode.lookup(value)["operation"] and value & 0xE0 != 0x40 and value != opcode.CNP
]
V4 = packet.Path(made.A, made.B, "02:00:00:00:00:01", "02:00:00:00:00:02", sport=0xC123)
V6 = V4._replace(src="2001:db8::1", dst="2001:db8::2")


def seen(frame: bytes) -> columns.Columns:
    """Return the columns that the capture reader makes of one frame."""
    (chunk,) = capture.Capture(io.BytesIO(made.pcap([(0, frame)])), "x").chunks()
    return columns.decode(chunk)


def icrc_of(frame: bytes) -> int:
    return int(seen(frame).icrc()[0])


def body(code: int, payload: bytes) -> bytes:
    return made.bth(code, 77, 5) + bytes(headers.HEADER_BYTES[code] - 12) + payload


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(OPCODES), st.integers(0, 20), st.booleans(), st.sampled_from([None, 7]), st.randoms())
def test_fields_written_by_name_are_read_by_the_columns_and_the_icrc_is_good(
    code: int, words: int, six: bool, vlan: int | None, chance: object
) -> None:
    path = (V6 if six else V4)._replace(vlan=vlan)
    frame = bytearray(packet.build(path, body(code, bytes(4 * words))))
    at = packet.places(frame)
    assert at is not None and at.opcode == code
    wanted = {}
    for name, (header, _, size) in packet.FIELDS.items():
        if header in ("L3", "UDP") or name == "opcode":
            continue
        value = chance.randrange(1 << 8 * size)  # type: ignore[attr-defined]
        if name in ("va", "rkey") and "AtomicETH" in opcode.headers(code):
            header = "AtomicETH"
        has = header == "BTH" or header in opcode.headers(code)
        assert packet.put(frame, name, value, at) is has
        if has:
            wanted[name] = value, header
    packet.seal(frame, at)
    c = seen(bytes(frame))
    for name, (value, header) in wanted.items():
        assert packet.get(frame, name, at) == value
        _, offset, size = packet.FIELDS[name]
        if header == "BTH":
            read = {"pkey": c.pkey, "dest_qp": c.destqp, "psn": c.psn}[name]
            assert int(np.asarray(read)[0]) == value
        else:
            assert int(c.dense(header, offset, size)[0]) == value
    assert icrc_of(bytes(frame)) == icrc.GOOD


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_that_are_no_packet_have_no_places_and_raise_nothing(data: bytes) -> None:
    found = packet.places(data)
    assert found is None or found.icrc + 4 <= len(data)


def test_a_packet_cut_anywhere_has_no_places() -> None:
    frame = packet.build(V4, body(0x0A, bytes(8)))
    assert packet.places(frame) is not None
    assert all(packet.places(frame[:size]) is None for size in range(len(frame)))


def test_a_fragment_and_another_port_are_no_packets_to_change() -> None:
    frame = packet.build(V4, body(0x04, bytes(8)))
    assert packet.places(frame[:20] + b"\x20\x01" + frame[22:]) is None
    assert packet.places(frame[:36] + b"\x12\xb6" + frame[38:]) is None


def test_an_unknown_field_names_the_known_ones() -> None:
    frame = packet.build(V4, body(0x04, b""))
    at = packet.places(frame)
    assert at is not None
    with pytest.raises(BadInput, match="no field 'rkei'.*rkey"):
        packet.get(frame, "rkei", at)
    assert packet.get(frame, "rkey", at) is None


def test_addresses_of_two_versions_make_no_path() -> None:
    with pytest.raises(BadInput, match="one IP version"):
        packet.build(V4._replace(dst="2001:db8::1"), b"")
    with pytest.raises(BadInput, match="path"):
        packet.build(V4._replace(src="10.0.0"), b"")
