"""What was measured, as a picture: rates by block size and by queue depth, perftest beside them, the knees marked."""

from __future__ import annotations

from typing import Any

from rdmadiag.errors import BadInput

COLOURS = {"push": "#1b6ca8", "imm": "#c2571a", "pull": "#2a7f4f"}


def words(size: float) -> str:
    """Return a size in the unit in which people say it."""
    return f"{size / (1 << 20):g} MiB" if size >= 1 << 20 else f"{size / 1024:g} KiB" if size >= 1024 else f"{size:g} B"


def save(result: dict[str, Any], paths: list[str]) -> None:
    """Write the picture; the format is the ending's (png, svg). Raises BadInput."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput("--plot needs matplotlib: pip install 'rdmadiag[pcap]'") from error
    figure = Figure(figsize=(12, 5.6), layout="constrained")
    by_size, by_depth = figure.subplots(1, 2)
    for mode in result["plan"]["modes"]:
        _by_size(by_size, result, mode)
        _by_depth(by_depth, result, mode)
    sizes = sorted({p["size"] for p in result["points"]} | {p["size"] for p in result["pairs"]})
    _axis(
        by_size, sizes, "block size", f"by block size, depth {result['plan']['depth']}", [words(size) for size in sizes]
    )
    depths = sorted({p["depth"] for p in result["points"]})
    _axis(
        by_depth,
        depths,
        "queue depth",
        "by queue depth, at each mode's own block size",
        [str(depth) for depth in depths],
    )
    figure.suptitle(f"KV blocks between {' and '.join(result['devices'])}, {result['place']}, Linux {result['kernel']}")
    for path in paths:
        try:
            figure.savefig(path, dpi=120)
        except (OSError, ValueError) as error:
            raise BadInput(f"--plot {path}: {error}") from error


def _bars(values: list[dict[str, Any]]) -> list[list[float]]:
    low = [(v["median"] - (v["low"] if v["low"] is not None else min(v["values"]))) / 1e6 for v in values]
    high = [((v["high"] if v["high"] is not None else max(v["values"])) - v["median"]) / 1e6 for v in values]
    return [low, high]


def _line(axes: Any, xs: list[int], values: list[dict[str, Any]], label: str, **style: Any) -> None:
    if xs:
        middles = [v["median"] / 1e6 for v in values]
        axes.errorbar(xs, middles, yerr=_bars(values), label=label, capsize=3, linewidth=1.6, markersize=5, **style)


def _by_size(axes: Any, result: dict[str, Any], mode: str) -> None:
    depth, colour = result["plan"]["depth"], COLOURS[mode]
    own = sorted((p for p in result["points"] if p["mode"] == mode and p["depth"] == depth), key=lambda p: p["size"])
    _line(axes, [p["size"] for p in own], [p["bytes_per_second"] for p in own], mode, color=colour, marker="o")
    if mode != "imm":  # it has the same peer as push
        pairs = [p for p in result["pairs"] if p["mode"] == mode and p["what"] == "blocks"]
        theirs = [p["against_bytes_per_second"] for p in pairs]
        name = pairs[0]["against"] if pairs else ""
        _line(axes, [p["size"] for p in pairs], theirs, name, color=colour, marker="s", linestyle=":", alpha=0.7)
    knee = result["knees"][mode]
    middle = next((p["bytes_per_second"]["median"] for p in own if p["size"] == knee["size"]), None)
    _mark(axes, knee["size"], middle, colour)


def _by_depth(axes: Any, result: dict[str, Any], mode: str) -> None:
    knee, colour = result["knees"][mode], COLOURS[mode]
    own = sorted(
        (p for p in result["points"] if p["mode"] == mode and p["size"] == knee["size"]), key=lambda p: p["depth"]
    )
    if own:
        label = f"{mode}, {words(knee['size'])}"
        _line(axes, [p["depth"] for p in own], [p["bytes_per_second"] for p in own], label, color=colour, marker="o")
    _mark(axes, knee["depth"], knee["bytes_per_second"], colour)


def _mark(axes: Any, x: int | None, rate: float | None, colour: str) -> None:
    if x is not None and rate is not None:
        axes.plot(
            [x], [rate / 1e6], marker="o", markersize=15, markerfacecolor="none", markeredgecolor=colour, zorder=5
        )


def _axis(axes: Any, xs: list[int], name: str, title: str, labels: list[str]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(xs, labels)
    axes.minorticks_off()
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.08)
    axes.set_xlabel(f"{name} (ringed: the knee, 95 % of the best)")
    axes.set_ylabel("MB/s")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
