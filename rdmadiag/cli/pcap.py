"""rdmadiag pcap: say what packet captures of RoCE traffic show."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from rdmadiag.cli import _options, _output
from rdmadiag.errors import BadInput

HELP = """Say what packet captures of RoCEv2 traffic show: flows, losses, NAKs, stalls, congestion, and why.

\b
Examples:
  rdmadiag pcap trace.pcap                     every flow, and what is wrong
  rdmadiag pcap trace.pcapng.gz --qp 0x22      one queue pair, in full
  rdmadiag pcap trace.pcap --timeline qp.svg   PSNs over time with repeats, NAKs, CNPs; goodput
  rdmadiag pcap trace.pcap --timeline qp.csv   the same flow by interval: goodput, CE share, NAKs, CNPs
  rdmadiag pcap --tap sender.pcap --tap receiver.pcap     on which side of a hop packets are lost
  rdmadiag pcap trace.pcap --format csv > flows.csv
  tcpdump -i eth0 -s 128 -w - udp port 4791 | rdmadiag pcap -      until Ctrl-C
  rdmadiag pcap record eth0                    make captures: a ring of files (rdmadiag pcap record --help)

Reads pcap and pcapng, packed with gzip, zstd, bzip2 or xz or not; Ethernet with VLANs, Linux cooked, raw IP. Exit codes are those of check.
"""
_TABLE = (
    ("capture", "capture"), ("requester", "src"), ("responder", "dst"), ("qp", "qpn"), ("peer qp", "peer_qpn"), ("packets", "packets"),
    ("resent", "resent_packets"), ("NAK", "nak_sequence"), ("RNR", "rnr_naks"), ("fatal", "nak_fatal"), ("CE", "ce"), ("CNP", "cnps"),
    ("ack us", "ack_us_p50"), ("Gb/s", "goodput_gbps"), ("state", "state"),
)  # fmt: skip
FLUSH_SECONDS = 2.0
"""How long a live pipe is read after a Ctrl-C, unless it ends before [s]."""
ROWS = 40
"""Flows printed as text; those with trouble first."""


@click.command("record", short_help="Capture RoCE packets of a netdev into a ring of files.")
@click.argument("netdev")
@click.option(
    "-o", "--output", "prefix", default="roce", show_default=True, help="Files are OUTPUT-00001.pcapng and so on."
)
@click.option(
    "--snaplen",
    default=128,
    show_default=True,
    help="Bytes kept of a packet; 65535: all (only then ICRCs can be checked).",
)
@click.option("--file-size", "megabytes", default=100, show_default=True, help="Size of a file [MB].")
@click.option("--files", default=10, show_default=True, help="Files kept; the oldest is removed.")
@click.option("--seconds", default="0", callback=_options.seconds, help="End after this time; 0: at Ctrl-C.")
@click.option("--count", default=0, help="End after so many packets; 0: no such limit.")
@click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)
def record(netdev: str, prefix: str, megabytes: int, form: str, **options: Any) -> None:
    """Capture RoCE packets (v2, v1, pause frames) of a netdev: filtered in the kernel, a ring of pcapng files, drops counted.

    An adapter's own RoCE traffic does not pass its netdev: capture on the switch, on a mirror port, or with the vendor's sniffer rule. On
    SoftRoCE it does. Needs CAP_NET_RAW. What was dropped is said, and is in each file for `rdmadiag pcap` to see.

    \b
    Examples:
      rdmadiag pcap record eth0                         until Ctrl-C, the last 1 GB
      rdmadiag pcap record v1 -o run --seconds 30 --snaplen 65535
      rdmadiag pcap run-00001.pcapng
    """
    import signal

    from rdmadiag.roce import record as recorder

    ended: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, frame: ended.append(got))
    done = recorder.record(
        netdev,
        prefix,
        file_bytes=megabytes << 20,
        stopped=lambda: bool(ended),
        ready=lambda: _output.note(
            f"recording {netdev}; {'Ctrl-C ends it' if not options['seconds'] else 'it ends by itself'}"
        ),
        **options,
    )
    if form == "json":
        _output.emit(_output.as_json({"schema": "rdmadiag.recording/1", **done._asdict()}))
        return
    lost = f"; {done.dropped} DROPPED for want of room" if done.dropped else ", none dropped"
    files = f"{done.files[0]} to {done.files[-1]}" if len(done.files) > 1 else "".join(done.files) or "no file"
    _output.emit(f"{done.packets} packets within {done.seconds:.1f} s{lost}: {files}")


class _Pcap(click.Command):
    # `rdmadiag pcap record ...` is a command of its own; a file of that name is ./record.
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == ["record"]:
            return record.make_context(f"{info_name} record", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=_Pcap, help=HELP, short_help="Say what packet captures of RoCE traffic show.")
@click.argument("files", nargs=-1, metavar="[[NODE=]FILE]...")
@click.option(
    "--tap",
    "taps",
    multiple=True,
    metavar="FILE",
    help="Twice: two captures of one path, to place a loss between them.",
)
@click.option(
    "--pair",
    "pairs",
    multiple=True,
    metavar="ADDRESS:QPN=ADDRESS:QPN",
    help="Two QPs that are connected, where the capture does not tell.",
)
@click.option("--qp", metavar="QPN", help="Show one queue pair in full (either end's number).")
@click.option(
    "--timeline",
    metavar="FILE",
    help="The flow of --qp, or the one with most trouble, over time: a picture (.png, .svg) or a table (.csv).",
)
@click.option(
    "--expect", type=_options.PATH, help="Expectation file: dscp, cnp_dscp, ecn (1) that the site's policy wants."
)
@click.option("--site", type=_options.PATH, help="Site file: overrides parameters of rules.")
@click.option(
    "--fail-on",
    default="warning",
    type=click.Choice(["info", "warning", "error", "critical"]),
    show_default=True,
    help="Exit 1 from this severity on.",
)
@click.option("--format", "form", default="text", type=click.Choice(["text", "json", "csv"]), show_default=True)
@click.pass_context
def command(
    context: click.Context,
    /,
    files: tuple[str, ...],
    taps: tuple[str, ...],
    qp: str | None,
    timeline: str | None,
    form: str,
    **options: Any,
) -> None:
    """Run the look."""
    from rdmadiag.diagnose import wire
    from rdmadiag.render.text import printable

    if not files and not taps:
        raise click.UsageError("a capture is wanted: rdmadiag pcap FILE, or - for standard input")
    wanted = _number(qp) if qp is not None else None
    bar = _Bar() if _output.is_terminal(sys.stderr) else None
    looked = wire.look(files, taps, progress=bar, live=_Interrupted() if "-" in files else None, **options)
    result = looked.report
    if wanted is not None:
        result["flows"] = [f for f in result["flows"] if wanted in (f.get("qpn"), f.get("peer_qpn"))]
        if not result["flows"]:
            raise click.UsageError(f"no flow of QP {qp} in the capture")
    if timeline:
        _draw(result, timeline)
    if form == "csv":
        _output.emit(_csv(result["flows"]))
    elif form == "json":
        _output.report("json", result)
    else:
        if _output.is_terminal(sys.stderr):
            click.echo("\r\x1b[K", nl=False, err=True)
        lines = _captures(looked.evidence) + _flows(result["flows"], wanted is not None)
        _output.emit("\n".join(map(printable, lines)))
        _output.emit("")
        _output.report("text", result)
    context.exit(result["summary"]["exit_code"])


def _number(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 0 <= value <= 0xFFFFFF:
        raise click.BadParameter(f"{text!r} is no QP number; wanted 0 to 0xffffff", param_hint="--qp")
    return value


class _Interrupted:
    """A Ctrl-C ends a live pipe, and what came is said; a second one ends the program.

    Who writes into the pipe gets the same Ctrl-C, and writes what it still has: that is waited for.
    """

    def __init__(self) -> None:
        import signal

        self._end: Callable[[float], None] | None = None
        self._came = False
        signal.signal(signal.SIGINT, self._interrupted)

    def __call__(self, end: Callable[[float], None]) -> None:
        self._end = end
        if self._came:
            end(FLUSH_SECONDS)

    def _interrupted(self, number: int, frame: object) -> None:
        import signal

        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._came = True
        _output.note("what came until now is said; Ctrl-C again gives up")
        if self._end is not None:
            self._end(FLUSH_SECONDS)


class _Bar:
    """How far a file is read, on standard error: share, rate, time left."""

    def __init__(self) -> None:
        self.begun = self.said = time.monotonic()

    def __call__(self, path: str, at: int, size: int, packets: int) -> None:
        now = time.monotonic()
        if now - self.said < 0.2:
            return
        self.said = now
        rate = packets / max(now - self.begun, 1e-6)
        left = f", {(size - at) / max(at, 1) * (now - self.begun):.0f} s left" if size > at else ""
        share = f"{100 * at // size} %" if size else f"{at >> 20} MB"
        click.echo(f"\r\x1b[K{path[-40:]}: {share}, {packets} packets, {rate / 1e6:.2f} M/s{left}", nl=False, err=True)


def _captures(evidence: Any) -> list[str]:
    lines = []
    names = "file, kind, links, packets, roce2, roce1, native_ib, other, seconds, cut, duplicates, dropped"
    names += ", icrc_good, icrc_bad, icrc_unchecked, partial"
    for row in evidence.db.execute(f"SELECT {names} FROM capture ORDER BY node, file"):
        (
            file,
            kind,
            links,
            packets,
            roce2,
            roce1,
            native,
            other,
            seconds,
            cut,
            twice,
            dropped,
            good,
            bad,
            unchecked,
            partial,
        ) = row
        line = f"{file}: {kind}, {links}; {packets} packets, {roce2} RoCEv2 within {seconds:.6g} s"
        line += "".join(
            f", {count} {what}" for count, what in ((roce1, "RoCEv1"), (native, "native InfiniBand")) if count
        )
        line += f"; {other}" if other else ""
        line += f". ICRC: {good} good, {bad} bad, {unchecked} cut off and not checkable"
        line += "".join(
            f"; {count} {what}"
            for count, what in ((cut, "cut"), (twice, "mirrored twice"), (dropped, "dropped by the capture"))
            if count
        )
        lines += [line, *([f"  PARTIAL: {partial}"] if partial else [])]
    return [*lines, ""]


def _trouble(flow: dict[str, Any]) -> tuple[int, int]:
    bad = flow.get("nak_fatal", 0) * 1000 + flow.get("resent_packets", 0) + flow.get("rnr_naks", 0)
    return (-int(bad) - (1000 if flow["state"] not in ("idle", "in progress") else 0), -flow["packets"])


def _flows(flows: list[dict[str, Any]], full: bool) -> list[str]:
    if full:
        lines = []
        for flow in flows:
            lines.append(f"{flow['src']} to {flow['dst']} QP {flow['qpn']}")
            lines += [f"  {name}: {_cell(value)}" for name, value in flow.items() if not isinstance(value, list)]
            for part in ("naks", "resends_by_cause"):
                lines += [
                    f"  {part}: "
                    + ", ".join(
                        f"{n} {_cell(v)}" for n, v in entry.items() if n not in ("src", "dst", "qpn", "peer_qpn")
                    )
                    for entry in flow.get(part, [])
                ]
        return lines
    shown = sorted(flows, key=_trouble)[:ROWS]
    several = len({flow["origin"] for flow in flows}) > 1
    columns = _TABLE if several else _TABLE[1:]
    lines = (
        _output.columns(
            [[_cell(_named(flow).get(name)) for _, name in columns] for flow in shown], [head for head, _ in columns]
        )
        if shown
        else []
    )
    return lines + ([f"and {len(flows) - ROWS} more flows (--format csv)"] if len(flows) > ROWS else []) or [
        "no flow of requests"
    ]


def _named(flow: dict[str, Any]) -> dict[str, Any]:
    # With the capture that it is in: the node that is named for it, or its file.
    from rdmadiag.diagnose.wire import UNNAMED
    from rdmadiag.evidence.collect import capture_name

    node = flow["node"]
    return flow | {"capture": capture_name(flow["origin"]) if node == UNNAMED else node}


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _csv(flows: list[dict[str, Any]]) -> str:
    from rdmadiag.evidence.store import tables

    names = [column.name for column in tables()["flow"].columns]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(
        [flow.get(name, "") if not isinstance(flow.get(name), list) else "" for name in names] for flow in flows
    )
    return out.getvalue().rstrip("\n")


def _draw(result: dict[str, Any], path: str) -> None:
    # The capture is read again, for the packets of the one flow.
    import math

    from rdmadiag.evidence import given
    from rdmadiag.roce import analysis, timeline

    if not result["flows"]:
        raise click.UsageError("--timeline: no flow of requests in the capture")
    flow = min(result["flows"], key=_trouble)
    if flow["origin"] == "-":
        raise click.UsageError("--timeline reads the capture twice: give a file, not standard input")
    collector = timeline.Collector(flow)
    for part in given.expand(flow["origin"], math.inf):
        if isinstance(part, given.GivenCapture):
            analysis.columns_of(part.stream, part.path, collector)
            part.stream.close()
    if path.endswith(".csv"):
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([timeline.HEAD, *timeline.table(collector)])
        _write(path, out.getvalue())
    else:
        timeline.draw(collector, path)


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as error:
        raise BadInput(f"--timeline {path}: cannot be written: {error.strerror}") from error
