"""Read texts that people paste: know by content which tool printed them, parse them, and match every rule's patterns."""

from __future__ import annotations

import bisect
import io
import json
import re
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from rdmadiag.errors import BadFile
from rdmadiag.evidence import log_line, plain
from rdmadiag.evidence.assign import Item, Read
from rdmadiag.evidence.given import GivenText
from rdmadiag.evidence.plain import clean
from rdmadiag.evidence.row import Gap, Line, Printed, Row, Rows
from rdmadiag.evidence.texts import HEAD_BYTES, Known, KnownJson, Library
from rdmadiag.patterns import late

LONG_LIST_CHARACTERS = 64 << 10
"""From this much JSON on, a list of like objects is taken as tuples."""
WHOLE_BYTES = 16 << 20
"""Beyond this much of a text only its log lines are matched, piece by piece [bytes]."""
SECTION_BYTES = 4 << 20
"""Longest part of one command's output that is parsed, from the first line that tells its tool [bytes]."""
JSON_BYTES, JSON_OBJECTS = 32 << 20, 500_000
"""Longest JSON text [bytes], and most objects and lists in it: 100,000 QPs are 21 MB."""
ROWS_PER_PATTERN = 1000
"""Lines kept of one pattern and text: half the first, half the last."""
FOLLOWING_LINES = 6
STARTS, LATER_STARTS = 5000, 20
"""Lines that a parser by line gets of one piece of a text, at most; and of each further piece when it had those."""
LOG_CHARACTERS = 4096
"""A longer log line is cut before patterns take it apart."""


_PROMPT_HOST = late(r"\s*(?:\([^)]*\) ?)?\[?[\w.-]+@([\w.-]+)")


_JSON = late(rb"\s*(?:\{|\[\s*[{\]])")
_JSON_LINE = late(rb"^[ \t]*(?:\[\s*)?\{", re.M)
# Half a surrogate pair, which is no text that SQLite or a terminal takes.
_HALF = late(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_JSON_BLOCKS = 16
"""Most places of a section where JSON is looked for."""


def may_be_json(head: bytes) -> bool:
    """Tell whether a text that begins so may be JSON; a kernel log begins with [ too."""
    return bool(_JSON.match(head))


def read_text(library: Library, given: GivenText, deadline: float, recent_seconds: float) -> Read:
    """Read one text until `deadline` [s, monotonic]; what is left unread then is a gap. Closes its stream.

    `recent_seconds`: how old a log line may be, counted from its log's end [s]. Raises BadFile when it is no text.
    """
    try:
        reader = _Reader(library, given, recent_seconds)
        return reader.read(plain.Pieces(given.path, given.stream, deadline))
    finally:
        given.stream.close()


def read_printed(library: Library, printed: Printed, recent_seconds: float) -> list[tuple[str, str | None, Item]]:
    """Read a text that a source got from the node itself, complete."""
    reader = _Reader(library, GivenText(None, printed.at, "", io.BytesIO()), recent_seconds, printed)
    reader.whole(printed.text.encode(errors="replace"))
    reader.finish()
    return reader.items


class _Section(NamedTuple):
    """A part of a text: one command's output, or all of it."""

    command: str
    host: str | None
    start: int
    stop: int


class _Hit(NamedTuple):
    """A log line that a rule's pattern matches, and which part of the text it is in."""

    number: int
    line: bytes
    part: int


class _Part(NamedTuple):
    """A part of a text that has an end of its own: a section, or a piece of a long log."""

    host: str | None
    tail: bytes


class _Reader:
    """Reads one text into items; a helper of read_text that keeps what the steps share."""

    def __init__(self, library: Library, given: GivenText, recent: float, printed: Printed | None = None) -> None:
        self.library, self.given, self.printed = library, given, printed
        self.recent = recent if isinstance(recent, log_line.Since) else log_line.Since(recent)
        self.items: list[tuple[str, str | None, Item]] = []
        self.hosts: dict[str, None] = {}
        self.host: str | None = None
        self.tools: dict[str, str | None] = {}  # with the kind of log that each is
        self.hits: dict[int, list[_Hit]] = {}
        self.dated: list[tuple[dict[str, Any], str, int]] = []  # completions, with their line and part
        self.starts: dict[str, int] = {}  # lines that parsers by line had
        self.parts: list[_Part] = []
        self.lines = 0
        self.open = 0  # the part that goes on to the end of the text, and those after it
        self.booted = self.cut = self.json_log = False
        self.head = b""
        if printed is not None:
            known = library.commands.get(printed.tool)
            self.tools[printed.tool] = known.text.log if known else "kernel"

    def read(self, pieces: plain.Pieces) -> Read:
        """Read all pieces. Raises BadFile when there is nothing in them."""
        rest = iter(pieces)
        head = self._first(rest)
        if not head or head.isspace():
            raise BadFile(self.given.path, "", pieces.problem or "empty; wanted what a tool prints, a log or JSON")
        self.whole(head)
        del head
        for piece in rest:
            self._more(piece)
        if pieces.problem:
            what = f"{pieces.size >> 20} MiB read" if pieces.size >> 20 else f"{pieces.size} bytes read"
            how = "raise --budget" if pieces.timeout else ""
            self._gap(f"{pieces.problem}; {what}", "truncated", how)
        self.finish()
        recognised = bool(self.tools or self.hits)
        given = self.given
        return Read(given.path, given.group, given.node, list(self.hosts), self.items, list(self.tools), recognised)

    def _first(self, pieces: Iterator[bytes]) -> bytes:
        # What is read at once: JSON must be, and what tools print is short.
        head = next(pieces, b"")
        limit = JSON_BYTES if _JSON.match(head) and not plain.is_json_log(head) else WHOLE_BYTES
        parts, size = [head], len(head)
        while size < limit and (piece := next(pieces, b"")):
            parts.append(piece)
            size += len(piece)
        if size >= JSON_BYTES == limit:
            self._gap(f"JSON longer than {JSON_BYTES >> 20} MiB is not read", "truncated", "give it in parts")
        return b"".join(parts)

    def whole(self, data: bytes) -> None:
        """Read a text, or the first part of a long one, that is in memory: sections, tools, JSON, log lines."""
        self.json_log = plain.is_json_log(data)
        if self.json_log:
            data = plain.from_json_log(data)
        elif _JSON.match(data) and (end := self._json(data, 0, 1)):
            data = b"\n" * plain.line_ends(data, 0, end) + data[end:]
        self.head = data[:HEAD_BYTES]
        hits = self.library.lines.lines(data) if data and not data.isspace() else []  # loading the patterns takes 6 ms
        prompts = dict.fromkeys((start, stop) for start, stop, index in hits if index >= self.library.first_prompt)
        sections = self._sections(data, list(prompts))
        numbers = _Numbers(data)
        for section in sections:
            self._section(data, section, numbers)
        self.open = len(sections) - 1
        self._matches(data, hits, numbers, sections)
        self.lines += numbers.total()

    def _more(self, piece: bytes) -> None:
        """Match the log lines of a further piece."""
        if self.json_log:
            piece = plain.from_json_log(piece)
        numbers = _Numbers(piece, self.lines + 1)
        hits = self.library.lines.lines(piece)
        self._matches(piece, hits, numbers, [_Section("", None, 0, len(piece))])
        self.lines += numbers.total()

    def _gap(self, reason: str, kind: str, how: str = "", tables: tuple[str, ...] = ()) -> None:
        self.cut = True
        gap = Gap(tables or ("kernel_event", "app_event", "completion"), reason, kind, how, self.given.path)
        if ("text", None, gap) not in self.items[-4:]:
            self.items.append(("text", None, gap))

    # --- what a text is ---

    def _sections(self, data: bytes, prompts: list[tuple[int, int]]) -> list[_Section]:
        bounds: list[tuple[int, str, str | None, int]] = [(0, self.given.command, None, 0)]
        for start, stop in prompts:
            line = clean(data[start : min(stop, start + plain.LINE_BYTES)])
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
            _Section(command, host, stop, max(stop, end))
            for (_, command, host, stop), end in zip(bounds, ends, strict=True)
        ]

    def _is_prompt(self, line: str, command: str) -> bool:
        # "# word ..." and "> word ..." are prompts only before a program that is known: they also begin comments and quotations.
        return not line.lstrip().startswith(("#", ">")) or _program(command) in self.library.programs

    def _section(self, data: bytes, section: _Section, numbers: _Numbers) -> None:
        part = memoryview(data)[section.start : section.stop]
        number = numbers.at(section.start)
        signed = self.library.tools(part) if not data.isspace() else {}  # as it is behind JSON
        is_log = any(known.text.log for known, _ in signed.values())
        body = bytes(part[:HEAD_BYTES] if is_log else part)  # of a log no more is looked at
        read_to = 0 if is_log else self._json_blocks(body, number, section.command)
        found: dict[str, tuple[Known, int]] = {}
        announced = self.library.commands.get(_program(section.command)) if section.command else None
        if announced is not None and not announced.text.by_line:
            found[announced.text.tool] = (announced, 0)
        for tool, (known, end) in signed.items():
            if end > read_to or known.text.log:
                found.setdefault(tool, (known, end))
        for tool, (known, _) in found.items():
            self.tools[tool] = known.text.log
            if known.text.log == "kernel":
                whole = "|" not in section.command
                self.booted = self.booted or (whole and b"Linux version" in body[:HEAD_BYTES])
        parsed = [(known, at) for known, at in found.values() if known.text.log != "kernel"]
        if parsed:
            self._parse(bytes(part) if is_log else body, section, number, parsed)
        if not is_log and plain.is_wrapped(body):
            self._wrapped(body[:SECTION_BYTES], number, set(found))

    def _parse(self, body: bytes, section: _Section, number: int, parsed: list[tuple[Known, int]]) -> None:
        start = body.rfind(b"\n", 0, min(at for _, at in parsed)) + 1 if len(body) > SECTION_BYTES else 0
        first = number + body.count(b"\n", 0, start)
        if len(body) - start > SECTION_BYTES:
            reason = f"only {SECTION_BYTES >> 20} MiB from line {first} on were parsed"
            self._gap(reason, "truncated", "give the output of each command by itself", ("reading",))
        raw = body[start : start + SECTION_BYTES].split(b"\n")
        lines = [Line(first + index, clean(line)[:LOG_CHARACTERS]) for index, line in enumerate(raw)]
        if section.command and not start:
            # In the place of the prompt line; before the first line where an archive tells the command.
            lines[: 1 if section.start else 0] = [Line(first, "$ " + section.command)]
        for known, _ in parsed:
            self.items += [(known.source, section.host, item) for item in known.text.parse(lines)]

    def _wrapped(self, body: bytes, number: int, known_tools: set[str]) -> None:
        # A tool's output that went through a container's log or a launcher: each printer's lines by themselves.
        for (_, host), lines in plain.unwrapped(body).items():
            tools = self.library.tools(b"\n".join(line for _, line in lines))
            texts = [Line(number + index, clean(line)[:LOG_CHARACTERS]) for index, line in lines] if tools else []
            for tool, (known, _) in tools.items():
                if tool in known_tools or known.text.log:
                    continue
                self.tools.setdefault(tool, None)
                if host:
                    self.hosts[host] = None
                self.items += [(known.source, host, item) for item in known.text.parse(texts)]

    # --- JSON ---

    def _json_blocks(self, body: bytes, number: int, command: str) -> int:
        # JSON of tools among other text; returns where the last of it ends.
        if not self.library.jsons or (b"{" not in body):
            return 0
        end = tries = 0
        for match in _JSON_LINE.finditer(body):
            if match.start() < end:
                continue
            tries += 1
            if tries > _JSON_BLOCKS or match.start() > SECTION_BYTES:
                break
            line = number + body.count(b"\n", 0, match.start())
            read_to = self._json(body, match.start(), line, command)
            end = read_to if read_to > match.start() else end  # JSON of no known tool may still be lines of one
        return end

    def _json(self, data: bytes, start: int, number: int, command: str = "") -> int:
        """Read the JSON of a known tool that begins at `start`; returns where it ends, `start` when it is none."""
        body = data[start:] if start else data
        if len(body) > JSON_BYTES or not _at_most(JSON_OBJECTS, body, b"{", b"["):
            self._gap("JSON with too many values", "truncated", "give it in parts")
            return start
        text = body.decode(errors="replace")
        if "\\" in text and ("\\ud" in text or "\\uD" in text):
            text = _HALF.sub(r"\\ufffd", text)
        begin = len(text) - len(text.lstrip())
        number += text.count("\n", 0, begin)
        cut = False
        if (long := self._long_list(text, begin)) is not None:
            known, found, end = long
        else:
            try:
                value, end = json.JSONDecoder().raw_decode(text, begin)
            except RecursionError:
                self._gap("JSON nested too deeply", "unreadable")
                return start
            except ValueError:
                value, end, cut = _cut_off(text), len(text), True
            objects = value if isinstance(value, list) else [value]
            of_objects = self._known_json(objects)
            if of_objects is None:
                return start
            known = of_objects
            objects = [entry for entry in objects if isinstance(entry, dict)]
            if known.json.names and (match := late(known.json.names).search(command)):
                objects = [{"ifname": match[1], **entry} for entry in objects]
            found = known.json.parse(objects)
        self.tools[known.json.tool] = None
        for item in found:
            if not isinstance(item, Gap) and isinstance(item.at, int):
                item = item._replace(at=number)
            self.items.append((known.source, None, item))
        if cut:
            tables = tuple(
                dict.fromkeys(i.table for _, _, i in self.items if isinstance(i, (Row, Rows)) and i.at == number)
            )
            self._gap("JSON that is cut off or damaged: only what is before that was read", "truncated", "", tables)
        return start + len(text[:end].encode()) if end < len(text) else len(data)

    def _long_list(self, text: str, begin: int) -> tuple[KnownJson, Iterable[Row | Rows | Gap], int] | None:
        # A long list of like objects: each is taken as a tuple at once, so that there are never 100,000 dictionaries.
        first = text.find("{", begin, begin + 64)
        if len(text) - begin < LONG_LIST_CHARACTERS or first < 0 or text[begin:first].split() != ["["]:
            return None
        try:
            known = self._known_json([json.JSONDecoder().raw_decode(text, first)[0]])
            if known is None or known.json.parse_columns is None:
                return None
            value, end = json.JSONDecoder(object_hook=itemgetter(*known.json.columns)).raw_decode(text, begin)
        except (ValueError, KeyError, RecursionError):
            return None
        alike = set(map(type, value)) == {tuple}
        return (known, known.json.parse_columns(value), end) if alike else None

    def _known_json(self, objects: list[Any]) -> KnownJson | None:
        first = [entry for entry in objects[:8] if isinstance(entry, dict)]
        for known in self.library.jsons:
            if any(set(form) <= entry.keys() for form in known.json.keys for entry in first):
                return known
        return None

    # --- log lines ---

    def _matches(
        self, data: bytes, hits: list[tuple[int, int, int]], numbers: _Numbers, sections: list[_Section]
    ) -> None:
        rules, prompts = len(self.library.patterns), self.library.first_prompt
        first = len(self.parts)
        self.parts += [_Part(one.host, data[max(one.start, one.stop - HEAD_BYTES) : one.stop]) for one in sections]
        starts = [section.start for section in sections]
        by_line: dict[str, tuple[Known, dict[int, None]]] = {}
        for start, stop, index in hits:
            if index < rules:
                part = first + max(0, bisect.bisect_right(starts, start) - 1)
                self._keep(index, _Hit(numbers.at(start), data[start : min(stop, start + LOG_CHARACTERS)], part))
            elif index < prompts:
                known = self.library.line_of[index - rules][1]
                by_line.setdefault(known.text.tool, (known, {}))[1][start] = None
        for known, offsets in by_line.values():
            self._by_line(data, known, list(offsets), numbers, sections, first)

    def _keep(self, index: int, hit: _Hit) -> None:
        kept = self.hits.setdefault(index, [])
        kept.append(hit)
        if len(kept) >= 2 * ROWS_PER_PATTERN:
            del kept[ROWS_PER_PATTERN // 2 : -ROWS_PER_PATTERN // 2]

    def _by_line(
        self, data: bytes, known: Known, starts: list[int], numbers: _Numbers, sections: list[_Section], first: int
    ) -> None:
        tool = known.text.tool
        self.tools.setdefault(tool, known.text.log)
        most = STARTS if self.starts.get(tool, 0) < STARTS else LATER_STARTS
        self.starts[tool] = self.starts.get(tool, 0) + len(starts)
        lines = _windows(data, _both_ends(starts, most), numbers)
        texts = {line.number: line.text for line in lines}
        bounds = [numbers.at(section.start) for section in sections]
        for item in known.text.parse(lines):
            host = None
            if not isinstance(item, Gap) and isinstance(item.at, int):
                number = max(0, bisect.bisect_right(bounds, item.at) - 1)
                host = self._host_of(texts.get(item.at, ""), sections[number].host)
                if isinstance(item, Row) and item.table == "completion":
                    self.dated.append((item.values, texts.get(item.at, ""), first + number))
            self.items.append((known.source, host, item))

    def _host_of(self, line: str, section: str | None) -> str | None:
        # The host that a line names; else its prompt's; else the one that the last line named.
        host = log_line.host_of(line)
        if host and host.isprintable():
            self.hosts[host] = None
            self.host = host
            return host
        return section or self.host

    # --- the end ---

    def finish(self) -> None:
        """Make the rows of log lines, whose age counts from the end of their log, and note what was read."""
        ends: dict[int, dict[str | None, float]] = {}
        kept = [(hit, index) for index, hits in self.hits.items() for hit in _both_ends(hits, ROWS_PER_PATTERN)]
        self.host = None
        for part in {hit.part for hit, _ in kept} | {part for *_, part in self.dated}:
            ends[part] = self._ends(part)
        for hit, index in sorted(kept, key=lambda pair: pair[0].number):
            self._row(hit, index, ends[hit.part])
        for values, line, part in self.dated:
            values.update(self._age(log_line.split_prefix(line), ends[part]))
        self._readings()

    def _ends(self, part: int) -> dict[str | None, float]:
        # When the log that this part belongs to ends, by style of its stamps.
        if self.printed is not None:
            return {"boot": self.printed.end_seconds} if self.printed.end_seconds is not None else {}
        found: dict[str | None, float] = {}
        tail = self.parts[-1 if part >= self.open else part].tail
        for line in reversed(tail.splitlines()[-100:]):
            prefix = log_line.split_prefix(clean(line))
            if prefix.seconds is not None:
                found.setdefault(prefix.style, prefix.seconds)
        return found

    def _age(self, prefix: log_line.Prefix, ends: dict[str | None, float]) -> dict[str, Any]:
        age = None
        if prefix.seconds is not None and prefix.style in ends:
            age = log_line.seconds_between(prefix.seconds, ends[prefix.style], prefix.style)
        boot = None
        if self.printed is not None and self.printed.end_epoch is not None and self.printed.end_seconds is not None:
            boot = self.printed.end_epoch - self.printed.end_seconds
        recent = self.recent.holds(prefix, age, boot)
        return {"age_seconds": age, "recent": None if recent is None else int(recent)}

    def _row(self, hit: _Hit, index: int, ends: dict[str | None, float]) -> None:
        rule, pattern, log, _ = self.library.patterns[index]
        text = clean(hit.line)
        prefix = log_line.split_prefix(text)
        values: dict[str, Any] = {
            "log": log,
            "rule": rule,
            "pattern": pattern,
            "time": prefix.time,
            "text": text.strip(),
            **self._age(prefix, ends),
            **self.library.groups(index, text),
        }
        if prefix.pid is not None:
            values.setdefault("pid", prefix.pid)
        host = self._host_of(text, self.parts[hit.part].host)
        self.items.append(("log", host, Row("log", values, hit.number)))

    def _readings(self) -> None:
        logs = {log for log in self.tools.values() if log}
        matched = {self.library.patterns[index][2] for index in self.hits} - logs
        if "kernel" in logs:
            matched.discard("application")
        if not matched and not self.tools and _is_log(self.head):
            matched = {"application"}
        for tool, log in [*self.tools.items(), *(("text", log) for log in sorted(matched))]:
            complete = 1 if log == "kernel" and not self.cut and self._is_whole() else None
            values = {"source": tool, "log": log, "lines": self.lines, "complete": complete}
            self.items.append((tool, None, Row("reading", values, 1)))

    def _is_whole(self) -> bool:
        # A kernel log is whole from its first line after boot; the node's own also when it goes back further than is asked for.
        if self.printed is None or self.booted or b"Linux version" in self.head:
            return self.booted
        first = log_line.split_prefix(clean(self.head.partition(b"\n")[0])).seconds
        end = self.printed.end_seconds
        return first is None or end is None or end - first >= self.recent


def _at_most(limit: int, data: bytes, *bytes_: bytes) -> bool:
    # Whether so many of them are in it; find is far quicker than count where they are few.
    for byte in bytes_:
        at = data.find(byte)
        while at >= 0 and limit >= 0:
            limit -= 1
            at = data.find(byte, at + 1)
    return limit >= 0


def _cut_off(text: str) -> Any:
    # A list of objects that ends in the middle of one: those before it.
    end = text.rfind("},")
    try:
        return json.loads(text[: end + 1] + "]") if end > 0 and text.lstrip()[:1] == "[" else None
    except (ValueError, RecursionError):
        return None


def _is_log(head: bytes) -> bool:
    lines = [line for line in head.split(b"\n", 40)[:40] if line.strip()]
    return any(log_line.split_prefix(clean(line)).seconds is not None for line in lines)


_T = TypeVar("_T")


def _both_ends(hits: list[_T], most: int) -> list[_T]:
    return hits if len(hits) <= most else hits[: most // 2] + hits[-most // 2 :]


def _windows(data: bytes, starts: list[int], numbers: _Numbers) -> list[Line]:
    # The lines that begin at `starts`, each with those that follow, none twice.
    lines: list[Line] = []
    number, position = 0, 0  # the line after the last one taken
    for start in starts:
        if start >= position:
            number, position = numbers.at(start), start
            last = number + FOLLOWING_LINES
        else:
            last = number - 1 - data.count(b"\n", start, position) + 1 + FOLLOWING_LINES
        while number <= last and position < len(data):
            end = data.find(b"\n", position)
            end = len(data) if end < 0 else end
            lines.append(Line(number, clean(data[position : min(end, position + LOG_CHARACTERS)])))
            number, position = number + 1, end + 1
    return lines


def _program(command: str) -> str:
    words = command.split()
    while words and (words[0] in ("sudo", "time", "watch", "-n", "env") or "=" in words[0] or words[0].isdecimal()):
        if len(words) == 1:
            break
        words.pop(0)
    return words[0].rpartition("/")[2] if words else ""


class _Numbers:
    """Line numbers of offsets; each part of the text is gone through once, in whatever order they are asked."""

    def __init__(self, data: bytes, first: int = 1) -> None:
        self.data, self.first = data, first
        self._offsets, self._numbers = [0], [first]

    def at(self, offset: int) -> int:
        place = bisect.bisect_right(self._offsets, offset) - 1
        known = self._offsets[place]
        number = self._numbers[place] + plain.line_ends(self.data, known, offset)
        if offset - known > _MARK_BYTES:
            self._offsets.insert(place + 1, offset)
            self._numbers.insert(place + 1, number)
        return number

    def total(self) -> int:
        return self.at(len(self.data)) - self.first + (0 if self.data.endswith(b"\n") or not self.data else 1)


_MARK_BYTES = 4096
