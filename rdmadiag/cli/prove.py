"""rdmadiag prove: put every fault on a lab, again and again, and count how often the rules name it."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from rdmadiag.cli import _output

HELP = """Prove the diagnosis by faults: put each fault on a lab under steady work, look at the evidence without what gives
the fault away, and count how often the right cause is named first, against healthy runs.

What names a fault rightly is written beside it (DIAGNOSIS in rdmadiag/faults), faults that count as one class are in
rdmadiag/prove/classes.json. Each trial's evidence is kept in a folder below --report, with prove.html and prove.json.

\b
Examples:
  rdmadiag prove --runs 10 --healthy 50            # hours; --resume goes on
  rdmadiag prove --fault loss --fault delay --runs 2 --healthy 2
  rdmadiag prove --resume
  rdmadiag prove --judge rdmadiag-prove            # again, without a lab: after a rule was changed
  rdmadiag prove --judge rdmadiag-prove --format json

\b
Exit codes:
  0 of what was run, 95 % were named rightly, and no healthy run gave a finding at warning or above
  1 not so
  2 wrong use, or a bad file
  5 nothing could be judged
  6 interrupted; --resume goes on
"""


@click.command(help=HELP, short_help="Put faults on a lab, and count how often the rules name them.")
@click.option("--fault", "chosen", multiple=True, metavar="NAME", help="Only this fault; repeatable.")
@click.option("--runs", default=10, show_default=True, type=click.IntRange(0, 1000), help="Runs of each fault.")
@click.option("--healthy", default=50, show_default=True, type=click.IntRange(0, 10000), help="Runs without a fault.")
@click.option("--resume", is_flag=True, help="Go on in --report: what is there is not run again.")
@click.option(
    "--report", "parent", default="rdmadiag-prove", show_default=True, metavar="DIR", help="Where it is kept."
)
@click.option("--judge", "judged", default="", metavar="DIR", help="Run nothing: judge what is kept there.")
@click.option("--classes", default="", metavar="FILE", help="Faults that count as one class, instead of the shipped.")
@click.option("--lab", default="", metavar="NAME", help="Run in this lab, which is up, instead of one of its own.")
@click.option("--backend", default="auto", type=click.Choice(["auto", "native", "vm"]), show_default=True)
@click.option("--format", "form", default="text", type=_output.prove_formats(), show_default=True)
def command(chosen: tuple[str, ...], parent: str, judged: str, form: str, **options: Any) -> None:
    """Run them, and judge."""
    from rdmadiag import registry
    from rdmadiag.prove import campaign, report, standing, trials
    from rdmadiag.render import prove as formats

    whole = True
    with _output.prove_progress() as progress:
        if not judged:
            trials.classes(options["classes"])  # before anything is run
            planned = trials.plan(chosen, options["runs"], options["healthy"])
            with standing.Standing(options["lab"], options["backend"]) as runner:
                whole = campaign.go(planned, parent, runner, options["resume"], progress)
        found = campaign.judged(judged or parent, options["classes"], progress)
    formats.leave(found)
    _output.emit(registry.load(formats, form).render(found, _output.is_terminal(sys.stdout), _output.width()))
    _output.note(f"rdmadiag: {os.path.join(judged or parent, 'prove.html')}")
    sys.exit(report.exit_code(found) if whole else 6)
