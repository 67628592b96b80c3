"""A bad rkey, a forged RNR NAK and silent corruption under Mooncake and NIXL, which are not touched: what each of them makes of it.

docs/workloads.md has what was seen. Each change is done once, or a few times, to packets that the engines' own verbs send.
"""

from __future__ import annotations

from typing import Any

import pytest

from rdmadiag import workloads
from rdmadiag.lab import Lab, inflight

WRITES = ["RDMA_WRITE_FIRST", "RDMA_WRITE_ONLY"]
SMALL = {"requests": 2, "layers": 2, "blocks": 8, "retries": 8}
BLOCKS = 2 * 2 * 8
RNR = "/sys/class/infiniband/rxe1/ports/1/hw_counters/rcvd_rnr_err"
CHANGES: dict[str, dict[str, Any]] = {
    "bad-rkey": {
        "match": {"from": "h1", "to": "h2", "opcode": WRITES, "occurrence": 5, "budget": 1},
        "action": {"do": "rewrite", "set": {"rkey": "0xdead"}},
    },
    "forged-rnr": {
        "match": {"from": "h2", "to": "h1", "opcode": "RC_ACKNOWLEDGE", "occurrence": [3, 5]},
        "action": {"do": "rewrite", "set": {"syndrome": "0x2e"}},
    },
    "silent-corruption": {
        "match": {"from": "h1", "to": "h2", "opcode": "RDMA_WRITE_MIDDLE", "occurrence": 20, "budget": 1},
        "action": {"do": "corrupt", "offset": 100, "icrc": "valid"},
    },
}
pytestmark = [
    pytest.mark.long,
    pytest.mark.usefixtures("real_cache"),
    pytest.mark.parametrize("engine", ["mooncake", "nixl"]),
]


def under(lab: Lab, engine: str, change: str) -> dict[str, Any]:
    """Run an engine from h1 to h2 with a change in the switch: its result, the packets changed, what its log said, RNR NAKs that h1 heard."""
    heard = int(lab.run(["cat", RNR]).text)
    with (
        inflight.changes(lab, [{"name": change, **CHANGES[change]}]) as running,
        workloads.start(engine, workloads.InLab(lab), SMALL) as run,
    ):
        result = run.finish(150)
        said = [event for event in run.events if event.kind in ("error", "log", "reconnect", "recovered")]
    log = " ".join(str(event.values.get("words", "")) for event in said)
    return {
        **result, "changed": running.count(change)["done"], "log": log, "kinds": {event.kind for event in said},
        "rnr": int(lab.run(["cat", RNR]).text) - heard,
    }  # fmt: skip


def test_after_a_bad_rkey_every_block_is_right_by_another_connection(lab: Lab, engine: str) -> None:
    found = under(lab, engine, "bad-rkey")
    assert found["changed"] == 1
    assert found["content"] == {"answer": "yes", "blocks": BLOCKS, "bytes": BLOCKS * 65536, "wrong": 0}
    assert found["ok"] == "yes" and found["carried"]["answer"] == "yes"
    if engine == "mooncake":  # it connects again by itself, and its caller hears nothing
        assert (
            "remote access error" in found["log"] and "Re-establish connection" in found["log"] and not found["errors"]
        )
    else:  # the caller is told that the peer is gone, and must begin again
        assert "NIXL_ERR_REMOTE_DISCONNECT" in found["log"] and {"reconnect", "recovered"} <= found["kinds"]


def test_forged_rnr_naks_cost_a_wait_that_the_engine_does_not_see(lab: Lab, engine: str) -> None:
    found = under(lab, engine, "forged-rnr")
    assert found["changed"] == 3 and found["rnr"] >= 1
    assert found["ok"] == "yes" and found["content"]["wrong"] == 0
    assert not found["errors"] and "reconnect" not in found["kinds"]


def test_silent_corruption_is_a_success_to_the_engine_and_a_wrong_block_to_who_compares(lab: Lab, engine: str) -> None:
    found = under(lab, engine, "silent-corruption")
    assert found["changed"] == 1
    assert not found["errors"] and found["exit_codes"] == {"server": 0, "client": 0}
    assert found["claimed_bytes"] == BLOCKS * 65536 and found["carried"]["answer"] == "yes"
    assert found["ok"] == "no" and found["content"]["wrong"] == 1
