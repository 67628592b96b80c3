"""Goodput by time: what is spread over bins is all there, and recovery is seen when it comes and not before."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdmadiag.scenario.goodput import Delivery, goodput, of_progress, stall


def steady(*rates: float) -> list[Delivery]:
    """Return deliveries of a second each, at these rates [bytes/s]."""
    return [Delivery(at, at + 1.0, rate) for at, rate in enumerate(rates)]


def test_a_steady_flow_has_one_rate() -> None:
    flow = goodput(steady(1000, 1000, 1000), 3.0)
    assert flow.between(0.0, 3.0) == pytest.approx(1000)
    assert flow.between(0.55, 1.95) == pytest.approx(1000)


def test_only_whole_bins_within_the_times_count() -> None:
    flow = goodput(steady(1000, 0, 0), 3.0)
    assert flow.between(1.0, 3.0) == 0
    assert flow.between(1.01, 1.09) is None
    assert flow.between(5.0, 6.0) is None


def test_recovery_is_the_first_window_at_the_wanted_rate() -> None:
    flow = goodput(steady(1000, 0, 0, 900, 1000), 5.0)
    assert flow.recovered(1.0, 800) == pytest.approx(3.0, abs=0.1)


def test_a_rate_that_never_comes_back_is_never() -> None:
    assert goodput(steady(1000, 0, 100, 100), 4.0).recovered(1.0, 800) == math.inf


def test_too_short_a_time_after_the_fault_tells_nothing() -> None:
    assert goodput(steady(1000, 1000), 2.0).recovered(1.8, 800) is None
    assert goodput([], 0.0).first_byte(0.0) is None


def test_the_first_byte_and_the_longest_stall() -> None:
    deliveries = [Delivery(0.0, 1.0, 100), Delivery(2.5, 2.55, 100)]
    flow = goodput(deliveries, 4.0)
    assert flow.first_byte(1.0) == pytest.approx(2.5)
    assert stall(deliveries, 1.0, 4.0) == pytest.approx(1.55)
    assert stall([], 1.0, 4.0) == 3.0
    assert stall(deliveries, 4.0, 4.0) is None
    assert flow.first_byte(2.6) == math.inf


def test_progress_becomes_deliveries_and_a_restart_counts_anew() -> None:
    assert of_progress([(1.0, 100), (2.0, 100), (3.0, 250), (4.0, 50)], 0.5) == [
        Delivery(0.5, 1.0, 100),
        Delivery(2.0, 3.0, 150),
        Delivery(3.0, 4.0, 50),
    ]


TIMES = st.floats(0, 20)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(parts=st.lists(st.tuples(TIMES, TIMES, st.floats(0, 1e9)), max_size=20))
def test_no_byte_is_lost_or_made_by_spreading(parts: list[tuple[float, float, float]]) -> None:
    deliveries = [Delivery(min(a, b), max(a, b), n) for a, b, n in parts]
    flow = goodput(deliveries, 21.0)
    assert sum(flow.bins) == pytest.approx(sum(d.nbytes for d in deliveries), rel=1e-6, abs=1e-3)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(parts=st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)), max_size=8), until=st.floats(-5, 50))  # fmt: skip
def test_any_deliveries_make_a_flow(parts: list[tuple[float, float, float]], until: float) -> None:
    flow = goodput([Delivery(*part) for part in parts], until)
    assert all(nbytes >= 0 for nbytes in flow.bins)
    flow.recovered(0.0, 1.0), flow.first_byte(-3.0), flow.between(0.0, until)
