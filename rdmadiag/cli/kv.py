"""rdmadiag kv: KV-cache transfers between two processes, over RDMA or TCP, with every byte checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from rdmadiag.cli import _output
from rdmadiag.errors import BadInput

SHAPE = click.option(
    "--shape",
    default="llama-3-70b-tp8",
    show_default=True,
    help="Shape of a block by name, or a model's parameters with commas between them: model=qwen3-8b,tp=2 or "
    "layers=40,kv_heads=8,head_dim=128 (also dtype_bytes=, block_tokens=, tp=; latent= instead of heads: MLA).",
)
LAYERS = click.option("--layers", type=int, help="Layers, instead of the shape's own.")
SLOTS = click.option(
    "--slots", default=256, show_default=True, type=click.IntRange(2, 1 << 20), help="Slots for blocks."
)
FORMAT = click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)


@click.group(short_help="Move KV caches between two processes, and check every byte")
def command() -> None:
    """Move a paged KV cache between two processes: push, push with immediates, or pull; over RDMA, and TCP when RDMA fails.

    Blocks say whose they are; a request is published once and only when all of it was verified. What a run measured is
    evidence: rdmadiag check --from FILE.

    \b
    Examples:
      rdmadiag kv run --requests 4 --tokens 2048      (TCP, on loopback)
      rdmadiag lab up; rdmadiag kv run --lab lab      (RDMA, between the hosts of a lab)
      rdmadiag kv run --mode pull --shape llama-3-8b --layers 8 --output result.jsonl
      rdmadiag kv serve --host 10.0.0.2 --port 7000 --device mlx5_0
      rdmadiag kv send 10.0.0.2:7000 --device mlx5_0 --rc mooncake --trace conversation_trace.jsonl
      rdmadiag check --from result.jsonl
    """


DEVICE = click.option("--device", "devices", multiple=True, help="RDMA device, the first one first; more: other rails.")
BIND = click.option("--bind", default="", help="Netdev that TCP goes by (SO_BINDTODEVICE).")


def _listening(function: Any) -> Any:
    for option in (
        click.option("--lease", default=30.0, show_default=True, type=click.FloatRange(0.01, 86400), help="Lease [s]."),
        click.option(
            "--publish-on",
            type=click.Choice(["verified", "done"]),
            default="verified",
            show_default=True,
            help="done: believe the sender, as some engines do.",
        ),
        click.option("--unfenced", is_flag=True, help="Lend slots again when a lease runs out, as some engines do."),
        click.option(
            "--store",
            help="Serve blocks of a store (mode dual): how many in memory, how many in a file, as in 32,128.",
        ),
    ):
        function = option(function)
    return function


def _sending(function: Any) -> Any:
    for option in (
        click.option(
            "--mode",
            type=click.Choice(["push", "push_imm", "pull", "dual"]),
            default="push",
            show_default=True,
            help="dual: blocks of the peer's store, by RDMA and TCP at once as a scheduler chooses.",
        ),
        click.option(
            "--path-rates",
            default="10gbit,1gbit",
            show_default=True,
            help="Mode dual: what RDMA and TCP bring at most; what is measured to be less counts.",
        ),
        click.option("--requests", default=4, show_default=True, type=click.IntRange(1, 1_000_000)),
        click.option(
            "--tokens", default=2048, show_default=True, type=click.IntRange(1, 1 << 24), help="Prompt length."
        ),
        click.option("--trace", help="Requests of a trace (JSON lines as Mooncake published) instead."),
        click.option("--agents", type=click.IntRange(1, 10000), help="Requests of so many agents instead."),
        click.option("--pace", is_flag=True, help="Not before the time of each arrival."),
        click.option("--window", default=32, show_default=True, type=click.IntRange(1, 256), help="Outstanding a QP."),
        click.option("--rate", help="With --rtt: the window that fills such a link instead (100gbit)."),
        click.option("--rtt", help="Round trip of that link (50us)."),
        click.option("--qps", default=2, show_default=True, type=click.IntRange(1, 64)),
        click.option("--merge-bytes", default=1 << 20, show_default=True, type=click.IntRange(1, 64 << 20)),
        click.option("--signal-every", default=1, show_default=True, type=click.IntRange(1, 256)),
        click.option(
            "--deadline", default=5.0, show_default=True, type=click.FloatRange(0.01, 3600), help="A request [s]."
        ),
        click.option(
            "--rc",
            default="mooncake,retry_cnt=6,psn=random",
            show_default=True,
            help="RC attributes: mooncake, ucx, nccl, 3fs, fast, rnr; and values, as in fast,timeout=12.",
        ),
        click.option(
            "--seconds", type=click.FloatRange(0.1, 86400), help="Begin no request so long after the first one ended."
        ),
        click.option(
            "--first-request",
            default=1,
            show_default=True,
            type=click.IntRange(0, 1 << 48),
            help="Number of the first one; other senders to the same side must have others.",
        ),
        click.option("--progress", is_flag=True, help="One line a request on standard error."),
        click.option("--no-audit", is_flag=True, help="Do not compare every byte at the end."),
        click.option("--output", help="Write what was measured there (JSON lines)."),
    ):
        function = option(function)
    return function


@command.command(short_help="Listen for transfers")
@SHAPE
@LAYERS
@SLOTS
@_listening
@click.option(
    "--host", "hosts", multiple=True, default=("127.0.0.1",), show_default=True, help="Address; more: more paths."
)
@click.option("--port", default=0, show_default=True, help="Control port; 0 is any.")
@DEVICE
@BIND
@FORMAT
def serve(
    shape: str,
    layers: int | None,
    slots: int,
    lease: float,
    publish_on: str,
    unfenced: bool,
    store: str | None,
    hosts: tuple[str, ...],
    port: int,
    devices: tuple[str, ...],
    bind: str,
    form: str,
) -> None:
    """Listen until standard input ends (or Ctrl-C). Prints one line when ready.

    \b
    Examples:
      rdmadiag kv serve --host 10.0.0.2 --port 7000
      rdmadiag kv serve --host 10.0.0.2 --port 7000 --device mlx5_0 --store 256,4096
    """
    import contextlib
    import sys

    from rdmadiag.kv import run
    from rdmadiag.kv.server import Server
    from rdmadiag.kv.session import Options

    options, wanted = Options(slots, lease, publish_on, unfenced), run.shape_named(shape, layers)
    with contextlib.ExitStack() as held:
        kept = None
        if store:
            from rdmadiag.kv import dual

            kept = held.enter_context(dual.opened(wanted, *_pair("--store", store)))
            wanted = dual.whole(wanted)
        try:
            made = Server(wanted, options, hosts, port, devices, bind, kept)
        except OSError as error:
            raise BadInput(f"cannot listen on {hosts[0]}:{port}: {error.strerror}") from error
        server = held.enter_context(made)
        host, number = server.address
        ready = f"READY {host}:{number}, {server.arena.geometry.size_bytes >> 20} MiB in {slots} slots"
        compact = f'{{"schema": "rdmadiag.kv_serve/1", "host": "{host}", "port": {number}}}'
        _output.emit(compact if form == "json" else ready)
        sys.stdout.flush()
        sys.stdin.read()


@command.command(short_help="Connect to a listening side, and move requests")
@click.argument("address")
@SHAPE
@LAYERS
@SLOTS
@_sending
@click.option("--events", is_flag=True, help="Print a line of JSON for each thing that happens, the result last.")
@DEVICE
@BIND
@click.option(
    "--format",
    "form",
    default="text",
    type=click.Choice(["text", "json", "records"]),
    show_default=True,
    help="records: all that was measured, as lines.",
)
def send(address: str, form: str, events: bool, **options: Any) -> None:
    """Move requests to (push) or from (pull) a side that listens at HOST:PORT.

    \b
    Examples:
      rdmadiag kv send 10.0.0.2:7000 --mode pull --requests 8
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(f"{address!r}: wanted HOST:PORT")
    watch = None
    if events:
        from rdmadiag.kv.live import Live

        watch = Live(_output.emit_line)
    _report(_send((host, int(port)), options, watch), "events" if events else form, options["output"])


@command.command(short_help="Move requests between two processes on this machine")
@SHAPE
@LAYERS
@SLOTS
@_listening
@_sending
@click.option(
    "--lab", "lab", help="A lab that is up: both ends on its hosts, over its RDMA devices, TCP by its plain network."
)
@FORMAT
def run(
    form: str, lease: float, publish_on: str, unfenced: bool, store: str | None, lab: str | None, **options: Any
) -> None:
    """Start a listening process on loopback, or on a host of a lab, and move requests to or from it.

    In a lab the requests go from its first host to its second by RDMA, rail after rail, and by TCP over the plain network when no
    rail works.

    \b
    Examples:
      rdmadiag kv run --mode push_imm --tokens 4096 --output result.jsonl
      rdmadiag kv run --lab lab --shape llama-3-8b --layers 4 --tokens 1024 --rc mooncake
      rdmadiag kv run --lab lab --mode dual --layers 4 --agents 4 --requests 20 --store 16,64
    """
    from rdmadiag.kv.run import serving, shape_named

    shape_named(options["shape"], options["layers"])  # refused here, and not in the other process
    words = ["--shape", options["shape"], "--slots", str(options["slots"]), "--lease", str(lease)]
    words += ["--publish-on", publish_on, *(["--unfenced"] if unfenced else [])]
    words += ["--layers", str(options["layers"])] if options["layers"] else []
    words += ["--store", store or "32,128"] if options["mode"] == "dual" else []
    if lab:
        _in_lab(lab, words, form, options)
        return
    with serving(words) as (address, _):
        recorder = _send(address, options)
    _report(recorder, form, options["output"])


def _in_lab(name: str, words: list[str], form: str, given: dict[str, Any]) -> None:
    from rdmadiag.kv import in_lab

    options = {
        key: value for key, value in given.items() if key not in ("output", "progress") and value not in (None, False)
    }
    lines = in_lab.run(name, words, options)
    _told(lines, form, given["output"])


def _pair(name: str, text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) < 1 << 24 for part in parts) or not int(parts[0]):
        raise BadInput(f"{name} {text!r}; wanted two numbers of blocks, as in 32,128")
    return int(parts[0]), int(parts[1])


def _send(address: tuple[str, int], given: dict[str, Any], watch: Any = None) -> Any:
    from itertools import islice

    from rdmadiag.kv import arrivals, run
    from rdmadiag.kv.client import Settings
    from rdmadiag.verbs import attributes

    if given["trace"] and given["agents"]:
        raise BadInput("--trace or --agents, not both")
    coming: Any = run.fixed(given["requests"], given["tokens"])
    if given["trace"]:
        coming = arrivals.from_trace(given["trace"], given["requests"])
    elif given["agents"]:
        coming = islice(arrivals.endless(arrivals.Agents(agents=given["agents"])), given["requests"])
    shape = run.shape_named(given["shape"], given["layers"])
    window = given["window"]
    if given["rate"] or given["rtt"]:
        window = run.window_for(given["rate"], given["rtt"], shape, given["qps"])
    settings = Settings(
        given["mode"],
        given["slots"],
        given["qps"],
        window,
        min(given["signal_every"], window),
        given["merge_bytes"],
        given["deadline"],
        first_request=given["first_request"],
    )
    ways = run.Ways(given.get("devices", ()), attributes.parse(given["rc"]), given.get("bind", ""))
    watch = watch or (_progress if given["progress"] else None)
    how = (given["pace"], not given["no_audit"], ways, watch, given["seconds"])
    if given["mode"] == "dual":
        from rdmadiag.kv import dual

        return dual.send(address, shape, settings._replace(mode="pull"), coming, _rates(given["path_rates"]), *how)
    return run.send(address, shape, settings, coming, *how)


def _rates(text: str) -> tuple[float, float]:
    from rdmadiag.lab.options import bits_per_second

    parts = text.split(",")
    if len(parts) != 2:
        raise BadInput(f"--path-rates {text!r}; wanted two rates, as in 100gbit,10gbit")
    return bits_per_second(parts[0]) / 8, bits_per_second(parts[1]) / 8


def _progress(what: str, row: Mapping[str, Any]) -> None:
    if what != "request":
        return
    rate = row["bytes"] / row["seconds"] / 1e6 if row["seconds"] else 0.0
    done = row["why"] or f"{row['bytes'] / 1e6:.1f} MB in {row['seconds']:.2f} s, {rate:.1f} MB/s"
    again = f", {row['retries']} retries" if row["retries"] else ""
    click.echo(f"request {row['request']}: {row['state']} over {row['path']}, {done}{again}", err=True)


def _report(recorder: Any, form: str, output: str | None) -> None:
    _told(list(recorder.lines()), form, output)


def _told(lines: list[str], form: str, output: str | None) -> None:
    import json

    from rdmadiag.kv.run import summary_of

    if output:
        try:
            with open(output, "w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
        except OSError as error:
            raise BadInput(f"--output {output}: {error.strerror}") from error
    if form == "records":
        _output.emit("\n".join(lines))
        return
    told = summary_of(map(json.loads, lines))
    if form == "events":
        _output.emit_line({"event": "result", "schema": "rdmadiag.kv_run/1", **told})
    elif form == "json":
        _output.emit(_output.as_json({"schema": "rdmadiag.kv_run/1", **told}))
    else:
        _output.emit("\n".join(_lines(told, output)))
    if told["failed"] or any(told["damage"].values()):
        raise SystemExit(1)


def _route(route: dict[str, Any]) -> str:
    claimed = route["acknowledged_bytes"] / 1e6
    says = {True: "its counters agree", False: "ITS COUNTERS SAY LESS", None: "its counters cannot tell"}[
        route["on_the_wire"]
    ]
    where = (
        f"{route['device']} to {route['peer_device']}, QPs {route['qpns']}"
        if route["kind"] == "rdma"
        else route["device"] or "any netdev"
    )
    return f"route {route['path']} ({route['kind']}, {where}): {claimed:.1f} MB acknowledged; {says}"


def _path(path: dict[str, Any]) -> str:
    rtt = "not measured" if path["rtt_p50_seconds"] is None else f"{path['rtt_p50_seconds'] * 1e3:.2f} ms"
    moved = f"{path['bytes'] / 1e6:.1f} MB in {path['jobs']} jobs, {path['preempted']} gave way, {path['jobs_failed']} failed"
    away = f"left {path['demotions']} times, away {path['away_seconds']:.1f} s"
    return f"path {path['path']} ({path['kind']}): {path['state']}; round trip {rtt} ({path['probes']} probes); {moved}; {away}"


def _tier(cache: dict[str, Any]) -> str:
    found = f"{cache['hits']} of {cache['lookups']} lookups found"
    return f"store, tier {cache['tier']} ({cache['capacity_blocks']} blocks): {found}, {cache['evictions']} put out"


def _lines(told: dict[str, Any], output: str | None) -> list[str]:
    rate = (told["bytes_per_second"] or 0) / 1e6
    damage = [f"{count} {name.replace('_pieces', '')}" for name, count in told["damage"].items() if count]
    checked = "not compared" if not told["audited"] else ", ".join(damage) or "every byte is what was sent"
    lines = [
        f"{told['mode']} by {told['path']} ({told['kind']}) with {told['peer']}: "
        f"{told['published']} of {told['requests']} requests published, {told['useful_bytes'] / 1e6:.1f} MB at {rate:.1f} MB/s",
        f"content: {checked}; late writes {told['late_written']}, canaries damaged {told['canaries_damaged']}",
        f"retries {told['retries']}, reconnects {told['reconnects']}, sent again {told['resent_bytes']} bytes",
        *(_route(route) for route in told["routes"]),
        *(_path(path) for path in told["paths"]),
        *(_tier(cache) for cache in told["caches"]),
        *told["failures"],
        "",
    ]
    jobs = [
        (job["path"], job["kind"], job["size"], job["priority"], job["jobs"], f"{job['bytes'] / 1e6:.1f} MB",
         *(f"{job[name] * 1e3:.1f} ms" for name in ("waited_p50_seconds", "waited_max_seconds", "took_p50_seconds")))
        for job in told["jobs"]
    ]  # fmt: skip
    if jobs:
        heads = ("path", "job", "size", "priority", "count", "bytes", "waited p50", "longest", "took p50")
        lines += [*_output.columns(jobs, heads), ""]
    rows = [
        (
            one["path"],
            one["op"],
            one["status"],
            one["operations"],
            f"{one['bytes'] / max(1, one['operations']) / 1024:.1f} KiB",
            *(f"{one[name] * 1e3:.2f} ms" for name in ("p50_seconds", "p99_seconds", "max_seconds")),
            one["depth_mean"],
        )
        for one in told["operations"]
    ]
    heads = ("path", "operation", "status", "count", "size", "p50", "p99", "longest", "outstanding")
    lines += _output.columns(rows, heads) if rows else []
    return [*lines, "", f"rdmadiag check --from {output}"] if output else lines
