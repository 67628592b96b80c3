"""rdmadiag judge: judge a run again, from what its folder holds."""

from __future__ import annotations

import sys

import click

from rdmadiag.cli import _output

HELP = """Judge runs again, from what `rdmadiag run` kept in their folders: the verdict is a function of that alone.

\b
Examples:
  rdmadiag judge rdmadiag-runs/loss
  rdmadiag judge --format html rdmadiag-runs/loss > loss.html

Exit codes are those of `rdmadiag run`.
"""


@click.command(help=HELP, short_help="Judge runs again, from what is kept of them.")
@click.argument("folders", metavar="DIR...", nargs=-1, required=True)
@click.option("--format", "form", default="text", type=_output.run_formats(), show_default=True)
def command(folders: tuple[str, ...], form: str) -> None:
    """Judge them."""
    from rdmadiag.scenario import campaign, report

    reports = [report.judged(folder) for folder in folders]
    _output.run_reports(form, reports)
    sys.exit(campaign.exit_code(reports))
