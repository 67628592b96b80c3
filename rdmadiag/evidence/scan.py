"""Match many patterns over a text in one pass (Hyperscan), with the compiled form kept in the user's cache folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from rdmadiag import cache
from rdmadiag.errors import BadInput

COPIED_BYTES = 64 << 10
"""Longest text that is copied to be scanned [bytes]."""
LINES_PER_PATTERN = 10_000
"""Lines reported of one pattern and scan."""


class Scanner:
    """Patterns compiled together. `cached` False keeps nothing on disk (tests, people's own rules)."""

    def __init__(self, patterns: Sequence[str], *, once: bool = False, cached: bool = True) -> None:
        import hyperscan  # where nothing is to be scanned it is not needed

        self.patterns = list(patterns)
        self.flags = hyperscan.HS_FLAG_MULTILINE
        if once:  # report a pattern once a scan, not at each of its matches
            self.flags |= hyperscan.HS_FLAG_SINGLEMATCH
        self._hyperscan = hyperscan
        loaded = self._load() if cached and self.patterns else None
        self._database: Any = loaded or (self._compile() if self.patterns else None)
        if cached and self._database and loaded is None:
            self._save()

    def _key(self) -> bytes:
        # What the compiled form depends on, in full.
        version = str(getattr(self._hyperscan, "__version__", ""))
        return "\0".join([version, str(self.flags), os.uname().machine, *self.patterns]).encode()

    def _load(self) -> Any:
        content = cache.load("patterns", self._key())
        if content is None:
            return None
        try:
            database = self._hyperscan.loadb(content, mode=self._hyperscan.HS_MODE_BLOCK)
            database.scratch = self._hyperscan.Scratch(database)
        except self._hyperscan.HyperscanError:
            return None
        return database

    def _save(self) -> None:
        try:
            content = self._hyperscan.dumpb(self._database)
        except self._hyperscan.HyperscanError:
            return
        cache.save("patterns", self._key(), content)

    def _compile(self) -> Any:
        database = self._hyperscan.Database(mode=self._hyperscan.HS_MODE_BLOCK)
        try:
            database.compile(
                expressions=[pattern.encode() for pattern in self.patterns],
                ids=list(range(len(self.patterns))),
                flags=[self.flags] * len(self.patterns),
            )
        except self._hyperscan.HyperscanError as error:
            raise BadInput(f"a pattern cannot be compiled: {error}; {self._culprit()}") from error
        return database

    def _culprit(self) -> str:
        for pattern in self.patterns:
            if (problem := pattern_problem(pattern)) is not None:
                return f"{pattern!r}: {problem}"
        return "too many or too large patterns"

    def first(self, data: bytes | memoryview) -> dict[int, int]:
        """Return where each pattern that matches ends its first match."""
        ends: dict[int, int] = {}
        if self.patterns and data:
            self._scan(data, lambda index, start, end, flags, context: ends.setdefault(index, end) and None)
        return ends

    def _scan(self, data: bytes | memoryview, found: Callable[..., Any]) -> None:
        # Hyperscan 5.4 misses some matches of `$` before a last line end: two more line ends behind it cure that. Of a long text
        # only the last lines are copied for that, and looked at again: what is found there may have been found before.
        end = bytes(data[-COPIED_BYTES:])
        if len(end) < len(data) and b"\n" not in end[:-1]:
            end = bytes(data)
        start = len(data) - len(end)
        if start or end.endswith(b"\n\n"):
            self._database.scan(data, match_event_handler=found)
        if not end.endswith(b"\n\n"):
            cut = end.find(b"\n") + 1 if start else 0
            tail, start = end[cut:] + b"\n\n", start + cut
            self._database.scan(tail, match_event_handler=lambda i, _, at, *rest: found(i, _, start + at, *rest))

    def lines(self, data: bytes) -> list[tuple[int, int, int]]:
        """Return (line start, line end, pattern index) of each line and pattern that match, in the order of the text.

        Of a pattern that matches more than LINES_PER_PATTERN lines, half are the first and the others the last of them.
        """
        hits: dict[int, list[tuple[int, int]]] = {}
        here: set[int] = set()
        start = stop = -1

        def found(index: int, _: int, end: int, flags: int, context: Any) -> None:
            # A pattern may match a line at many ends; the first is enough. Ends rise, but nothing here needs that.
            nonlocal start, stop
            if not start < end <= stop:
                start = data.rfind(b"\n", 0, end) + 1
                stop = data.find(b"\n", end)
                stop = len(data) if stop < 0 else stop
                here.clear()
            elif index in here:
                return
            here.add(index)
            lines = hits.setdefault(index, [])
            if lines and start <= lines[-1][0] and (start, stop) in lines:
                return
            lines.append((start, stop))
            if len(lines) >= 2 * LINES_PER_PATTERN:
                del lines[LINES_PER_PATTERN // 2 : -LINES_PER_PATTERN // 2]

        if self.patterns and data:
            self._scan(data, found)
        return sorted({(start, stop, index) for index, lines in hits.items() for start, stop in _ends(lines)})


def _ends(lines: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if len(lines) <= LINES_PER_PATTERN:
        return lines
    return lines[: LINES_PER_PATTERN // 2] + lines[-LINES_PER_PATTERN // 2 :]


def pattern_problem(pattern: str) -> str | None:
    """Return why a pattern cannot be used (Hyperscan takes no look-around and no back-references), None when it can."""
    import re

    import hyperscan

    try:
        re.compile(pattern)
    except re.error as error:
        return f"not a regular expression: {error}"
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(expressions=[pattern.encode()], ids=[0], flags=[hyperscan.HS_FLAG_MULTILINE])
    except hyperscan.HyperscanError as error:
        return f"not a pattern that Hyperscan takes: {error}"
    return None
