"""Recording: the filter as the kernel runs it, and files that our reader and others can read."""

from __future__ import annotations

import io
import socket
import struct
from pathlib import Path

import pytest

from rdmadiag.cli import main
from rdmadiag.errors import BadInput
from rdmadiag.roce import capture, forge, packet, record
from tests.roce import captures as made

PATH = packet.Path(made.A, made.B, "02:00:00:00:00:01", "02:00:00:00:00:02")
CNP = forge.cnp(PATH, dest_qp=1).data
SIX = forge.cnp(PATH._replace(src="2001:db8::1", dst="2001:db8::2"), dest_qp=1).data
TAGGED = forge.cnp(PATH._replace(vlan=5), dest_qp=1).data


def passed(frames: list[bytes], snaplen: int = 200) -> list[bytes]:
    """Return what the kernel lets through its filter; any socket can have one."""
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, two:
        record.attach(two, record.kernel_filter(snaplen))
        two.settimeout(0.05)
        found = []
        for frame in frames:
            one.send(frame)
            try:
                found.append(two.recv(65536))
            except TimeoutError:
                pass
        return found


def test_the_kernel_lets_only_roce_and_pause_frames_through_and_cuts_them() -> None:
    options = made.frame(made.bth(0x04, 1, 1) + bytes(8), options=b"\1" * 8)
    wanted = [CNP, SIX, TAGGED, options, CNP[:12] + b"\x89\x15" + bytes(60), CNP[:12] + b"\x88\x08" + bytes(46)]
    port = CNP[:36] + b"\x12\xb6" + CNP[38:]
    tcp = CNP[:23] + b"\x06" + CNP[24:]
    fragment = CNP[:20] + b"\x00\x10" + CNP[22:]
    arp = CNP[:12] + b"\x08\x06" + bytes(46)
    assert passed([*wanted, port, tcp, fragment, arp, CNP[:20], b"x"]) == wanted
    assert passed([CNP], 64) == [CNP[:64]]


def test_files_are_whole_by_themselves_and_the_oldest_goes(tmp_path: Path) -> None:
    files = record.Files(str(tmp_path / "x"), "eth0", 128, 4096, 2)
    stamp, size = 1_700_000_000_123_456_789, len(CNP)
    total = 32 + size + -size % 4
    block = struct.pack("<7I", 6, total, 0, stamp >> 32, stamp & 0xFFFFFFFF, size, size)
    block += CNP + bytes(-size % 4) + struct.pack("<I", total)
    for n in range(200):
        files.write([block], n + 1, 7)
    files.close(200, 7)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == 2 and [str(tmp_path / name) for name in left] == files.names and left[0] > "x-00001.pcapng"
    for path in tmp_path.iterdir():
        reader = capture.Capture(io.BytesIO(path.read_bytes()), str(path))
        chunks = list(reader.chunks())
        assert reader.problem is None or reader.problem == ""
        assert reader.dropped == 7 and chunks[0].time[0] == stamp
        assert chunks[0].length[0] == size


@pytest.mark.parametrize("wrong", [{"snaplen": 10}, {"file_bytes": 1}, {"files": 0}])
def test_limits_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="wanted: snaplen"):
        record.record("lo", str(tmp_path / "x"), **wrong)  # type: ignore[arg-type]


def test_a_netdev_that_is_not_there_or_may_not_be_read_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["pcap", "record", "nosuch0", "-o", str(tmp_path / "x")])
    said = capsys.readouterr().err
    assert "no netdev 'nosuch0'" in said or "CAP_NET_RAW" in said
