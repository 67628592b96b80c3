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


BUDGET = click.option(
    "--budget", default="10s", callback=seconds, show_default=True, help="Longest time that looking may take."
)
