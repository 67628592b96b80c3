"""A whole run: a listening process and this one, requests of a trace or made, and what was measured.

`serving` starts the listening side as a process of its own; `send` moves the requests of some arrivals one after another.
"""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rdmadiag.errors import BadInput
from rdmadiag.kv.arrivals import Arrival
from rdmadiag.kv.client import Client, Connect, Settings, connect_tcp
from rdmadiag.kv.layout import MOST_PLANES, SHAPES, Shape, checked
from rdmadiag.kv.record import Recorder
from rdmadiag.plan import window

START_SECONDS = 60.0
MOST_WINDOW = 256


def shape_named(name: str, layers: int | None = None) -> Shape:
    """Return a shape by name, with fewer or more layers when given. Raises BadInput."""
    if name not in SHAPES:
        raise BadInput(f"no shape named {name!r}; known: {', '.join(SHAPES)}")
    if layers is not None and not 1 <= layers <= MOST_PLANES:
        raise BadInput(f"layers {layers}; wanted 1 to {MOST_PLANES}")
    return checked(SHAPES[name]._replace(layers=layers)) if layers else SHAPES[name]


def window_for(rate: str | None, rtt: str | None, shape: Shape, qps: int) -> int:
    """Return the window of each QP that fills a link (bandwidth-delay product; at most 256). Raises BadInput."""
    if not rate or not rtt:
        raise BadInput("--rate and --rtt: wanted both, for example --rate 100gbit --rtt 50us")
    needed: int = window.decode(f"rate={rate}", f"rtt={rtt}", f"block={shape.piece_bytes}")["requests"]
    return min(MOST_WINDOW, math.ceil(needed / qps))


@contextmanager
def serving(options: Sequence[str]) -> Iterator[tuple[tuple[str, int], int]]:
    """Start `rdmadiag kv serve` with options as a process; its address and pid. It is ended with the block. Raises BadInput."""
    command = [sys.executable, "-m", "rdmadiag", "kv", "serve", "--format", "json", *options]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # the process ends, and so does the line, when it cannot start
        if not line:
            raise BadInput("the listening process did not start; its words are above")
        ready = json.loads(line)
        yield (ready["host"], ready["port"]), process.pid
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()  # what it waits for
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def send(
    address: tuple[str, int],
    shape: Shape,
    settings: Settings,
    arrivals: Iterable[Arrival],
    pace: bool = False,
    audit: bool = True,
    connect: Connect = connect_tcp,
    watch: Callable[[str, Mapping[str, Any]], None] | None = None,
) -> Recorder:
    """Move the prompt of each arrival; with `pace` not before its time. The recorder with all that was measured. Raises BadInput.

    A prompt longer than the arena is cut to what fits, so that a trace of long prompts can be run on a small machine. `watch`
    is told what happens as it happens, first `connected` (kv/live.py makes events of it).
    """
    most = (settings.slots - settings.slots // 16) * shape.block_tokens
    with Client(address, shape, settings, connect) as client:
        start = time.monotonic()
        client.recorder.watch = watch
        client.recorder.show("connected", kind=client.route.kind, path=client.route.name)
        for number, arrival in enumerate(arrivals, 1):
            if pace:
                time.sleep(max(0.0, start + arrival.seconds - time.monotonic()))
            client.transfer(number, max(1, min(arrival.input_tokens, most)), audit=audit)
        client.report()
        return client.recorder


def fixed(requests: int, tokens: int) -> Iterable[Arrival]:
    """Return so many requests of so many tokens, at once."""
    return itertools.repeat(Arrival(0.0, tokens, 0, ()), requests)


def summary(recorder: Recorder) -> dict[str, Any]:
    """Return what a person wants to know of a run: the transfer's row, latency of its operations, what happened, and damage."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for kind, values in recorder.rows():
        rows.setdefault(kind, []).append(dict(values))
    states = ("corrupt", "stale", "missing", "torn", "misplaced", "early_pieces")
    requests = rows.get("request", [])
    damage = {name: sum(row[name] or 0 for row in requests) for name in states}
    return {
        "run": recorder.run,
        **rows["transfer"][0],
        "damage": damage,
        "audited": sum(row["audited"] for row in requests),
        "failures": [f"request {row['request']}: {row['why']}" for row in requests if row["why"]],
        "operations": rows.get("operation", []),
        "events": rows["event"][1:],
    }
