"""What the worker in the lab does so that a rule about the wire has something to see: real verbs between rxe1 and rxe2 of one guest."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from rdmadiag.verbs import cm
from rdmadiag.verbs.attributes import RcAttributes
from rdmadiag.verbs.endpoint import Endpoint
from rdmadiag.verbs.posting import Wr
from tests.softroce import verbs_cases

LENGTH = 1 << 20
KEPT: dict[str, Any] = {}


def open_pair(one: dict[str, Any] | None = None, two: dict[str, Any] | None = None) -> dict[str, Any]:
    """Connect an end on rxe1 and one on rxe2, each with its own RC attributes, and keep them for `talk`."""
    ends = KEPT["ends"] = [
        Endpoint(device, LENGTH, RcAttributes(**(wanted or {})))
        for device, wanted in zip(verbs_cases.DEVICES, (one, two), strict=True)
    ]
    ends[0].connect(ends[1].offer())
    ends[1].connect(ends[0].offer())
    KEPT["before"] = [verbs_cases.counters(device) for device in verbs_cases.DEVICES]
    memory = ends[1].offer().memory
    return {
        "qpns": [end.qp.qpn for end in ends],
        "psns": [end.psns[0] for end in ends],
        "rkey": memory.rkey,
        "address": memory.address,
    }


def moved() -> list[dict[str, int]]:
    """Return the counters of both devices that moved since the pair was made."""
    after = [verbs_cases.counters(device) for device in verbs_cases.DEVICES]
    return [
        {name: now[name] - old[name] for name in now if now[name] != old[name]}
        for old, now in zip(KEPT["before"], after, strict=True)
    ]


def write_text(text: str, seconds: float = 20.0) -> dict[str, Any]:
    """WRITE a text to the start of rxe2's memory; its status, and where it lies there then [offsets]."""
    one, two = KEPT["ends"]
    data = text.encode()
    one.mr.view[: len(data)] = data
    two.mr.view[:] = bytes(LENGTH)
    one.qp.post([one.wr(two.offer().memory, 1, "RDMA_WRITE", len(data))])
    end, found = time.monotonic() + seconds, []
    while not found and time.monotonic() < end:
        found = one.cq.wait(0.1)
    held = bytes(two.mr.view)
    places = [n for n in range(0, LENGTH - len(data), 64) if held[n : n + len(data)] == data]
    return {
        "statuses": [one.status for one in found],
        "places": places,
        "states": [end.qp.state for end in KEPT["ends"]],
        "moved": moved(),
    }


def talk(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Do work on the kept pair, step by step; each tells its statuses and the QPs' states behind it.

    A step: `by` (0: rxe1), `opcode`, `count`, `size`; `receives` are posted at the other end before, `late_receives` after `pause` [s];
    `one_by_one` waits for each; `wait` is the longest wait [s]; `overwrite` fills the sender's memory so long [s] after posting; `rkey_off` and `beyond` make a request that is refused.
    """
    told = []
    for step in steps:
        mine = KEPT["ends"][step.get("by", 0)]
        theirs = KEPT["ends"][1 - step.get("by", 0)]
        size, count = step.get("size", 64), step.get("count", 1)
        _receives(theirs, step.get("receives", 0))
        statuses: list[str] = []
        wrs = [_wr(mine, theirs, n, size, step) for n in range(count)]
        for batch in [[wr] for wr in wrs] if step.get("one_by_one") else [wrs]:
            mine.qp.post(batch)
            if step.get("one_by_one"):
                statuses += [one.status for one in mine.cq.wait(step.get("wait", 20.0))]
        if "overwrite" in step:
            time.sleep(step["overwrite"])
            mine.mr.view[:] = b"\x5a" * LENGTH
        if "late_receives" in step:
            time.sleep(step["pause"])
            _receives(theirs, step["late_receives"])
        end = time.monotonic() + step.get("wait", 20.0)
        while len(statuses) < count and time.monotonic() < end:
            statuses += [one.status for one in mine.cq.wait(0.1)]
        theirs.cq.wait(0.0)
        told.append({"statuses": statuses, "states": [end.qp.state for end in KEPT["ends"]]})
    return told


def _receives(end: Endpoint, count: int) -> None:
    if count:
        end.qp.post_receives([(1000 + n, [end.sge(0, 65536)]) for n in range(count)])


def _wr(mine: Endpoint, theirs: Endpoint, n: int, size: int, step: dict[str, Any]) -> Wr:
    memory = theirs.offer().memory
    place = n * size % (LENGTH - size)
    wr = mine.wr(memory, n, step.get("opcode", "RDMA_WRITE"), size, place, place)
    if step.get("rkey_off"):
        wr = wr._replace(rkey=memory.rkey ^ step["rkey_off"])
    if step.get("beyond"):
        wr = wr._replace(remote_address=memory.address + LENGTH - 10)
    return wr


def close_pair() -> None:
    """Let the kept pair go."""
    for end in KEPT.pop("ends", []):
        end.close()


def cm_connect(port: int, seconds: float) -> str:
    """Ask the other host for a connection by rdma_cm, where nobody listens or nobody hears; what came of it."""
    with Endpoint("rxe1") as one:
        try:
            cm.connect(one, "10.0.0.2", port, "10.0.0.1", seconds=seconds).close()
        except cm.CmFailed as error:
            return error.got
    return "connected"


def in_switch(script: str) -> None:
    """Run shell text in the switch's network namespace."""
    subprocess.run(["ip", "netns", "exec", "switch", "sh", "-ec", script], check=True, capture_output=True, text=True)
