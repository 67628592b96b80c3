"""One flow over time: a picture of its PSNs with repeats, NAKs, CNPs and CE marks, and its goodput (needs matplotlib), or a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from rdmadiag.errors import BadInput
from rdmadiag.roce import headers
from rdmadiag.roce.columns import Columns, address

POINTS = 400_000
"""Most packets drawn."""
INTERVALS, SHORTEST_SECONDS = 1000, 0.001
"""Most rows of a table, and the shortest time that one stands for [s]."""
HEAD = (
    "seconds", "requests", "sent_again", "messages_per_second", "goodput_gbps", "throughput_gbps", "ce_share", "answers", "answer_ce_share",
    "naks", "cnps",
)  # fmt: skip
"""Columns of the table; seconds from the flow's first request to the start of the interval."""


class Collector:
    """Keeps the packets of one flow: call it with each chunk's columns."""

    def __init__(self, flow: dict[str, Any]) -> None:
        self.flow = flow
        self.requests: list[np.ndarray] = []
        self.answers: list[np.ndarray] = []
        self.kept = self.left_out = 0

    def __call__(self, c: Columns) -> None:
        """Take a chunk."""
        flow = self.flow
        space = headers.SPACE[c.opcode]
        ask = (c.destqp == flow["qpn"]) & (space == headers.REQUEST)
        back = (c.destqp == flow.get("peer_qpn", -1)) & ((space == headers.RESPONSE) | (space == headers.NOTICE))
        ask &= (c.frame >= flow["first_frame"]) & (
            c.frame <= flow["last_frame"]
        )  # other lives of the QP number are left out
        back &= c.frame >= flow["first_frame"]
        syndrome, ends_message = c.dense("AETH", 0, 1), headers.ENDS_MESSAGE[c.opcode]
        for mine, into, ends in (
            (ask, self.requests, ("src", "dst")),
            (back, self.answers, ("dst", "src")),
        ):
            rows = np.nonzero(mine)[0]
            rows = rows[[self._between(c, row, *ends) for row in rows.tolist()]] if len(rows) else rows
            rows, rest = rows[: POINTS - self.kept], rows[POINTS - self.kept :]
            self.kept, self.left_out = self.kept + len(rows), self.left_out + len(rest)
            into.append(
                np.stack(
                    [part[rows] for part in (c.time, c.psn, c.payload, syndrome, c.tos & 3, space, ends_message)], 1
                )
            )

    def _between(self, c: Columns, row: int, src: str, dst: str) -> bool:
        known = self.__dict__.setdefault("_known", {})
        key = (c.src[row].tobytes(), c.dst[row].tobytes(), src)
        if key not in known:
            known[key] = address(*c.src[row]) == self.flow[src] and address(*c.dst[row]) == self.flow[dst]
        return bool(known[key])


def draw(collector: Collector, path: str) -> None:
    """Write the picture; the file's ending says which kind (png, svg, pdf). Raises BadInput."""
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError:
        raise BadInput("--timeline needs matplotlib: pip install 'rdmadiag[pcap]'") from None
    requests, answers = _kept(collector)
    start = int(requests[0, 0])
    psn, repeat = _psns(requests)
    seconds = (requests[:, 0] - start) / 1e9
    flow = collector.flow
    figure, (upper, lower) = pyplot.subplots(
        2, 1, sharex=True, figsize=(11, 7), height_ratios=(3, 1), layout="constrained"
    )
    upper.plot(seconds[~repeat], psn[~repeat], ".", ms=3, color="#1f77b4", label="request")
    _marks(upper, seconds[repeat], psn[repeat], "x", "#d62728", "sent again")
    marked = requests[:, 4] == 3
    _marks(upper, seconds[marked], psn[marked], "^", "#ff7f0e", "CE mark")
    when = (answers[:, 0] - start) / 1e9
    where = _unwrapped(answers[:, 1], int(requests[0, 1]))
    notice, syndrome = answers[:, 5] == headers.NOTICE, answers[:, 3]
    ack = ~notice & ((syndrome < 0) | (syndrome >> 5 == 0))
    if ack.any():
        upper.plot(when[ack], where[ack], ".", ms=2, color="#2ca02c", label="answer")
    _marks(
        upper, when[~notice & (syndrome >> 5 == 1)], where[~notice & (syndrome >> 5 == 1)], "s", "#9467bd", "RNR NAK"
    )
    refused = ~notice & (syndrome >> 5 > 1)
    _marks(upper, when[refused], where[refused], "D", "black", "NAK")
    for n, moment in enumerate(when[notice].tolist()):
        upper.axvline(moment, color="#8c564b", lw=0.7, alpha=0.6, label="CNP" if n == 0 else None)
    upper.set_ylabel("PSN (unwrapped)")
    upper.ticklabel_format(axis="y", style="plain", useOffset=False)
    upper.yaxis.get_major_locator().set_params(integer=True)
    upper.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    upper.set_title(f"{flow['src']} to {flow['dst']} QP {flow['qpn']}: {flow['state']}")
    _goodput(lower, seconds, requests[:, 2], repeat, float(max([*seconds[-1:], *when[-1:]])))
    lower.set_xlabel(f"seconds from frame {flow['first_frame']}")
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise BadInput(f"--timeline {path}: cannot be written: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"--timeline {path}: wanted a name that ends in .png or .svg ({error})") from error
    finally:
        pyplot.close(figure)


def table(collector: Collector) -> list[tuple[float | int | None, ...]]:
    """Return what HEAD names for each interval of the flow. Raises BadInput."""
    requests, answers = _kept(collector)
    start = int(requests[0, 0])
    ours, theirs = (part[:, 0] - start for part in (requests, answers))
    width = max(int(SHORTEST_SECONDS * 1e9), -(-int(max(ours.max(), theirs.max(initial=0)) + 1) // INTERVALS))
    here, there = ours // width, np.maximum(theirs, 0) // width
    count = int(max(here.max(), there.max(initial=0))) + 1
    _, repeat = _psns(requests)
    notice, syndrome = answers[:, 5] == headers.NOTICE, answers[:, 3]

    def sums(at: np.ndarray, weights: np.ndarray) -> list[float]:
        found: list[float] = np.bincount(at, weights, count).tolist()
        return found

    rows = zip(
        sums(here, np.ones(len(here))), sums(here, repeat), sums(here, requests[:, 6] * ~repeat), sums(here, requests[:, 2] * ~repeat),
        sums(here, requests[:, 2]), sums(here, requests[:, 4] == 3), sums(there, ~notice), sums(there, ~notice & (answers[:, 4] == 3)),
        sums(there, ~notice & (syndrome >> 5 > 0)), sums(there, notice), strict=True,
    )  # fmt: skip
    scale = width / 1e9
    return [
        (
            round(n * scale, 9), int(sent), int(again), round(messages / scale, 3), good * 8e-9 / scale, whole * 8e-9 / scale,
            marked / sent if sent else None, int(back), back_marked / back if back else None, int(naks), int(cnps),
        )
        for n, (sent, again, messages, good, whole, marked, back, back_marked, naks, cnps) in enumerate(rows)
    ]  # fmt: skip


def _kept(collector: Collector) -> tuple[np.ndarray, np.ndarray]:
    requests, answers = (
        np.concatenate([*part, np.zeros((0, 7), np.int64)]) for part in (collector.requests, collector.answers)
    )
    if not len(requests):
        raise BadInput(f"no request of QP {collector.flow['qpn']} to show")
    return requests, answers


def _psns(requests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # PSNs in one row, and which of them came before.
    psn = _unwrapped(requests[:, 1], int(requests[0, 1]))
    return psn, psn <= np.maximum.accumulate(np.concatenate([[psn[0] - 1], psn[:-1]]))


def _unwrapped(psn: np.ndarray, first: int) -> np.ndarray:
    if not len(psn):
        return psn
    steps = headers.deltas(psn, np.concatenate([[first], psn[:-1]]))
    return np.cumsum(steps) + first


def _marks(axes: Any, seconds: np.ndarray, psn: np.ndarray, marker: str, color: str, label: str) -> None:
    if len(seconds):
        axes.plot(seconds, psn, marker, ms=6, color=color, fillstyle="none", label=f"{label} ({len(seconds)})")


def _goodput(axes: Any, seconds: np.ndarray, payload: np.ndarray, repeat: np.ndarray, last: float) -> None:
    span = max(last, 1e-6)
    edges = np.linspace(0, span * (1 + 1e-9), 101)
    width = edges[1] - edges[0]
    good, _ = np.histogram(seconds[~repeat], edges, weights=payload[~repeat])
    again, _ = np.histogram(seconds[repeat], edges, weights=payload[repeat])
    axes.stairs(good * 8e-9 / width, edges, color="#1f77b4", fill=True, alpha=0.5, label="goodput")
    if again.any():
        axes.stairs((good + again) * 8e-9 / width, edges, color="#d62728", label="with repeats")
    axes.set_ylabel("Gb/s")
    axes.set_ylim(bottom=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
