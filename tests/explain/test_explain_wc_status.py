"""Completion statuses by number, name and text."""

import pytest

from rdmadiag.errors import BadInput
from rdmadiag.explain import wc_status


@pytest.mark.parametrize(
    "words",
    [
        ("12",),
        ("0xc",),
        ("RETRY_EXC_ERR",),
        ("IBV_WC_RETRY_EXC_ERR",),
        ("ibv_wc_retry_exc_err",),
        ("IB_WC_RETRY_EXC_ERR",),
        ("transport retry counter exceeded",),
        ("transport", "retry", "counter", "exceeded"),
        ("status=12",),
        ("IBV_WC_RETRY_EXC_ERR(12)",),
        ("error 12",),
        ("transport retry counter exceeded (12)",),
    ],
)
def test_all_spellings_of_status_12_decode_alike(words):
    answer = wc_status.decode(*words)
    assert (answer["number"], answer["name"]) == (12, "RETRY_EXC_ERR")
    assert answer["mlx5_syndrome"] == "0x15"


def test_numbers_follow_the_enum_without_a_hole():
    assert [wc_status.number(name) for name in wc_status.NAMES] == list(range(24))


def test_the_kernels_own_texts_are_known():
    for text, number in (("WR flushed", 5), ("memory bind operation error", 6), ("operation aborted", 16)):
        assert wc_status.number(text) == number


def test_a_syndrome_that_mlx5_does_not_map_is_a_general_error():
    assert wc_status.from_syndrome(0x13) == 10
    assert wc_status.from_syndrome(0x22) == 16
    assert wc_status.from_syndrome(0x77) == 21


def test_a_flush_is_secondary_and_points_to_the_first_other_completion():
    answer = wc_status.decode("5")
    assert answer["side"] == "secondary"
    assert "not 5" in answer["next"][0]


def test_status_12_never_says_that_the_peer_is_dead():
    assert "never by itself" in wc_status.decode("12")["meaning"]


@pytest.mark.parametrize("word", ["24", "99", "0x18", "-1", "RETRY", "unknown", "", "transport"])
def test_an_unknown_status_is_refused_with_the_known_ones(word):
    with pytest.raises(BadInput, match="RETRY_EXC_ERR"):
        wc_status.decode(word)


def test_lookup_answers_none_out_of_range():
    assert wc_status.lookup(24) is None
    assert wc_status.lookup(-1) is None
