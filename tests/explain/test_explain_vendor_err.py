"""Vendor codes: bases, drivers, and how sure we are."""

import pytest

from rdmadiag.errors import BadInput
from rdmadiag.explain import vendor_err


@pytest.mark.parametrize(
    ("code", "status", "evidence"),
    [
        (0x53, 4, "measured"),
        (0x52, 4, "measured"),
        (0x33, 4, "measured"),
        (0xF5, 5, "measured"),
        (0x8A, 9, "measured"),
        (0x88, 10, "measured"),
        (0x87, 13, "measured"),
        (0x81, 12, "measured"),
        (0x51, 4, "reported"),
        (0x89, 11, "reported"),
        (0x93, 16, "source"),
        (0x54, None, "unverified"),
    ],
)
def test_mlx5_pairs_say_how_sure_they_are(code, status, evidence):
    answer = vendor_err.lookup(code, status, "mlx5")
    assert answer is not None
    assert (answer["wc_status"], answer["evidence"]) == (status, evidence)
    assert answer["pair"] == ("agrees" if status is not None else "unknown")


def test_hex_and_decimal_of_one_code_are_the_same():
    assert vendor_err.decode("0x81")["meaning"] == vendor_err.decode("129")["meaning"]


def test_a_bare_number_says_that_it_was_read_as_decimal_and_how_to_say_hex():
    answer = vendor_err.decode("81")
    assert answer["number"] == 0x51
    assert "decimal (0x51)" in answer["read_as"] and "0x81" in answer["read_as"]


def test_hex_letters_are_read_as_hex():
    assert vendor_err.decode("f9")["number"] == 0xF9


def test_words_may_come_in_any_order_and_with_keys():
    assert vendor_err.decode("mlx5", "0x88", "REM_ACCESS_ERR")["pair"] == "agrees"
    assert vendor_err.decode("vendor_err=0x88", "status=10")["wc_status"] == 10


def test_a_pair_that_does_not_belong_together_is_said_to_differ():
    answer = vendor_err.lookup(0x81, 10, "mlx5")
    assert answer is not None and answer["pair"] == "differs"
    assert "trust the wc status" in answer["note"]


def test_small_codes_mean_nothing_without_a_driver():
    assert vendor_err.lookup(7, None, None) is None
    answer = vendor_err.decode("7")
    assert set(answer["by_driver"]) >= {"efa", "bnxt_re", "irdma"}


def test_efa_codes_map_to_the_status_that_its_library_gives():
    expected = {1: 5, 4: 2, 5: 4, 6: 1, 7: 10, 8: 16, 9: 15, 10: 13, 11: 9, 12: 7, 13: 20, 14: 11, 15: 20, 18: 9}
    found = {code: vendor_err.lookup(code, None, "rdmap0s31") for code in expected}
    assert {code: answer and answer["wc_status"] for code, answer in found.items()} == expected


def test_bnxt_codes_differ_by_side_and_the_status_decides():
    both = vendor_err.lookup(1, None, "bnxt_re0")
    assert both is not None and "requester" in both["meaning"] and "responder" in both["meaning"]
    responder = vendor_err.lookup(1, 8, "bnxt_re")
    assert responder is not None and responder["meaning"] == "responder: local access"


def test_irdma_codes_hold_major_and_minor():
    answer = vendor_err.lookup(0x1000A, None, "irdma1")
    assert answer is not None and answer["wc_status"] == 9


def test_unknown_codes_drivers_and_sizes():
    assert vendor_err.lookup(0xEE, 4, "mlx5") is None
    assert vendor_err.lookup(0x81, 12, "mana") is None
    assert vendor_err.decode("0xee", "mlx5", "4")["causes"]
    for words in (("mlx9",), ("0x81", "frobnicate"), (), ("0x1ffffffff",)):
        with pytest.raises(BadInput):
            vendor_err.decode(*words)
