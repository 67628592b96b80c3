"""A whole run: a listening process and this one, requests of a trace or made, and what was measured.

`serving` starts the listening side as a process of its own; `send` moves the requests of some arrivals one after another.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rdmadiag.errors import BadInput
from rdmadiag.kv.arrivals import Arrival
from rdmadiag.kv.client import Client, Settings
from rdmadiag.kv.frames import PeerGone, ProtocolError
from rdmadiag.kv.layout import MOST_PLANES, Shape, checked, named
from rdmadiag.kv.rdma import Rails
from rdmadiag.kv.record import Recorder
from rdmadiag.plan import window
from rdmadiag.verbs.attributes import RcAttributes

START_SECONDS = 60.0
MOST_WINDOW = 256
MOST_VERSIONS = 3
"""Times that one request is begun because its peer went away."""
FIRST_DELAY, DELAY_MOST = 0.1, 2.0
"""Between tries to reach a peer that went away [s]; they double, and each is up to a quarter longer or shorter."""
PROGRAM = (sys.executable, "-m", "rdmadiag")


def shape_named(name: str, layers: int | None = None) -> Shape:
    """Return a shape by name or parameters, with fewer or more layers when given. Raises BadInput."""
    found = named(name)
    if layers is not None and not 1 <= layers <= MOST_PLANES:
        raise BadInput(f"layers {layers}; wanted 1 to {MOST_PLANES}")
    return checked(found._replace(layers=layers)) if layers else found


def window_for(rate: str | None, rtt: str | None, shape: Shape, qps: int) -> int:
    """Return the window of each QP that fills a link (bandwidth-delay product; at most 256). Raises BadInput."""
    if not rate or not rtt:
        raise BadInput("--rate and --rtt: wanted both, for example --rate 100gbit --rtt 50us")
    needed: int = window.decode(f"rate={rate}", f"rtt={rtt}", f"block={shape.piece_bytes}")["requests"]
    return min(MOST_WINDOW, math.ceil(needed / qps))


@contextmanager
def serving(
    options: Sequence[str], program: Sequence[str] = PROGRAM, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[tuple[str, int], int]]:
    """Start `rdmadiag kv serve` with options as a process; its address and pid. It is ended with the block. Raises BadInput.

    `program` is what runs rdmadiag, elsewhere: `rdmadiag lab exec ... python -m rdmadiag`.
    """
    command = [*program, "kv", "serve", "--format", "json", *options]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
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


class Ways(NamedTuple):
    """How a client reaches its peer: RDMA devices in order, RC attributes, the netdev of TCP, the time for a peer that went away [s]."""

    devices: Sequence[str] = ()
    attributes: RcAttributes = RcAttributes()
    bind: str = ""
    gid_index: int | None = None
    return_seconds: float = 60.0


BY_TCP = Ways()
Watch = Callable[[str, Mapping[str, Any]], None]


class Sessions:
    """The session with a peer, and another one when its control channel is gone. A context manager: leaving it ends the session.

    Raises BadInput when the peer is not there at first.
    """

    def __init__(
        self, address: tuple[str, int], shape: Shape, settings: Settings, ways: Ways, recorder: Recorder
    ) -> None:
        self._address, self._shape, self._settings, self._ways, self.recorder = address, shape, settings, ways, recorder
        self._rails = Rails(ways.devices, ways.attributes, ways.bind, ways.gid_index)
        self.client = self._open()

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def _open(self) -> Client:
        ways, rails = self._ways, self._rails
        made = Client(
            self._address, self._shape, self._settings, rails.connect, None, ways.devices, ways.bind, rails.close,
            self.recorder,
        )  # fmt: skip
        self.recorder.show("connected", kind=made.route.kind, path=made.route.name)
        return made

    def renew(self, request: int) -> bool:
        """Open another session where the last one was, with backoff and jitter; False when nobody takes it within `return_seconds`.

        The old one's QPs are destroyed and its memory is deregistered first, so nothing of it can land any more, and the new one has
        keys and an incarnation of its own; whoever answers, nothing of before is taken for its own.
        """
        before = self.client.peer
        self.client.close()
        end, delay = time.monotonic() + self._ways.return_seconds, FIRST_DELAY
        while True:
            try:
                self.client = self._open()
                break
            except (BadInput, PeerGone, ProtocolError) as error:
                # One that does not speak with us (another shape) does not take its place: nothing to wait for.
                if time.monotonic() + delay > end or isinstance(error, ProtocolError):
                    self.recorder.event("peer_gone", request=request, reason=str(error))
                    return False
                time.sleep(delay * random.uniform(0.75, 1.25))
                delay = min(DELAY_MOST, 2 * delay)
        same = self.client.peer == before
        reason = "the control channel broke" if same else "the peer's process went away, and another took its place"
        self.recorder.event("session", request=request, path=self.client.route.name, reason=reason)
        return True

    def finish(self) -> None:
        """Ask the peer for its counts, and read the counters of the devices that were used."""
        if self.client.alive:
            try:
                self.client.report()
            except PeerGone as error:
                self.recorder.event("peer_gone", reason=str(error))
        self.recorder.routes = self._rails.rows()


def send(
    address: tuple[str, int],
    shape: Shape,
    settings: Settings,
    arrivals: Iterable[Arrival],
    pace: bool = False,
    audit: bool = True,
    ways: Ways = BY_TCP,
    watch: Watch | None = None,
    seconds: float | None = None,
) -> Recorder:
    """Move the prompt of each arrival; with `pace` not before its time. The recorder with all that was measured. Raises BadInput.

    A prompt longer than the arena is cut to what fits, so that a trace of long prompts can be run on a small machine. A request whose
    peer went away begins anew with the peer that took its place: a new session, new keys, a new version; when none does,
    the run ends. `watch` is told what happens as it happens, `connected` for each session (kv/live.py makes events of it).
    `seconds` after the first request ended no other one begins.
    """
    most = (settings.slots - settings.slots // 16) * shape.block_tokens
    recorder = Recorder(settings.mode)
    recorder.watch = watch
    with Sessions(address, shape, settings, ways, recorder) as sessions:
        for number, tokens in paced(arrivals, pace, seconds, recorder, settings.first_request):
            if not _moved(sessions, number, max(1, min(tokens.input_tokens, most)), audit):
                break
        sessions.finish()
    return recorder


def paced(
    arrivals: Iterable[Arrival], pace: bool, seconds: float | None, recorder: Recorder, first_request: int = 1
) -> Iterator[tuple[int, Arrival]]:
    """Yield the arrivals with their numbers, with `pace` each at its time, and none later than `seconds` after the first was done."""
    first = None
    for number, arrival in enumerate(arrivals, first_request):
        if first is not None and seconds and recorder.now() - first > seconds:
            return
        if pace:
            time.sleep(max(0.0, arrival.seconds - recorder.now()))
        yield number, arrival
        first = first or recorder.now()


def _moved(sessions: Sessions, number: int, tokens: int, audit: bool) -> bool:
    """Move one request, a version after another for as long as its peers go away; False when there is none any more."""
    for version in range(1, MOST_VERSIONS + 1):
        row = sessions.client.transfer(number, tokens, version, audit)
        if sessions.client.alive:
            return True
        if not sessions.renew(number):
            return False
        if row["state"] != "failed":
            return True
    return True


def fixed(requests: int, tokens: int) -> Iterable[Arrival]:
    """Return so many requests of so many tokens, at once."""
    return itertools.repeat(Arrival(0.0, tokens, 0, ()), requests)


def summary(recorder: Recorder) -> dict[str, Any]:
    """Return what a person wants to know of a run: the transfer's row, latency of its operations, what happened, and damage."""
    return summary_of([{**dict(values), "record": record, "run": recorder.run} for record, values in recorder.rows()])


def summary_of(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the same from the records of a result (its lines). Raises BadInput where there is no run in it."""
    rows: dict[str, list[dict[str, Any]]] = {}
    run = ""
    for values in records:
        run = str(values.get("run"))
        rows.setdefault(str(values["record"]), []).append(
            {name: value for name, value in values.items() if name not in ("record", "run", "schema")}
        )
    if "transfer" not in rows:
        raise BadInput("no result of a transfer; the sending side's words are above")
    states = ("corrupt", "stale", "missing", "torn", "misplaced", "early_pieces")
    requests = rows.get("request", [])
    damage = {name: sum(row[name] or 0 for row in requests) for name in states}
    return {
        "run": run,
        **rows["transfer"][0],
        "damage": damage,
        "audited": sum(row["audited"] for row in requests),
        "failures": [f"request {row['request']}: {row['why']}" for row in requests if row["why"]],
        "operations": rows.get("operation", []),
        "routes": [{**row, "on_the_wire": on_the_wire(row)} for row in rows.get("route", [])],
        "paths": rows.get("path", []),
        "jobs": rows.get("job", []),
        "caches": rows.get("cache", []),
        "events": rows["event"][1:],
    }


def on_the_wire(route: Mapping[str, Any]) -> bool | None:
    """Tell whether a device's own counters had room for what was acknowledged on a route; None where they cannot say."""
    read = route["read_bytes"]
    answers = []
    for way, claimed in (("sent", route["acknowledged_bytes"] - read), ("received", read)):
        nbytes, packets, mtu = route.get(f"wire_bytes_{way}"), route.get(f"packets_{way}"), route.get("path_mtu")
        if nbytes is None and packets is not None and mtu:
            nbytes = packets * mtu
        answers.append(None if nbytes is None else nbytes >= claimed)
    return None if None in answers else all(answers)
