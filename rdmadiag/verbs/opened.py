"""Attributes of the queue pairs that any library of this process made, asked of the kernel by the process's own open devices.

An engine tells nobody which retry counts its queue pairs have. The kernel answers QUERY_QP to whoever has the file
that they belong to (include/uapi/rdma/ib_user_verbs.h; drivers/infiniband/core/uverbs_cmd.c), and that file is this process's.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

QUERY_QP = 25  # IB_USER_VERBS_CMD_QUERY_QP
ALL = (1 << 21) - 1
HANDLES = 512
"""Handles that are tried; the kernel gives the lowest free one, to objects of all kinds."""
RTS = 3
_ASKED = struct.Struct("=IHHQII")  # command, words in, words out, response, qp_handle, attr_mask
_ANSWER = struct.Struct("=64x5I5I2H20B")  # struct ib_uverbs_query_qp_resp without its two addresses
_MTU_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}  # enum ib_mtu


class Opened(NamedTuple):
    """A queue pair: its handle, its peer's number (0: connected to none), and attributes as codes of the verbs API; `path_mtu` [bytes]."""

    handle: int
    state: int
    dest_qp_num: int
    path_mtu: int
    min_rnr_timer: int
    timeout: int
    retry_cnt: int
    rnr_retry: int


def parse(handle: int, answer: bytes) -> Opened:
    """Read an answer of the kernel [128 bytes]."""
    words = _ANSWER.unpack(answer[: _ANSWER.size])
    state, mtu = words[12], words[14]
    return Opened(handle, state, words[8], _MTU_BYTES.get(mtu, 0), words[19], words[21], words[22], words[23])


def _devices() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("/dev/infiniband/uverbs"):
                yield int(name)
        except OSError:
            continue  # the file by which the folder is read


def _ask(file: int, handle: int) -> bytes | None:
    answer = ctypes.create_string_buffer(_ANSWER.size)
    asked = _ASKED.pack(QUERY_QP, _ASKED.size // 4, _ANSWER.size // 4, ctypes.addressof(answer), handle, ALL)
    try:
        os.write(file, asked)
    except OSError:
        return None  # of another kind, or no such handle
    return answer.raw


def queue_pairs(ask: Callable[[int, int], bytes | None] = _ask) -> list[Opened]:
    """Return the queue pairs of this process's open devices; empty where the kernel does not answer."""
    return [
        parse(handle, answer)
        for file in _devices()
        for handle in range(HANDLES)
        if (answer := ask(file, handle)) is not None
    ]


def weakest() -> dict[str, int]:
    """Return, of the connected queue pairs in RTS, how many there are and the smallest of each attribute; empty for none."""
    found = [qp for qp in queue_pairs() if qp.state == RTS and qp.dest_qp_num]
    names = ("rnr_retry", "retry_cnt", "timeout", "min_rnr_timer", "path_mtu")
    return (
        {"connected_qps": len(found), **{name: min(getattr(qp, name) for qp in found) for name in names}}
        if found
        else {}
    )
