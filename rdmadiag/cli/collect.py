"""rdmadiag collect: write all that a check reads of this node into one file."""

from __future__ import annotations

from typing import Any

import click

from rdmadiag.cli import _output
from rdmadiag.cli._options import BUDGET, seconds
from rdmadiag.errors import BadFile

HELP = """Write what a check reads of this node into one file, to be checked elsewhere: `rdmadiag check --from FILE`.

The file holds texts as the node has them (files of /sys and /proc, the kernel log, netlink as JSON) and no secrets: of a
process's environment only the variables that matter to RDMA, and nothing that follows words like password or token.

\b
Examples:
  sudo rdmadiag collect -o node.tar.gz               root sees more
  sudo rdmadiag collect -o node.tar.gz --window 10   counters over 10 seconds
  rdmadiag collect -o node.tar.gz --redact           names and addresses replaced
  rdmadiag collect -o a.tar.gz --redact-key key.txt  the same ones on each node that has this key
"""


@click.command(help=HELP, short_help="Write what a check reads of this node into one file.")
@click.option(
    "-o", "--output", required=True, metavar="FILE", help="Archive to write: .tar.gz, .tar.xz, .tar.bz2 or .tar."
)
@click.option(
    "--window", default="1s", callback=seconds, show_default=True, help="Time between the two samples of counters."
)
@BUDGET
@click.option("--redact", is_flag=True, help="Replace host names, addresses, GIDs, MACs, GUIDs and serial numbers.")
@click.option(
    "--redact-key", metavar="FILE", help="Redact with the content of this file as key, so that bundles fit together."
)
@click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)
def command(output: str, window: float, budget: float, redact: bool, redact_key: str | None, form: str) -> None:
    """Capture and write."""
    import os

    from rdmadiag.diagnose import capture
    from rdmadiag.diagnose.redact import Redactor
    from rdmadiag.host.live import LiveHost

    if os.path.lexists(output):
        raise BadFile(output, "", "is there already; give another name")
    host = LiveHost()
    replace = Redactor(_key(redact_key), [host.name]) if redact or redact_key else None
    _output.progress(f"this node; two samples of its counters {window:g} s apart")
    captured = capture.capture(host, window, budget, replace)
    size = capture.write(output, captured)
    gaps: list[dict[str, Any]] = [{"source": source, "reason": gap.reason} for source, gap in captured.gaps]
    value = {"file": output, "node": captured.node, "bytes": size, "redacted": replace is not None, "gaps": gaps}
    if form == "json":
        _output.emit(_output.as_json({"schema": "rdmadiag.collected/1", **value}))
        return
    lines = [f"{output}: {captured.node}, {len(captured.files)} files, {size} bytes{' (redacted)' if replace else ''}"]
    lines += [f"not in it: {gap['source']}: {gap['reason']}" for gap in gaps]
    _output.emit("\n".join([*lines, f"rdmadiag check --from {output}"]))


def _key(path: str | None) -> bytes:
    import os
    import stat

    if path is None:
        return os.urandom(32)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise BadFile(path, "", "not a regular file; wanted a file whose content is the key")
        with open(path, "rb") as file:
            key = file.read(4096)
    except OSError as error:
        raise BadFile(path, "", f"cannot be read: {error.strerror}; wanted a file whose content is the key") from error
    if len(key) < 8:
        raise BadFile(path, "", "shorter than 8 bytes; wanted a file whose content is the key")
    return key
