"""Intervals of shares, against published values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.prove.intervals import wilson


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    # Newcombe 1998 (Statistics in Medicine 17:857), table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_published_intervals_come_out(hits: int, of: int, low: float, high: float) -> None:
    found = wilson(hits, of)
    assert found[0] == pytest.approx(low, abs=1e-4) and found[1] == pytest.approx(high, abs=1e-4)


def test_no_runs_tell_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_the_share_lies_within(hits: int, of: int) -> None:
    hits = min(hits, of)
    low, high = wilson(hits, of)
    assert 0 <= low <= hits / of + 1e-12 and hits / of - 1e-12 <= high <= 1
