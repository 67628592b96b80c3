"""The decision table: every status has one answer, and every request ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.explain import wc_status
from rdmadiag.kv import recovery
from rdmadiag.kv.recovery import Limits, Recovery, Route

ROUTES = (Route("rxe0", "rdma", "10.0.0.1"), Route("rxe1", "rdma", "10.0.1.1"), Route("tcp", "tcp", "10.0.2.1"))
FAILED = [name for name in wc_status.NAMES if name != "SUCCESS"] + [recovery.DEADLINE]


@pytest.mark.parametrize("status", [name for name in FAILED if name.startswith("LOC_")])
def test_a_local_error_stops_at_once(status: str) -> None:
    assert Recovery(ROUTES, Limits(), 0.0).after(status, 0.0).route is None


def test_a_key_that_is_not_known_is_fetched_again_and_the_path_is_not_blamed() -> None:
    step = Recovery(ROUTES, Limits(), 0.0).after("REM_ACCESS_ERR", 0.0)
    assert step.refetch and step.route == ROUTES[0] and not step.moved
    assert not recovery.blames_path("REM_ACCESS_ERR")


def test_a_flush_follows_another_error_and_blames_nobody() -> None:
    assert recovery.action("WR_FLUSH_ERR") == recovery.RECONNECT
    assert not recovery.blames_path("WR_FLUSH_ERR")


def test_a_receiver_that_is_not_ready_is_waited_for_and_never_sends_the_request_to_tcp() -> None:
    plan = Recovery(ROUTES, Limits(tries=2), 0.0)
    steps = [plan.after("RNR_RETRY_EXC_ERR", 0.0) for _ in range(3)]
    assert [step.route for step in steps] == [ROUTES[0], ROUTES[0], None]


def test_a_dead_path_goes_to_the_second_device_then_to_tcp_then_fails() -> None:
    plan = Recovery(ROUTES, Limits(tries=2), 0.0)
    steps = [plan.after("RETRY_EXC_ERR", 0.0) for _ in range(9)]
    assert [step.route.name if step.route else None for step in steps] == [
        "rxe0", "rxe0", "rxe1", "rxe1", "rxe1", "tcp", "tcp", "tcp", None,
    ]  # fmt: skip
    assert [step.moved for step in steps] == [False, False, True, False, False, True, False, False, False]


def test_tcp_is_left_out_where_it_is_not_allowed() -> None:
    plan = Recovery(ROUTES, Limits(tries=0, tcp_allowed=False), 0.0)
    assert [step.route and step.route.name for step in (plan.after("FATAL_ERR", 0.0) for _ in range(2))] == [
        "rxe1",
        None,
    ]


def test_a_path_that_works_again_has_all_its_tries_again() -> None:
    plan = Recovery(ROUTES, Limits(tries=1), 0.0)
    for _ in range(5):
        assert plan.after("RETRY_EXC_ERR", 0.0).route == ROUTES[0]
        plan.progressed()


@given(st.integers(1, 6), st.integers(0, 1000))
def test_delays_double_within_a_quarter_and_are_capped(tries: int, seed: int) -> None:
    limits = Limits(tries=tries, most_seconds=0.5)
    plan = Recovery(ROUTES, limits, 0.0, seed)
    for nth in range(tries):
        step = plan.after("RETRY_EXC_ERR", 0.0)
        base = min(0.5, 0.05 * 2**nth)
        assert 0.75 * base <= step.seconds <= 1.25 * base


@given(st.lists(st.sampled_from(FAILED), min_size=40, max_size=60), st.floats(0, 3))
def test_a_request_ends_whatever_comes(statuses: list[str], each_seconds: float) -> None:
    plan, now = Recovery(ROUTES, Limits(), 0.0), 0.0
    names = []
    for status in statuses:
        step = plan.after(status, now)
        now += step.seconds + each_seconds
        if step.route is None:
            assert step.why
            break
        assert now - each_seconds <= 30.0
        names.append(ROUTES.index(step.route))
    else:
        raise AssertionError("it was tried for ever")
    assert names == sorted(names), "a route that was left is not taken again"


def test_what_is_no_failed_status_is_refused() -> None:
    for status in ("SUCCESS", "NO_SUCH"):
        with pytest.raises(ValueError):
            recovery.action(status)
