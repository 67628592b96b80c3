"""Sources in a child process: one that hangs, crashes, floods or dies is a gap, and the others are still read."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence import children
from rdmadiag.evidence.children import Step, look
from rdmadiag.evidence.row import Gap, Row, Rows


class FakeHost:
    name = "node-a"

    def clock(self):
        return time.monotonic()


def source(read, **more):
    return SimpleNamespace(read=read, TABLES=("module",), **more)


def fine(host):
    yield Row("module", {"module": "fine"}, "/x")


def hangs(host):
    yield Row("module", {"module": "before"}, "/x")
    time.sleep(0.06)  # so that what came before is sent
    yield Row("module", {"module": "before too"}, "/x")
    time.sleep(600)


def crashes(host):
    yield Row("module", {"module": "before"}, "/x")
    raise ZeroDivisionError("by zero")


def floods(host):
    while True:
        yield Row("module", {"module": "again"}, "/x")


def floods_rows(host):
    yield Rows("module", ("module",), iter(lambda: ("x",), None), "/x")


def dies(host):
    os.kill(os.getpid(), signal.SIGKILL)
    yield


def leaves(host):
    raise SystemExit(0)
    yield


def cannot_be_sent(host):
    yield Row("module", {"module": lambda: 0}, "/x")


def raises(error):
    def read(host):
        raise error
        yield

    return read


def run(modules, steps=None, window=0.0, budget=5.0):
    steps = steps or [Step(name, "once") for name in modules]
    return list(look(steps, modules, FakeHost(), window, budget))


def gap_of(looked):
    (gap,) = [item for item in looked.items if isinstance(item, Gap)]
    return gap


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    descriptors = os.listdir("/proc/self/fd")
    yield
    assert os.listdir("/proc/self/fd") == descriptors
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_what_sources_yield_arrives_in_order():
    found = run({"a": source(fine), "b": source(fine)})
    assert [(looked.step.source, looked.items[0].values) for looked in found] == [
        ("a", {"module": "fine"}),
        ("b", {"module": "fine"}),
    ]
    assert all(looked.clock > 0 and looked.seconds >= 0 for looked in found)


def test_a_source_that_hangs_is_cut_off_and_the_others_are_read():
    hung, other = run({"a": source(hangs, SECONDS=0.3), "b": source(fine)})
    gap = gap_of(hung)
    assert (gap.kind, gap.reason, gap.tables) == ("timeout", "source a took longer than 0.3 s", ("module",))
    assert [item.values["module"] for item in hung.items[:-1]] == ["before", "before too"]
    assert other.items[0].values == {"module": "fine"}


def test_a_source_that_crashes_is_a_gap_with_its_error_and_keeps_what_it_yielded():
    crashed, other = run({"a": source(crashes), "b": source(fine)})
    assert (gap_of(crashed).kind, gap_of(crashed).reason) == ("crash", "source a crashed: ZeroDivisionError: by zero")
    assert len(crashed.items) == 2 and len(other.items) == 1


@pytest.mark.parametrize("read", [dies, leaves, cannot_be_sent])
def test_a_source_whose_process_dies_is_a_gap(read):
    dead, other = run({"a": source(read), "b": source(fine)})
    assert (gap_of(dead).kind, gap_of(dead).reason) == ("crash", "its process died while it looked")
    assert other.items[0].values == {"module": "fine"}


@pytest.mark.parametrize("read", [floods, floods_rows])
def test_a_source_that_floods_is_cut_off(read, monkeypatch):
    monkeypatch.setattr(children, "ITEMS", 1000)
    monkeypatch.setattr(children, "TUPLES", 1000)
    flooded, other = run({"a": source(read), "b": source(fine)})
    assert gap_of(flooded).kind == "truncated" and other.items
    assert len(flooded.items) == 1001 or len(flooded.items[-1].tuples) == 1000


@pytest.mark.parametrize(
    "error,kind",
    [
        (NotPresent("x"), None),
        (HostRefused("/x", "not permitted", "run as root"), "not_permitted"),
        (HostRefused("/x", "I/O error"), "unreadable"),
        (NotGiven("/x", "not held"), "not_given"),
    ],
)
def test_what_the_door_says_becomes_a_gap_of_its_kind(error, kind):
    (looked,) = run({"a": source(raises(error))})
    assert [item.kind for item in looked.items] == ([kind] if kind else [])


def test_what_the_budget_does_not_reach_is_a_gap_each():
    start = time.monotonic()
    modules = {name: source(hangs, SECONDS=60) for name in "abc"}
    found = run(modules, budget=0.3)
    assert time.monotonic() - start < 30
    assert [(looked.step.source, gap_of(looked).reason) for looked in found] == [
        (name, "the budget of 0.3 s was used up") for name in "abc"
    ]


def restricted(host, skip=frozenset()):
    for device in ("mlx5_0", "mlx5_1"):
        if device not in skip:
            yield Row("counter", {"device": device}, "/x")
    if "mlx5_1" not in skip:
        yield Gap(("counter",), "EINVAL", "restricted", "", "mlx5_1")


def test_adapters_that_the_kernel_refuses_are_set_aside_before_a_second_read():
    modules = {"a": source(restricted, SAMPLED=True)}
    first, last = run(modules, [Step("a", "first"), Step("a", "last")], window=0.1)
    assert [item.kind for item in first.items[2:]] == ["restricted"]
    assert [item.values["device"] for item in last.items] == ["mlx5_0"]


def test_they_stay_aside_when_another_process_goes_on():
    modules = {"a": source(restricted, SAMPLED=True), "b": source(dies)}
    found = run(modules, [Step("a", "first"), Step("b", "once"), Step("a", "last")], window=0.1)
    assert [item.values["device"] for item in found[-1].items] == ["mlx5_0"]


def test_two_samples_are_a_window_apart():
    def clocked(host, skip=frozenset()):
        yield Row("counter", {"value": 1}, "/x")

    modules = {"a": source(clocked, SAMPLED=True), "b": source(fine)}
    first, _, last = run(modules, [Step("a", "first"), Step("b", "once"), Step("a", "last")], window=0.2)
    assert last.clock - first.clock > 0.1  # the window runs from when the first sample was asked for


def test_a_sampled_source_that_hangs_is_not_begun_again():
    modules = {"a": source(lambda host, skip: hangs(host), SAMPLED=True, SECONDS=0.2)}
    (looked,) = run(modules, [Step("a", "first"), Step("a", "last")], window=0.1)
    assert looked.step.phase == "last" and gap_of(looked).kind == "timeout"


def test_a_window_longer_than_the_budget_is_waited_for():
    def clocked(host, skip=frozenset()):
        yield Row("counter", {"value": 1}, "/x")

    found = run({"a": source(clocked, SAMPLED=True)}, [Step("a", "first"), Step("a", "last")], window=0.3, budget=0.2)
    assert [len(looked.items) for looked in found] == [1, 1] and isinstance(found[1].items[0], Row)


def test_when_no_process_can_be_started_all_is_a_gap(monkeypatch):
    def refuses():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuses)
    found = run({"a": source(fine), "b": source(fine)})
    assert ["cannot start a process" in gap_of(looked).reason for looked in found] == [True, True]


def test_a_caller_that_stops_early_leaves_no_process():
    steps = look([Step("a", "once"), Step("b", "once")], {"a": source(fine), "b": source(hangs)}, FakeHost(), 0.0, 5.0)
    next(steps)
    steps.close()
