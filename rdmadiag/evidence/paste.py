"""Read texts that people paste: know by content which tool printed them, parse them, and match every rule's patterns."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rdmadiag.errors import BadFile
from rdmadiag.evidence import log_line
from rdmadiag.evidence.given import GivenText
from rdmadiag.evidence.row import Gap, Json, Line, Printed, Row, Rows, Text
from rdmadiag.evidence.scan import Scanner

WHOLE_BYTES = 16 << 20
"""A text up to this size is parsed whole; of a larger one only log lines are matched, chunk by chunk."""
CHUNK_BYTES = 4 << 20
JSON_BYTES = 256 << 20
LINE_BYTES = 64 << 10
"""A longer line is cut [bytes]."""
ROWS_PER_PATTERN = 1000
"""Lines kept of one pattern and text."""
FOLLOWING_LINES = 6
NODES_ASSUMED = 4

Item = Row | Rows | Gap


class Known(NamedTuple):
    """A tool that texts may come from, and the source module that parses it."""

    source: str
    text: Text


class KnownJson(NamedTuple):
    """A tool that JSON may come from, and the source module that parses it."""

    source: str
    json: Json


class Read(NamedTuple):
    """What one text held, before it is known which node it is about."""

    path: str
    group: str
    node: str | None
    hosts: list[str]
    items: list[tuple[str, str | None, Item]]
    tools: list[str]


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
        self.patterns = list(patterns)
        whole = [entry for entry in self.texts if not entry.text.by_line]
        lines = [entry for entry in self.texts if entry.text.by_line]
        self.sign_of = [entry for entry in whole for _ in entry.text.signs]
        self.line_of = [entry for entry in lines for _ in entry.text.signs]
        self._cached = cached
        self._compiled: dict[tuple[str, int], re.Pattern[str]] = {}
        self._scanners: tuple[Scanner, Scanner] | None = None

    @property
    def signs(self) -> Scanner:
        """Signs of tools, each reported once a section."""
        return self._both()[0]

    @property
    def lines(self) -> Scanner:
        """Rules' patterns, then signs of tools parsed line by line, then prompts."""
        return self._both()[1]

    def _both(self) -> tuple[Scanner, Scanner]:
        if self._scanners is None:
            patterns = [pattern for *_, pattern in self.patterns]
            signs = [sign for entry in self.texts if not entry.text.by_line for sign in entry.text.signs]
            line_signs = [sign for entry in self.texts if entry.text.by_line for sign in entry.text.signs]
            self._scanners = (
                Scanner(signs, once=True, cached=self._cached),
                Scanner([*patterns, *line_signs, _PROMPT], cached=self._cached),
            )
        return self._scanners

    def groups(self, index: int, text: str) -> dict[str, str]:
        """Return the named groups of a rule's pattern in a line; empty when only Hyperscan saw it."""
        rule, number, _, pattern = self.patterns[index]
        compiled = self._compiled.get((rule, number))
        if compiled is None:
            compiled = self._compiled[rule, number] = re.compile(pattern)
        match = compiled.search(text)
        return {name: value for name, value in match.groupdict().items() if value is not None} if match else {}


_PROMPT = r"^(\s*(\([^)]{1,40}\) ?)?(\[[^\]]{1,80}\] ?|[A-Za-z0-9_.@~:/+-]{1,80} ?)?[$#%>] ?|\++ )[\w./(]"
_PROMPT_HOST = re.compile(r"\s*(?:\([^)]*\) ?)?\[?[\w.-]+@([\w.-]+)")
_COLOUR = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_COLOUR_TEXT = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = {code: " " if code == 9 else "\ufffd" for code in (*range(9), 11, 12, *range(14, 32), *range(127, 160))}


def clean(line: bytes) -> str:
    """Return a line as text: no colour codes, no control characters that a terminal would obey, not endless."""
    text = line[:LINE_BYTES].decode(errors="replace").rstrip("\r\n")
    if "\x1b" in text:
        text = _COLOUR_TEXT.sub("", text)
    return text if text.isprintable() else text.replace("\r", " ").translate({**_CONTROL, 9: "\t"})


def read_text(library: Library, given: GivenText, deadline: float, recent_seconds: float) -> Read:
    """Read one text. Raises BadFile when it is no text. What is left unread when time is up is a gap."""
    try:
        with given.stream as stream:
            return _read(library, given, stream, deadline, recent_seconds)
    except (OSError, EOFError) as error:
        raise BadFile(given.path, "", f"cannot be read to its end: {error}") from error


def _read(library: Library, given: GivenText, stream: Any, deadline: float, recent: float) -> Read:
    head = _decoded(given.path, stream.read(CHUNK_BYTES))
    reader = _Reader(library, given, recent)
    if head.lstrip()[:1] in (b"[", b"{") or len(head) >= CHUNK_BYTES:
        limit = JSON_BYTES if head.lstrip()[:1] in (b"[", b"{") else WHOLE_BYTES
        while len(head) < limit and time.monotonic() < deadline and (part := stream.read(CHUNK_BYTES)):
            head += part
    if len(head) < WHOLE_BYTES or (head.lstrip()[:1] in (b"[", b"{") and len(head) < JSON_BYTES):
        reader.whole(head)
    else:
        reader.chunks(head, stream, deadline)
    return reader.result()


def read_printed(library: Library, printed: Printed, recent: float) -> list[tuple[str, str | None, Item]]:
    """Read a text that a source got from the node itself."""
    reader = _Reader(
        library, GivenText(None, printed.at, "", io.BytesIO()), recent, complete=True, end_seconds=printed.end_seconds
    )
    reader.whole(printed.text.encode())
    return reader.items


def _decoded(path: str, head: bytes) -> bytes:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head.decode("utf-16", errors="replace").encode()
    if b"\0" in head[:8192]:
        raise BadFile(
            path,
            f"byte {head.index(0)}",
            "binary, not a text; wanted what a tool prints, a log, JSON, or an archive (tar, zip, gz)",
        )
    return head.removeprefix(b"\xef\xbb\xbf")


class _Section(NamedTuple):
    """A part of a text: one command's output, or all of it."""

    command: str
    host: str | None
    start: int
    stop: int


class _Reader:
    """Reads one text into items; a helper of read_text that keeps what the steps share."""

    def __init__(
        self,
        library: Library,
        given: GivenText,
        recent: float,
        complete: bool = False,
        end_seconds: float | None = None,
    ) -> None:
        self.library, self.given, self.recent, self.complete, self.end_seconds = (
            library,
            given,
            recent,
            complete,
            end_seconds,
        )
        self.items: list[tuple[str, str | None, Item]] = []
        self.hosts: dict[str, None] = {}
        self.tools: dict[str, None] = {}
        self.counts: dict[int, int] = {}
        self.kernel = False
        self.line_number = 1
        self.booted = False
        self.host: str | None = None
        self.pending: list[tuple[Row, log_line.Prefix]] = []
        self.last: tuple[float, str | None] | None = None

    def result(self) -> Read:
        return Read(self.given.path, self.given.group, self.given.node, list(self.hosts), self.items, list(self.tools))

    def whole(self, data: bytes) -> None:
        """Read a text that is in memory: sections, tools, JSON, log lines."""
        if b"\x1b" in data:
            data = _COLOUR.sub(b"", data)
        if data.lstrip()[:1] in (b"[", b"{") and self._json(data, 0):
            return
        hits = self.library.lines.lines(data)
        prompt = len(self.library.lines.patterns) - 1
        sections = self._sections(data, [(start, stop) for start, stop, index in hits if index == prompt])
        numbers = _Numbers(data)
        for section in sections:
            self._section(data, section, numbers)
        self._matches(data, hits, numbers, sections)
        self._end(data, numbers.total())

    def chunks(self, data: bytes, stream: Any, deadline: float) -> None:
        """Match log lines of a text that is too long for memory; only whole lines are matched."""
        self.booted = b"Linux version" in data[:65536]
        rest = data
        number = 1
        done = 0
        while rest:
            cut = rest.rfind(b"\n") + 1 or len(rest)
            part, rest = rest[:cut], rest[cut:]
            if b"\x1b" in part:
                part = _COLOUR.sub(b"", part)
            numbers = _Numbers(part, number)
            self._matches(part, self.library.lines.lines(part), numbers, [])
            number = numbers.next()
            done += cut
            last = part
            if time.monotonic() > deadline:
                self._gap(
                    "the budget of this run was used up before its end",
                    "truncated",
                    "raise --budget",
                    f"{done >> 20} MiB read",
                )
                break
            more = stream.read(CHUNK_BYTES)
            rest = rest + more if len(rest) < LINE_BYTES * 16 else more
        self._end(last, number - 1)

    def _gap(self, reason: str, kind: str, how: str, what: str) -> None:
        self.items.append(
            (
                "text",
                None,
                Gap(("kernel_event", "app_event", "completion"), reason, kind, how, f"{self.given.path}: {what}"),
            )
        )

    def _end(self, tail: bytes, lines: int) -> None:
        end = self._end_time(tail)
        for row, prefix in self.pending:
            age = None
            if prefix.seconds is not None and end is not None and (end[1] is None or end[1] == prefix.style):
                age = log_line.seconds_between(prefix.seconds, end[0], prefix.style)
            row.values["age_seconds"] = age
            row.values["recent"] = None if age is None else int(age <= self.recent)
        for log in ["kernel"] if self.kernel else ["application"] if not self.tools or self._is_log() else []:
            complete = 1 if self.complete or (log == "kernel" and self.booted) else None
            tool = next(iter(self.tools), "text")
            self.items.append(
                (tool, None, Row("reading", {"source": tool, "log": log, "lines": lines, "complete": complete}, 1))
            )
        for tool in self.tools:
            if not self.kernel or tool != next(iter(self.tools)):
                self.items.append((tool, None, Row("reading", {"source": tool, "lines": lines}, 1)))

    def _is_log(self) -> bool:
        return any(entry.text.tool in self.tools and entry.text.log == "application" for entry in self.library.texts)

    def _end_time(self, tail: bytes) -> tuple[float, str | None] | None:
        if self.end_seconds is not None:
            return self.end_seconds, "boot"
        for line in reversed(tail[-8192:].splitlines()[-8:]):
            prefix = log_line.split_prefix(clean(line))
            if prefix.seconds is not None:
                return prefix.seconds, prefix.style
        return None

    def _json(self, data: bytes, start: int) -> bool:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError, MemoryError) as error:
            if isinstance(error, RecursionError):
                self._gap("JSON nested too deeply", "unreadable", "", "not read")
                return True
            return False
        objects = value if isinstance(value, list) else [value]
        first = [entry for entry in objects[:8] if isinstance(entry, dict)]
        for known in self.library.jsons:
            text = known.json
            if any(set(form) <= entry.keys() for form in text.keys for entry in first):
                self.tools[text.tool] = None
                line = data.count(b"\n", 0, start) + 1
                good = (
                    objects if len(first) == len(objects) else [entry for entry in objects if isinstance(entry, dict)]
                )
                for item in text.parse(good):
                    self.items.append(
                        (
                            known.source,
                            None,
                            item if isinstance(item, Gap) or isinstance(item.at, str) else item._replace(at=line),
                        )
                    )
                self.items.append((known.source, None, Row("reading", {"source": text.tool, "complete": 1}, line)))
                return True
        return bool(first) and b"\n{" not in data[:65536]

    def _sections(self, data: bytes, prompts: list[tuple[int, int]]) -> list[_Section]:
        bounds: list[tuple[int, str, str | None, int]] = [(0, "", None, 0)]
        for start, stop in prompts:
            line = clean(data[start:stop])
            command = log_line.prompt_command(line)
            if command is None or not self._is_prompt(line, command):
                continue
            match = _PROMPT_HOST.match(line)
            host = match[1] if match else None
            if host:
                self.hosts[host] = None
            bounds.append((start, command, host, stop))
        ends = [bound[0] for bound in bounds[1:]] + [len(data)]
        return [
            _Section(command, host, stop, end)
            for (_, command, host, stop), end in zip(bounds, ends, strict=True)
            if end >= stop
        ]

    def _is_prompt(self, line: str, command: str) -> bool:
        # "# word ..." and "> word ..." are prompts only before a program that is known: they also begin comments and quotations.
        if not line.lstrip().startswith(("#", ">")):
            return True
        return _program(command) in self.library.commands

    def _section(self, data: bytes, section: _Section, numbers: _Numbers) -> None:
        body = data[section.start : section.stop]
        stripped = body.lstrip()
        if stripped[:1] in (b"[", b"{") and self._json(body, section.start):
            return
        found: dict[str, Known] = {}
        announced = self.library.commands.get(_program(section.command)) if section.command else None
        if announced is not None:
            found[announced.text.tool] = announced
        signs: set[int] = set()
        self.library.signs.scan(body, lambda index, _: signs.add(index))
        for index in sorted(signs):
            found.setdefault(self.library.sign_of[index].text.tool, self.library.sign_of[index])
        if not found:
            return
        lines = self._lines(data, section, numbers)
        for tool, known in found.items():
            text = known.text
            self.tools[tool] = None
            if text.log == "kernel":
                self.kernel = True
                self.booted = self.booted or b"Linux version" in body[:65536]
                continue
            for item in text.parse(lines):
                self.items.append((known.source, section.host, item))

    @staticmethod
    def _lines(data: bytes, section: _Section, numbers: _Numbers) -> list[Line]:
        first = numbers.at(section.start)
        raw = data[section.start : section.stop].split(b"\n")
        lines = [Line(first + number, clean(line)) for number, line in enumerate(raw)]
        if section.command:
            lines[:1] = [Line(first, "$ " + section.command)]
        return lines

    def _matches(
        self, data: bytes, hits: list[tuple[int, int, int]], numbers: _Numbers, sections: list[_Section]
    ) -> None:
        rules = len(self.library.patterns)
        prompts = len(self.library.lines.patterns) - 1
        by_line: dict[str, tuple[Known, dict[int, None]]] = {}
        for start, stop, index in hits:
            if index == prompts:
                continue
            if index >= rules:
                known = self.library.line_of[index - rules]
                by_line.setdefault(known.text.tool, (known, {}))[1][start] = None
                continue
            self._match(data[start:stop], index, numbers.at(start))
        for known, starts in by_line.values():
            self._by_line(data, known, list(starts), numbers)

    def _match(self, raw: bytes, index: int, number: int) -> None:
        self.counts[index] = self.counts.get(index, 0) + 1
        if self.counts[index] > ROWS_PER_PATTERN:
            return
        rule, pattern, log, _ = self.library.patterns[index]
        if log == "kernel":
            self.kernel = self.kernel or not self.tools
        text = clean(raw)
        prefix = log_line.split_prefix(text)
        host = log_line.host_of(text)
        if host:
            self.hosts[host] = None
            self.host = host
        values: dict[str, Any] = {
            "log": log,
            "rule": rule,
            "pattern": pattern,
            "time": prefix.time,
            "text": text.strip(),
        }
        values.update(self.library.groups(index, text))
        if prefix.pid is not None:
            values.setdefault("pid", prefix.pid)
        row = Row("log", values, number)
        self.pending.append((row, prefix))
        self.items.append(("log", host or self.host, row))

    def _by_line(self, data: bytes, known: Known, starts: list[int], numbers: _Numbers) -> None:
        text = known.text
        self.tools.setdefault(text.tool, None)
        lines: list[Line] = []
        stop = -1
        for start in starts[: ROWS_PER_PATTERN * 10]:
            if start < stop:
                continue
            stop = start
            first = numbers.at(start)
            for offset in range(1 + FOLLOWING_LINES):
                end = data.find(b"\n", stop)
                end = len(data) if end < 0 else end
                lines.append(Line(first + offset, clean(data[stop:end])))
                stop = end + 1
                if stop >= len(data):
                    break
        hosts = {line.number: log_line.host_of(line.text) for line in lines}
        for item in text.parse(lines):
            host = hosts.get(item.at) if not isinstance(item, Gap) and isinstance(item.at, int) else None
            if host:
                self.hosts[host] = None
                self.host = host
            self.items.append((known.source, host or self.host, item))


def _program(command: str) -> str:
    words = command.split()
    while words and (words[0] in ("sudo", "time", "watch", "-n", "env") or "=" in words[0] or words[0].isdigit()):
        words.pop(0)
    return words[0].rpartition("/")[2] if words else ""


class _Numbers:
    """Line numbers of offsets, asked in rising order mostly."""

    def __init__(self, data: bytes, first: int = 1) -> None:
        self.data, self.first = data, first
        self.offset, self.number = 0, first

    def at(self, offset: int) -> int:
        if offset < self.offset:
            self.offset, self.number = 0, self.first
        self.number += self.data.count(b"\n", self.offset, offset)
        self.offset = offset
        return self.number

    def next(self) -> int:
        return self.at(len(self.data))

    def total(self) -> int:
        return self.next() - self.first + (0 if self.data.endswith(b"\n") or not self.data else 1)


def assign(reads: Sequence[Read], default: Callable[[Read], str]) -> Iterator[tuple[str, str, str, Item]]:
    """Yield (node, source, place, item) of all texts: which node each item is about.

    In order: the name that was given; the host that the line or prompt names; the one host that its folder's texts
    name; the host in the file's name; else all hosts of the folder (up to four), or `default`, which is said as a gap of kind 'assumed'.
    """
    groups: dict[str, list[Read]] = {}
    for read in reads:
        groups.setdefault(read.group, []).append(read)
    for group in groups.values():
        hosts = list(dict.fromkeys(host for read in group for host in read.hosts))
        for read in group:
            yield from _assign_one(read, group, hosts, default)


def _assign_one(
    read: Read, group: list[Read], hosts: list[str], default: Callable[[Read], str]
) -> Iterator[tuple[str, str, str, Item]]:
    nodes, assumed = _nodes_of(read, group, hosts, default)
    for source, host, item in read.items:
        for node in [read.node] if read.node else [host] if host else nodes:
            yield node, source, read.path, item
    if assumed and read.items and not all(host for _, host, _ in read.items):
        reason = f"{read.path} names no host: taken to be about {' and '.join(nodes)}"
        yield nodes[0], "text", read.path, Gap(("node",), reason, "assumed", "name it: --from NODE=PATH", read.path)


def _nodes_of(
    read: Read, group: list[Read], hosts: list[str], default: Callable[[Read], str]
) -> tuple[list[str], bool]:
    if read.node:
        return [read.node], False
    if read.hosts and len(read.hosts) == 1:
        return list(read.hosts), False
    stem = read.path.rpartition("/")[2].lower()
    named = [host for host in hosts if host.lower() in stem]
    if len(named) == 1:
        return named, False
    if len(hosts) == 1:
        return hosts, len(group) > 1
    if hosts and len(hosts) <= NODES_ASSUMED:
        return hosts, True
    twins = [other for other in group if other is not read and set(other.tools) & set(read.tools) and read.tools]
    if not hosts and twins:
        return [read.path.rpartition("/")[2].partition(".")[0]], True
    return [default(read)], len(group) > 1
