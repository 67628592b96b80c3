"""The timeline of a run as SVG: goodput, retransmissions, CNPs and QP states below each other, the faults' bands across all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

WIDTH, LEFT, RIGHT = 1000, 122, 12
STATE_COLOURS = {"RTS": "#2f9e44", "ERR": "#e03131", "RESET": "#adb5bd", "INIT": "#74c0fc", "RTR": "#4dabf7", "SQD": "#f59f00", "SQE": "#e8590c"}  # fmt: skip
BAND_COLOURS = ("#f59f00", "#e8590c", "#ae3ec9", "#1098ad")


_Draw = Callable[[float, float], Iterator[str]]


class Scale(NamedTuple):
    """The time axis: from `low` to `high` [s]."""

    low: float
    high: float

    def x(self, seconds: float) -> float:
        """Return the place of a time [px]."""
        share = (min(max(seconds, self.low), self.high) - self.low) / (self.high - self.low)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def svg(report: Mapping[str, Any]) -> str:
    """Return the timeline."""
    series, faults = report["series"], [f for f in report["faults"] if f["begin_seconds"] is not None]
    scale = _scale(series, faults)
    parts: list[str] = []
    at = 26
    tracks: tuple[tuple[str, str, int, _Draw], ...] = (
        ("goodput", "payload per second", 190, lambda top, height: _goodput(series, scale, top, height)),
        ("retransmissions", "per second", 74, lambda t, h: _steps(series["retransmissions"], scale, t, h, "#e03131")),
        ("CNPs", "per second", 54, lambda t, h: _steps(series["cnps"], scale, t, h, "#9c36b5")),
        ("QP states", "RC queue pairs", 64, lambda t, h: _states(series["qp_states"], scale, t, h)),
    )
    first = at
    for title, what, height, draw in tracks:
        parts.append(f'<text x="{LEFT - 8}" y="{at + 12}" class="name">{title}</text>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 26}" class="dim">{what}</text>')
        parts.append(f'<rect x="{LEFT}" y="{at}" width="{WIDTH - LEFT - RIGHT}" height="{height}" class="field"/>')
        parts += draw(at, height)
        at += height + 14
    bands = list(_bands(faults, scale, first, at - 14))
    return (
        f'<svg viewBox="0 0 {WIDTH} {at + 24}" role="img" aria-label="timeline of the run" xmlns="http://www.w3.org/2000/svg">'
        + "".join(bands + parts + list(_axis(scale, at)))
        + "</svg>"
    )


def _scale(series: Mapping[str, Any], faults: Sequence[Mapping[str, Any]]) -> Scale:
    end = len(series["goodput_bytes_per_second"]) * series["bin_seconds"]
    ends = [end, *(f["end_seconds"] or f["begin_seconds"] for f in faults)]
    return Scale(0.0, max([*ends, 1.0]))


def _bands(faults: Sequence[Mapping[str, Any]], scale: Scale, top: float, bottom: float) -> Iterator[str]:
    for number, fault in enumerate(faults):
        left = scale.x(fault["begin_seconds"])
        right = scale.x(fault["end_seconds"] if fault["end_seconds"] is not None else scale.high)
        colour = BAND_COLOURS[number % len(BAND_COLOURS)]
        label = escape(str(fault["name"]))
        y = top - 8 if number % 2 == 0 else top + 12
        yield f'<rect x="{left}" y="{top - 4}" width="{max(2.0, right - left):.1f}" height="{bottom - top + 4}" fill="{colour}" opacity="0.2"/>'
        yield f'<line x1="{left}" x2="{left}" y1="{top - 4}" y2="{bottom}" stroke="{colour}" stroke-width="1.5"/>'
        yield f'<line x1="{right}" x2="{right}" y1="{top - 4}" y2="{bottom}" stroke="{colour}" stroke-width="1.5" stroke-dasharray="3 3"/>'
        yield f'<text x="{left + 3}" y="{y}" style="fill:{colour}" class="band">{label}</text>'


def _goodput(series: Mapping[str, Any], scale: Scale, top: float, height: float) -> Iterator[str]:
    values, step = series["goodput_bytes_per_second"], series["bin_seconds"]
    most = max(values, default=0)
    if not most:
        yield _nothing(top, height, "no payload arrived" if values else "not measured")
        return
    yield from _ceiling(most, top, height, _rate(most))
    points = [f"{scale.x(0)},{top + height}"]
    for at, value in enumerate(values):
        y = round(top + height - value / most * (height - 6), 1)
        points += [f"{scale.x(at * step)},{y}", f"{scale.x((at + 1) * step)},{y}"]
    points.append(f"{scale.x(len(values) * step)},{top + height}")
    yield f'<polygon points="{" ".join(points)}" fill="#1c7ed6" fill-opacity="0.55" stroke="#1c7ed6" stroke-width="1"/>'


def _steps(points: Sequence[Sequence[float]], scale: Scale, top: float, height: float, colour: str) -> Iterator[str]:
    rates = []
    for (before, _), (now, grown) in itertools.pairwise(points):
        if now > before and now >= scale.low and before <= scale.high:
            rates.append((max(before, scale.low), now, grown / (now - before)))
    if not points:
        yield _nothing(top, height, "these devices have no such counter")
        return
    most = max((rate for _, _, rate in rates), default=0.0)
    if not most:
        yield _nothing(top, height, "none")
        return
    yield from _ceiling(most, top, height, f"{most:.0f}/s" if most >= 10 else f"{most:.1f}/s")
    for before, now, rate in rates:
        if rate > 0:
            tall = rate / most * (height - 6)
            left, right = scale.x(before), scale.x(now)
            yield f'<rect x="{left}" y="{top + height - tall:.1f}" width="{max(1.0, right - left):.1f}" height="{tall:.1f}" fill="{colour}"/>'


def _states(points: Sequence[Any], scale: Scale, top: float, height: float) -> Iterator[str]:
    shown = [(seconds, qps) for seconds, qps in points if scale.low <= seconds <= scale.high]
    most = max((sum(qps.values()) for _, qps in shown), default=0)
    if not most:
        yield _nothing(top, height, "no RC queue pairs" if shown else "not measured")
        return
    yield from _ceiling(most, top, height, str(most))
    seen: dict[str, None] = {}
    for (seconds, qps), (until, _) in zip(shown, [*shown[1:], (scale.high, {})], strict=True):
        left, right, low = scale.x(seconds), scale.x(until), top + height
        for state in sorted(qps, key=lambda name: (name != "ERR", name)):
            tall = qps[state] / most * (height - 6)
            low -= tall
            seen[state] = None
            yield f'<rect x="{left}" y="{low:.1f}" width="{max(0.5, right - left + 0.3):.1f}" height="{tall:.1f}" fill="{STATE_COLOURS.get(state, "#868e96")}"/>'
    for number, state in enumerate(sorted(seen)):
        x = LEFT + 64 * number  # above the field: what is in it is not covered
        yield f'<rect x="{x}" y="{top - 11}" width="9" height="9" fill="{STATE_COLOURS.get(state, "#868e96")}"/>'
        yield f'<text x="{x + 13}" y="{top - 3}" class="tick" text-anchor="start">{escape(state)}</text>'


def _ceiling(most: float, top: float, height: float, label: str) -> Iterator[str]:
    yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{top + 6}" y2="{top + 6}" class="grid"/>'
    yield f'<text x="{WIDTH - RIGHT - 4}" y="{top + 18}" class="tick" text-anchor="end">{label}</text>'


def _nothing(top: float, height: float, text: str) -> str:
    return f'<text x="{(WIDTH + LEFT) / 2}" y="{top + height / 2 + 4}" class="dim" text-anchor="middle">{text}</text>'


def _axis(scale: Scale, at: float) -> Iterator[str]:
    raw = (scale.high - scale.low) / 10
    base = 10 ** math.floor(math.log10(raw))
    step = next(base * n for n in (1, 2, 5, 10) if base * n >= raw)
    count = 0
    while (seconds := scale.low + count * step) <= scale.high + 1e-9:
        x = scale.x(seconds)
        yield f'<text x="{x}" y="{at + 4}" class="tick" text-anchor="middle">{seconds:g} s</text>'
        count += 1


def _rate(value: float) -> str:
    for limit, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if value >= limit:
            return f"{value / limit:.1f} {unit}"
    return f"{value:.0f} B/s"
