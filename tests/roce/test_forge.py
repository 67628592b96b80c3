"""Frames by name and parameters: what they carry, as Scapy's layers read them, and what is refused."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmadiag.errors import BadInput
from rdmadiag.roce import capture, columns, forge, icrc, packet
from tests.roce import captures as made

PATH = packet.Path(made.A, made.B, "02:00:00:00:00:01", "02:00:00:00:00:02")
JSON = {"src": PATH.src, "dst": PATH.dst, "src_mac": PATH.src_mac, "dst_mac": PATH.dst_mac}
NEEDED: dict[str, dict[str, Any]] = {
    "write": {"rkey": "0xdead", "va": "0x1000"},
    "read": {"rkey": 1, "va": 0, "length": 4096},
    "malformed": {"kind": "tver"},
    "replay": {"frame": forge.ack(PATH, dest_qp=1, psn=2).data.hex()},
}


def dissected(frame: bytes) -> Any:
    from scapy.layers.l2 import Ether

    from rdmadiag.roce import layers

    assert layers.BTH
    return Ether(frame)


def built(name: str, accept: tuple[str, ...] = (), **parameters: Any) -> Any:
    usual = {} if name == "replay" else {"path": JSON, "dest_qp": 0x11} | ({} if name == "cnp" else {"psn": 5})
    return forge.build(name, usual | NEEDED.get(name, {}) | parameters, accept)


@pytest.mark.parametrize("name", [name for name in forge.BUILDERS if name not in ("malformed", "reserved-aeth")])
def test_every_frame_is_a_whole_packet_with_a_good_icrc(name: str) -> None:
    frame = built(name).data
    (chunk,) = capture.Capture(io.BytesIO(made.pcap([(0, frame)])), "x").chunks()
    c = columns.decode(chunk)
    assert c.icrc().tolist() == [icrc.GOOD]
    assert bytes(dissected(frame)) == frame


@pytest.mark.parametrize(("error", "syndrome"), forge.NAKS.items())
def test_a_nak_carries_the_syndrome_of_its_error(error: str, syndrome: int) -> None:
    aeth = dissected(built("nak", error=error, msn=9).data)["AETH"]
    assert (aeth.syndrome, aeth.msn) == (syndrome, 9)


@given(st.integers(0, 31))
@settings(max_examples=32, deadline=None)
def test_an_rnr_nak_carries_its_timer(timer: int) -> None:
    assert dissected(built("rnr-nak", timer=timer).data)["AETH"].syndrome == 0x20 + timer


def test_a_cnp_is_what_an_adapter_sends() -> None:
    frame = dissected(built("cnp", dest_qp="0x45").data)
    bth = frame["BTH"]
    assert (len(frame), frame["IP"].tos, frame["UDP"].sport) == (74, 0xC2, 0)
    assert (bth.opcode, bth.dqpn, bth.becn, bth.psn, bytes(frame["CNPPadding"])) == (0x81, 0x45, 1, 0, bytes(16))


def test_a_forged_write_carries_the_rkey_asked_for() -> None:
    reth = dissected(built("write", rkey="0x1234", va="0x7f0000000000", length=65536).data)["RETH"]
    assert (reth.rkey, reth.va, reth.dmalen) == (0x1234, 0x7F0000000000, 65536)


def test_a_psn_jump_wraps_at_24_bits() -> None:
    assert dissected(built("psn-jump", psn=0xFFFFFF, by=2).data)["BTH"].psn == 1
    assert dissected(built("psn-jump", psn=1, by=-3).data)["BTH"].psn == 0xFFFFFE


def test_a_replayed_packet_is_the_captured_one_bit_by_bit_or_valid_with_its_changes() -> None:
    original = built("write").data
    assert built("replay", frame=original.hex()).data == original
    changed = built("replay", frame=original.hex(), changes={"psn": 99, "rkey": "0x77"}).data
    assert (dissected(changed)["BTH"].psn, dissected(changed)["RETH"].rkey) == (99, 0x77)
    moved = built("replay", frame=original.hex(), path=JSON | {"src": "10.0.0.7", "src_mac": "02:00:00:00:00:07"}).data
    assert (dissected(moved)["IP"].src, dissected(moved)["Ethernet"].src) == ("10.0.0.7", "02:00:00:00:00:07")
    for frame in (changed, moved):
        (chunk,) = capture.Capture(io.BytesIO(made.pcap([(0, frame)])), "x").chunks()
        assert columns.decode(chunk).icrc().tolist() == [icrc.GOOD]
    with pytest.raises(BadInput, match="no field 'syndrome'"):
        built("replay", frame=original.hex(), changes={"syndrome": 1})
    with pytest.raises(BadInput, match="not a whole RoCEv2 packet"):
        built("replay", frame="00ff")


@pytest.mark.parametrize("kind", forge.MALFORMED)
def test_a_malformed_packet_is_wrong_as_its_kind_says(kind: str) -> None:
    frame = built("malformed", kind=kind).data
    at = packet.places(frame)
    good = at is not None and packet.packet_icrc(frame[at.l3 : at.icrc], at.udp - at.l3) == int.from_bytes(
        frame[at.icrc :], "little"
    )
    assert good is (kind not in ("icrc", "short-bth", "short-reth", "udp-length"))
    if kind == "udp-length":
        assert int.from_bytes(frame[16:18], "big") == len(frame) - 14 + 64
    if kind == "short-bth":
        assert len(frame) == 52 and int.from_bytes(frame[38:40], "big") == 18
    if kind == "pad-count":
        assert frame[43] >> 4 & 3 == 3


def test_a_dangerous_aeth_is_refused_with_its_warning_unless_accepted_by_name() -> None:
    for name, parameters in (("reserved-aeth", {}), ("ack", {"syndrome": 0x40}), ("ack", {"syndrome": 0x9F})):
        with pytest.raises(BadInput, match="kernel WARNING.*accept 'reserved-aeth' by name"):
            built(name, **parameters)
        assert built(name, ("reserved-aeth",), **parameters).data


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("cpn", {}, "no frame 'cpn'; known: cnp"),
        ("cnp", {"psn": 1}, "has no parameter 'psn'"),
        ("nak", {"error": "access"}, "no NAK 'access'; known: psn-sequence-error"),
        ("rnr-nak", {"timer": 32}, "code of 5 bits"),
        ("write", {"rkey": "abc"}, "parameter 'rkey'"),
        ("write", {"rkey": 1 << 40}, "does not fit its field"),
        ("malformed", {"kind": "odd"}, "no malformed packet 'odd'"),
        ("ack", {"psn": True}, "wanted a number"),
        ("ack", {"path": {"src": "x"}}, "parameter 'path'"),
    ],
)
def test_what_cannot_be_built_says_what_is_wanted(name: str, parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        built(name, **parameters)


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(BadInput, match="also wants psn"):
        forge.build("ack", {"path": JSON, "dest_qp": 1})
