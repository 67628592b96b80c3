"""rdmadiag plan: sizes and models of a KV-cache transfer and of the network under it."""

from __future__ import annotations

import click

from rdmadiag.cli import _topics
from rdmadiag.errors import BadInput


@click.command(short_help="Size a KV cache, a queue, PFC headroom, ECN thresholds, a latency")
@click.argument("topic", required=False)
@click.argument("words", nargs=-1)
@click.option("--format", "form", default="text", type=click.Choice(["text", "json"]), show_default=True)
def command(topic: str | None, words: tuple[str, ...], form: str) -> None:
    """Compute what a KV-cache transfer needs. Words are NAME=VALUE with units. Without a topic: list the topics.

    \b
    Examples:
      rdmadiag plan kv model=llama-3-70b tokens=4096 tp=8 rate=400gbit
      rdmadiag plan window rate=100gbit rtt=50us block=8KiB
      rdmadiag plan pfc-headroom rate=100gbit cable=30m
      rdmadiag plan ecn rate=100gbit xoff=1MB
      rdmadiag plan latency size=64B rate=400gbit hops=1
    """
    from rdmadiag import plan, registry

    if topic is None:
        _topics.listed(plan, form)
        return
    if topic.replace("-", "_") not in registry.names(plan):
        known = ", ".join(name.replace("_", "-") for name in registry.names(plan))
        raise BadInput(f"no topic {topic!r}; known: {known}")
    value = registry.load(plan, topic.replace("-", "_")).decode(*words)
    if form == "text":  # its figures stand in its sentences, with units
        value = {key: item for key, item in value.items() if not isinstance(item, (int, float))}
    _topics.answered(form, "planned", topic, value)
