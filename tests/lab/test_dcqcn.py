"""DCQCN's arithmetic against traces that are worked out another way: closed forms of the paper's equations, and a table by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.lab.dcqcn import ADAPTER, PAPER, SETS, NotificationPoint, ReactionPoint

G = 1e9
T = PAPER.timer


def ticks(point: ReactionPoint, count: int, start: float = 0.0, sent: float = 0.0) -> list[float]:
    """Let so many timers expire, with `sent` bytes in each; return the rate after each."""
    return [point.go_on(start + T * (n + 1) * (1 + 1e-9), sent) for n in range(count)]


def test_the_first_cnp_halves_the_rate_and_five_timers_bring_back_all_but_a_64th() -> None:
    """By hand, from 40 Gbit/s: alpha is 1, so 20; then each time half of what is missing."""
    point = ReactionPoint(PAPER, 0.0)
    point.cnp(0.0)
    assert (point.rate / G, point.target / G) == (20, 40)
    assert [rate / G for rate in ticks(point, 5)] == pytest.approx([30, 35, 37.5, 38.75, 39.375])
    assert point.target / G == 40


def test_alpha_follows_the_papers_two_equations() -> None:
    """By hand: a CNP leaves alpha 1 at 1; 256 silent periods leave (255/256)^256 = 0.3672; the next CNP lifts it by g of what is missing."""
    point = ReactionPoint(PAPER, 0.0)
    point.cnp(0.0)
    assert point.alpha(54e-6) == 1
    assert point.alpha(55e-6) == pytest.approx(255 / 256)
    later = 256 * 55e-6
    assert point.alpha(later) == pytest.approx(0.36716, abs=1e-5)
    point.rate = 40 * G
    point.cnp(later)
    assert point.rate / G == pytest.approx(40 * (1 - 0.36716 / 2), abs=1e-3)
    assert point.alpha(later) == pytest.approx(0.36716 + (1 - 0.36716) / 256, abs=1e-5)


def test_the_cut_is_by_half_of_alpha_and_never_by_alpha() -> None:
    point = ReactionPoint(PAPER, 0.0)
    alpha = point.alpha(1e-3)
    point.cnp(1e-3)
    assert 1 - point.rate / PAPER.line == pytest.approx(alpha / 2)


def test_cnps_in_a_row_halve_the_rate_each_time_down_to_the_least() -> None:
    point = ReactionPoint(PAPER, 0.0)
    seen = []
    for n in range(12):
        point.cnp(n * 50e-6)
        seen.append(point.rate)
    assert seen == pytest.approx([max(PAPER.line / 2 ** (n + 1), PAPER.least) for n in range(12)])


def test_additive_increase_is_the_closed_form_of_its_recurrence() -> None:
    """Behind fast recovery the gap e between target and rate obeys e' = (e + A) / 2, so e(j) = A + (e(0) - A) / 2^j."""
    point, cuts = ReactionPoint(PAPER, 0.0), 6
    for n in range(cuts):
        point.cnp(n * 1e-9)
    start = (cuts - 1) * 1e-9
    rates = ticks(point, 25, start)
    target = PAPER.line / 2 ** (cuts - 1)
    gap = target / 2
    for n in range(5):
        gap /= 2
        assert rates[n] == pytest.approx(target - gap)
    first = gap
    for j in range(1, 21):
        gap = PAPER.additive + (first - PAPER.additive) / 2**j
        assert rates[4 + j] == pytest.approx(target + j * PAPER.additive - gap), j


def test_hyper_increase_needs_both_counters_beyond_fast_recovery_and_grows_with_them() -> None:
    """With one byte counter a timer, both pass five together; the target then gains 1, 1, 2, 2, 3, 3 ... times the hyper step."""
    point = ReactionPoint(PAPER, 0.0)
    for n in range(6):
        point.cnp(n * 1e-9)
    target = PAPER.line / 2**5
    ticks(point, 5, 5e-9, PAPER.bytes)
    assert point.target == pytest.approx(target)
    gained = []
    for n in range(5, 9):
        before = point.target
        ticks(point, 1, 5e-9 + n * T, PAPER.bytes)
        gained.append((point.target - before) / PAPER.hyper)
    # The timer goes first, and finds the byte counter one behind: additive at first.
    assert gained == pytest.approx([PAPER.additive / PAPER.hyper + 1, 1 + 2, 2 + 3, 3 + 4])


def test_bytes_alone_raise_the_rate_additively() -> None:
    point = ReactionPoint(PAPER, 0.0)
    for _ in range(10):
        point.cnp(0.0)
    before = point.target
    point.go_on(T / 2, 8 * PAPER.bytes)
    assert point.target == pytest.approx(before + 3 * PAPER.additive)


def test_at_line_rate_nothing_is_due_and_nothing_exceeds_it() -> None:
    point = ReactionPoint(PAPER, 0.0)
    assert point.due() is None
    point.cnp(0.0)
    assert point.due() == T
    ticks(point, 200, 0.0, PAPER.bytes)
    assert point.rate == PAPER.line and point.due() is None


def test_a_flow_gets_one_cnp_a_period_whatever_other_flows_get() -> None:
    point = NotificationPoint(PAPER)
    told = [(n, flow) for n in range(20) for flow in (17, 18) if point.marked(flow, n * 10e-6)]
    assert told == [(n, flow) for n in (0, 5, 10, 15) for flow in (17, 18)]


@pytest.mark.parametrize("name", SETS)
def test_a_scaled_set_makes_the_same_trace_slower_and_smaller(name: str) -> None:
    large, factor, share = SETS[name], 200.0, 1 / 1000
    small = large.scaled(large.line * share, factor)
    one, two = ReactionPoint(large, 0.0), ReactionPoint(small, 0.0)
    for point, p in ((one, large), (two, small)):
        for n in range(4):
            point.cnp(n * p.cnp)
    for n in range(1, 60):
        at = 4 * large.cnp + n * large.timer
        sent = large.bytes * 0.41
        assert two.go_on(at * factor, sent * share * factor) == pytest.approx(one.go_on(at, sent) * share)


def test_the_adapters_set_is_what_its_firmware_documents() -> None:
    assert (1 - ADAPTER.g) * 1024 == 1019
    assert ADAPTER.timer == 300e-6 and ADAPTER.additive == 5e6 and ADAPTER.hyper == 50e6


@given(
    st.lists(
        st.tuples(st.sampled_from(["cnp", "time"]), st.floats(1e-6, 1e-2), st.floats(0, 1e8)), min_size=1, max_size=60
    )
)
def test_whatever_comes_the_rate_stays_between_least_and_line_and_alpha_between_0_and_1(
    events: list[tuple[str, float, float]],
) -> None:
    point, now = ReactionPoint(PAPER, 0.0), 0.0
    for kind, seconds, sent in events:
        now += seconds
        before = point.go_on(now, sent)
        if kind == "cnp":
            point.cnp(now)
            assert point.rate <= before
        assert PAPER.least <= point.rate <= PAPER.line
        assert point.rate <= point.target * (1 + 1e-9) or point.rate == PAPER.least
        assert 0 < point.alpha(now) <= 1
