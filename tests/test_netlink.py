"""Netlink decoding: made-up messages, hostile bytes, real recordings, and the ip tool of this machine as the judge."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.errors import BadInput
from rdmadiag.netlink import NetlinkError, interrupted, ip, nldev, parse_ip, parse_rdma, rdma, read_rdma, route, wire

DATA = Path(__file__).parent / "data" / "netlink"
NESTED = 0x8000


# --- a tiny encoder ---


def u8(number: int, value: int) -> bytes:
    return wire.attribute(number, struct.pack("=B", value))


def u32(number: int, value: int) -> bytes:
    return wire.attribute(number, struct.pack("=I", value))


def u64(number: int, value: int) -> bytes:
    return wire.attribute(number, struct.pack("=Q", value))


def string(number: int, value: str) -> bytes:
    return wire.attribute(number, value.encode() + b"\0")


def nest(number: int, *parts: bytes) -> bytes:
    return wire.attribute(number, b"".join(parts))


def message(*parts: bytes, kind: int = nldev.NLDEV, flags: int = 2) -> bytes:
    payload = b"".join(parts)
    whole = struct.pack("=IHHII", 16 + len(payload), kind, flags, 1, 0) + payload
    return whole + bytes(-len(whole) & 3)


DONE = message(struct.pack("=i", 0), kind=wire.DONE)
DEVICE = u32(1, 3) + string(2, "mlx5_0")


def refusal(code: int, kind: int = wire.ERROR) -> bytes:
    return message(struct.pack("=i", -code), kind=kind)


def table(number: int, *entry: bytes, flag: int = 0) -> bytes:
    return message(DEVICE, nest(number | flag, nest(number + 1 | flag, *entry))) + DONE


def process_42(pid: int) -> str | None:
    return "ib_write_bw" if pid == 42 else None


# --- the rdma tool's objects ---

QP = (u32(3, 1), u32(21, 17), u32(22, 18), u32(23, 1), u32(24, 2), u8(25, 0), u8(26, 2), u8(27, 6), u32(60, 5))


@pytest.mark.parametrize("flag", [0, NESTED])
def test_a_queue_pair_of_a_process(flag: int) -> None:
    assert parse_rdma("res show qp", table(19, *QP, u32(28, 42), flag=flag), process_42) == [
        {
            "ifindex": 3,
            "ifname": "mlx5_0",
            "port": 1,
            "lqpn": 17,
            "rqpn": 18,
            "type": "RC",
            "state": "ERR",
            "rq-psn": 1,
            "sq-psn": 2,
            "path-mig-state": "MIGRATED",
            "pdn": 5,
            "pid": 42,
            "comm": "ib_write_bw",
        }
    ]


def test_a_kernel_queue_pair_has_its_owner_bare_as_in_the_json_of_iproute2() -> None:
    (qp,) = parse_rdma("res show qp", table(19, u32(21, 1), u32(24, 0), u8(26, 1), u8(27, 3), string(29, "ib_core")))
    assert qp["comm"] == "ib_core"
    assert qp["type"] == "GSI"
    assert "pid" not in qp


def test_a_process_that_has_gone_leaves_its_pid_and_no_name() -> None:
    (qp,) = parse_rdma("res show qp", table(19, *QP, u32(28, 7)), process_42)
    assert qp["pid"] == 7
    assert "comm" not in qp


def test_the_name_of_a_live_process_is_read_once_from_proc() -> None:
    me = Path("/proc/self/comm").read_text().rstrip("\n")[:17]
    assert nldev.process_name(os.getpid()) == me
    assert nldev.process_name(2**22 + 1) is None
    asked: list[int] = []
    parse_rdma("res show qp", table(19, *QP, u32(28, 9)) * 3, lambda pid: asked.append(pid) or "x")  # type: ignore[func-returns-value]
    assert asked == [9]


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "SMI"), (7, "UNKNOWN"), (8, "RAW_PACKET"), (10, "XRC_TGT"), (11, "UNKNOWN"), (255, "DRIVER")],
)
def test_queue_pair_types(number: int, name: str) -> None:
    assert parse_rdma("res show qp", table(19, u8(26, number)))[0]["type"] == name


def test_a_device() -> None:
    caps = 1 << 0 | 1 << 16 | 1 << 31 | 1 << 33 | 1 << 40
    data = message(
        DEVICE, u32(3, 1), u64(4, caps), string(5, "28.39.1002"), u64(6, 0x0C42A103008831EA), u64(7, 0), u8(14, 1),
        string(67, "roce"), u8(84, 1),
    )  # fmt: skip
    assert parse_rdma("dev show", data) == [
        {
            "ifindex": 3,
            "ifname": "mlx5_0",
            "node_type": "ca",
            "protocol": "roce",
            "fw": "28.39.1002",
            "node_guid": "0c42:a103:0088:31ea",
            "sys_image_guid": "0000:0000:0000:0000",
            "adaptive-moderation": True,
            "caps": ["RESIZE_MAX_WR", "UNKNOWN", "ON_DEMAND_PAGING", "VIRTUAL_FUNCTION", "UNKNOWN"],
        }
    ]


def test_a_link() -> None:
    state = u8(11, 0) + u8(12, 4) + u8(13, 5)
    port = u32(3, 1) + u64(4, 0x10000) + u64(8, 0xFE80 << 48) + u32(9, 5) + u32(10, 1)
    data = message(DEVICE, port, state, u32(50, 7), string(51, "eth7"))
    assert parse_rdma("link show", data) == [
        {
            "ifindex": 3,
            "ifname": "mlx5_0",
            "port": 1,
            "subnet_prefix": "fe80:0000:0000:0000",
            "lid": 5,
            "sm_lid": 1,
            "lmc": 0,
            "state": "ACTIVE",
            "physical_state": "LINK_UP",
            "netdev": "eth7",
            "netdev_index": 7,
            "caps": ["CM"],
        }
    ]


def test_the_summary_and_the_counters_are_flattened_into_the_object() -> None:
    summary = nest(15, nest(16, string(17, "qp"), u64(18, 9)), nest(16, string(17, "mr"), u64(18, 2**40)))
    assert parse_rdma("res show", message(DEVICE, summary)) == [
        {"ifindex": 3, "ifname": "mlx5_0", "qp": 9, "mr": 2**40}
    ]
    counters = nest(80, nest(81, string(82, "out_of_sequence"), u64(83, 2**64 - 1)), nest(81, string(82, "nameless")))
    assert parse_rdma("statistic show link", message(DEVICE, u32(3, 1), counters)) == [
        {"ifname": "mlx5_0", "port": 1, "out_of_sequence": 2**64 - 1}
    ]
    bound = table(77, u32(3, 1), u32(79, 4), u8(26, 2), u32(28, 42), nest(19, nest(20, u32(21, 17))), counters)
    assert parse_rdma("statistic qp show", bound, process_42) == [
        {
            "ifindex": 3,
            "ifname": "mlx5_0",
            "port": 1,
            "cntn": 4,
            "qp-type": "RC",
            "pid": 42,
            "comm": "ib_write_bw",
            "out_of_sequence": 2**64 - 1,
            "lqpn": [17],
        }
    ]


def test_keys_are_hexadecimal_text_and_iova_keeps_its_low_half_as_in_iproute2() -> None:
    (mr,) = parse_rdma("res show mr", table(40, u32(62, 1), u32(42, 0xABC), u64(44, 0x7F0012345678), u64(45, 4096)))
    assert (mr["rkey"], mr["iova"], mr["mrlen"]) == ("abc", "12345678", 4096)
    (pd,) = parse_rdma("res show pd", table(46, u32(60, 1), u32(48, 0x10), u64(38, 3), string(29, "ib_core")))
    assert pd["local_dma_lkey"] == "10"


def test_the_other_resources() -> None:
    (cq,) = parse_rdma("res show cq", table(35, u32(61, 2), u32(37, 127), u64(38, 1), u8(39, 2), u8(84, 0)))
    assert (cq["cqn"], cq["poll-ctx"], cq["adaptive-moderation"]) == (2, "WORKQUEUE", False)
    assert parse_rdma("res show ctx", table(86, u32(64, 3)))[0]["ctxn"] == 3
    ranges = nest(19, nest(20, u32(91, 5), u32(92, 9)), nest(20, u32(91, 11), u32(92, 11)), nest(20, u32(21, 13)))
    (srq,) = parse_rdma("res show srq", table(88, u32(90, 1), u8(26, 0), ranges))
    assert (srq["type"], srq["lqpn"]) == ("BASIC", ["5-9", "11", "13"])
    (lonely,) = parse_rdma("res show srq", table(88, u32(90, 1), u8(26, 1), nest(19)))
    assert lonely["type"] == "XRC"
    assert "lqpn" not in lonely


def test_connection_identifiers_and_their_addresses() -> None:
    v4 = struct.pack("=H", 2) + struct.pack(">H4s", 18515, bytes([10, 0, 0, 1]))
    v6 = struct.pack("=H", 10) + struct.pack(">HI16s", 7471, 0, socket.inet_pton(socket.AF_INET6, "fe80::1"))
    entry = (u32(3, 1), u32(63, 0), u32(32, 0x106), u8(27, 8))
    addresses = wire.attribute(33, v4.ljust(128, b"\0")) + wire.attribute(34, v6.ljust(128, b"\0"))
    found = parse_rdma("res show cm_id", message(DEVICE, nest(30, nest(31), nest(31, *entry, addresses))))
    assert found == [
        {
            "ifindex": 3,
            "ifname": "mlx5_0",
            "port": 1,
            "cm-idn": 0,
            "ps": "TCP",
            "state": "LISTEN",
            "src-addr": "10.0.0.1:18515",
            "dst-addr": "fe80::1:7471",
        }
    ]


def test_the_system_modes() -> None:
    assert parse_rdma("system show", message(u8(66, 1))) == [{"netns": "shared", "copy-on-fork": False}]
    full = message(u8(66, 0), u8(96, 1), u8(103, 0), u8(93, 1))
    assert parse_rdma("system show", full) == [
        {"netns": "exclusive", "privileged-qkey": True, "monitor": False, "copy-on-fork": True}
    ]


def test_unknown_attributes_and_control_messages_are_skipped() -> None:
    data = refusal(0) + message(b"", kind=1) + message(DEVICE, u64(3000, 1), wire.attribute(777, b"x"))
    assert parse_rdma("dev show", data) == [{"ifindex": 3, "ifname": "mlx5_0"}]


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_an_integer_is_read_as_wide_as_it_came(size: int) -> None:
    value = 2 ** (8 * size) - 2
    payload = value.to_bytes(size, "little")
    assert parse_rdma("res show ctx", table(86, wire.attribute(64, payload)))[0]["ctxn"] == value


@pytest.mark.parametrize("size", [0, 3, 5, 16])
def test_an_integer_of_another_width_is_refused(size: int) -> None:
    with pytest.raises(NetlinkError, match=f"integer of {size} bytes"):
        parse_rdma("res show ctx", table(86, wire.attribute(64, bytes(size))))


def test_an_unknown_command_names_the_known_ones() -> None:
    with pytest.raises(BadInput, match="known: dev show, link show"):
        rdma("res")
    with pytest.raises(BadInput, match="known: link, addr"):
        ip("res show")


# --- hostile bytes ---


@given(st.sampled_from(sorted(nldev.QUERIES)), st.binary(max_size=400))
def test_arbitrary_bytes_give_objects_or_a_netlink_error(command: str, data: bytes) -> None:
    try:
        parse_rdma(command, data, process_42)
    except NetlinkError as error:
        assert error.errno == errno.EBADMSG


@given(st.sampled_from(sorted(route.QUESTIONS)), st.binary(max_size=200), st.integers(16, 40))
def test_arbitrary_payloads_of_the_ip_commands_give_objects_or_a_netlink_error(
    command: str, payload: bytes, kind: int
) -> None:
    try:
        parse_ip(command, message(payload, kind=kind))
    except NetlinkError as error:
        assert error.errno == errno.EBADMSG


attribute_bytes = st.builds(
    lambda number, flag, payload: wire.attribute(number | flag, payload),
    st.one_of(st.integers(0, 130), st.integers(0, 0x3FFF)),
    st.sampled_from([0, 0x4000, NESTED]),
    st.one_of(
        st.binary(max_size=24), st.sampled_from([1, 2, 4, 8]).flatmap(lambda n: st.binary(min_size=n, max_size=n))
    ),
)
nested_bytes = st.recursive(
    attribute_bytes,
    lambda inner: st.builds(
        lambda number, parts: nest(number, *parts),
        st.sampled_from([15, 16, 19, 20, 30, 31, 35, 36, 40, 41, 46, 47, 77, 78, 80, 81, 86, 87, 88, 89]),
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)


@given(st.sampled_from(sorted(nldev.QUERIES)), st.lists(nested_bytes, max_size=6), st.data())
def test_well_nested_messages_and_their_truncations_give_objects_or_a_netlink_error(
    command: str, parts: list[bytes], choose: st.DataObject
) -> None:
    whole = message(DEVICE, *parts)
    for data in (whole, whole[: choose.draw(st.integers(0, len(whole)))]):
        try:
            parse_rdma(command, data, process_42)
        except NetlinkError as error:
            assert error.errno == errno.EBADMSG


@given(st.integers(1, 500))
def test_a_truncated_recording_is_refused_and_not_half_read(cut: int) -> None:
    whole = table(19, *QP, u32(28, 42)) * 4
    data = whole[: -(cut % len(whole)) or -1]
    boundaries = {len(table(19, *QP, u32(28, 42))) * n for n in range(4)}
    boundaries |= {size + len(table(19, *QP, u32(28, 42))) - len(DONE) for size in boundaries}
    if len(data) in boundaries:
        parse_rdma("res show qp", data, process_42)
    else:
        with pytest.raises(NetlinkError):
            parse_rdma("res show qp", data, process_42)


@pytest.mark.parametrize("length", [0, 3, 15, 17, 2**32 - 1])
def test_a_message_length_that_does_not_fit_is_refused(length: int) -> None:
    with pytest.raises(NetlinkError, match="does not fit"):
        parse_rdma("dev show", struct.pack("=IHHII", length, nldev.NLDEV, 0, 1, 0))


@pytest.mark.parametrize("length", [0, 3, 9, 65535])
def test_an_attribute_length_that_does_not_fit_is_refused(length: int) -> None:
    bad = struct.pack("=HHI", length, 21, 1)
    for data in (message(bad), message(DEVICE, nest(19, bad)), table(19, bad)):
        with pytest.raises(NetlinkError, match="does not fit"):
            parse_rdma("res show qp", data) if data != message(bad) else parse_rdma("dev show", data)


@given(st.lists(st.lists(attribute_bytes, max_size=5).map(b"".join), max_size=8))
def test_entries_that_look_alike_are_read_as_the_plain_walk_reads_them(found: list[bytes]) -> None:
    def read(reader: Any) -> Iterator[object]:
        for entry in found + found[::-1]:
            try:
                yield reader(b"????" + entry + b"????", 4, 4 + len(entry))
            except NetlinkError as error:
                yield str(error)

    fields = nldev.QPS.fields
    alike = wire.AlikeReader(fields).read
    plain = list(read(lambda data, start, stop: wire.attributes(data, start, stop, fields, {})))
    assert list(read(lambda data, start, stop: alike(data, start, stop, {}))) == plain


# --- talking to the kernel ---


class Channel:
    """A socket that answers with the given reads."""

    def __init__(self, *reads: bytes, sender: int = 0, flags: int = 0) -> None:
        self.reads, self.sender, self.flags = list(reads), sender, flags

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_what: object) -> None:
        pass

    def settimeout(self, seconds: float) -> None:
        self.seconds = seconds

    def gettimeout(self) -> float:
        return 0.5

    def sendto(self, request: bytes, _address: tuple[int, int]) -> None:
        self.request = request

    def recvmsg_into(self, buffers: list[bytearray]) -> tuple[int, list[object], int, tuple[int, int]]:
        if not self.reads:
            raise TimeoutError
        part = self.reads.pop(0)
        buffers[0][: len(part)] = part
        return len(part), [], self.flags, (self.sender, 0)


def converse(*reads: bytes, dump: bool = True, **more: int) -> bytes:
    return wire.converse(Channel(*reads, **more), 0x1401, b"", dump)  # type: ignore[arg-type]


def test_a_dump_is_read_until_its_end_and_a_single_answer_until_its_acknowledgement() -> None:
    first, second = message(DEVICE), message(DEVICE)
    assert converse(first + second, first, DONE, b"never read") == first + second + first + DONE
    assert converse(first, refusal(0), dump=False) == first + refusal(0)


@pytest.mark.parametrize("kind", [wire.ERROR, wire.DONE])
def test_a_refusal_carries_the_errno_of_the_kernel(kind: int) -> None:
    with pytest.raises(NetlinkError) as caught:
        converse(message(DEVICE), refusal(errno.EPERM, kind))
    assert caught.value.errno == errno.EPERM
    with pytest.raises(NetlinkError):
        converse(message(struct.pack("=i", -(2**31)), kind=kind))


def test_silence_a_cut_message_and_strangers_are_told_apart() -> None:
    with pytest.raises(NetlinkError) as caught:
        converse(message(DEVICE))
    assert caught.value.errno == errno.ETIMEDOUT
    with pytest.raises(NetlinkError) as caught:
        converse(DONE, flags=socket.MSG_TRUNC)
    assert caught.value.errno == errno.EMSGSIZE
    with pytest.raises(NetlinkError) as caught:
        converse(DONE, sender=1234)
    assert caught.value.errno == errno.ETIMEDOUT


def test_a_dump_that_changed_while_read_is_asked_for_again_and_flagged_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    torn = message(DEVICE, flags=2 | wire.DUMP_INTERRUPTED)
    channels = [Channel(torn, DONE), Channel(message(DEVICE), DONE)]
    monkeypatch.setattr(socket, "socket", lambda *_what: channels.pop(0))
    assert not interrupted(wire.exchange(20, 0x1401))
    channels = [Channel(torn, DONE) for _ in range(wire.ATTEMPTS)]
    assert interrupted(wire.exchange(20, 0x1401))
    assert not channels


def answers(monkeypatch: pytest.MonkeyPatch, **by_place: bytes | int) -> None:
    devices = message(u32(1, 0), string(2, "rxe0"), u32(3, 2)) + message(u32(1, 5), string(2, "rxe5"), u32(3, 1)) + DONE

    def exchange(_family: int, kind: int, payload: bytes = b"", *, dump: bool = True) -> bytes:
        if kind == nldev.NLDEV | 1:
            return devices
        found = wire.attributes(payload, 0, len(payload), {1: ("device", wire.uint), 3: ("port", wire.uint)}, {})
        answer = by_place["at_" + "_".join(str(number) for number in found.values())]
        if isinstance(answer, int):
            raise NetlinkError(answer, "refused")
        return answer

    monkeypatch.setattr(nldev, "exchange", exchange)
    monkeypatch.setattr(nldev, "_rdma_is_loaded", lambda: True)


def test_every_device_and_port_is_asked_and_one_that_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, at_0_1=b"one ", at_0_2=errno.EINVAL, at_5_1=b"three")
    assert read_rdma("statistic show link") == b"one three"
    answers(monkeypatch, at_0=b"zero ", at_5=b"five")
    assert read_rdma("res show qp") == b"zero five"


def test_when_every_device_refuses_or_one_forbids_that_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, at_0=errno.EINVAL, at_5=errno.EINVAL)
    with pytest.raises(NetlinkError, match="refused"):
        read_rdma("res show ctx")
    answers(monkeypatch, at_0=b"zero", at_5=errno.EPERM)
    with pytest.raises(NetlinkError, match="refused"):
        read_rdma("res show mr")


def test_looking_does_not_make_the_kernel_load_rdma() -> None:
    if nldev._rdma_is_loaded():
        pytest.skip("this kernel has ib_core")
    with pytest.raises(NetlinkError) as caught:
        rdma("dev show")
    assert caught.value.errno == errno.EPROTONOSUPPORT


# --- the ip tool's objects ---


def without(rows: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in keys} for row in rows]


def where_both_speak(theirs: Any, ours: Any) -> Any:
    """Reduce what a tool printed to the keys that ours has, at every depth."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {key: where_both_speak(theirs.get(key), value) for key, value in ours.items()}
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [where_both_speak(*pair) for pair in zip(theirs, ours, strict=True)]
    return theirs


def assert_the_ip_tool_agrees(command: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    if command == "addr":  # lifetimes count down
        for row in ours + theirs:
            row["addr_info"] = without(row["addr_info"], "valid_life_time", "preferred_life_time")
    ours = without(ours, "family")  # ours alone
    assert ours == where_both_speak(theirs, ours)
    for mine, other in zip(ours, theirs, strict=True):
        assert {key for key in MUST[command] if key in other} <= mine.keys()


MUST = {
    "link": ("ifindex", "ifname", "flags", "mtu", "operstate", "link_type", "address", "master", "link", "linkinfo"),
    "addr": ("ifindex", "ifname", "flags", "mtu", "operstate", "link_type", "address", "addr_info"),
    "route": (
        "dst",
        "gateway",
        "dev",
        "prefsrc",
        "metric",
        "table",
        "protocol",
        "scope",
        "type",
        "nexthops",
        "metrics",
    ),
    "rule": ("priority", "src", "srclen", "dst", "dstlen", "fwmark", "fwmask", "iif", "oif", "table", "protocol"),
    "neigh": ("dst", "dev", "lladdr", "state"),
}


def ip_tool(command: str) -> list[dict[str, Any]]:
    asked = {"route": [["route", "show", "table", "all"]], "rule": [["rule"], ["-6", "rule"]]}
    printed = [
        subprocess.run(["ip", "-d", "-j", *words], capture_output=True, check=True).stdout or b"[]"
        for words in asked.get(command, [[command]])
    ]
    return [row for text in printed for row in json.loads(text)]


@pytest.mark.skipif(not shutil.which("ip"), reason="needs the ip tool")
@pytest.mark.parametrize("command", sorted(MUST))
def test_this_machine_reads_as_the_ip_tool_prints_it(command: str) -> None:
    ours, theirs = ip(command), ip_tool(command)
    if command == "neigh":  # states move by themselves
        ours, theirs = without(ours, "state", "lladdr"), without(theirs, "state", "lladdr")
    assert_the_ip_tool_agrees(command, ours, theirs)


def test_a_route_over_two_next_hops() -> None:
    def hop(index: int, weight: int, address: str) -> bytes:
        gateway = wire.attribute(5, socket.inet_aton(address))
        return struct.pack("=HBBi", 8 + len(gateway), 0x10, weight - 1, index) + gateway

    links = message(struct.pack("=BxHiII", 0, 32, 9, 0x1043, 0), string(3, "ib0"), kind=route.NEWLINK)
    header = struct.pack("=8BI", 2, 16, 0, 0, 254, 4, 0, 1, 0)
    both = nest(9, hop(9, 1, "10.1.0.1"), hop(8, 3, "10.2.0.1"))
    data = links + message(header, wire.attribute(1, socket.inet_aton("10.0.0.0")), both, kind=route.NEWROUTE)
    assert parse_ip("link", data)[0]["link_type"] == "infiniband"
    assert parse_ip("route", data) == [
        {
            "family": "inet",
            "type": "unicast",
            "dst": "10.0.0.0/16",
            "table": "main",
            "protocol": "static",
            "scope": "global",
            "flags": [],
            "nexthops": [
                {"gateway": "10.1.0.1", "dev": "ib0", "weight": 1, "flags": ["linkdown"]},
                {"gateway": "10.2.0.1", "dev": "if8", "weight": 3, "flags": ["linkdown"]},
            ],
        }
    ]


# --- real recordings: tests/data/netlink/origin.md ---

IPROUTE2_6_1 = {"rdma-dev-show": "protocol", "rdma-res-show-srq": "comm"}  # not printed yet; printed wrongly


def printed(recording: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(recording.with_suffix(".json").read_text())
    return rows


def recordings(tool: str) -> pytest.MarkDecorator:
    found = sorted(path for path in DATA.glob(f"*/{tool}-*.bin") if path.with_suffix(".json").exists())
    return pytest.mark.parametrize("recording", found, ids=lambda path: f"{path.parent.name}/{path.stem}")


def decoded(recording: Path) -> list[dict[str, Any]]:
    names = json.loads((recording.parent / "processes.json").read_text())
    command = recording.stem.removeprefix("rdma-").replace("-", " ")
    return parse_rdma(command, recording.read_bytes(), lambda pid: names.get(str(pid)))


@recordings("rdma")
def test_a_recorded_dump_reads_as_the_rdma_tool_printed_it(recording: Path) -> None:
    ours, theirs = decoded(recording), printed(recording)
    if recording.parent.name == "linux-6.1" and recording.stem in IPROUTE2_6_1:
        ours, theirs = (without(rows, IPROUTE2_6_1[recording.stem]) for rows in (ours, theirs))

    def key(row: dict[str, Any]) -> str:
        return json.dumps(row, sort_keys=True)

    assert sorted(ours, key=key) == sorted(theirs, key=key)


@recordings("ip")
def test_a_recorded_dump_reads_as_the_ip_tool_printed_it(recording: Path) -> None:
    command = recording.stem.removeprefix("ip-")
    assert_the_ip_tool_agrees(command, parse_ip(command, recording.read_bytes()), printed(recording))


@pytest.mark.parametrize("kernel", ["linux-6.1", "linux-6.12"])
def test_the_recorded_system_modes_say_what_the_rdma_tool_said_in_text(kernel: str) -> None:
    words = (DATA / kernel / "rdma-system-show.txt").read_text().split()
    said = {
        key: {"on": True, "off": False}.get(value, value) for key, value in zip(words[::2], words[1::2], strict=True)
    }
    (ours,) = decoded(DATA / kernel / "rdma-system-show.bin")
    assert ours.items() >= said.items()


def test_the_recordings_hold_every_kind_of_object_but_bound_counters() -> None:
    empty = {path.stem for path in DATA.glob("*/rdma-*.bin") if not decoded(path)}
    assert empty == {"rdma-statistic-qp-show"}
    assert {qp["state"] for path in DATA.glob("*/rdma-res-show-qp.bin") for qp in decoded(path)} >= {
        *("RESET", "RTR", "RTS", "ERR")
    }


def test_the_priorities_of_a_vlan_are_read() -> None:
    mapping = struct.pack("=HHII", 12, 1, 0, 3) + struct.pack("=HHII", 12, 1, 4, 5)
    assert route._qos_map(mapping, 0, len(mapping)) == [{"from": 0, "to": 3}, {"from": 4, "to": 5}]
