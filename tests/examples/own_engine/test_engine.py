"""What our engine must do when the network does not: a suite as a team would write it."""

import pytest


def test_blocks_arrive_whole(engine):
    result = engine(seconds=3).finish(60)
    assert result["ok"] == "yes", result["problems"]
    assert result["content"]["wrong"] == 0 < result["content"]["blocks"]


def test_the_engine_connects_again_after_a_blackout(engine, inject, evidence, diagnose):
    before = evidence("before")
    with engine(seconds=25) as run:
        run.wait("client", "progress", 30)
        with inject("blackout", for_seconds=30):
            run.wait("client", "error", 40)
        run.wait("client", "recovered", 40)
        result = run.finish(60)
    assert result["reconnects"] >= 1
    assert result["content"]["wrong"] == 0
    found = diagnose(evidence("after"), previous=before)
    assert "transport-retries-exceeded" in found.confirmed


@pytest.mark.rdma_scenario("own-engine-loss.json", percent=1)
def test_loss_costs_time_and_nothing_else(rdma_run):
    assert rdma_run["errors"] == 0
    assert rdma_run["wrong_blocks"] == 0


def test_the_lab_is_what_we_think(rdma_hosts):
    one, two = rdma_hosts
    assert (one.device, two.device) == ("rxe1", "rxe2")
    assert "ACTIVE" in one.run("rdma", "link", "show", f"{one.device}/1").text
