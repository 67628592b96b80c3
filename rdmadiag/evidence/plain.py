"""Pasted bytes made plain lines: encodings, line ends, colour codes, and what containers and launchers wrap around them."""

from __future__ import annotations

import codecs
import io
import json
import time
from collections.abc import Iterator
from typing import Any

from rdmadiag.errors import BadFile
from rdmadiag.evidence.archive import Damaged, Stream
from rdmadiag.patterns import late

FIRST_BYTES, PIECE_BYTES = 16 << 20, 4 << 20
"""The first piece of a text, and further ones [bytes]."""
LINE_BYTES = 64 << 10
"""A longer line is cut [bytes]."""
ENDLESS_BYTES = 1 << 20
"""A line that goes on for longer is taken in pieces [bytes]."""

_COLOUR = r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]+[0-~]|[@-Z\\-_])"
_COLOUR_BYTES = late(_COLOUR.encode())
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160), 8232, 8233), "�")
_CONTROL |= dict.fromkeys((*range(0x200E, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd")


def clean(line: bytes) -> str:
    """Return a line as text: no colour codes, no control characters that a terminal would obey, not endless."""
    text = line[:LINE_BYTES].decode(errors="replace").rstrip("\r\n")
    if text.isprintable() or text.replace("\t", " ").isprintable():
        return text
    return text.replace("\r", " ").translate(_CONTROL)


def line_ends(data: bytes, start: int, end: int) -> int:
    """Return how many line feeds are in a part of a text: what `count` returns, which looks at each byte, in a third of its time."""
    if end - start < LINE_BYTES or data.count(b"\n", start, start + LINE_BYTES) > LINE_BYTES // 16:
        return data.count(b"\n", start, end)
    count = 0
    for at in range(start, end, LINE_BYTES):
        part = data[at : min(at + LINE_BYTES, end)]
        count += len(io.BytesIO(part).readlines()) - (0 if part.endswith(b"\n") else 1)
    return count


class Pieces:
    """A text in pieces of whole lines, in UTF-8, without colour codes, with line feeds alone.

    After the last piece, `problem` says what ended the text early, and `timeout` whether that was the run's budget.
    """

    def __init__(self, path: str, stream: Stream, deadline: float) -> None:
        self.problem, self.timeout = "", False
        self.size = 0
        self._path, self._stream, self._deadline = path, stream, deadline
        self._decoder: codecs.IncrementalDecoder | None = None

    def __iter__(self) -> Iterator[bytes]:
        """Yield the pieces. Raises BadFile when it is no text."""
        rest = b""
        while part := self._part():
            rest += part
            cut = rest.rfind(b"\n") + 1
            if not cut and len(rest) > ENDLESS_BYTES:
                cut = len(rest)
            if cut:
                yield _plain(rest[:cut])
                rest = rest[cut:]
        if rest:
            yield _plain(rest)

    def _part(self) -> bytes:
        if self.timeout:
            return b""
        try:
            part = self._stream.read(PIECE_BYTES if self.size else FIRST_BYTES)
        except (OSError, Damaged) as error:
            self.timeout = isinstance(error, TimeoutError)
            self.problem = getattr(error, "strerror", None) or str(error)
            part = b""
        if part and time.monotonic() > self._deadline:
            self.problem, self.timeout = "it was not read to its end in time", True
        first, self.size = self.size == 0, self.size + len(part)
        if first:
            part = self._begin(part)
        return self._decoder.decode(part, not part).encode() if self._decoder else part

    def _begin(self, part: bytes) -> bytes:
        if part.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        elif b"\0" in part[:8192]:
            wanted = "binary, not a text; wanted what a tool prints, a log, JSON, or an archive (tar, zip, gz, xz, bz2)"
            raise BadFile(self._path, f"byte {part.index(0)}", wanted)
        return part.removeprefix(codecs.BOM_UTF8)


def _plain(data: bytes) -> bytes:
    if b"\x1b" in data:
        data = _COLOUR_BYTES.sub(b"", data)
    return data.replace(b"\r\n", b"\n") if b"\r" in data else data


# --- logs of JSON objects, one a line ---

_MESSAGES = ("log", "msg", "message", "MESSAGE")
_TIMES = ("time", "ts", "timestamp", "@timestamp")
_HOSTS = ("_HOSTNAME", "hostname", "host")
_ERRORS = ("error", "err", "exception")


def is_json_log(data: bytes) -> bool:
    """Tell whether a text is a log of JSON objects, one a line (Docker's files, zap, journalctl -o json)."""
    return data[:1] == b"{" and _message(data[: LINE_BYTES + 1].partition(b"\n")[0]) is not None


def from_json_log(data: bytes) -> bytes:
    """Return the lines of such a log as programs printed them, each behind its time, host and program."""
    return _plain(b"\n".join(_json_line(line) for line in data.split(b"\n")))


def _message(line: bytes) -> tuple[dict[str, str], str] | None:
    if line[:1] != b"{" or len(line) > LINE_BYTES:
        return None
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    fields = {key: text for key, text in value.items() if isinstance(text, str)} if isinstance(value, dict) else {}
    message = _first(fields, _MESSAGES)
    return (fields, message) if message else None


def _json_line(line: bytes) -> bytes:
    found = _message(line)
    if found is None:
        return line
    fields, message = found
    when, host, program = _first(fields, _TIMES), _first(fields, _HOSTS), fields.get("SYSLOG_IDENTIFIER", "")
    micro = fields.get("__REALTIME_TIMESTAMP", "")
    if micro.isascii() and micro.isdecimal() and len(micro) < 18:
        when = time.strftime("%Y-%m-%dT%H:%M:%S+0000", time.gmtime(int(micro) // 1_000_000))
    if host and program:
        pid = f"[{fields['_PID']}]" if "_PID" in fields else ""
        message = f"{host} {program}{pid}: {message}"
    parts = [when if late(r"\d{4}-\d\d-\d\d[T ]").match(when) else "", message.rstrip()]
    parts += [f"{name}={fields[name]}" for name in _ERRORS if fields.get(name)]
    return " ".join(part for part in parts if part).replace("\n", " ").encode(errors="replace")


def _first(fields: dict[str, str], names: tuple[str, ...]) -> str:
    return next((fields[name] for name in names if fields.get(name)), "")


# --- what stands before every line of a tool's output that went through a log ---

_WRAPPER = late(
    rb"(?:\[pod/(?P<pod>[^/\]\s]+)/[^\]\s]*\] ?)?"  # kubectl logs --prefix
    rb"(?:\[\d+,(?P<rank>\d+)\]<std(?:out|err)>: ?)?"  # mpirun --tag-output
    rb"(?:(?P<label>\d{1,6}): )?"  # srun --label
    rb"(?:(?P<service>[A-Za-z][\w.-]*) +\| ?)?"  # docker compose
    rb"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? ?)?"  # kubectl logs --timestamps
    rb"(?:std(?:out|err) [FP] )?"  # a container runtime's file
    rb"(?:(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )?(?P<host>[\w.-]+) [\w./@()-]+\[\d+\]: )?"  # journald, syslog
)
_SAMPLE_LINES = 40


def is_wrapped(data: bytes) -> bool:
    """Tell whether nearly all lines at the beginning of a text stand behind such a prefix."""
    lines = [line for line in data[:65536].split(b"\n", 2 * _SAMPLE_LINES) if line.strip()][:_SAMPLE_LINES]
    wrapped = sum(1 for line in lines if (match := _WRAPPER.match(line)) and match.end())
    return bool(lines) and wrapped >= 0.8 * len(lines)


def unwrapped(data: bytes) -> dict[tuple[str, str | None], list[tuple[int, bytes]]]:
    """Return lines (index from 0, without their prefix) by who printed them: a label, and the host or pod if it names one."""
    found: dict[tuple[str, str | None], list[tuple[int, bytes]]] = {}
    for index, line in enumerate(data.split(b"\n")):
        match = _WRAPPER.match(line)
        if match is None:
            continue
        pod, rank, label, service, host = match.groups(b"")
        who = (pod or service or host).decode(errors="replace")
        key = ((pod or rank or label or service or host).decode(errors="replace"), who or None)
        found.setdefault(key, []).append((index, line[match.end() :]))
    return found
