"""Error CQE dumps in every form they are printed in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.errors import BadInput
from rdmadiag.explain import error_cqe

LAST = "00000000 92005204 0a03ac2e 007517d2"
EXPECTED = {
    "name": "LOC_PROT_ERR",
    "wc_status": 4,
    "syndrome": 0x04,
    "vendor_err": 0x52,
    "hw_err_synd": 0x92,
    "hw_synd_type": 0,
    "wqe_opcode_name": "SEND",
    "qpn": 0x03AC2E,
    "wqe_counter": 0x75,
    "signature": 0x17,
    "cqe_opcode_name": "REQ_ERR",
    "owner": 0,
}
ROWS = ["00000000 00000000 00000000 00000000"] * 2 + ["0000002a 00000000 00000000 00000000", LAST]


def hex_row(offset, words):
    return f"{offset:08x}: " + " ".join(words.replace(" ", "")[at : at + 2] for at in range(0, 32, 2))


KERNEL = [hex_row(16 * at, row) for at, row in enumerate(ROWS)]
FORMS = {
    "last row": LAST,
    "libmlx5": "mlx5: node-a: got completion with error:\n" + "\n".join(ROWS),
    "kernel 6": "\n".join(f"[ 1234.56789{at}] infiniband mlx5_0: cqe_dump: {row}" for at, row in enumerate(KERNEL)),
    "kernel, one line": " ".join(f"cqe_dump: {row}" for row in KERNEL),
    "kernel, last row": "Jan 12 03:11:01 node-a kernel: " + KERNEL[3],
    "kernel 4": "\n".join(
        f"[ 1234.5] mlx5_0:dump_cqe:275:(pid 0): {row}" if at == 0 else f"[ 1234.5] {row}"
        for at, row in enumerate(ROWS)
    ),
    "one line": " ".join(ROWS),
    "a word a line": "\n".join(" ".join(ROWS).split()),
    "mpirun": "\n".join(f"[1,0]<stderr>: {row}" for row in ROWS),
    "crlf": "\r\n".join(ROWS),
    "upper case": LAST.upper(),
    "digits only": "".join(ROWS).replace(" ", ""),
    "bytes only": " ".join(KERNEL[3].split()[1:]),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_worked_dump_decodes_in_every_form(form):
    answer = error_cqe.decode(FORMS[form])
    assert {key: answer[key] for key in EXPECTED} == EXPECTED
    assert answer["vendor_evidence"] == "measured"


@pytest.mark.parametrize("form", FORMS)
def test_the_worked_dump_decodes_as_separate_words(form):
    assert error_cqe.decode(*FORMS[form].split())["qpn"] == 0x03AC2E


def test_srqn_comes_from_the_third_row_and_is_none_without_it():
    assert error_cqe.parse(FORMS["libmlx5"])[0]["srqn"] == 0x2A
    assert error_cqe.parse(FORMS["kernel 6"])[0]["srqn"] == 0x2A
    assert error_cqe.parse(LAST)[0]["srqn"] is None


def test_fields_of_24_bits_leave_their_neighbour_bytes_alone():
    row = bytes.fromhex("000000000000881308ffffff003f5ad2")
    found = error_cqe.fields(row, bytes.fromhex("ffabcdef" + "00" * 12))
    assert (found["qpn"], found["wqe_opcode"], found["wqe_counter"], found["srqn"]) == (0xFFFFFF, 8, 0x3F, 0xABCDEF)


def test_a_responder_error_has_no_wqe_opcode():
    answer = error_cqe.decode("00000000 00003204 00000123 000100e1")
    assert (answer["cqe_opcode_name"], answer["wqe_opcode"], answer["owner"]) == ("RESP_ERR", None, 1)
    assert answer["meaning"].startswith("receive queue of QP 0x000123")


def test_many_dumps_in_one_log_keep_order_and_lines():
    second = FORMS["libmlx5"].replace("0a03ac2e", "0a000007")
    found = error_cqe.parse(f"boot\n{FORMS['kernel 6']}\nnoise 12345678 deadbeef\n{second}")
    assert [(one["qpn"], one["line"]) for one in found] == [(0x03AC2E, 5), (7, 11)]


def test_interleaved_kernel_dumps_are_kept_apart():
    other = [row.replace("0a 03 ac 2e", "0a 00 00 09").replace("00 00 00 2a", "00 00 00 2b") for row in KERNEL]
    lines = [KERNEL[0], other[0], KERNEL[1], other[1], KERNEL[2], other[2], KERNEL[3], other[3]]
    assert [(one["qpn"], one["srqn"]) for one in error_cqe.parse("\n".join(lines))] == [(0x03AC2E, 0x2A), (9, 0x2B)]


def test_of_several_dumps_the_first_that_is_not_a_flush_comes_first():
    answer = error_cqe.decode("00000000 0000f905 0a000001 000000d2\n" + LAST)
    assert answer["name"] == "LOC_PROT_ERR"
    assert [one["name"] for one in answer["more"]] == ["WR_FLUSH_ERR"]


def test_a_cqe_that_is_no_error_is_said_to_be_none():
    answer = error_cqe.decode("00000030: 00 00 00 00 00 00 00 00 0a 03 ac 2e 00 75 17 00")
    assert answer["meaning"] == "not an error completion"
    assert error_cqe.parse("00000030: 00 00 00 00 00 00 00 00 0a 03 ac 2e 00 75 17 00") == []


def test_an_unknown_vendor_code_leaves_the_status_to_speak():
    answer = error_cqe.decode("00000000 0000ee04 0a03ac2e 007517d2")
    assert answer["vendor_evidence"] == "unknown" and answer["causes"]


@pytest.mark.parametrize(
    "text", ["", "hello", "00000000 92005204 0a03ac2e", "0000003z: 00", "zz" * 16, "00000000 " * 16]
)
def test_garbage_is_refused(text):
    if text.startswith("00000000 0"):
        assert error_cqe.parse(text) == []
        return
    with pytest.raises(BadInput, match="no error CQE"):
        error_cqe.decode(text)


@given(st.text(alphabet="0123456789abcdef: \n\tdxcqe_dump", max_size=400))
def test_parse_takes_any_text(text):
    assert isinstance(error_cqe.parse(text), list)


@given(st.binary(min_size=16, max_size=16))
def test_every_sixteen_bytes_have_fields(raw):
    found = error_cqe.fields(raw)
    assert found["qpn"] == raw[9] << 16 | raw[10] << 8 | raw[11]
    assert (found["wc_status"] is None) == (raw[15] >> 4 not in (13, 14))
