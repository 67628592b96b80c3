"""Block sizes and queue depths of KV-cache blocks between two RDMA devices, against perftest on the same devices."""

from __future__ import annotations

import json
import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rdmadiag.bench import statistics
from rdmadiag.errors import BadInput, RdmadiagError
from rdmadiag.evidence.row import Line
from rdmadiag.sources.perftest import MIB_GBPS, parse
from rdmadiag.verbs.endpoint import DEFAULTS
from rdmadiag.workloads import Host, Place
from rdmadiag.workloads._place import Process, package_path

OPS = {"push": "RDMA_WRITE", "imm": "RDMA_WRITE_WITH_IMM", "pull": "RDMA_READ"}
AGAINST = {"push": "ib_write_bw", "imm": "ib_write_bw", "pull": "ib_read_bw"}
SIZES = (4096, 16384, 65536, 262144, 1 << 20)
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
WHOLE, WHOLE_TRANSFER = "whole", "whole transfer"
SIZE_MOST, DEPTH_MOST = 1 << 20, 256
SIGNAL_EVERY = 8
ANSWER_SECONDS = 180.0
RUN_TRIES = 3
"""A run with a failed request has no rate: it is made again, and told. One with wrong content ends the measurement."""
PERFTEST_TRIES = 3
"""perftest prints a rate of 0.00 when it could not tell the processor's clock by the time of day, which happens on an emulated one."""
Progress = Callable[[str], None]


class BenchError(RdmadiagError):
    """A measurement could not be made: says what of it, and why."""


class Plan(NamedTuple):
    """What is measured: runs of `volume_bytes`, but at least 16 blocks and two full queues; `repeats` of each point of the sweep.

    `pairs` with perftest are made of each size in `pair_sizes`, at `depth`; with `whole` also of whole KV transfers.
    """

    modes: tuple[str, ...] = tuple(OPS)
    sizes: tuple[int, ...] = SIZES
    depths: tuple[int, ...] = DEPTHS
    pair_sizes: tuple[int, ...] = SIZES
    pairs: int = 10
    repeats: int = 3
    depth: int = 32
    volume_bytes: int = 16 << 20
    whole: bool = False

    def count(self, size: int, least: int = 0) -> int:
        """Return the blocks of a run, at least so many: a run of one full queue would be its start and its end only."""
        return max(16, self.volume_bytes // size, least)

    def checked(self) -> Plan:
        """Return it. Raises BadInput for what cannot be measured."""
        for mode in self.modes:
            if mode not in OPS:
                raise BadInput(f"mode {mode!r}; known: {', '.join(OPS)}")
        for size in (*self.sizes, *self.pair_sizes):
            if not 256 <= size <= SIZE_MOST or size & (size - 1):
                raise BadInput(f"block size {size}; wanted a power of two from 256 to {SIZE_MOST}")
        for depth in (*self.depths, self.depth):
            if not 1 <= depth <= DEPTH_MOST:
                raise BadInput(f"queue depth {depth}; wanted 1 to {DEPTH_MOST}")
        return self


class Device:
    """The measuring program on a host, asked by lines of JSON. A context manager."""

    def __init__(self, place: Place, near: Host, far: Host) -> None:
        self.failures: list[str] = []
        self._said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._words: list[str] = []
        argv = [sys.executable, "-m", "rdmadiag.bench.end", near.device, far.device]
        self._process = Process(
            lambda take: place.start(near.name, argv, package_path(), take), self._line, lambda *_: self._said.put(None)
        )
        self.facts = self._answer("the measuring program")

    def _line(self, stream: int, text: str) -> None:
        if stream == 1 and text.startswith("{"):
            self._said.put(text)
        else:
            self._words.append(text)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def _answer(self, what: str) -> dict[str, Any]:
        try:
            line = self._said.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise BenchError(f"{what}: no answer within {ANSWER_SECONDS:g} s") from None
        if line is None:
            raise BenchError(f"{what} ended: {' '.join(self._words[-3:])[-500:] or 'it said nothing'}")
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise BenchError(f"{what}: {answer['problem']}")
        return answer

    def ask(self, **asked: Any) -> dict[str, Any]:
        """Ask for one measurement. Raises BenchError."""
        self._process.write(json.dumps(asked).encode() + b"\n")
        return self._answer(f"{asked['op']}, size {asked.get('size')}, depth {asked.get('window')}")

    def rate(self, mode: str, size: int, depth: int, count: int) -> float:
        """Measure one run [bytes/s]. Raises BenchError when content is not what was sent, or requests failed in each of RUN_TRIES."""
        return self._rate(mode, depth, op=OPS[mode], size=size, count=count)

    def whole_rate(self, mode: str, size: int, depth: int, count: int) -> float:
        """Measure one whole KV transfer [bytes/s]: manifest and layers in the time, making and verifying not. Raises BenchError."""
        return self._rate(mode, depth, op=WHOLE, mode=mode, size=size, count=count)

    def _rate(self, mode: str, depth: int, /, **asked: Any) -> float:
        every = min(SIGNAL_EVERY, max(1, depth // 2))
        problem = ""
        for _ in range(RUN_TRIES):
            told = self.ask(window=depth, signal_every=every, **asked)
            if not told["failed"] and not told["wrong"] and told["compared"]:
                return float(told["bytes"] / told["seconds"])
            problem = (
                f"{mode}, {told['bytes']} bytes, depth {depth}: {told['failed']} requests failed, {told['wrong']} of "
                f"{told['compared']} blocks are not what was sent. {told.get('why') or ''}"
            ).strip()
            if told["wrong"] or not told["failed"]:
                break
            self.failures.append(problem)
        raise BenchError(problem)


# The server may still be starting when the client is: a client that was refused is tried again.
_PERFTEST = r"""
"$1" -d "$2" -i "$3" -x "$4" $7 -p "$8" > /dev/null 2>&1 & server=$!
n=0
until "$1" -d "$5" -i "$3" -x "$6" $7 -p "$8" "$9" > /tmp/rdmadiag-perftest.$$ 2>&1; do
  n=$((n+1)); grep -q "Couldn't connect" /tmp/rdmadiag-perftest.$$ && [ $n -lt 100 ] || break; sleep 0.2
done
cat /tmp/rdmadiag-perftest.$$; rm -f /tmp/rdmadiag-perftest.$$; kill $server 2>/dev/null; wait $server; :
"""


def perftest_rate(
    place: Place, near: Host, far: Host, program: str, size: int, count: int, depth: int, tcp_port: int
) -> float:
    """Run perftest once with our depth and ACK timeout; what it calls the average [bytes/s]. Raises BenchError.

    Its own timeout (14, 67 ms) makes an emulated device resend what is on its way: it would be measured for that.
    """
    words = f"-s {size} -n {count} -t {depth} -u {DEFAULTS.timeout} -F"
    values = [far.device, str(far.port), str(far.gid_index), near.device, str(near.gid_index), words, str(tcp_port)]
    said = ""
    for _ in range(PERFTEST_TRIES):
        ran = place.run(near.name, ["sh", "-c", _PERFTEST, "sh", program, *values, far.plain_address], ANSWER_SECONDS)
        lines = [Line(number, text) for number, text in enumerate(ran.text.splitlines(), 1)]
        rates = [row.values["bandwidth_gbps"] for row in parse(lines) if row.values.get("bandwidth_gbps")]
        if rates:
            return float(rates[-1] / MIB_GBPS * (1 << 20))
        said = " ".join(text.text.strip() for text in lines[-3:]) or ran.err.decode(errors="replace")
    raise BenchError(f"{program}, size {size}: no result in {PERFTEST_TRIES} tries: {said[-300:]}")


def _median(values: Sequence[float]) -> dict[str, Any]:
    found = statistics.median(values)
    return {"median": found.middle, "low": found.low, "high": found.high, "values": list(values)}


def measure(place: Place, hosts: tuple[str, str], plan: Plan, progress: Progress = lambda text: None) -> dict[str, Any]:
    """Make all measurements of a plan; rdmadiag.bench_kv/1. Raises BadInput, BenchError, LabError."""
    plan = plan.checked()
    near, far = place.host(hosts[0]), place.host(hosts[1])
    with Device(place, near, far) as device:
        progress("what Python itself costs")
        alone = device.ask(op="post", count=256)
        pairs = list(_pairs(place, device, near, far, plan, progress))
        points = list(_points(device, plan, progress))
    return {
        "schema": "rdmadiag.bench_kv/1",
        "place": place.name,
        "kernel": place.run(near.name, ["uname", "-r"], 30.0).text.strip(),
        "devices": [near.device, far.device],
        "plan": plan._asdict(),
        "python": alone,
        "pairs": pairs,
        "points": points,
        "knees": {mode: _knees(points, mode, plan) for mode in plan.modes},
        "failures": device.failures,
        "spread": spread([point["bytes_per_second"]["values"] for point in points]),
    }


def _pairs(
    place: Place, device: Device, near: Host, far: Host, plan: Plan, progress: Progress
) -> Iterator[dict[str, Any]]:
    port = 18900
    measures = [("blocks", device.rate), *([(WHOLE_TRANSFER, device.whole_rate)] if plan.whole else [])]
    for what, measure_ours in measures:
        for mode in plan.modes:
            for size in plan.pair_sizes:
                ours: list[float] = []
                theirs: list[float] = []
                count = plan.count(size, 0 if what == WHOLE_TRANSFER else 2 * plan.depth)
                measure_ours(mode, size, plan.depth, count)  # pages and QPs are warm, as perftest's are
                for nth in range(plan.pairs):
                    progress(f"{mode} {what}, {size} bytes, against {AGAINST[mode]}, pair {nth + 1} of {plan.pairs}")
                    port += 1
                    their = (place, near, far, AGAINST[mode], size, count, plan.depth, port)
                    if nth % 2:  # who is first changes, so that a drift of the machine is nobody's
                        theirs.append(perftest_rate(*their))
                    ours.append(measure_ours(mode, size, plan.depth, count))
                    if not nth % 2:
                        theirs.append(perftest_rate(*their))
                if plan.pairs:
                    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
                    yield {
                        "what": what,
                        "mode": mode,
                        "size": size,
                        "depth": plan.depth,
                        "against": AGAINST[mode],
                        "bytes_per_second": _median(ours),
                        "against_bytes_per_second": _median(theirs),
                        "ratio": _median(ratios),
                    }


def _points(device: Device, plan: Plan, progress: Progress) -> Iterator[dict[str, Any]]:
    wanted = [(m, s, plan.depth) for m in plan.modes for s in plan.sizes]
    wanted += [(m, s, d) for m in plan.modes for s in plan.sizes for d in plan.depths if d != plan.depth]
    rates: dict[tuple[str, int, int], list[float]] = {point: [] for point in wanted}
    for nth in range(plan.repeats):  # every point once, then every point again: a drift is spread over all
        for mode, size, depth in wanted:
            progress(f"round {nth + 1} of {plan.repeats}: {mode} {size} bytes, depth {depth}")
            rates[mode, size, depth].append(device.rate(mode, size, depth, plan.count(size, 2 * depth)))
    for (mode, size, depth), values in rates.items():
        if values:
            yield {"mode": mode, "size": size, "depth": depth, "bytes_per_second": _median(values)}


def spread(runs: Sequence[Sequence[float]]) -> float | None:
    """Return by what share of their median the runs of one point differ, the median over the points; None without a second run."""
    shares = [
        (max(values) - min(values)) / statistics.median(values).middle
        for values in runs
        if len(values) > 1 and min(values) > 0
    ]
    return statistics.median(shares).middle if shares else None


def _knees(points: list[dict[str, Any]], mode: str, plan: Plan) -> dict[str, Any]:
    """Return the smallest block size that is enough at the plan's depth, and the smallest depth that is enough for it."""
    own = {(p["size"], p["depth"]): p["bytes_per_second"]["median"] for p in points if p["mode"] == mode}
    size = statistics.knee({s: rate for (s, d), rate in own.items() if d == plan.depth})
    depth = statistics.knee({d: rate for (s, d), rate in own.items() if s == size})
    return {"size": size, "depth": depth, "bytes_per_second": own.get((size, depth)) if size and depth else None}
