"""rdmadiag workload: programs that move data between two hosts, and whether RDMA carried it."""

from __future__ import annotations

import sys
from typing import Any

import click

from rdmadiag.cli import _output

FORMAT = click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)
NAME = click.argument("name")
EXITS = {"yes": 0, "no": 1, "unknown": 3}


@click.group(short_help="Run programs that move data between two hosts; was it RDMA?")
def command() -> None:
    """Run workloads: perftest, KV transfers of our own and of real engines, or any program, on two hosts of a lab.

    Bytes that a workload claims are compared with the counters of both RDMA devices: some engines silently use TCP.

    \b
    Examples:
      rdmadiag workload list
      rdmadiag workload install mooncake
      rdmadiag lab up
      rdmadiag workload run mooncake
      rdmadiag workload run perftest --set test=ib_read_bw --set size=1048576
    """


def _brief(name: str) -> dict[str, Any]:
    from rdmadiag import workloads
    from rdmadiag.workloads import installed

    module = workloads.load(name)
    engine = module.ENGINE
    found = installed(name) if engine else ""
    wanted = f"{engine.package} {engine.version}" if engine else None
    return {"name": name, "title": module.TITLE, "engine": wanted, "installed": found or None}


@command.command("list", short_help="List all workloads.")
@FORMAT
def list_workloads(form: str) -> None:
    """List all workloads, and which engines are installed."""
    from rdmadiag import workloads

    entries = [_brief(name) for name in workloads.names()]
    rows = [(e["name"], e["title"], e["installed"] or ("not installed" if e["engine"] else "")) for e in entries]
    _output.listing(form, "workloads", "workloads", entries, lambda: _output.columns(rows))


@command.command("show", short_help="Show one workload and its parameters.")
@NAME
@FORMAT
def show(name: str, form: str) -> None:
    """Show what a workload is, its parameters with their defaults, and what it needs.

    \b
    Examples:
      rdmadiag workload show nixl
    """
    import shlex

    from rdmadiag import workloads

    module = workloads.load(name)
    entry = {
        **_brief(name),
        "example": module.EXAMPLE,
        "programs": module.PROGRAMS,
        "parameters": [one._asdict() for one in module.PARAMETERS],
    }
    rows = [
        (p.name, p.default, f"{p.help}{': ' if p.choices else ''}{', '.join(p.choices)}") for p in module.PARAMETERS
    ]
    needs = [f"needs {', '.join(module.PROGRAMS)}"] if module.PROGRAMS else []
    if entry["engine"]:
        needs += [
            f"engine {entry['engine']}: {entry['installed'] or f'not installed; rdmadiag workload install {name}'}"
        ]
    words = " ".join(f"--set {key}={shlex.quote(str(value))}" for key, value in module.EXAMPLE.items())
    needs.append(f"example: rdmadiag workload run {name} {words}".rstrip())
    lines = [f"{name}: {module.TITLE}", *needs, "", *_output.columns(rows, ("parameter", "default", ""))]
    _output.emit(
        _output.as_json({"schema": "rdmadiag.workload_show/1", **entry}) if form == "json" else "\n".join(lines)
    )


@command.command("install", short_help="Install a workload's engine from PyPI into the cache.")
@NAME
@click.option("--version", default="", help="Another version than the one that was tried.")
@click.option("--remove", is_flag=True, help="Take it away instead.")
def install(name: str, version: str, remove: bool) -> None:
    """Install a workload's engine from PyPI into a folder of the user's cache; nothing else of this machine is changed.

    \b
    Examples:
      rdmadiag workload install mooncake
      rdmadiag workload install nixl --remove
    """
    from rdmadiag import workloads
    from rdmadiag.errors import BadInput

    engine = workloads.load(name).ENGINE
    if engine is None:
        raise BadInput(f"{name} has no engine to install; it comes with rdmadiag or with the system")
    if remove:
        workloads.remove(name)
        return
    got = workloads.install(name, engine, version, lambda text: _output.note(f"{name}: {text}"))
    _output.emit(f"{name}: {engine.package} {got} is installed in {workloads.folder(name)}")


@command.command("run", short_help="Run a workload on two hosts of a lab.")
@NAME
@click.option("--lab", "lab_name", default="lab", show_default=True, help="The lab.")
@click.option("--client", default="h1", show_default=True, help="Host of the client.")
@click.option("--server", default="h2", show_default=True, help="Host of the server.")
@click.option("--rail", default=1, show_default=True, help="Which RDMA device of each host.")
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="A parameter (workload show NAME).")
@click.option(
    "--here",
    multiple=True,
    metavar="HOST=DEVICE,GID_INDEX,NETDEV,ADDRESS",
    help="Not in a lab: a device of this machine as a host; give it twice.",
)
@click.option("--timeout", default=300.0, show_default=True, type=click.FloatRange(1, 1e6), help="Longest run [s].")
@click.option("--events", is_flag=True, help="Print each event as a line of JSON on standard error.")
@FORMAT
def run(
    name: str,
    lab_name: str,
    client: str,
    server: str,
    given: tuple[str, ...],
    timeout: float,
    events: bool,
    form: str,
    rail: int,
    here: tuple[str, ...],
) -> None:
    """Run a workload and say what came of it. Exit 0 good, 1 not, 3 when it cannot be told (RDMA counters that cannot be read).

    \b
    Examples:
      rdmadiag workload run perftest --set size=1048576 --set seconds=3
      rdmadiag workload run mooncake --lab two-rails --rail 2 --format json
      rdmadiag workload run command --set client='rping -c -a {peer_address} -C 5 -v' --set server='rping -s -C 5' --set ready=.
      rdmadiag workload run perftest --here h1=mlx5_0,3,ens1,10.1.0.1 --here h2=mlx5_1,3,ens2,10.1.0.2
    """
    from rdmadiag import lab, workloads

    workloads.load(name)  # a wrong name is told before a lab is looked for
    place: Any = _here(here) if here else workloads.InLab(lab.find(lab_name), rail)
    parameters = dict(_pair(text) for text in given)
    with workloads.start(
        name, place, parameters, (client, server), lambda role: _output.note(f"{name}: {role} is ready")
    ) as one:
        if events:
            for event in one.follow(timeout):
                _output.note(_output.as_line(event._asdict()))
        result = one.finish(max(0.0, timeout - one.now()))
    if form == "json":
        _output.emit(_output.as_json(result))
    else:
        _output.emit("\n".join(_lines(result)))
    sys.exit(EXITS[result["ok"]])


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise click.BadParameter(f"{text!r}; wanted NAME=VALUE", param_hint="--set")
    return name, value


def _here(texts: tuple[str, ...]) -> Any:
    from rdmadiag import workloads

    hosts = []
    for text in texts:
        name, _, rest = text.partition("=")
        parts = rest.split(",")
        if not name or len(parts) != 4 or not parts[1].isdecimal() or not all(parts):
            raise click.BadParameter(f"{text!r}; wanted HOST=DEVICE,GID_INDEX,NETDEV,ADDRESS", param_hint="--here")
        device, index, netdev, address = parts
        hosts.append(workloads.Host(name, device, int(index), netdev, address, address))
    return workloads.OnThisMachine(hosts)


def _lines(result: dict[str, Any]) -> list[str]:
    speed, moving = result["claimed_bytes_per_second"], result["moving_seconds"]
    rate = f" in {moving:.2f} s ({speed / 1e6:.1f} MB/s)" if speed else ""
    content, carried = result["content"], result["carried"]
    checked = {
        "yes": f"{content['blocks']} blocks compared, all as they were sent",
        "no": f"{content['wrong']} of {content['blocks']} blocks are not what was sent",
        "unknown": "not compared",
    }[content["answer"]]
    lines = [
        f"{result['workload']} in {result['place']}: {result['ok']}",
        f"claimed: {result['claimed_bytes'] / 1e6:.1f} MB by {result['carrier']}{rate}",
        f"carried by RDMA: {carried['answer']} ({carried['why']})",
        f"content: {checked}",
        *(f"problem: {text}" for text in result["problems"]),
        *(f"doubt: {text}" for text in result["doubts"]),
    ]
    if result["errors"]:
        lines.append(f"errors: {len(result['errors'])}, the first after {result['first_error_seconds']:.2f} s")
        lines += [f"  {e['seconds']:.2f} s {e['end']}: {e.get('words')}" for e in result["errors"][:5]]
    if result["reconnects"] or result["recovered_seconds"]:
        after = ", ".join(f"{value:.2f} s" for value in result["recovered_seconds"] if value is not None)
        lines.append(f"reconnects: {result['reconnects']}; recovered after: {after or 'never'}")
    if result["metrics"]:
        lines += ["", *_output.columns([(name, f"{value:g}") for name, value in result["metrics"].items()])]
    return lines
