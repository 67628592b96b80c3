"""What options of several commands share."""

from __future__ import annotations

import click


def seconds(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Read a duration: 30, 30s, 15m, 24h, 7d."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (value[:-1], units[value[-1]]) if value[-1:] in units else (value, 1)
    try:
        result = float(number) * unit
    except ValueError:
        result = -1.0
    if not 0 <= result < 1e10:
        raise click.BadParameter(f"{value!r} is not a duration; wanted for example 30s, 15m, 24h, 7d")
    return result


def since(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Read a duration, or the time from which on: 2026-11-30, 2026-11-30T08:15 (also with Z or +02:00), 08:15 of today."""
    import datetime
    import re
    import time

    from rdmadiag.evidence.log_line import Since

    if not re.search(r"[-:]", value):
        return Since(seconds(context, parameter, value))
    today = datetime.date.today().isoformat()
    text = f"{today}T{value}" if re.fullmatch(r"\d\d:\d\d(:\d\d)?", value) else value.replace("Z", "+00:00")
    try:
        moment = datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        wanted = "a duration (15m, 24h, 7d) or a time (2026-11-30, 2026-11-30T08:15, 08:15)"
        raise click.BadParameter(f"{value!r} is neither; wanted {wanted}") from None
    if moment > time.time():
        raise click.BadParameter(f"{value!r} is in the future")
    return Since.at(moment, time.time())


PATH = click.Path()
"""A path as it is given; made once, for click looks for a translation of its name each time."""

BUDGET = click.option(
    "--budget", default="10s", callback=seconds, show_default=True, help="Longest time that looking may take."
)
