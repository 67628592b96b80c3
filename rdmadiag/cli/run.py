"""rdmadiag run: run scenarios in a lab, and judge them."""

from __future__ import annotations

import functools
import sys
from typing import Any

import click

from rdmadiag.cli import _output

HELP = """Run scenarios: a workload in a lab, faults at their times, evidence before, during and after, and a verdict.

FILE is a scenario's file, NAME a shipped one (`rdmadiag scenario list`). Each run gets a lab of its own, fresh and taken down
afterwards, unless --lab names one. What was seen is kept in a folder a run below --report, with the report as HTML, JSON, JUnit,
Markdown and Chaos Toolkit journal; `rdmadiag judge` judges it again.

\b
Examples:
  rdmadiag run loss
  rdmadiag run loss --set percent=5 --repeat 3
  rdmadiag run loss --matrix --report runs/
  rdmadiag run blackout kv-peer-killed my-scenario.json
  rdmadiag run loss --format junit > loss.xml

\b
Exit codes (the worst of several runs):
  0 PASS           the faults acted, were taken back, and all is as expected
  1 FAIL           something is not as expected
  2                wrong use, or a bad file
  4 NOT_FIRED      no proof that the fault acted: nothing was tested
  5 INVALID        not steady before the fault, or evidence is missing
  6 ABORTED        interrupted, or an abort condition held
  7 UNSUPPORTED    it cannot run here, or the fault cannot meet this workload
  8 REVERT_FAILED  a fault is not proven to be taken back; outranks all
"""


@click.command(help=HELP, short_help="Run scenarios in a lab, and judge them.")
@click.argument("words", metavar="FILE|NAME...", nargs=-1, required=True)
@click.option(
    "--repeat",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Runs of each, each with the next seed.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), help="Seed of the first run, instead of the scenario's.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the scenario; repeatable.")
@click.option("--matrix", is_flag=True, help="One run for every combination of the scenario's parameter values.")
@click.option(
    "--report",
    "parent",
    default="rdmadiag-runs",
    show_default=True,
    metavar="DIR",
    help="Where the runs' folders are made.",
)
@click.option("--lab", default="", metavar="NAME", help="Run in this lab, which is up, and leave it up.")
@click.option(
    "--backend",
    default="auto",
    type=click.Choice(["auto", "native", "vm"]),
    show_default=True,
    help="Of the runs' own labs.",
)
@click.option("--format", "form", default="text", type=_output.run_formats(), show_default=True)
def command(words: tuple[str, ...], settings: tuple[str, ...], parent: str, form: str, **options: Any) -> None:
    """Run them."""
    from rdmadiag.render import run as formats
    from rdmadiag.scenario import campaign

    chosen = campaign.settings(settings)
    scenarios = campaign.plan(words, chosen, options["matrix"], options["repeat"], options["seed"])
    reports = []
    with _output.run_progress(len(scenarios)) as progress:
        for number, found in enumerate(scenarios, 1):
            show = functools.partial(progress, number, found.label)
            report = campaign.one(found, parent, options["lab"], options["backend"], show)
            formats.leave(report)
            reports.append(report)
            if campaign.interrupted(report):
                break
    _output.run_reports(form, reports)
    sys.exit(campaign.exit_code(reports))
