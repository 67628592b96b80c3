"""Attributes of queue pairs that others made, as the kernel answers them (struct ib_uverbs_query_qp_resp)."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.verbs import opened


def answer(**values: int) -> bytes:
    """Make an answer by the offsets of the uapi header, in bytes."""
    data = bytearray(128)
    places = {
        "dest_qp_num": (96, "I"),
        "qp_state": (108, "B"),
        "path_mtu": (110, "B"),
        "min_rnr_timer": (115, "B"),
        "timeout": (117, "B"),
        "retry_cnt": (118, "B"),
        "rnr_retry": (119, "B"),
    }
    for name, value in values.items():
        at, kind = places[name]
        struct.pack_into(f"={kind}", data, at, value)
    return bytes(data)


def test_attributes_are_read_where_the_kernel_puts_them() -> None:
    data = answer(dest_qp_num=34, qp_state=3, path_mtu=5, min_rnr_timer=12, timeout=14, retry_cnt=7, rnr_retry=6)
    assert opened.parse(9, data) == opened.Opened(9, 3, 34, 4096, 12, 14, 7, 6)


def test_a_process_without_an_open_device_has_no_queue_pairs() -> None:
    assert opened.queue_pairs() == [] and opened.weakest() == {}


def test_the_weakest_attributes_are_of_connected_queue_pairs_only(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    ready = answer(dest_qp_num=34, qp_state=3, path_mtu=5, timeout=18, retry_cnt=7, rnr_retry=7)
    other = answer(dest_qp_num=35, qp_state=3, path_mtu=3, timeout=14, retry_cnt=6, rnr_retry=7)
    waiting = answer(qp_state=3, rnr_retry=0)
    dead = answer(dest_qp_num=36, qp_state=6, rnr_retry=1)
    monkeypatch.setattr(
        opened, "queue_pairs", lambda: [opened.parse(n, a) for n, a in enumerate((ready, other, waiting, dead))]
    )
    assert opened.weakest() == {
        "connected_qps": 2,
        "rnr_retry": 7,
        "retry_cnt": 6,
        "timeout": 14,
        "min_rnr_timer": 0,
        "path_mtu": 1024,
    }


@given(st.binary(min_size=128, max_size=160))
def test_no_answer_makes_it_raise(data: bytes) -> None:
    assert opened.parse(0, data).path_mtu in (0, 256, 512, 1024, 2048, 4096)
