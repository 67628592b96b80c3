"""The control channel refuses what is hostile, and says what was wanted."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.kv import frames

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_a_message_arrives_as_it_was_sent(message: dict[str, object]) -> None:
    left, right = socket.socketpair()
    with left, right:
        frames.send(left, {**message, "type": "x"})
        assert frames.receive(right, 1.0) == {**message, "type": "x"}


@given(st.binary(max_size=200))
def test_any_body_is_a_message_or_refused(body: bytes) -> None:
    try:
        assert isinstance(frames.decode(body)["type"], str)
    except frames.ProtocolError as error:
        assert "wanted" in str(error)


def test_a_frame_that_is_too_long_is_refused_before_it_is_read() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(struct.pack("!I", frames.FRAME_BYTES + 1))
        with pytest.raises(frames.ProtocolError, match="longest"):
            frames.receive(right, 1.0)


def test_a_peer_that_goes_away_in_a_frame_is_gone() -> None:
    left, right = socket.socketpair()
    with right:
        left.sendall(struct.pack("!I", 10) + b"{")
        left.close()
        with pytest.raises(frames.PeerGone, match="closed"):
            frames.receive(right, 1.0)


def test_a_peer_that_says_nothing_is_not_waited_for_for_ever() -> None:
    left, right = socket.socketpair()
    with left, right, pytest.raises(frames.PeerGone):
        frames.receive(right, 0.01)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(frames.ProtocolError):
        frames.decode(b'{"type":' + b"[" * 100_000)


@given(JSON)
def test_a_field_of_another_type_or_out_of_bounds_is_refused(value: object) -> None:
    message = {"type": "x", "n": value}
    if type(value) is int and 0 <= value <= 9:
        assert frames.number(message, "n", 0, 9) == value
        return
    with pytest.raises(frames.ProtocolError, match="n is"):
        frames.number(message, "n", 0, 9)
    with pytest.raises(frames.ProtocolError):
        frames.numbers({"type": "x", "n": [value]}, "n", 5, 9)
