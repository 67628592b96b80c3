"""rdmadiag inject: put a fault on a lab or a staging host, for a time; it always comes off."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from rdmadiag.cli import _options, _output

if TYPE_CHECKING:
    from rdmadiag.faults import Parameter

FORMAT = click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)
CODES = {"FIRED": 0, "NOT_FIRED": 4, "ABORTED": 6, "REVERT_FAILED": 8}
UNSUPPORTED = 7


class Faults(click.Group):
    """Finds faults by their file names; `list`, `status` and `revert` are beside them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands and the faults."""
        from rdmadiag import faults

        return [*sorted(self.commands), *faults.names()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Make the command of a fault from its parameters."""
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        from rdmadiag import faults

        return _command_of(cmd_name) if cmd_name in faults.names() else None


def _command_of(fault: str) -> click.Command:
    from rdmadiag import faults

    module = faults.find(fault)
    return click.Command(
        fault,
        params=[*map(_option, module.PARAMETERS), *_COMMON],
        callback=lambda **values: _run(fault, **values),
        short_help=module.TITLE,
        help=_help(fault, module),
    )


def _help(fault: str, module: Any) -> str:
    signs = "\n".join(f"  {sign}" for sign in module.SIGNS)
    return f"""{module.TITLE}.

    \b
    Acts on: {module.REACH}
    Signs it must leave:
    {signs}

    \b
    Examples:
      rdmadiag inject {fault} --for 30s --lab
      rdmadiag inject {fault} --for 30s --lab --dry-run
    """


def _option(parameter: Parameter) -> click.Option:
    unit = f" [{parameter.unit}]" if parameter.unit else ""
    return click.Option(
        [parameter.option, parameter.name],
        default=parameter.default,
        show_default=True,
        type=str,
        help=f"{parameter.meaning}{unit}; {parameter.wanted()}",
    )


_COMMON: list[click.Parameter] = [
    click.Option(
        ["--for", "for_seconds"], required=True, callback=_options.seconds, help="How long it holds: 30s, 2m."
    ),
    click.Option(["--lab", "lab_name"], is_flag=False, flag_value="lab", help="In a lab that is up [NAME: lab]."),
    click.Option(
        ["--dev", "device"], help="On this host's RDMA device; needs the staging mark /etc/rdmadiag/staging.json."
    ),
    click.Option(["--dry-run"], is_flag=True, help="Print the plan; change nothing."),
    click.Option(
        ["--abort-when", "abort_when"], help="Shell command asked each second; when it fails, the fault comes off."
    ),
    click.Option(
        ["--lease", "lease_seconds"],
        default="20s",
        show_default=True,
        callback=_options.seconds,
        help="A fault without a sign of life from us comes off after it.",
    ),
    click.Option(["--format", "form"], default="text", type=click.Choice(["text", "json"]), show_default=True),
]


@click.group(cls=Faults, short_help="Put a fault on a lab or a staging host, for a time.")
def command() -> None:
    """Put a fault on a lab (--lab) or on a staging host's RDMA device (--dev), for a time. It always comes off.

    What is about to be done is written to a journal first, and a watchdog on the node takes the fault off when we cannot.
    Exit code: 0 it fired (two proofs) and is off; 4 nothing met it; 6 aborted; 7 it cannot act there; 8 the node is not as it was
    before; 2 wrong use.

    \b
    Examples:
      rdmadiag inject list                                faults, parameters, data path, signs
      rdmadiag inject loss --percent 5 --for 30s --lab
      rdmadiag inject delay --ms 5 --for 1m --lab two-rails --destination h2
      rdmadiag inject loss --percent 1 --for 10s --dev rxe0 --dry-run
      rdmadiag inject status
      rdmadiag inject revert --all
    """


class _Told(BaseException):
    """A signal that asks us to end."""


def _told(number: int, frame: FrameType | None) -> None:
    raise _Told(signal.Signals(number).name)


def _run(
    fault: str,
    form: str,
    for_seconds: float,
    lab_name: str | None,
    device: str | None,
    dry_run: bool,
    abort_when: str | None,
    lease_seconds: float,
    **values: Any,
) -> None:
    from rdmadiag import inject
    from rdmadiag.faults import Refused

    if bool(lab_name) == bool(device):
        raise click.UsageError("wanted one of --lab [NAME] and --dev DEVICE")
    try:
        aim = inject.in_lab(lab_name) if lab_name else inject.on_device(str(device))
        injection = inject.inject(
            fault, values, aim, for_seconds, abort_when=_abort(abort_when), lease_seconds=lease_seconds
        )
        if dry_run:
            return _print_plan(injection, form)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, _told)
        outcome = _hold(injection)
    except Refused as error:
        _output.note(f"rdmadiag: {error}")
        sys.exit(UNSUPPORTED)
    except inject.NotApplied as error:
        _output.note(f"rdmadiag: {error}")
        sys.exit(CODES["ABORTED"] if injection.outcome.clean else CODES["REVERT_FAILED"])
    _print_outcome(outcome, form)
    sys.exit(CODES[outcome.verdict])


def _hold(injection: Any) -> Any:
    try:
        injection.start()
        _note_healed(injection.healed)
        _output.note(f"on: {injection.title} on {injection.aim.target.title}, for {injection.for_seconds:g} s")
        injection.wait()
    except (_Told, KeyboardInterrupt) as told:
        injection.stop(f"we were told to end ({told or 'SIGINT'})")
    finally:
        injection.stop("we end")
    return injection.outcome


def _abort(words: str | None) -> Callable[[], str | None] | None:
    if not words:
        return None

    def ask() -> str | None:
        import subprocess

        try:
            ran = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=30, check=False)
        except subprocess.TimeoutExpired:
            return f"--abort-when {words!r} gave no answer in 30 s"
        said = (ran.stdout + ran.stderr).strip()[-200:]
        return (
            f"--abort-when {words!r} ended with {ran.returncode}{': ' * bool(said)}{said}" if ran.returncode else None
        )

    return ask


def _note_healed(results: Any) -> None:
    for one in results:
        state = "is off now" if one.clean else f"is NOT off: {'; '.join(one.problems)}"
        _output.note(f"left behind by an injector that is gone: {one.title}: {state}")


def _print_plan(injection: Any, form: str) -> None:
    plan, target = injection.plan, injection.aim.target
    steps = [{"what": what, "do": do, "undo": undo} for what, do, undo in injection.texts()]
    value = {
        "schema": "rdmadiag.plan/1",
        "fault": injection.fault,
        "values": dict(injection.values),
        "target": target.title,
        "place": plan.place or "host",
        "netdevs": list(plan.netdevs),
        "devices": list(plan.devices),
        "qps": _qps(injection),
        "packets_per_second": plan.packets_per_second,
        "for_seconds": injection.for_seconds,
        "steps": steps,
        "hits": list(plan.hits),
        "moves": {"kind": plan.moves.kind, "names": list(plan.moves.names)},
        "notes": list(plan.notes),
    }
    if form == "json":
        return _output.emit(_output.as_json(value))
    lines = [
        f"plan: {injection.title} on {target.title}, for {injection.for_seconds:g} s; nothing is changed now",
        f"devices: {', '.join(plan.devices) or '-'}; netdevs: {', '.join(plan.netdevs) or '-'} ({plan.place or 'host'})",
        f"queue pairs there now: {', '.join(value['qps']) or 'none'}",
        f"packets that it sends itself: {plan.packets_per_second:g} a second",
    ]
    for number, step in enumerate(steps, 1):
        lines += [
            f"{number}. {step['what']}",
            *(f"   do    {line}" for line in _short(step["do"])),
            *(f"   undo  {line}" for line in _short(step["undo"])),
        ]
    lines += [
        f"proofs: {' or '.join(plan.hits)} counted by its own means; and {plan.moves.kind}: {' or '.join(plan.moves.names) or '-'}",
        *plan.notes,
    ]
    return _output.emit("\n".join(lines))


def _short(text: str) -> list[str]:
    return [line if len(line) <= 160 else f"{line[:150]} ... ({len(line)} characters)" for line in text.splitlines()]


def _qps(injection: Any) -> list[str]:
    from rdmadiag.errors import RdmadiagError

    try:
        text = injection.aim.node(injection.aim.places()[0]).run("rdma res show qp 2>/dev/null").text
    except RdmadiagError:
        return []
    found = []
    for line in text.splitlines():
        words = line.split()
        if (
            words[:1] == ["link"]
            and "lqpn" in words
            and words[1].partition("/")[0] in injection.plan.devices
            and "RC" in words
        ):
            found.append(f"{words[1]} {words[words.index('lqpn') + 1]}")
    return found


def _print_outcome(outcome: Any, form: str) -> None:
    if form == "json":
        return _output.emit(_output.as_json({"schema": "rdmadiag.injection-outcome/1", **outcome.as_json()}))
    lines = [
        f"{outcome.verdict}: {outcome.fault} on {outcome.target}, held {outcome.held_seconds:.1f} s ({outcome.why})",
        f"fired by its own means: {outcome.fired.own.answer}: {outcome.fired.own.text}",
        f"fired by other signs: {outcome.fired.other.answer}: {outcome.fired.other.text}",
        "off: the node is as it was before"
        if outcome.clean
        else f"NOT OFF: {'; '.join(outcome.problems)}; `rdmadiag inject revert {outcome.tag}`",
    ]
    return _output.emit("\n".join(lines))


@command.command("list", short_help="List the faults.")
@FORMAT
def list_faults(form: str) -> None:
    """List the faults with their parameters, the data path they act on, and the signs that they must leave.

    \b
    Examples:
      rdmadiag inject list
      rdmadiag inject list --format json
    """
    from rdmadiag import faults

    entries = []
    for name in faults.names():
        module = faults.find(name)
        entries.append(
            {
                "name": name,
                "title": module.TITLE,
                "acts_on": module.REACH,
                "parameters": [
                    {
                        "name": p.name,
                        "default": p.default,
                        "unit": p.unit,
                        "meaning": p.meaning,
                        "least": p.least,
                        "most": p.most,
                        "choices": list(p.choices),
                    }
                    for p in module.PARAMETERS
                ],
                "signs": list(module.SIGNS),
            }
        )

    def text() -> list[str]:
        rows = [
            (
                e["name"],
                e["acts_on"],
                " ".join(f"{p.option}={p.default}" for p in faults.find(e["name"]).PARAMETERS),
                e["title"],
            )
            for e in entries
        ]
        return _output.fitted(rows, ("fault", "acts on", "parameters", ""))

    _output.listing(form, "faults", "faults", entries, text)


@command.command("status", short_help="Show what is on, or was left behind.")
@FORMAT
def status(form: str) -> None:
    """Show the injections that are on, and those left behind by an injector that is gone. Changes nothing; exit 1 when something was left.

    \b
    Examples:
      rdmadiag inject status
    """
    from rdmadiag import inject

    found = inject.status()
    rows = [
        (e["tag"], e["fault"], e["target"], e["state"], f"{e['for_seconds']:g} s", e["who"], e["pid"], e["note"])
        for e in found
    ]
    _output.listing(
        form,
        "injections",
        "injections",
        found,
        lambda: (
            _output.columns(rows, ("name", "fault", "target", "state", "for", "who", "pid", ""))
            if rows
            else ["nothing is on"]
        ),
    )
    sys.exit(1 if any(entry["state"] not in ("in force",) for entry in found) else 0)


@command.command("revert", short_help="Take faults off.")
@click.argument("tags", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All that are not known to be off, living ones too.")
@click.option("--as-is", is_flag=True, help="Undo, and take what else differs from before for somebody else's doing.")
@FORMAT
def revert(tags: tuple[str, ...], every: bool, as_is: bool, form: str) -> None:
    """Take faults off: those named, or all. May be repeated; what is off already is no error. Exit 8 when a node is not clean.

    \b
    Examples:
      rdmadiag inject revert --all
      rdmadiag inject revert 3fa92c11
    """
    from rdmadiag import inject

    if bool(tags) == every:
        raise click.UsageError("wanted names of injections (`rdmadiag inject status`), or --all")
    results = inject.everything(tags, as_is)
    entries = [
        {"tag": one.tag, "title": one.title, "clean": one.clean, "problems": list(one.problems)} for one in results
    ]
    _output.listing(
        form,
        "reverts",
        "reverts",
        entries,
        lambda: (
            [f"{one.title}: {'off' if one.clean else 'NOT OFF: ' + '; '.join(one.problems)}" for one in results]
            or ["nothing was on"]
        ),
    )
    sys.exit(0 if all(one.clean for one in results) else CODES["REVERT_FAILED"])
