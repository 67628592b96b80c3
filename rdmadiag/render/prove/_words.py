"""What the formats share: figures as words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def share(value: float | None) -> str:
    """Return a share in percent, one decimal where it is not whole."""
    if value is None:
        return "-"
    percent = 100 * value
    return f"{percent:.0f} %" if abs(percent - round(percent)) < 0.05 else f"{percent:.1f} %"


def interval(pair: Sequence[float]) -> str:
    """Return an interval in percent."""
    return f"{100 * pair[0]:.0f} to {100 * pair[1]:.0f} %"


def seconds(value: float | None) -> str:
    """Return a time."""
    return "-" if value is None else f"{value:.1f} s"


def summary(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sentences at the top."""
    figures, healthy, bar = report["figures"], report["healthy"], report["bar"]
    if figures["runs"]:
        yield (
            f"The right class was named first in {figures['right']} of {figures['runs']} runs with a fault: "
            f"{share(figures['share'])} (95 % interval {interval(figures['interval'])}; wanted {share(bar['share'])})."
        )
    if healthy["runs"]:
        yield (
            f"Of {healthy['runs']} healthy runs {healthy['alarmed']} gave a finding at warning or above "
            f"(95 % interval {interval(healthy['interval'])}; wanted none in {bar['healthy']})."
        )
    if report["shared"]:
        yield "Not told apart, and in no class: " + "; ".join(
            f"{', '.join(one['faults'])} (by {one['rule']})" for one in report["shared"]
        )
    if report["left_out"]:
        yield f"{len(report['left_out'])} runs are left out: the fault is not proven to have acted, or evidence is missing."
    if report["not_proven"]:
        names = ", ".join(one["fault"] for one in report["not_proven"])
        yield f"No trial can put on: {names} (why: docs/prove.md)."
    yield f"The bar is {'met' if bar['met'] else 'not met'}{'' if bar['all_faults'] else ' (not all faults were run)'}."


def named(row: Mapping[str, Any]) -> str:
    """Return what was named first, by rule."""
    return ", ".join(f"{rule} {count}" for rule, count in row["first"].items())
