"""rdmadiag lab: SoftRoCE hosts and a switch on any machine."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import click

from rdmadiag.cli import _options, _output

FORMAT = click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)
NAME = click.argument("name", default="lab")
HOST = click.option("--host", default="", help="Run it on this host (h1, h2, ...) or on `switch`.")


@click.group(short_help="Make and use labs: SoftRoCE hosts and a switch, on any machine.")
def command() -> None:
    """Make and use labs: hosts with SoftRoCE (rdma_rxe) devices and a switch between them.

    A lab lives in a virtual machine whose root folder is this machine's, read-only under a layer of its own; the folder
    in which `lab up` was called is writable there. It needs no RDMA in this machine's kernel, and no root once
    packages are there. It lives until `lab down`, the idle limit, or this machine's end.

    \b
    Examples:
      rdmadiag lab doctor                     what is missing, and the command that installs it
      rdmadiag lab up                         two hosts: rxe1 10.0.0.1 and rxe2 10.0.0.2
      rdmadiag lab up fast --rate 1gbit --ecn
      rdmadiag lab exec -- rdma link          a command in it
      rdmadiag lab exec --host switch -- tc -s qdisc
      rdmadiag lab shell
      rdmadiag lab down
    """


@command.command("up", short_help="Make a lab, or find it running.")
@NAME
@click.option(
    "--backend",
    default="auto",
    type=click.Choice(["auto", "native", "vm"]),
    show_default=True,
    help="native: this kernel's rdma_rxe (root). auto: native as root where rxe loads, else vm.",
)
@click.option("--hosts", default=2, show_default=True, help="Number of hosts.")
@click.option("--rails", default=1, show_default=True, help="RDMA devices a host: 1 or 2.")
@click.option("--rate", default="200mbit", show_default=True, help="Rate of each switch port.")
@click.option("--queue", "queue_bytes", default=1 << 20, show_default=True, help="Queue of each switch port, in bytes.")
@click.option("--mtu", default=4200, show_default=True, help="MTU of the RDMA links (4200 gives RoCE 4096).")
@click.option("--ecn", is_flag=True, help="Switch ports mark ECN (RED) instead of only dropping.")
@click.option("--kernel-per-host", is_flag=True, help="One virtual machine a host, and one for the switch.")
@click.option(
    "--namespaces", is_flag=True, help="One network namespace a host, with its rxe device (guest Linux 7.1 and newer)."
)
@click.option(
    "--kernel",
    default="",
    metavar="RELEASE",
    help="The guest's kernel, instead of this machine's or the distribution's.",
)
@click.option(
    "--idle",
    "idle_seconds",
    default="2h",
    callback=_options.seconds,
    show_default=True,
    help="End the lab when nobody used it this long; 0: never.",
)
@FORMAT
def up(name: str, form: str, **values: Any) -> None:
    """Make a lab and print what is in it; one that runs with the same options is left as it is.

    \b
    Examples:
      rdmadiag lab up
      rdmadiag lab up two-rails --rails 2 --hosts 3
      rdmadiag lab up kernels --kernel-per-host
      rdmadiag lab up apart --namespaces --kernel 7.3.4+deb13-amd64
    """
    import os

    from rdmadiag import lab

    options = lab.Options(folder=os.getcwd(), **values)
    lab.up(options, name, _progress)
    _print_status(name, form)


def _progress(text: str) -> None:
    _output.note(f"lab: {text}")


@command.command("status", short_help="Print devices, addresses, GID indices and MTUs of a lab.")
@NAME
@FORMAT
def status(name: str, form: str) -> None:
    """Print what is in a lab, read from it now; of a dead one, why it died and what its console said last. Exit 1 then.

    \b
    Examples:
      rdmadiag lab status
      rdmadiag lab status two-rails --format json
    """
    _print_status(name, form)


def _print_status(name: str, form: str) -> None:
    from rdmadiag import lab
    from rdmadiag.errors import BadInput
    from rdmadiag.lab import status as of

    state = lab.look(name)
    if state is None:
        raise BadInput(f"no lab {name!r}; `rdmadiag lab list` shows all, `rdmadiag lab up {name}` makes it")
    if state.state != "up":
        entry = {**of.brief(state), "console": list(state.console)}
        lines = [f"lab {name}: {state.state}{': ' + state.reason if state.reason else ''}", *state.console]
        _print_one(form, entry, lines)
        sys.exit(1)
    entry = of.full(lab.find(name), state)
    port = entry["port"]
    shape = f"{port['rate'] / 1e6:g} Mbit/s, queue {port['queue_bytes']} bytes"
    marks = (
        f", ECN marks from {port['red_min_bytes']} to {port['red_max_bytes']} bytes" if port["red_min_bytes"] else ""
    )
    lines = [
        f"lab {name}: up ({entry['backend']}, {entry['accelerator'] or 'no emulation'}, Linux {entry['kernel'] or 'unknown'}), "
        f"{entry['how'] or 'made'} in {entry['up_seconds']:.1f} s",
        f"each RDMA port of the switch: {shape}{marks}",
        *(f"guest {guest}: {answer}" for guest, answer in entry["guests"].items() if answer != "answers"),
        "",
        *_output.columns(
            [
                (
                    x["host"],
                    x["device"] or "-",
                    x["state"] or "-",
                    x["netdev"],
                    x["address"],
                    x["mtu"],
                    x["active_mtu"] or "-",
                    "-" if x["gid_index"] is None else x["gid_index"],
                    x["port"],
                    x["bridge"],
                )
                for x in entry["links"]
            ],
            ("host", "device", "state", "netdev", "address", "mtu", "active_mtu", "gid_index", "port", "bridge"),
        ),
    ]
    _print_one(form, entry, lines)


def _print_one(form: str, entry: dict[str, Any], lines: list[str]) -> None:
    _output.emit(_output.as_json({"schema": "rdmadiag.lab/1", **entry}) if form == "json" else "\n".join(lines))


@command.command("list", short_help="List the labs of this user.")
@FORMAT
def list_labs(form: str) -> None:
    """List the labs of this user: up, coming up, or dead with the reason."""
    from rdmadiag import lab
    from rdmadiag.lab import status as of

    entries = [of.brief(state) for state in lab.labs()]
    rows = [(e["name"], e["state"], e["backend"], e["hosts"], e["rails"], e["reason"]) for e in entries]
    _output.listing(
        form,
        "labs",
        "labs",
        entries,
        lambda: _output.columns(rows, ("name", "state", "backend", "hosts", "rails", "")) if rows else ["no labs"],
    )


class _Exec(click.Command):
    # [NAME] -- CMD...: click itself would lose the place of the two dashes.
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        ctx.meta["rdmadiag.command"] = args[place + 1 :]
        return super().parse_args(ctx, args[:place])


@command.command("exec", cls=_Exec, short_help="Run a command in a lab.", options_metavar="[OPTIONS]")
@NAME
@HOST
@click.option("-T", "no_terminal", is_flag=True, help="Give the command no terminal, even when there is one here.")
@click.pass_context
def exec_(context: click.Context, name: str, host: str, no_terminal: bool) -> None:
    """Run a command in a lab: rdmadiag lab exec [NAME] -- COMMAND...

    Input, both outputs, signals and terminal size are passed on; the exit code is the command's (128 + N when signal N
    killed it). Our own failures: 127 no such command, 126 it cannot be run, 125 anything else.

    \b
    Examples:
      rdmadiag lab exec -- rdma -d statistic
      rdmadiag lab exec --host switch -- tcpdump -c 5 -ni p1
      rdmadiag lab exec fast -- sh -c 'ibv_rc_pingpong -d rxe1 -g 1 & sleep 1; ibv_rc_pingpong -d rxe2 -g 1 10.0.0.1'
    """
    argv = context.meta["rdmadiag.command"]
    if not argv:
        raise click.UsageError("no command; wanted: rdmadiag lab exec [NAME] -- COMMAND...")
    _run(name, host, argv, not no_terminal and all(map(_output.is_terminal, (sys.stdin, sys.stdout))))


@command.command("shell", short_help="Open a shell in a lab.")
@NAME
@HOST
def shell(name: str, host: str) -> None:
    """Open a shell in a lab, on one of its hosts or on its switch.

    \b
    Examples:
      rdmadiag lab shell
      rdmadiag lab shell --host switch
    """
    import os

    wanted = os.environ.get("SHELL", "/bin/sh")
    _run(name, host, [wanted if os.path.exists(wanted) else "/bin/sh"], _output.is_terminal(sys.stdin))


def _run(name: str, host: str, argv: list[str], terminal: bool) -> NoReturn:
    import os

    from rdmadiag import lab
    from rdmadiag.errors import RdmadiagError
    from rdmadiag.lab import client, session

    try:
        found = lab.find(name)
        guest, words = found.place(host, argv)
        if found.options.backend == "native":
            from rdmadiag.lab import native

            native.become(found.folder, words, session.environment_for(name, os.environ))
        code = session.run(found.folder, guest, words, terminal)
    except client.NotStarted as error:
        _output.note(f"rdmadiag: {argv[0]}: {error}")
        code = error.code
    except BrokenPipeError:
        code = 141
    except (RdmadiagError, ValueError) as error:
        _output.note(f"rdmadiag: {error}")
        code = 125
    sys.exit(code)


@command.command("change", short_help="Change packets in a lab's switch while it runs.")
@click.argument("changes", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@NAME
@click.option("--seconds", default="0", callback=_options.seconds, help="End after this time; 0: at Ctrl-C.")
@click.option("--accept", multiple=True, help="Allow what is known to harm its receiver, by its name (reserved-aeth).")
@FORMAT
def change(changes: str, name: str, seconds: float, accept: tuple[str, ...], form: str) -> None:
    """Change packets on their way through a lab's switch, under whatever runs there; print what was done at the end.

    CHANGES is a JSON file (- is standard input): a list of {"name", "match", "action"}; docs/lab.md has all of both. When it
    ends, however it ends, packets pass as before.

    \b
    Examples:
      rdmadiag lab change bad-rkey.json
      echo '[{"match": {"from": "h1", "opcode": "RDMA_WRITE_LAST", "occurrence": 5}, "action": {"do": "drop"}}]' |
        rdmadiag lab change - --seconds 30
    """
    import json
    import time

    from rdmadiag import lab
    from rdmadiag.errors import BadFile
    from rdmadiag.lab import inflight

    try:
        with click.open_file(changes) as file:
            wanted = json.load(file)
    except (ValueError, OSError) as error:
        raise BadFile(changes, "", f"wanted a JSON list of in-flight changes: {error}") from error
    with inflight.changes(lab.find(name), wanted, accept) as running:
        _output.note(
            f"lab {name}: {len(wanted)} in-flight changes hold; {f'{seconds:g} s' if seconds else 'Ctrl-C'} ends them"
        )
        try:
            time.sleep(seconds or 1e9)
        except KeyboardInterrupt:
            pass
    counts = running.counts()
    columns = ("name", "action", "where", "seen", "matched", "done", "missed", "bytes")
    lines = [
        *_output.columns([tuple(entry[key] for key in columns) for entry in counts["changes"]], columns),
        f"visited the program {counts['visited']}, sent on {counts['sent']}, queue full {counts['queue_full']}, lost {counts['lost']}",
    ]
    _output.emit(_output.as_json(counts) if form == "json" else "\n".join(lines))


@command.command("down", short_help="Take a lab down.")
@NAME
@click.option("--all", "every", is_flag=True, help="Take all labs of this user down.")
def down(name: str, every: bool) -> None:
    """Take a lab down, whatever state it is in; nothing is left of it.

    \b
    Examples:
      rdmadiag lab down
      rdmadiag lab down --all
    """
    from rdmadiag import lab
    from rdmadiag.errors import BadInput

    if every:
        for state in lab.labs():
            lab.take_down(state.name)
    elif not lab.take_down(name):
        raise BadInput(f"no lab {name!r}; `rdmadiag lab list` shows all")


@command.command("doctor", short_help="Say what a lab needs that is missing here, and what installs it.")
@FORMAT
def doctor(form: str) -> None:
    """Say what a lab needs, what of it is missing, and the command that installs it. Exit 1 when a lab cannot come up."""
    from rdmadiag.lab import needs

    found = list(needs.needs())
    install = needs.install_command(found)
    missing = [need for need in found if need.answer != "yes" and not need.optional]

    words = {"yes": "ok", "unknown": "unknown"}

    def text() -> list[str]:
        rows = [
            (words.get(n.answer) or ("optional" if n.optional else "MISSING"), n.name, n.found, n.why) for n in found
        ]
        last = [f"install: {install}"] if install else []
        return [*_output.columns(rows), "", *last, f"a lab {'cannot' if missing else 'can'} come up here"]

    _output.listing(form, "needs", "needs", [{**n._asdict(), "install": install or None} for n in found], text)
    sys.exit(1 if missing else 0)
