"""rdmadiag explain: decode what the field prints in numbers."""

from __future__ import annotations

import click

from rdmadiag.cli import _topics
from rdmadiag.errors import BadInput


@click.command(
    short_help="Decode a status, syndrome, opcode, QP transition, error CQE, counter ...",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("topic", required=False)
@click.argument("words", nargs=-1)
@click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)
def command(topic: str | None, words: tuple[str, ...], form: str) -> None:
    """Decode what the field prints in numbers. Without a topic: list the topics.

    \b
    Examples:
      rdmadiag explain wc 12
      rdmadiag explain vendor-err 0x81
      rdmadiag explain aeth 0x62
      rdmadiag explain qp-transition INIT RTR
      dmesg | grep -A4 'dump error cqe' | rdmadiag explain error-cqe -
    """
    import sys

    from rdmadiag import explain, registry

    if topic is None:
        _topics.listed(explain, form)
        return
    name = explain.ALIASES.get(topic, topic).replace("-", "_")
    if name not in registry.names(explain):
        raise _unknown_topic(topic)
    if words == ("-",):
        words = (sys.stdin.read(1 << 20),)
    value = registry.load(explain, name).decode(*words)
    _topics.answered(form, "explained", topic, value)


def _unknown_topic(topic: str) -> BadInput:
    import difflib

    from rdmadiag import explain, registry
    from rdmadiag.diagnose import rulebook
    from rdmadiag.explain import counters

    if topic in rulebook.load():
        return BadInput(f"{topic} is a rule: rdmadiag rules show {topic}")
    if any(row[1] == topic for row in counters.COUNTERS):
        return BadInput(f"{topic} is a counter: rdmadiag explain counter {topic}")
    known = [*explain.ALIASES, *(name.replace("_", "-") for name in registry.names(explain))]
    near = difflib.get_close_matches(topic, known, 3, 0.5)
    hint = f"near: {', '.join(near)}" if near else f"known: {', '.join(sorted(known))}"
    return BadInput(f"no topic {topic!r}; {hint}")
