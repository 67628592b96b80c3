"""The frames between a client, the lab's keeper and the guest's agent (guest.c): length, type, id, payload.

All numbers are little-endian. Towards the guest: X start a command, I its input (empty: the end), S a signal, W a
terminal size, C output bytes that were taken, M attach the host's files, U detach them, P are you there, Q power off.
From it: H hello, A started, O and E output, C input bytes that were taken, R result, D answer to M, U and P. Between
client and keeper besides: J a request or answer in JSON; ids are the keeper's own business there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

HEAD = struct.Struct("<IcI")
PAYLOAD_MAX = 1 << 18
INPUT_WINDOW = 1 << 16
STEP_AGENT, STEP_FOLDER, STEP_EXEC = range(3)


def frame(kind: bytes, number: int, payload: bytes = b"") -> bytes:
    """Return one frame. Raises ValueError for a payload that the agent would not take."""
    if len(payload) > PAYLOAD_MAX:
        raise ValueError(f"a frame of {len(payload)} bytes; wanted at most {PAYLOAD_MAX}")
    return HEAD.pack(len(payload), kind, number) + payload


class Splitter:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
        """Yield the (type, id, payload) that are complete. Raises ValueError for a length that no frame has."""
        self._data += data
        place = 0
        while len(self._data) - place >= HEAD.size:
            length, kind, number = HEAD.unpack_from(self._data, place)
            if length > PAYLOAD_MAX:
                raise ValueError(f"a frame of {length} bytes; wanted at most {PAYLOAD_MAX}")
            stop = place + HEAD.size + length
            if len(self._data) < stop:
                break
            yield kind, number, bytes(self._data[place + HEAD.size : stop])
            place = stop
        del self._data[:place]


def start(argv: list[str], folder: str, environment: dict[str, str], size: tuple[int, int] | None = None) -> bytes:
    """Return the payload of X; `size` is (rows, columns) of a terminal, or None for pipes.

    Raises ValueError when the words do not fit, or hold a NUL.
    """
    rows, columns = size or (0, 0)
    words = [folder, *argv, *(f"{name}={value}" for name, value in environment.items())]
    if any("\0" in word for word in words) or not argv or len(words) > 4000:
        raise ValueError("wanted a command, no NUL character in it, and at most 4000 words and variables")
    text = b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words)
    payload = struct.pack("<4H", size is not None, rows, columns, len(argv)) + text
    if len(payload) > PAYLOAD_MAX:
        raise ValueError(f"command and environment have {len(payload)} bytes; wanted at most {PAYLOAD_MAX}")
    return payload
