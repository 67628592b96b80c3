"""Frames of the control channel: a length of 4 bytes (big-endian), and a JSON object with a `type`. Bounded; what is hostile is refused."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from rdmadiag.errors import RdmadiagError

FRAME_BYTES = 8 << 20
"""Longest frame [bytes]: page table and CRCs of a long request."""
_LENGTH = struct.Struct("!I")


class ProtocolError(RdmadiagError):
    """The peer sent what the protocol does not have: names the place and what was wanted."""


class PeerGone(RdmadiagError):
    """The peer closed the connection, or did not answer in time."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as a frame. Raises ProtocolError when it is too long."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > FRAME_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes; the longest is {FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> dict[str, Any]:
    """Return the message of a frame's body. Raises ProtocolError for what is no JSON object with a type."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame that is no JSON ({type(error).__name__}); wanted an object with a type") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ProtocolError("a frame without a type; wanted an object with one")
    return message


def send(to: socket.socket, message: Mapping[str, Any], seconds: float = 30.0) -> None:
    """Send a message. Raises PeerGone when the peer is gone or takes nothing for so long."""
    to.settimeout(seconds)
    try:
        to.sendall(encode(message))
    except OSError as error:
        raise PeerGone(f"control channel: {error}") from error


def receive(of: socket.socket, seconds: float = 30.0) -> dict[str, Any]:
    """Receive a message within a time [s]. Raises PeerGone, ProtocolError."""
    end = time.monotonic() + seconds
    (length,) = _LENGTH.unpack(_exactly(of, _LENGTH.size, end))
    if length > FRAME_BYTES:
        raise ProtocolError(f"a frame of {length} bytes; the longest is {FRAME_BYTES}")
    return decode(_exactly(of, length, end))


def _exactly(of: socket.socket, length: int, end: float) -> bytes:
    data = bytearray()
    while len(data) < length:
        left = end - time.monotonic()
        if left <= 0:
            raise PeerGone("control channel: no answer in time")
        of.settimeout(left)
        try:
            part = of.recv(min(length - len(data), 1 << 18))
        except OSError as error:
            raise PeerGone(f"control channel: {error}") from error
        if not part:
            raise PeerGone("control channel: closed by the peer")
        data += part
    return bytes(data)


def number(message: Mapping[str, Any], name: str, low: int = 0, high: int = (1 << 63) - 1) -> int:
    """Return an integer of a message. Raises ProtocolError where it is none, or out of bounds."""
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ProtocolError(
            f"{message.get('type')}: {name} is {str(value)[:40]!r}; wanted an integer from {low} to {high}"
        )
    return value


def numbers(message: Mapping[str, Any], name: str, most: int, high: int = (1 << 32) - 1) -> list[int]:
    """Return a list of integers of a message. Raises ProtocolError."""
    value = message.get(name)
    if not isinstance(value, list) or len(value) > most:
        raise ProtocolError(f"{message.get('type')}: {name} is not a list of at most {most} integers")
    if not all(type(each) is int and 0 <= each <= high for each in value):
        raise ProtocolError(f"{message.get('type')}: {name} holds what is no integer from 0 to {high}")
    return value


def words(message: Mapping[str, Any], name: str, most: int) -> list[str]:
    """Return a list of texts of a message. Raises ProtocolError."""
    value = message.get(name)
    if not isinstance(value, list) or len(value) > most or not all(isinstance(each, str) for each in value):
        raise ProtocolError(f"{message.get('type')}: {name} is not a list of at most {most} texts")
    return value
