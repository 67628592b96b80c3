"""The tools whose texts are known and the patterns of rules, compiled together to be searched for."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rdmadiag import patterns
from rdmadiag.evidence.row import Json, Text
from rdmadiag.evidence.scan import Scanner

HEAD_BYTES = 64 << 10
"""As much of a text as tells what log it is, and whether that begins at boot [bytes]."""
PATTERN_SECONDS = 0.5
"""Longest that taking one line apart may take somebody's own pattern [s]."""


class Known(NamedTuple):
    """A tool that texts may come from, and the source module that parses it."""

    source: str
    text: Text


class KnownJson(NamedTuple):
    """A tool that JSON may come from, and the source module that parses it."""

    source: str
    json: Json


class Library:
    """The tools that are known and the patterns to match, compiled together: made once a run."""

    def __init__(
        self,
        texts: Iterable[tuple[str, Text | Json]],
        patterns: Sequence[tuple[str, int, str, str]],
        cached: bool = True,
    ) -> None:
        known = list(texts)
        self.jsons = [KnownJson(source, text) for source, text in known if isinstance(text, Json)]
        self.texts = [Known(source, text) for source, text in known if isinstance(text, Text)]
        self.commands = {name: entry for entry in self.texts for name in entry.text.commands}
        self.programs = {*self.commands, *(name for entry in self.jsons for name in entry.json.commands)}
        self.patterns = list(patterns)
        whole = [entry for entry in self.texts if not entry.text.by_line]
        self.log_of = _by_sign(entry for entry in whole if entry.text.log)
        self.sign_of = _by_sign(entry for entry in whole if not entry.text.log)
        self.line_of = _by_sign(entry for entry in self.texts if entry.text.by_line)
        self.first_prompt = len(self.patterns) + len(self.line_of)
        self._cached = cached
        self._compiled: dict[tuple[str, int], re.Pattern[str]] = {}
        self._endless: set[str] = set()

    @functools.cached_property
    def logs(self) -> Scanner:
        """Signs of logs, which may match every line: apart, for a log is known by its first lines."""
        return Scanner([sign for sign, _ in self.log_of], once=True, cached=self._cached)

    @functools.cached_property
    def signs(self) -> Scanner:
        """Signs of other tools, each reported once a section."""
        return Scanner([sign for sign, _ in self.sign_of], once=True, cached=self._cached)

    @functools.cached_property
    def lines(self) -> Scanner:
        """Rules' patterns, then signs of tools parsed line by line, then prompts."""
        patterns = [pattern for *_, pattern in self.patterns]
        return Scanner([*patterns, *(sign for sign, _ in self.line_of), *_PROMPTS], cached=self._cached)

    def tools(self, data: bytes | memoryview) -> dict[str, tuple[Known, int]]:
        """Return the tools whose signs are in a text, by name, with the end of the first sign."""
        found: dict[str, tuple[Known, int]] = {}
        first = self.logs.first(data[:HEAD_BYTES]) or (self.logs.first(data) if len(data) > HEAD_BYTES else {})
        for signs, of in ((self.signs.first(data), self.sign_of), (first, self.log_of)):
            for index, end in sorted(signs.items()):
                known = of[index][1]
                found[known.text.tool] = (known, min(end, found.get(known.text.tool, (known, end))[1]))
        return found

    def groups(self, index: int, text: str) -> dict[str, str]:
        """Return the named groups of a rule's pattern in a line; empty when only Hyperscan saw it."""
        rule, number, _, pattern = self.patterns[index]
        compiled = self._compiled.get((rule, number))
        if compiled is None:
            make = patterns.compiled if self._cached else re.compile
            compiled = self._compiled[rule, number] = make(pattern)
        match = compiled.search(text) if self._cached else self._in_time(compiled, text)
        return {name: value for name, value in match.groupdict().items() if value is not None} if match else {}

    def _in_time(self, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
        # Somebody's own pattern may take for ever on a line (`(a+)+b`); a signal interrupts it, and then it is left alone.
        if pattern.pattern in self._endless or threading.current_thread() is not threading.main_thread():
            return None
        import signal

        def late(*_: Any) -> None:
            raise TimeoutError

        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, PATTERN_SECONDS)
        try:
            return pattern.search(text)
        except TimeoutError:
            self._endless.add(pattern.pattern)
            return None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


# Lines that log_line.prompt_command may know as prompts.
_PROMPTS = (
    r"^[ \t]*(\([\w .-]{1,40}\) ?)?\[[\w.-]{1,64}@[^\]\n]{1,80}\] ?[#$%>] ?\S",
    r"^[ \t]*(\([\w .-]{1,40}\) ?)?[\w.-]{1,64}@[\w.-]{1,64}(:[^#$%>\n]{0,120})?[#$%>] ?\S",
    r"^[ \t]*(bash|sh)-[\d.]{1,8}[#$] ?\S",
    r"^[ \t]*[A-Za-z][\w.-]{0,64}:[\w~/.-]{0,120} ?[#$%>] \S",
    r"^[ \t]*\+{1,3} [\w./]",
    r"^[ \t]*[$%] ?[\w./(]",
    r"^[ \t]*[#>] [a-z./]",
    r"^Invoked Command: \S",
)


def _by_sign(known: Iterable[Known]) -> list[tuple[str, Known]]:
    return [(sign, entry) for entry in known for sign in entry.text.signs]
