"""rdmadiag expect: the expectation file of a kind of node."""

from __future__ import annotations

import click

from rdmadiag.cli import _output
from rdmadiag.cli._options import BUDGET
from rdmadiag.errors import BadFile


@click.group(short_help="Write the expectation file of a kind of node from a good one.")
def command() -> None:
    """Expectation files say what all nodes of one kind must have; `rdmadiag check --expect FILE` judges by them.

    \b
    Examples:
      rdmadiag expect init -o gpu-node.json                 from this node
      rdmadiag expect init --from good.tar.gz               from a bundle, printed
      rdmadiag check --expect gpu-node.json
    """


@command.command("init")
@click.option(
    "--from",
    "given",
    multiple=True,
    metavar="[NODE=]PATH",
    help="A captured good node instead of this one; repeatable.",
)
@click.option("-o", "--output", metavar="FILE", help="File to write; without it, it is printed.")
@click.option("--skip", multiple=True, metavar="RULE", help="A rule that may be wrong on a good node; repeatable.")
@click.option(
    "--fail-on",
    default="warning",
    type=click.Choice(["warning", "error", "critical"]),
    show_default=True,
    help="Refuse a node with findings from this severity on.",
)
@BUDGET
@click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)
def init(
    given: tuple[str, ...], output: str | None, skip: tuple[str, ...], fail_on: str, budget: float, form: str
) -> None:
    """Write the expectation file from a good node; a node with findings, or not seen well enough, is refused.

    \b
    Examples:
      sudo rdmadiag expect init -o gpu-node.json
      rdmadiag expect init --from good.tar.gz --skip acs-redirects-peer-to-peer
    """
    from rdmadiag.diagnose import check, expect

    checked = check.check(check.Request(given=given, window=0.0, budget=budget, skip=skip, fail_on=fail_on))
    written = expect.init(checked)
    text = _output.as_json(written.content)
    if output:
        try:
            with open(output, "x", encoding="utf-8") as file:  # never over a file that is there
                file.write(text + "\n")
        except OSError as error:
            raise BadFile(output, "", f"cannot be written: {error.strerror}") from error
    if form == "json" or not output:
        _output.emit(text)
    for name, reason in written.left_out.items():
        _output.note(f"left out: {name}: {reason}")
