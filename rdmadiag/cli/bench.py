"""rdmadiag bench: how fast blocks of a KV cache move here, and which block size and queue depth to use."""

from __future__ import annotations

from typing import Any

import click

from rdmadiag.cli import _output

FORMAT = click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)


@click.group(short_help="Measure: block sizes and queue depths of KV transfers.")
def command() -> None:
    """Measure on a lab's RDMA devices, always against perftest on the same devices in the same minutes.

    \b
    Examples:
      rdmadiag bench kv
      rdmadiag bench kv --mode push --size 65536 --pairs 10 --no-sweep
    """


def _numbers(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[int, ...]:
    units = {"k": 1 << 10, "m": 1 << 20}
    found = []
    for text in value:
        low = text.lower().removesuffix("ib").removesuffix("b")
        number, unit = (low[:-1], units[low[-1]]) if low[-1:] in units else (low, 1)
        if not number.isdecimal():
            raise click.BadParameter(f"{text!r}; wanted for example 4096, 64K, 1M")
        found.append(int(number) * unit)
    return tuple(found)


@command.command(short_help="Block sizes and queue depths of KV blocks.")
@click.option("--lab", "lab_name", default="lab", show_default=True, help="The lab.")
@click.option("--mode", "modes", multiple=True, type=click.Choice(["push", "imm", "pull"]), help="Which; default all.")
@click.option("--size", "sizes", multiple=True, callback=_numbers, help="Block sizes; default 4K 16K 64K 256K 1M.")
@click.option(
    "--depth", "depths", multiple=True, callback=_numbers, help="Queue depths of the sweep; default 1 to 128."
)
@click.option(
    "--pairs", default=10, show_default=True, type=click.IntRange(0, 1000), help="Alternating pairs with perftest."
)
@click.option(
    "--repeats", default=3, show_default=True, type=click.IntRange(1, 1000), help="Runs of each point of the sweep."
)
@click.option("--volume", default="16M", show_default=True, help="Bytes of a run (at least two full queues).")
@click.option("--no-sweep", is_flag=True, help="Only the pairs.")
@click.option("--whole", is_flag=True, help="Pairs of whole KV transfers too: manifest, layers, verified afterwards.")
@click.option("--plot", "plots", multiple=True, help="Write a picture there (.png, .svg); may be given twice.")
@click.option("--output", help="Write the JSON there too.")
@FORMAT
def kv(
    lab_name: str, modes: tuple[str, ...], sizes: tuple[int, ...], depths: tuple[int, ...], pairs: int, repeats: int,
    volume: str, no_sweep: bool, whole: bool, plots: tuple[str, ...], output: str | None, form: str,
) -> None:  # fmt: skip
    """Move blocks by WRITE (push), WRITE_WITH_IMM (imm) and READ (pull) between two devices of a lab.

    Rates are medians with an interval (95 %, by order statistics). Content is compared outside the time that is measured. The knee is
    the smallest block size, then the smallest depth, that brings 95 % of the best; it is what is recommended. --whole adds pairs of
    transfers as `kv send` makes them, a listening process at the other device; making and verifying blocks is not in their time.

    \b
    Examples:
      rdmadiag bench kv --plot bench.png --plot bench.svg
      rdmadiag bench kv --lab fast --mode pull --format json
      rdmadiag bench kv --whole --mode push --size 64K --size 1M --no-sweep
    """
    from rdmadiag import lab, workloads
    from rdmadiag.bench.kv import DEPTHS, OPS, SIZES, Plan, measure
    from rdmadiag.errors import BadInput

    found = lab.find(lab_name)
    if found.options.apart:
        raise BadInput(
            f"lab {lab_name} has its hosts apart; wanted one program to have both devices (lab up without "
            "--kernel-per-host and --namespaces)"
        )
    chosen = sizes or SIZES
    plan = Plan(
        modes=modes or tuple(OPS),
        sizes=() if no_sweep else chosen,
        depths=() if no_sweep else depths or DEPTHS,
        pair_sizes=chosen,
        pairs=pairs,
        repeats=repeats,
        whole=whole,
        volume_bytes=_numbers(click.get_current_context(), None, (volume,))[0],  # type: ignore[arg-type]
    )
    result = measure(workloads.InLab(found), ("h1", "h2"), plan, _output.progress)
    _output.end_progress()
    if plots:
        from rdmadiag.bench import plot

        plot.save(result, list(plots))
    if output:
        try:
            with open(output, "w", encoding="utf-8") as file:
                file.write(_output.as_json(result) + "\n")
        except OSError as error:
            raise BadInput(f"--output {output}: {error.strerror}") from error
    _output.emit(_output.as_json(result) if form == "json" else "\n".join(_lines(result)))


def _rate(value: dict[str, Any]) -> str:
    interval = "" if value["low"] is None else f" ({value['low'] / 1e6:.1f} to {value['high'] / 1e6:.1f})"
    return f"{value['median'] / 1e6:.1f}{interval}"


def _ratio(value: dict[str, Any]) -> str:
    interval = "" if value["low"] is None else f" ({value['low']:.2f} to {value['high']:.2f})"
    return f"{value['median']:.2f}{interval}"


def _lines(result: dict[str, Any]) -> list[str]:
    from rdmadiag.bench.plot import words
    from rdmadiag.bench.statistics import ROUGH

    lines = [
        f"{' and '.join(result['devices'])} in {result['place']}, Linux {result['kernel']}; MB/s, median (95 % interval)",
        "",
    ]
    if result["pairs"]:
        rows = [
            (p["mode"], p["what"], words(p["size"]), p["depth"], _rate(p["bytes_per_second"]), p["against"],
             _rate(p["against_bytes_per_second"]), _ratio(p["ratio"]))
            for p in result["pairs"]
        ]  # fmt: skip
        heads = (
            "mode",
            "what",
            "block",
            "depth",
            "here",
            "against",
            "there",
            f"ratio of {result['plan']['pairs']} pairs",
        )
        lines += [*_output.columns(rows, heads), ""]
    depths = sorted({p["depth"] for p in result["points"]})
    for mode in result["plan"]["modes"]:
        own = {(p["size"], p["depth"]): p["bytes_per_second"]["median"] for p in result["points"] if p["mode"] == mode}
        if own:
            sizes = sorted({size for size, _ in own})
            table = [
                (words(size), *(f"{own[size, depth] / 1e6:.1f}" if (size, depth) in own else "" for depth in depths))
                for size in sizes
            ]
            lines += [*_output.columns(table, (f"{mode}: depth", *map(str, depths))), ""]
    if result["failures"]:
        lines += [f"made again: {len(result['failures'])} runs, the last because: {result['failures'][-1]}", ""]
    differ = result["spread"]
    rough = "roughly, " if differ is None or differ > ROUGH else ""
    for mode, knee in result["knees"].items():
        if knee["bytes_per_second"]:
            rate = knee["bytes_per_second"] / 1e6
            lines.append(
                f"{mode}: {rough}use blocks of {words(knee['size'])} and a queue depth of {knee['depth']} ({rate:.1f} MB/s)"
            )
    if result["points"] and rough:
        told = "each point was measured once" if differ is None else f"runs of one point differ by {differ:.0%}"
        lines.append(
            f"{told}: which point is best is chance in part. More --repeats, on a machine with nothing else to do, tell"
        )
    python = result["python"]
    lines.append(
        f"each request costs {python['post_seconds_each'] * 1e6:.1f} us to post from Python, "
        f"{python['all_seconds_each'] * 1e6:.1f} us to post, send without data and complete"
    )
    return lines
