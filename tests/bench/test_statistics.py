"""Medians, their intervals, and knees."""

from __future__ import annotations

import random

import pytest

from rdmadiag.bench.statistics import knee, median


def test_ten_values_leave_out_one_at_each_end() -> None:
    # Binomial(10, 1/2): P(at most 1) = 11/1024 = 1.1 %, P(at most 2) = 5.5 %.
    found = median([10, 1, 9, 2, 8, 3, 7, 4, 6, 5])
    assert (found.middle, found.low, found.high) == (5.5, 2, 9)


def test_below_six_values_there_is_no_interval() -> None:
    assert median([1, 2, 3, 4, 5])[1:] == (None, None)
    assert median([1, 2, 3, 4, 5, 6])[1:] == (1, 6)


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    chance = random.Random(7)
    held = 0
    for _ in range(2000):
        found = median([chance.lognormvariate(0, 1) for _ in range(10)])
        assert found.low is not None and found.high is not None
        held += found.low <= 1.0 <= found.high
    assert held / 2000 > 0.95


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_the_knee_is_where_more_brings_little() -> None:
    assert knee({1: 10.0, 2: 50.0, 4: 96.0, 8: 100.0, 16: 99.0}) == 4


def test_a_point_that_is_good_by_chance_before_a_bad_one_is_no_knee() -> None:
    assert knee({1: 97.0, 2: 50.0, 4: 96.0, 8: 100.0}) == 4


def test_a_curve_that_falls_after_its_top_has_its_knee_at_the_top_or_before() -> None:
    assert knee({1: 50.0, 2: 100.0, 4: 80.0}) == 2


def test_no_points_have_no_knee() -> None:
    assert knee({}) is None
