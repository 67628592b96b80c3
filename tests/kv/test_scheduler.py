"""Two paths: what goes where, who goes first, and what becomes of a path that fails."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rdmadiag.kv.health import DEMOTED, HEALTHY, PROBATION, Health, Policy
from rdmadiag.kv.scheduler import CONTROL, DATA, FRESH_SECONDS, Job, Path, Scheduler

RDMA, TCP = Path("rdma", "rdma", 10e9, 5e-6), Path("tcp", "tcp", 1e9, 50e-6)
POLICY = Policy(failures=2, demoted_seconds=1.0, successes=2)


def make() -> Scheduler:
    return Scheduler((RDMA, TCP), POLICY)


def fail(scheduler: Scheduler, times: int, now: float = 0.0) -> None:
    for number in range(times):
        scheduler.submit(Job(1000 + number, DATA, 1 << 20), now)
        assert scheduler.next("rdma", now) is not None
        scheduler.ended("rdma", "RETRY_EXC_ERR", now)
        while scheduler.next("tcp", now):
            scheduler.ended("tcp", "SUCCESS", now)
        while scheduler.health("rdma", now) != DEMOTED and scheduler.next("rdma", now):
            scheduler.ended("rdma", "SUCCESS", now)


def test_control_goes_by_tcp_and_bulk_and_small_data_by_rdma() -> None:
    scheduler = make()
    assert scheduler.submit(Job(1, CONTROL, 200), 0.0) == "tcp"
    assert scheduler.submit(Job(2, DATA, 1 << 30), 0.0) == "rdma"
    assert make().submit(Job(3, DATA, 4096), 0.0) == "rdma"


def test_bulk_goes_where_it_is_done_first() -> None:
    scheduler = make()
    taken = [scheduler.submit(Job(number, DATA, 100 << 20), 0.0) for number in range(22)]
    assert taken.count("tcp") == 2, "a tenth of the rate, a tenth of the jobs"


def test_a_small_job_goes_where_the_round_trip_is_measured_to_be_shorter_until_that_is_old() -> None:
    scheduler = make()
    scheduler.measured("rdma", 0.0, rtt_seconds=0.01)
    assert scheduler.submit(Job(1, DATA, 4096), 0.0) == "tcp"
    assert make().submit(Job(1, DATA, 4096), 0.0) == "rdma"
    assert scheduler.submit(Job(2, DATA, 4096), FRESH_SECONDS + 0.1) == "rdma"


def test_a_path_that_is_slower_than_expected_gets_less_bulk_and_one_that_is_faster_not_more() -> None:
    scheduler = make()
    scheduler.measured("rdma", 0.0, rate=1e9)
    scheduler.measured("tcp", 0.0, rate=100e9)
    taken = [scheduler.submit(Job(number, DATA, 100 << 20), 0.0) for number in range(20)]
    assert taken.count("tcp") == 10


def test_the_newest_measurement_counts_most_and_the_others_are_not_forgotten() -> None:
    scheduler = make()
    for _ in range(20):
        scheduler.measured("rdma", 0.0, rtt_seconds=0.001)
    scheduler.measured("rdma", 0.0, rtt_seconds=0.1)
    assert 0.02 < scheduler._lanes["rdma"].rtt_seconds(0.0) < 0.03


def test_a_path_that_does_not_answer_while_nothing_runs_on_it_is_left_at_once() -> None:
    scheduler = make()
    scheduler.left("rdma", 0.0)
    assert scheduler.health("rdma", 0.5) == DEMOTED
    assert scheduler.submit(Job(1, DATA, 1 << 30), 0.5) == "tcp"


def test_a_path_that_fails_is_demoted_tried_again_and_returns() -> None:
    scheduler = make()
    fail(scheduler, 2)
    assert scheduler.health("rdma", 0.5) == DEMOTED
    assert scheduler.submit(Job(1, DATA, 1 << 30), 0.5) == "tcp"
    assert scheduler.health("rdma", 1.0) == PROBATION
    assert scheduler.submit(Job(2, DATA, 1 << 30), 1.0) == "rdma"
    assert scheduler.submit(Job(3, DATA, 1 << 30), 1.0) == "tcp", "one at a time on probation"
    for number in (4, 5):
        assert scheduler.next("rdma", 1.0)
        scheduler.ended("rdma", "SUCCESS", 1.0)
        scheduler.submit(Job(number, DATA, 1 << 30), 1.0)
    assert scheduler.health("rdma", 1.0) == HEALTHY


def test_a_failure_on_probation_doubles_the_time_away() -> None:
    health = Health(POLICY)
    for now in (0.0, 0.0):
        health.failed("RETRY_EXC_ERR", now)
    assert [health.state(now) for now in (0.9, 1.0)] == [DEMOTED, PROBATION]
    health.failed("SOFTWARE_DEADLINE", 1.0)
    assert [health.state(now) for now in (2.9, 3.0)] == [DEMOTED, PROBATION]


def test_what_does_not_speak_against_a_path_does_not_demote_it() -> None:
    health = Health(POLICY)
    for status in ("REM_ACCESS_ERR", "WR_FLUSH_ERR", "RNR_RETRY_EXC_ERR", "LOC_LEN_ERR") * 3:
        health.failed(status, 0.0)
    assert health.state(0.0) == HEALTHY


def test_failures_far_apart_do_not_demote() -> None:
    health = Health(POLICY)
    for now in (0.0, 20.0, 40.0):
        health.failed("RETRY_EXC_ERR", now)
    assert health.state(40.0) == HEALTHY


def test_what_waits_on_a_path_that_was_demoted_moves_away() -> None:
    scheduler = make()
    for number in range(3):
        scheduler.submit(Job(number, DATA, 1 << 20), 0.0)
    for _ in range(2):
        assert scheduler.next("rdma", 0.0)
        scheduler.ended("rdma", "RETRY_EXC_ERR", 0.0)
    assert scheduler.next("rdma", 0.0) is None
    moved = set()
    while job := scheduler.next("tcp", 0.0):
        moved.add(job.number)
        scheduler.ended("tcp", "SUCCESS", 0.0)
    assert moved == {0, 1, 2}


def test_both_paths_demoted_still_take_jobs() -> None:
    scheduler = Scheduler((RDMA,), POLICY)
    scheduler.submit(Job(1, DATA, 10), 0.0)
    for _ in range(5):
        assert scheduler.next("rdma", 0.0)
        scheduler.ended("rdma", "RETRY_EXC_ERR", 0.0)
    assert scheduler.health("rdma", 0.0) == DEMOTED


def test_a_higher_priority_preempts_at_the_next_chunk_and_the_other_goes_on_where_it_was() -> None:
    told: list[tuple[str, str]] = []
    scheduler = Scheduler((RDMA,), POLICY, lambda change, path: told.append((change, path)))
    scheduler.submit(Job(1, DATA, 100), 0.0)
    assert scheduler.next("rdma", 0.0)
    assert scheduler.chunk("rdma", 30, 0.0)
    scheduler.submit(Job(2, DATA, 10, priority=5), 0.0)
    assert not scheduler.chunk("rdma", 30, 0.0)
    assert scheduler.next("rdma", 0.0) == Job(2, DATA, 10, 5)
    scheduler.ended("rdma", "SUCCESS", 0.0)
    assert scheduler.next("rdma", 0.0) == Job(1, DATA, 100, 0, 60)
    assert told == [("preempted", "rdma")]


def test_a_job_that_is_all_but_acknowledged_is_not_preempted() -> None:
    scheduler = Scheduler((RDMA,), POLICY)
    scheduler.submit(Job(1, DATA, 100), 0.0)
    scheduler.next("rdma", 0.0)
    scheduler.submit(Job(2, DATA, 10, priority=5), 0.0)
    assert scheduler.chunk("rdma", 100, 0.0)


class Jobs(RuleBasedStateMachine):
    """Jobs come, run, give way and fail; every one ends once."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = make()
        self.now, self.count = 0.0, 0
        self.open: dict[int, int] = {}
        self.running: dict[str, Job] = {}

    @rule(size=st.integers(1, 1 << 20), priority=st.integers(0, 2), kind=st.sampled_from([CONTROL, DATA]))
    def submit(self, size: int, priority: int, kind: str) -> None:
        self.count += 1
        self.open[self.count] = size
        assert self.scheduler.submit(Job(self.count, kind, size, priority), self.now) in ("rdma", "tcp")

    @rule(path=st.sampled_from(["rdma", "tcp"]))
    def start(self, path: str) -> None:
        job = self.scheduler.next(path, self.now)
        if path in self.running:
            assert job is None
        elif job is not None:
            assert job.number in self.open and job.number not in {one.number for one in self.running.values()}
            waiting = self.scheduler._lanes[path].waiting
            assert all(other.priority <= job.priority for other in waiting)
            self.running[path] = job

    @rule(path=st.sampled_from(["rdma", "tcp"]), moved=st.integers(0, 1 << 19))
    def chunk(self, path: str, moved: int) -> None:
        if path in self.running and not self.scheduler.chunk(path, moved, self.now):
            del self.running[path]

    @rule(path=st.sampled_from(["rdma", "tcp"]), status=st.sampled_from(["SUCCESS", "RETRY_EXC_ERR", "REM_ACCESS_ERR"]))
    def end(self, path: str, status: str) -> None:
        if path not in self.running:
            with pytest.raises(ValueError):
                self.scheduler.ended(path, status, self.now)
            return
        job = self.running.pop(path)
        again = self.scheduler.ended(path, status, self.now)
        assert (again is None) == (status == "SUCCESS")
        if again is None:
            del self.open[job.number]

    @rule(seconds=st.floats(0, 3))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def no_job_is_lost_or_doubled(self) -> None:
        lanes = self.scheduler._lanes.values()
        found = [job.number for lane in lanes for job in lane.waiting] + [
            lane.running.number for lane in lanes if lane.running
        ]
        assert sorted(found) == sorted(self.open)


Jobs.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestJobs = Jobs.TestCase
