"""Frames of ours out of a switch port: as many as asked for, as they were built, and only in the lab."""

from __future__ import annotations

import io
import subprocess
import time

import pytest

from rdmadiag.errors import BadInput
from rdmadiag.lab import Lab, packets
from rdmadiag.roce import capture, columns, icrc
from tests.softroce.conftest import command, environment


def captured(lab: Lab, netdev: str, count: int, act: object) -> columns.Columns:
    """Return the columns of what a host's netdev sees while `act` runs."""
    words = command("exec", lab.name, "--", "tcpdump", "-i", netdev, "-c", str(count), "-w", "-", "-U", "udp port 4791")
    listener = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert listener.stderr is not None
    assert b"listening" in listener.stderr.readline()
    act()  # type: ignore[operator]
    try:
        out, _ = listener.communicate(timeout=60)
    finally:
        listener.kill()
    (chunk,) = capture.Capture(io.BytesIO(out), "x").chunks()
    return columns.decode(chunk)


def test_frames_arrive_as_many_as_asked_for_each_with_its_own_psn_and_a_good_icrc(lab: Lab) -> None:
    path = packets.path(lab, "h1", "h2")
    frames = [
        {"name": "ack", "parameters": {"path": path, "dest_qp": 0xABCDE, "psn": 0}, "changes": [{"field": "psn"}]},
        {"name": "cnp", "parameters": {"path": path, "dest_qp": 0xABCDE}},
    ]

    def act() -> None:
        sent = packets.send(lab, "h2", frames, count=401, seconds=30, rate=2000)
        assert (sent.packets, sent.refused) == (401, 0)
        assert sent.bytes == 201 * 62 + 200 * 74

    c = captured(lab, "v2", 401, act)
    assert c.icrc().tolist() == [icrc.GOOD] * 401
    assert c.psn[c.opcode == 0x11].tolist() == list(range(201))
    assert (c.opcode == 0x81).sum() == 200


def test_time_ends_sending_before_the_count_does(lab: Lab) -> None:
    path = packets.path(lab, "h1", "h2")
    start = time.monotonic()
    sent = packets.send(
        lab,
        "h2",
        [{"name": "cnp", "parameters": {"path": path, "dest_qp": 0xABCDE}}],
        count=10_000_000,
        seconds=0.5,
        rate=100,
    )
    assert 1 <= sent.packets <= 51 and time.monotonic() - start < 60


def test_a_frame_to_an_address_outside_the_lab_or_a_dangerous_one_is_not_sent(lab: Lab) -> None:
    path = packets.path(lab, "h1", "h2")
    with pytest.raises(BadInput, match="goes to 192.0.2.1; lab .* permits 10.0.0.1"):
        away = path._replace(dst="192.0.2.1")
        packets.send(lab, "h2", [{"name": "cnp", "parameters": {"path": away, "dest_qp": 1}}], count=1, seconds=1)
    with pytest.raises(BadInput, match="panic_on_warn"):
        packets.send(
            lab,
            "h2",
            [{"name": "reserved-aeth", "parameters": {"path": path, "dest_qp": 1, "psn": 1}}],
            count=1,
            seconds=1,
        )
