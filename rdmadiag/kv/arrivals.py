"""When requests come and what they hold: made like agents work, or from a trace file.

An agent is a session of turns: the context grows by each tool's answer and the model's own words, so most of a prompt is a
prefix that was there before; between turns it waits, and others' turns come (context switches). A trace has one JSON
object a line: timestamp [ms], input_length, output_length [tokens], hash_ids (one a block of 512 tokens, equal where the prefix
is equal), as published with Mooncake (FAST 2025).
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rdmadiag.errors import BadFile, BadInput

HASH_TOKENS = 512
"""Tokens of one hash id in a Mooncake trace."""
LINE_CHARACTERS = 1 << 20
MOST_TOKENS = 1 << 24


class Arrival(NamedTuple):
    """One request: when [s], prompt and answer [tokens], ids of its prefix blocks, and which agent's turn it is."""

    seconds: float
    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...]
    agent: int = 0
    turn: int = 0


class Agents(NamedTuple):
    """What agent-like work is: mean tokens and times; the spread of each is exponential."""

    agents: int = 8
    turns: int = 10
    system_tokens: int = 2048
    turn_tokens: int = 1024
    answer_tokens: int = 256
    think_seconds: float = 2.0
    token_seconds: float = 0.02


def synthetic(work: Agents, seed: int = 0) -> Iterator[Arrival]:
    """Yield the turns of all agents in the order of time. Agents share the system prompt; a turn begins when the last was decoded.

    Raises BadInput for a number below 1 (times: below 0).
    """
    if min(work[:5]) < 1 or min(work[5:]) < 0 or not all(map(math.isfinite, work)):
        raise BadInput(f"{work}: wanted counts from 1 on, and times from 0 on")
    rng = random.Random(seed)
    shared = tuple(range(work.system_tokens // HASH_TOKENS))
    # (when, agent, turn, context tokens, hash ids)
    waiting = [
        (rng.expovariate(1 / max(work.think_seconds, 1e-9)), n, 0, work.system_tokens, shared)
        for n in range(work.agents)
    ]
    heapq.heapify(waiting)
    fresh = len(shared)
    while waiting:
        seconds, agent, turn, context, ids = heapq.heappop(waiting)
        context += 1 + int(rng.expovariate(1 / work.turn_tokens))
        answer = 1 + int(rng.expovariate(1 / work.answer_tokens))
        grown = context // HASH_TOKENS - len(ids)
        ids += tuple(range(fresh, fresh + grown))
        fresh += grown
        yield Arrival(seconds, context, answer, ids, agent, turn)
        if turn + 1 < work.turns:
            pause = answer * work.token_seconds + rng.expovariate(1 / max(work.think_seconds, 1e-9))
            heapq.heappush(waiting, (seconds + pause, agent, turn + 1, context + answer, ids))


def endless(work: Agents) -> Iterator[Arrival]:
    """Yield the turns of agents for ever: when all have had theirs, others begin, with the same system prompt and contexts of their own.

    Raises BadInput as `synthetic` does.
    """
    shared = work.system_tokens // HASH_TOKENS
    start = 0.0
    for seed in itertools.count():
        last = start
        for turn in synthetic(work, seed):
            own = tuple(one if one < shared else one + (seed << 32) for one in turn.hash_ids)
            last = start + turn.seconds
            yield turn._replace(seconds=last, hash_ids=own)
        start = last


def switches(arrivals: Iterable[Arrival]) -> int:
    """Return how often the next turn is another agent's: each may put the last one's blocks out of a cache."""
    found, last = 0, None
    for arrival in arrivals:
        found += last is not None and arrival.agent != last
        last = arrival.agent
    return found


def from_trace(path: str, most: int | None = None) -> Iterator[Arrival]:
    """Yield the requests of a trace file, in its order, at most `most`. Raises BadFile naming the line for what is no request."""
    count = 0
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            number = 0
            while line := file.readline(LINE_CHARACTERS):
                number += 1
                if most is not None and count >= most:
                    return
                if line.strip():
                    yield _arrival(path, number, line)
                    count += 1
    except OSError as error:
        raise BadFile(path, "", f"cannot be read: {error.strerror}; wanted a trace of JSON lines") from error
    if not count and most != 0:
        raise BadFile(path, "", "empty; wanted a trace of JSON lines")


def _arrival(path: str, number: int, line: str) -> Arrival:
    place = f"line {number}"
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        wanted = f"wanted a JSON object of at most {LINE_CHARACTERS} characters a line"
        raise BadFile(path, place, f"{type(error).__name__}; {wanted}") from None
    if not isinstance(value, dict):
        raise BadFile(path, place, "wanted an object with timestamp, input_length, output_length, hash_ids")
    numbers = {}
    for name, high in (("timestamp", 1e15), ("input_length", MOST_TOKENS), ("output_length", MOST_TOKENS)):
        each = value.get(name)
        if isinstance(each, bool) or not isinstance(each, (int, float)) or not 0 <= each <= high:
            raise BadFile(path, place, f"{name} is {str(each)[:40]!r}; wanted a number from 0 to {high:g}")
        numbers[name] = each
    ids = value.get("hash_ids", [])
    if not isinstance(ids, list) or not all(type(each) is int for each in ids):
        raise BadFile(path, place, "hash_ids is not a list of integers")
    tokens = int(numbers["input_length"]), int(numbers["output_length"])
    return Arrival(numbers["timestamp"] / 1000, *tokens, tuple(ids))
