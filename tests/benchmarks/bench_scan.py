"""All rules' patterns over a 100 MB log with 0.1 % matching lines, warm and scan only, beside `rg -f` of the same patterns."""

from __future__ import annotations

import os
import random
import re
import tempfile
from pathlib import Path

from rdmadiag.diagnose import examples, rulebook
from tests.benchmarks._timing import Ratio, pairs, process

LOG_BYTES = 100_000_000
MATCHING = 0.001


def matching_lines(book: rulebook.Rulebook) -> list[str]:
    """Return lines that rules recognise: those of their own examples."""
    lines = []
    for rule in book:
        for example in rule.data["examples"]["wrong"]:
            for line in [*example.get("text", []), *example.get("kernel_text", [])]:
                if any(re.search(pattern, line) for pattern in rule.patterns):
                    lines.append(line)
    return lines


def log(path: Path, book: rulebook.Rulebook, size: int = LOG_BYTES) -> None:
    """Write a log of kernel and application lines, one in a thousand of which a rule recognises (seed 1)."""
    random.seed(1)
    calm = [
        "[{n:5d}.{m:06d}] systemd[1]: Started Session {n} of user operator.",
        "node-a:{n}:{m} [0] NCCL INFO Channel {m:02d}/0 : 0[0] -> 1[1] via NET/IB/0/GDRDMA",
        "I{n:04d} 07:15:07.{m:06d}     9 transfer_engine.cpp:120] Segment {n} opened, {m} bytes registered",
        '[{n:5d}.{m:06d}] audit: type=1400 audit({n}.{m}:92): apparmor="STATUS" operation="profile_load"',
        "2026-11-30 02:{m:02d}:11 INFO worker.py:{n} step {m} loss 2.{n} tokens/s {m}",
    ]
    found = matching_lines(book)
    written = 0
    with path.open("w") as file:
        while written < size:
            n, m = random.randrange(100_000), random.randrange(1_000_000)
            line = random.choice(found) if random.random() < MATCHING else random.choice(calm).format(n=n, m=m)
            written += file.write(line + "\n")


def measure(rounds: int = 7) -> list[Ratio]:
    """Return the ratio of one scan in memory to one run of ripgrep over the same file, both on one core."""
    book = rulebook.load()
    library = examples.library_for(book)
    patterns = [pattern for *_, pattern in library.patterns]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        path, file = Path(folder) / "log", Path(folder) / "patterns"
        log(path, book)
        # ripgrep joins all patterns into one, in which a group's name may stand only once: the same patterns without names
        file.write_text("\n".join(re.sub(r"\(\?P<\w+>", "(?:", pattern) for pattern in patterns) + "\n")
        data = path.read_bytes()
        scanner = library.lines
        expected = len({start for start, _, index in scanner.lines(data) if index < len(patterns)})
        rg = ["rg", "--threads", "1", "--no-mmap", "--count", "-f", str(file), str(path)]
        seconds, peer, ratio = pairs(lambda: scanner.lines(data), process(rg), rounds)
    speed = f"{len(data) / seconds / 1e6:.0f} MB/s against {len(data) / peer / 1e6:.0f} MB/s, {len(patterns)} patterns, {expected} lines"
    return [Ratio("patterns over a 100 MB log, one core", seconds, peer, ratio, "at most 1", speed)]


def test_a_thousandth_of_the_lines_match(tmp_path: Path, book: rulebook.Rulebook) -> None:
    log(tmp_path / "log", book, 1_000_000)
    lines = (tmp_path / "log").read_text().splitlines()
    known = set(matching_lines(book))
    assert 0 < sum(line in known for line in lines) < len(lines) * 0.005
