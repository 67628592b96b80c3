"""The command line: one file a command, loaded when it is called; a command reads options, calls one function, renders."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any, NoReturn

import click

import rdmadiag.cli
from rdmadiag import __version__, patterns, registry
from rdmadiag.errors import BadInput, RdmadiagError

HELP = """Find what is wrong with RDMA (RoCEv2, InfiniBand) on this node, or in what you captured from one.

\b
Examples:
  rdmadiag check                              look at this node
  rdmadiag check --from nccl.log --from ibv_devinfo.txt
  kubectl logs decode-0 | rdmadiag check --from -
  rdmadiag explain wc 12                      what a completion status means
  rdmadiag query "SELECT device, state FROM port"

Exit codes of check: 0 nothing wrong is proven, 1 something is, 2 wrong use or a bad file, 3 could not look.
"""


class Commands(click.Group):
    """Finds commands by their file names and imports them on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names, sorted."""
        return registry.names(rdmadiag.cli)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        try:
            command: click.Command = registry.load(rdmadiag.cli, cmd_name).command
        except BadInput:
            return None
        return command


def _version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    # click's own asks for a translation of its message, which takes as long as ten of our modules.
    if asked:
        click.echo(f"rdmadiag, version {__version__}")
        context.exit()


@click.group(
    cls=Commands, help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
def cli() -> None:
    """Read the command line."""


def program() -> NoReturn:
    """Run the command line as a whole process, which ends without a clean-up of memory (a tenth of a large check)."""
    gc.disable()
    code = 0
    held: list[Any] = []  # what commands hand over to be held to the end is not taken apart either
    try:
        main(held=held)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            code = code or 2
    patterns.keep()
    os._exit(code)


def main(args: list[str] | None = None, held: list[Any] | None = None) -> Any:
    """Run the command line; errors raised on purpose are one line on standard error and exit code 2."""
    try:
        return cli.main(args=args, prog_name="rdmadiag", standalone_mode=True, obj=held)
    except RdmadiagError as error:
        click.echo(f"rdmadiag: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:  # standard output is full or closed
        click.echo(f"rdmadiag: what was found could not be written: {error.strerror or error}", err=True)
        sys.exit(2)
