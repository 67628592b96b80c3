"""The Scapy layers: what is built dissects to the same for every opcode, and the ICRC is that of captured packets."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy import all as scapy

from rdmadiag.explain import opcode
from rdmadiag.roce import analysis, capture, cm, columns, icrc, layers
from tests.roce import captures as made

PCAPS = Path(__file__).parent.parent / "data/pcaps"
DEFINED = [n for n in range(256) if opcode.lookup(n)["operation"]]


def lower(kind: str) -> Any:
    ether = scapy.Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    return {
        "v4": ether / scapy.IP(src="10.0.0.1", dst="10.0.0.2", id=77) / scapy.UDP(),
        "options": ether
        / scapy.IP(src="10.0.0.1", dst="10.0.0.2", options=[scapy.IPOption(b"\x01" * 4)])
        / scapy.UDP(),
        "v6": ether / scapy.IPv6(src="2001:db8::1", dst="2001:db8::2") / scapy.UDP(),
        "v1": ether / layers.GRH(sgid=1, dgid=2),
        "vlan": ether / scapy.Dot1Q(vlan=5) / scapy.IP(src="10.0.0.1", dst="10.0.0.2") / scapy.UDP(),
    }[kind]


@st.composite
def headers(draw: st.DrawFn, value: int) -> Any:
    """Draw the BTH of an opcode with its extension headers and a payload."""
    bth = layers.BTH(
        opcode=value, dqpn=draw(st.integers(2, 0xFFFFFF)), psn=draw(st.integers(0, 0xFFFFFF)), ackreq=draw(st.integers(0, 1)),
        solicited=draw(st.integers(0, 1)), migreq=draw(st.integers(0, 1)), pkey=draw(st.integers(0, 0xFFFF)), fecn=draw(st.integers(0, 1)),
    )  # fmt: skip
    if value == opcode.CNP:
        return bth / layers.CNPPadding()
    for name in opcode.headers(value):
        layer = layers.HEADERS[name]
        bits = {"LongField": 64, "XLongField": 64, "XIntField": 32, "IntField": 32, "XByteField": 8, "ByteField": 8}
        values = {
            field.name: draw(
                st.integers(
                    0,
                    2 ** getattr(field, "size", bits.get(type(field).__name__, 8)) - 1
                    if hasattr(field, "size")
                    else 2 ** bits[type(field).__name__] - 1,
                )
            )
            for field in layer.fields_desc
        }
        bth = bth / layer(**values)
    payload = draw(st.binary(max_size=70)) if opcode.lookup(value).get("payload") == "yes" else b""
    return bth / scapy.Raw(payload) if payload else bth


@pytest.mark.parametrize("value", DEFINED, ids=lambda n: str(opcode.lookup(n)["name"]))
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), kind=st.sampled_from(["v4", "v6", "v1", "options", "vlan"]))
def test_a_packet_dissects_to_what_was_built(value: int, data: st.DataObject, kind: str) -> None:
    top = data.draw(headers(value))
    packet = lower(kind) / top
    raw = bytes(packet)
    again = scapy.Ether(raw)
    assert bytes(again) == raw
    bth = again[layers.BTH]
    wanted, got = [], []
    layer = top
    while layer and layer.name != "NoPayload":
        wanted.append(layer.name)
        layer = layer.payload
    layer = bth
    while layer and layer.name != "NoPayload":
        got.append(layer.name)
        layer = layer.payload
    assert got == wanted
    for name in opcode.headers(value):
        cls = layers.HEADERS[name]
        assert {f.name: again[cls].getfieldval(f.name) for f in cls.fields_desc} == {
            f.name: top[cls].getfieldval(f.name) for f in cls.fields_desc
        }
    if top.haslayer(scapy.Raw):
        assert again[scapy.Raw].load == top[scapy.Raw].load
        assert bth.padcount == -len(top[scapy.Raw].load) % 4
    (c,) = [columns.decode(chunk) for chunk in capture.Capture(io.BytesIO(made.pcap([(0, raw)])), "x").chunks()]
    assert c.icrc().tolist() == [icrc.GOOD] and c.opcode.tolist() == [value]
    if value != opcode.CNP:
        assert c.payload.tolist() == [len(top[scapy.Raw].load) if top.haslayer(scapy.Raw) else 0]


@pytest.mark.parametrize("path", sorted(PCAPS.glob("*.pcap")), ids=lambda path: path.stem)
def test_captured_packets_are_rebuilt_byte_for_byte_with_the_same_icrc(path: Path) -> None:
    bad = {"softroce-6.1-requester-lab": {315}, "softroce-6.1-responder-lab": {3, 83}, "synthetic-faults": {11}}.get(
        path.stem, set()
    )
    with scapy.RawPcapReader(str(path)) as reader:
        packets = [data for data, _ in reader]
    for number, data in enumerate(packets[:120], 1):
        packet = scapy.Ether(data)
        bth = packet[layers.BTH]
        assert bytes(packet) == data, number
        carried, bth.icrc = bth.icrc, None
        bth.raw_packet_cache = None
        for layer in (packet, *packet.iterpayloads()):
            layer.raw_packet_cache = None
        computed = scapy.Ether(bytes(packet))[layers.BTH].icrc
        assert (computed == carried) == (number not in bad), number


def test_a_cm_request_is_read_by_the_analyser() -> None:
    head = (
        scapy.Ether(src="02:00:00:00:00:01")
        / scapy.IP(src="10.0.0.1", dst="10.0.0.2")
        / scapy.UDP()
        / layers.BTH(opcode=0x64, dqpn=1)
    )
    head /= layers.DETH(qkey=0x80010000, srcqp=1)
    packet = (
        head
        / layers.MAD()
        / layers.CM_REQ(local_comm_id=5, qpn=17, starting_psn=99, retry_cnt=6, rnr_retry=5, timeout=18, path_mtu=5)
    )
    raw = bytes(packet)
    again = scapy.Ether(raw)
    assert again[layers.CM_REQ].qpn == 17 and bytes(again) == raw
    (row,) = analysis.analyse(io.BytesIO(made.pcap([(0, raw)])), "x").tables["cm_handshake"]
    assert (row["qpn"], row["starting_psn"], row["retry_cnt"], row["rnr_retry"], row["timeout"], row["path_mtu"]) == (
        17,
        99,
        6,
        5,
        18,
        4096,
    )


@pytest.mark.parametrize(
    "number,layer,fields",
    [
        (0x13, "CM_REP", {"local_comm_id": 1, "remote_comm_id": 2, "qpn": 3, "starting_psn": 4, "rnr_retry": 5}),
        (0x14, "CM_RTU", {"local_comm_id": 1, "remote_comm_id": 2}),
        (0x15, "CM_DREQ", {"local_comm_id": 1, "remote_comm_id": 2, "qpn": 3}),
        (0x12, "CM_REJ", {"local_comm_id": 1, "remote_comm_id": 2, "reason": 28}),
    ],
)
def test_other_cm_messages_are_read_by_the_analyser(number: int, layer: str, fields: dict[str, int]) -> None:
    message = bytes(layers.MAD() / getattr(layers, layer)(**fields))
    parsed = cm.parse(message)
    assert parsed is not None and parsed["message"] == cm.NAMES[number]
    assert {name: parsed[name] for name in fields} == fields
    assert len(message) == 256


def test_pause_frames_are_read_by_the_analyser() -> None:
    pfc = scapy.Ether(src="02:00:00:00:00:01") / layers.MACControlClassBasedFlowControl(
        c3_enabled=1, c3_pause_time=0xFFFF
    )
    pause = scapy.Ether(src="02:00:00:00:00:02") / layers.MACControlPause(pause_time=7)
    rows = analysis.analyse(
        io.BytesIO(made.pcap([(0, bytes(pfc).ljust(60, b"\0")), (1, bytes(pause).ljust(60, b"\0"))])), "x"
    ).tables["flow_control"]
    assert [(row["kind"], row["pauses"]) for row in rows] == [("PFC", 1), ("global pause", 1)]


def test_packets_that_name_no_source_port_are_not_taken_for_dns() -> None:
    raw = bytes(
        scapy.Ether() / scapy.IP(dst="10.0.0.2") / scapy.UDP() / layers.BTH(opcode=0x11) / layers.AETH(syndrome=0x1F)
    )
    assert scapy.Ether(raw)[layers.AETH].syndrome == 0x1F
    clash = bytes(
        scapy.Ether()
        / scapy.IP(dst="10.0.0.2")
        / scapy.UDP(sport=53)
        / layers.BTH(opcode=0x11)
        / layers.AETH(syndrome=0x60)
    )
    assert scapy.Ether(clash)[layers.AETH].syndrome == 0x60
