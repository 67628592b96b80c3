"""Batches of frames with changing fields are what one frame changed and sealed is; what is not permitted is not sent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmadiag.errors import BadInput
from rdmadiag.roce import forge, packet, send
from tests.roce import captures as made

V4 = packet.Path(made.A, made.B, "02:00:00:00:00:01", "02:00:00:00:00:02")
V6 = V4._replace(src="2001:db8::1", dst="2001:db8::2")
PERMIT = send.Permit("lo", (made.B,), "a test")
WRITE = forge.write(V4, dest_qp=1, psn=0, rkey=0, va=0)
FIELDS = ("psn", "dest_qp", "rkey", "va", "length", "sport", "pkey", "tos", "ttl", "ip_id")


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.sampled_from(FIELDS), min_size=1, max_size=4),
    st.integers(0, 1 << 70),
    st.integers(-3, 1 << 20),
    st.booleans(),
    st.booleans(),
    st.integers(1, 300),
)
def test_a_batch_is_the_packets_changed_one_by_one(
    fields: set[str], start: int, step: int, six: bool, good: bool, count: int
) -> None:
    six = six and not fields & {"tos", "ttl", "ip_id"}
    frame = bytearray(
        forge.write(V6 if six else V4, dest_qp=1, psn=0, rkey=0, va=0, payload=bytes(range(count % 256))).data
    )
    wrong = 0 if good else 0x5A
    frame[-1] ^= wrong
    changes = [send.Change(name, start, step) for name in sorted(fields)]
    buffer = bytearray(frame * count)
    send.Template(bytes(frame), changes).fill(buffer, 7, count)
    at = packet.places(frame)
    assert at is not None
    for n in (0, count // 2, count - 1):
        one = bytearray(frame)
        for change in changes:
            assert packet.put(one, change.field, start + (7 + n) * step, at)
        packet.seal(one, at)
        one[-1] ^= wrong
        assert buffer[n * len(frame) : (n + 1) * len(frame)] == one


def test_values_come_in_turn() -> None:
    assert send.Change("psn", values=(5, 9, 2)).of(1, 5) == [9, 2, 5, 9, 2]


@pytest.mark.parametrize(
    ("frame", "changes", "said"),
    [
        (WRITE.data, [send.Change("syndrome")], "no field 'syndrome'"),
        (WRITE.data, [send.Change("psn"), send.Change("psn")], "changed twice"),
        (WRITE.data[:40], [send.Change("psn")], "no whole RoCEv2 packet"),
        (forge.write(V6, dest_qp=1, psn=0, rkey=0, va=0).data, [send.Change("ttl")], "no field 'ttl'"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(frame: bytes, changes: list[send.Change], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        send.Template(frame, changes)


def test_only_addresses_of_the_permit_are_sent_to() -> None:
    with pytest.raises(BadInput, match="goes to 10.0.0.1; a test permits 10.0.0.2"):
        send.send(
            [send.Template(forge.write(V4.back(), dest_qp=1, psn=0, rkey=0, va=0).data)], PERMIT, count=1, seconds=1
        )
    with pytest.raises(BadInput, match="goes to no IP address"):
        send.send([send.Template(bytes(60))], PERMIT, count=1, seconds=1)
    with pytest.raises(BadInput, match="goes to 2001:db8::2"):
        send.send([send.Template(forge.ack(V6, dest_qp=1, psn=0).data)], PERMIT, count=1, seconds=1)


@pytest.mark.parametrize(("count", "seconds", "rate"), [(0, 1, None), (1, 0, None), (1, 4000, None), (1, 1, 0)])
def test_sending_without_bounds_is_refused(count: int, seconds: float, rate: float | None) -> None:
    with pytest.raises(BadInput, match="has bounds"):
        send.send([send.Template(WRITE.data)], PERMIT, count=count, seconds=seconds, rate=rate)


def test_a_syndrome_changed_to_a_dangerous_one_is_refused_too() -> None:
    frame = forge.ack(V4, dest_qp=1, psn=0).data
    for change in (send.Change("syndrome", 0x3F, 1), send.Change("syndrome", values=(0x1F, 0x40))):
        with pytest.raises(BadInput, match="reserved-aeth"):
            send.send([send.Template(frame, [change])], PERMIT, count=1, seconds=1)
    assert not send.Template(frame, [send.Change("syndrome", values=(0x20, 0x62))]).dangers()
