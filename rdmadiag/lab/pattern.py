"""Which packets of a stream are hit, chosen by a seed: random, or in bursts by the Gilbert-Elliott model; for faults and in-flight changes.

The kernel counts packets (nft numgen inc) and looks each number up, so the same seed hits the same packets on every kernel;
netem's own seed came with Linux 6.6. A pattern repeats after its period.
"""

from __future__ import annotations

LONG, SHORT = 16384, 4096
LEAST = 1 / LONG
"""The smallest share that a pattern can hit."""
_MOST_ENTRIES = 2500


def randomly(share: float, seed: int) -> tuple[int, list[int]]:
    """Return the period and the hit packets' numbers for a share from 0 to 1; at least one is hit when the share is above 0."""
    import random  # starts slowly in an emulated guest, where few changes want it

    period = LONG if share * LONG <= _MOST_ENTRIES else SHORT
    count = min(max(round(share * period), 1 if share > 0 else 0), period)
    return period, sorted(random.Random(seed).sample(range(period), count))


def in_bursts(enter: float, leave: float, loss_in_bad: float, loss_in_good: float, seed: int) -> tuple[int, list[int]]:
    """Return the period and the hit packets' numbers of a two-state Markov chain (Gilbert 1960, Elliott 1963).

    `enter` and `leave` are the chances, for each packet, to go to the bad state and back.
    """
    import random

    chance = random.Random(seed)
    share = (enter * loss_in_bad + leave * loss_in_good) / (enter + leave)
    period = LONG if share * LONG <= _MOST_ENTRIES else SHORT
    bad, hit = False, []
    for number in range(period):
        bad = chance.random() >= leave if bad else chance.random() < enter
        if chance.random() < (loss_in_bad if bad else loss_in_good):
            hit.append(number)
    return period, hit


def select(period: int, hit: list[int], chain: str = "hit") -> str:
    """Return the nft statement that sends the hit packets to a chain."""
    if len(hit) >= period:
        return f"goto {chain}"
    if not hit:
        return "continue"
    return f"numgen inc mod {period} vmap {{ {', '.join(f'{number} : goto {chain}' for number in hit)} }}"
