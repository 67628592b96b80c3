"""AETH, BTH opcodes, timers: what is on the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.errors import BadInput
from rdmadiag.explain import ack_timeout, aeth, opcode, rnr_timer


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (0x00, "ACK"),
        (0x1F, "ACK"),
        (0x20, "RNR_NAK"),
        (0x3F, "RNR_NAK"),
        (0x40, "RESERVED"),
        (0x5F, "RESERVED"),
        (0x60, "NAK_PSN_SEQUENCE_ERROR"),
        (0x61, "NAK_INVALID_REQUEST"),
        (0x62, "NAK_REMOTE_ACCESS"),
        (0x63, "NAK_REMOTE_OPERATIONAL"),
        (0x64, "NAK_INVALID_RD_REQUEST"),
        (0x65, "RESERVED"),
        (0x80, "RESERVED"),
        (0xE0, "RESERVED"),
    ],
)
def test_syndromes_at_the_borders_of_their_classes(value, name):
    assert aeth.syndrome(value)["name"] == name


def test_credits_and_the_code_that_means_no_limit():
    assert aeth.syndrome(0x05)["credits"] == 6
    assert aeth.syndrome(0x1E)["credits"] == 32768
    assert aeth.syndrome(0x1F)["credits"] is None


def test_an_rnr_nak_carries_its_timer():
    assert aeth.syndrome(0x20)["wait_seconds"] == pytest.approx(0.65536)
    assert aeth.syndrome(0x2C)["rnr_timer"] == 12


def test_a_sequence_nak_is_retried_and_an_access_nak_ends_in_status_10():
    assert aeth.syndrome(0x60)["retried"] is True and aeth.syndrome(0x60)["wc_status"] is None
    assert aeth.syndrome(0x62)["retried"] is False and aeth.syndrome(0x62)["wc_status"] == "REM_ACCESS_ERR"


@pytest.mark.parametrize(
    ("words", "number", "msn"),
    [
        (("0x1f000001",), 0x1F, 1),
        (("0x00000001",), 0, 1),
        (("00000001",), 0, 1),
        (("0x62ffffff",), 0x62, 0xFFFFFF),
        (("0x60", "17"), 0x60, 17),
        (("98",), 0x62, None),
        (("0x62",), 0x62, None),
    ],
)
def test_a_whole_header_splits_into_syndrome_and_msn(words, number, msn):
    answer = aeth.decode(*words)
    assert (answer["number"], answer.get("msn")) == (number, msn)


def test_msn_has_24_bits():
    with pytest.raises(BadInput, match="24-bit"):
        aeth.decode("0x62", "0x1000000")


@given(st.integers(0, 255))
def test_every_syndrome_has_an_answer(value):
    assert aeth.syndrome(value)["number"] == value


@pytest.mark.parametrize(
    ("value", "name", "headers"),
    [
        (0x04, "RC_SEND_ONLY", ()),
        (0x06, "RC_RDMA_WRITE_FIRST", ("RETH",)),
        (0x07, "RC_RDMA_WRITE_MIDDLE", ()),
        (0x0B, "RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", ("RETH", "ImmDt")),
        (0x0E, "RC_RDMA_READ_RESPONSE_MIDDLE", ()),
        (0x10, "RC_RDMA_READ_RESPONSE_ONLY", ("AETH",)),
        (0x12, "RC_ATOMIC_ACKNOWLEDGE", ("AETH", "AtomicAckETH")),
        (0x17, "RC_SEND_ONLY_WITH_INVALIDATE", ("IETH",)),
        (0x1C, "RC_FLUSH", ("FETH", "RETH")),
        (0x2A, "UC_RDMA_WRITE_ONLY", ("RETH",)),
        (0x64, "UD_SEND_ONLY", ("DETH",)),
        (0x65, "UD_SEND_ONLY_WITH_IMMEDIATE", ("DETH", "ImmDt")),
        (0xAA, "XRC_RDMA_WRITE_ONLY", ("XRCETH", "RETH")),
        (0xB1, "XRC_ACKNOWLEDGE", ("AETH",)),
        (0x81, "CNP", ()),
        (0x15, "RESERVED", ()),
        (0x18, "RESERVED", ()),
        (0x2C, "RESERVED", ()),
        (0x31, "RESERVED", ()),
        (0x60, "RESERVED", ()),
        (0x80, "RESERVED", ()),
        (0xE5, "VENDOR", ()),
    ],
)
def test_opcodes_name_their_transport_and_headers(value, name, headers):
    answer = opcode.lookup(value)
    assert (answer["name"], tuple(header["name"] for header in answer["headers"])) == (name, headers)
    assert opcode.headers(value) == headers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cnp", 0x81),
        ("ACK", 0x11),
        ("RC_ACK", 0x11),
        ("SEND_ONLY", 0x04),
        ("ud send only", 0x64),
        ("FADD", 0x14),
        ("IB_OPCODE_RC_RDMA_READ_REQUEST", 0x0C),
        ("rdma-write-only", 0x0A),
        ("17", 17),
        ("0x11", 0x11),
    ],
)
def test_opcodes_are_found_by_name(text, value):
    assert opcode.decode(text)["number"] == value


def test_the_cnp_class_base_is_no_packet():
    assert "0x81" in opcode.decode("0x80")["meaning"]


def test_an_operation_that_a_transport_does_not_carry_is_refused():
    with pytest.raises(BadInput):
        opcode.decode("UD_RDMA_WRITE_ONLY")


@given(st.integers(0, 255))
def test_header_bytes_are_the_sum_of_the_headers(value):
    answer = opcode.lookup(value)
    if "header_bytes" in answer:
        assert answer["header_bytes"] == 12 + sum(header["bytes"] for header in answer["headers"])


def test_timeout_codes_are_4_096_us_times_a_power_of_two():
    assert ack_timeout.timeout_seconds(14) == pytest.approx(0.067108864)
    assert ack_timeout.timeout_seconds(20) == pytest.approx(4.294967296)
    assert ack_timeout.timeout_seconds(0) is None


def test_code_0_waits_for_ever():
    answer = ack_timeout.decode("0")
    assert answer["gives_up"] == "never" and answer["gives_up_seconds"] is None


def test_giving_up_takes_one_try_more_than_retries_and_up_to_four_times_that():
    assert ack_timeout.decode("14", "retry_cnt", "3")["gives_up_seconds"] == pytest.approx([0.268435456, 1.073741824])


@pytest.mark.parametrize(
    ("text", "code"), [("67ms", 14), ("1s", 18), ("4.096us", 1), ("1us", 1), ("0.5s", 17), ("9999999s", 31)]
)
def test_a_time_gives_the_nearest_code(text, code):
    assert ack_timeout.decode(text)["number"] == code


@given(st.integers(1, 31))
def test_codes_come_back_from_their_times(code):
    seconds = ack_timeout.timeout_seconds(code)
    assert seconds is not None and ack_timeout.code_for(seconds) == code


@pytest.mark.parametrize("words", [("32",), ("14", "8"), ("14", "x"), ("-1",), ("14", "7", "7"), (".ms",), ("1.2.3s",)])
def test_timeouts_out_of_range_are_refused(words):
    with pytest.raises(BadInput, match=r"want|0 to"):
        ack_timeout.decode(*words)


@given(st.integers(0, 31))
def test_rnr_codes_come_back_from_their_times(code):
    assert rnr_timer.code_for(rnr_timer.MILLISECONDS[code] / 1000) == code


def test_rnr_times_round_up_and_the_longest_is_code_0():
    assert rnr_timer.decode("0.65ms")["number"] == 13
    assert rnr_timer.decode("600ms")["number"] == 0
    assert "longer than any" in rnr_timer.decode("2s")["read_as"]


def test_rnr_retry_7_never_gives_up():
    assert rnr_timer.decode("12", "7")["gives_up_after_seconds"] is None
    assert rnr_timer.decode("1", "rnr_retry", "6")["gives_up_after_seconds"] == pytest.approx(6e-5)
