"""Failed completions as programs and drivers print them, decoded: logs of applications and of the kernel.

Works line by line, with a look at the few lines that follow (hex dumps, a second line with the QP), so it can be given a
whole log or only the lines that a sign matched. `first` is left to the store, which knows the node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache

from rdmadiag.evidence.row import Line, Row, Text
from rdmadiag.explain import vendor_err, wc_status
from rdmadiag.patterns import late
from rdmadiag.sources._completion_formats import (
    FORMATS,
    LOOSE_TEXTS,
    SIGNS,
    STATUS_TEXTS,
    STATUS_WITH_VENDOR,
    WORDS,
    Fields,
    Format,
)

TABLES = ("completion",)

_LONGEST = 4000  # characters of a line that are looked at
_AFTER = 6  # lines after a line that may belong to it
_AFTER_HELP = 40  # the same for Open MPI's help texts
_FLUSH = 5
_DRIVERS = ("mlx5", "mlx4", "bnxt_re", "irdma", "efa", "rdmap", "rxe")
_COLUMNS = ("pid", "device", "port", "qpn", "peer", "peer_device", "opcode", "local_gid", "remote_gid", "completed")
_INTEGERS = frozenset(("pid", "port", "qpn", "completed"))

# Every line of every format has one of the stems, and most lines of a log have none: they cost a microsecond.
_STEMS = (
    "err",
    "fail",
    "exceeded",
    "complet",
    "vend",
    "synd",
    "cqe",
    "status",
    "ae_id",
    "flushed",
    "retry count",
    "rd request",
    "ee context",
    "aborted",
    "efa addr",
    "not working",
)
_BY_LITERAL = tuple((literal, form) for form in FORMATS for literal in form.literals)
_GENERIC_LITERALS = (*(text for text, _ in (*STATUS_TEXTS, *LOOSE_TEXTS)), "fatal error", "ib_wc_", "ibv_wc_")

_TIME = (
    r"(?P<iso>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?)"
    r"|^<?\d{0,3}>?\[(?P<ctime>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\]"
    r"|^(?:<\d{1,3}>)?\[ {0,6}(?P<boot>\d{1,9}\.\d{6})\]"
    r"|\[(?P<epoch>\d{9,10}\.\d{6})\]"
    r"|^(?P<syslog>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)"
    r"|\b[IWEF](?P<glog>(?:\d{4})?\d{4} \d\d:\d\d:\d\d\.\d{6})"
    r"|\b(?P<short>\d\d-\d\d \d\d:\d\d:\d\d)\b"
)
_CLOCK = r"\d\d:\d\d:\d\d|\d\.\d{6}\]"
_PID = (
    r"\bpid=(?P<named>\d{1,8})\b|libfabric:(?P<ofi>\d{1,8}):"
    r"|\[[\w.-]{1,255}:(?P<ucx>\d{1,8}) ?:\d{1,8}(?::\d{1,8})?\]|\[[\w.-]{1,255}:(?P<ompi>\d{1,8})\]"
    r"|(?:^|[\s|>:])[\w.-]{1,255}:(?P<nccl>\d{1,8}):\d{1,8} \[\d{1,3}\]"
)
_DEVICE = r"\b(?:mlx[45]_\w{1,20}|bnxt_re\w{1,20}|irdma\d{1,3}|(?:rxe|siw|efa|hns|erdma|rdmap|rocep|ibp)_?\d\w{0,20})\b"
_VENDOR = r"\bvend(?:or)?[ _]?(?:err(?:or)?|synd(?:rome?)?|code)?[ :=]{1,3}(0x[0-9a-f]{1,8}|\d{1,8})\b"
_QPN = r"\bqp(?:n|_num)?[ :=#]{1,3}(0x[0-9a-f]{1,8}|\d{1,8})\b"
_ROW_OF_BYTES = r"(?<![0-9a-f])([0-9a-f]{8}): ((?:[0-9a-f]{2} ){15}[0-9a-f]{2})(?![0-9a-f])"
_ROW_OF_WORDS = r"(?<![0-9a-f:.])((?:[0-9a-f]{8} ){3}[0-9a-f]{8})(?![0-9a-f:])"
_KERNEL_SYNDROME = r"\bsyndrome 0x[0-9a-f]+, vendor syndrome 0x[0-9a-f]+\s*$"

_TEXT = "|".join(text for text, _ in STATUS_TEXTS)
_GENERIC = (
    rf"(?P<text>\b(?:{_TEXT})\b)|\bibv?_wc_(?P<name>[a-z_]{{4,20}}_err)\b"
    rf"|(?:completion|\bwc\b|cqe|ibv_).{{0,120}}?(?P<loose>\b(?:{'|'.join(text for text, _ in LOOSE_TEXTS)})\b)"
    r"|\bfatal error \(19\)|\(19\):? fatal error"
)
# The level that a line states, near its start: glog's letter, or a word.
_BAD = r"^.{0,100}?(?:\b[EF]\d{4}(?:\d{4})? \d\d:\d\d|\b(?:ERROR|FATAL|CRITICAL|ERR|WARN(?:ING)?)\b|\*ERROR\*)"
_INFO = r"^.{0,100}?(?:\bI\d{4}(?:\d{4})? \d\d:\d\d|\b(?:INFO|DEBUG|TRACE|NOTICE|DEBUG\d)\b|level=(?:info|debug))"
_CUE = (
    r"(?i)\b(?:err(?:or)?|errors|fail\w{0,5}|fatal|abort\w{0,5}|exception|status|completion|wc|cqe|cq|ibv_\w+|poll_cq"
    r"|runtimeerror)\b"
)
_LESSON = (
    r"(?i)\b(?:if|when|whenever|means?|usually|typically|often|may|might|could|can|should|such as|e\.g\.|example|see"
    r"|hint|causes?|indicates?|because|how|what|why|faq|docs?|readme|expect(?:ed|s)?|increase|avoid)\b|https?://|\?"
)
_PROSE = _LESSON + r"|\b(?:is|are|was|were|the|this|that|these|you|your|we|i|about|like|set|check)\b"
_MARKUP = r"^\s*(?:#|[\"']|//|/\*|\*\s|\*\*|- |\+ |\| |>|`|case |return |\d+\. )|=\s*[\"']\s*$|return\s+[\"']\s*$"
_REST = (
    r"^[\"'`]?[\s.!,;:)\]}\"']*(?:\(?\d{1,2}\)?)?(?:[\s.!,;:)\]}\"']*|[\s,;:(\[]+(?:for |wr_?id"
    r"|opcode|qp|vend|synd|len|on |at |with |peer|dev|errno|\().*)$"
)


@cache
def _compiled(pattern: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    # On first use: most runs need few of the formats, and compiling all of them costs a start-up time that is felt.
    return late(pattern, flags)


@cache
def _begins(pattern: str, literal: str) -> bool:
    return pattern.replace("\\", "").lower().startswith(literal)


def _match(pattern: str, literal: str, message: str, low: str) -> re.Match[str] | None:
    compiled = _compiled(pattern)
    if len(low) != len(message) or not _begins(pattern, literal):
        return compiled.search(message)
    at = low.find(literal)  # a caseless search would try every place of the line
    while at >= 0:
        match = compiled.match(message, at)
        if match is not None:
            return match
        at = low.find(literal, at + 1)
    return None


def _has(low: str, words: tuple[str, ...]) -> bool:
    for word in words:  # noqa: SIM110 - a generator would cost more than the tests
        if word in low:
            return True
    return False


def _unwrap(text: str) -> tuple[str, str | None]:
    """Return the message of a line, and its time, out of a container log's JSON."""
    text = text[:_LONGEST].rstrip("\r\n")
    if not text.startswith("{") or '"' not in text[:200]:
        return text, None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return text, None
    if not isinstance(record, dict):
        return text, None
    message = next(
        (record[key] for key in ("log", "message", "msg", "MESSAGE") if isinstance(record.get(key), str)), None
    )
    if message is None:
        return text, None
    time = next((record[key] for key in ("time", "timestamp", "ts") if isinstance(record.get(key), str)), None)
    return message.rstrip("\r\n"), time


def _number(text: str | None, base: int = 10) -> int | None:
    if not text:
        return None
    try:
        value = int(text, 16 if text[:2].lower() == "0x" else base)
    except ValueError:
        return None
    return value if value < 1 << 63 else None


def _gid(text: str) -> str | None:
    """Write a GID as table gid has it: eight groups of four hex digits."""
    from _socket import AF_INET6, inet_pton

    try:
        digits = inet_pton(AF_INET6, text.strip("[]")).hex()
    except (OSError, ValueError):
        return None
    return ":".join(digits[at : at + 4] for at in range(0, 32, 4))


@lru_cache(maxsize=4096)
def _meaning(code: int, status: int | None, driver: str | None) -> str | None:
    told = vendor_err.lookup(code, status, driver)
    return None if told is None else str(told["meaning"])


def _word(text: str) -> int | None:
    low = " ".join(text.lower().split())
    return WORDS[low] if low in WORDS else wc_status.number(text)


def _columns(groups: Mapping[str, str | None]) -> Fields:
    fields: Fields = {}
    for name in _COLUMNS:
        text = groups.get(name)
        if not text:
            continue
        value = _number(text) if name in _INTEGERS else _gid(text) if name.endswith("_gid") else text
        if value is not None:
            fields[name] = value
    if groups.get("qpnx"):
        fields["qpn"] = _number(groups["qpnx"], 16)
    return fields


def _read(form: Format, match: re.Match[str]) -> Fields | None:
    """Turn the groups of a format into fields; None when the line tells no failed completion."""
    groups: dict[str, str | None] = {**match.groupdict(), "before": match.string[: match.start()]}
    fields = {"program": form.program, "format": form.name, "driver": form.driver, **_columns(groups)}
    code = _number(groups.get("vendor")) if groups.get("vendor") else _number(groups.get("vendorx"), 16)
    if code is not None:
        fields["vendor_err"] = code
    fields["syndrome"] = _number(groups.get("synd")) if groups.get("synd") else _number(groups.get("syndx"), 16)
    fields["wc_status"] = _number(groups.get("status"))
    if fields["wc_status"] is None and groups.get("word"):
        fields["wc_status"] = _word(groups["word"] or "")
        if fields["wc_status"] is None:
            return None
    if form.fix is not None and not form.fix(fields, groups):
        return None
    return fields


def _tails(lines: Sequence[Line], at: int, reach: int) -> Iterator[tuple[int, str]]:
    """Yield the lines that follow, with their places, as far as their numbers say that they are near."""
    for place in range(at + 1, min(at + 1 + reach, len(lines))):
        if lines[place].number - lines[at].number > reach:
            return
        yield place, _unwrap(lines[place].text)[0]


def _dump_rows(text: str) -> list[str]:
    rows = [f"{match[1]}: {match[2]}" for match in _compiled(_ROW_OF_BYTES).finditer(text)]
    return rows or [match[1] for match in _compiled(_ROW_OF_WORDS).finditer(text)]


def _read_dump(fields: Fields, message: str, lines: Sequence[Line], at: int, taken: set[int]) -> None:
    """Fill the fields from the hex dump of an error CQE in this line and those that follow."""
    from rdmadiag.explain import error_cqe

    rows = _dump_rows(message)
    header = not rows
    for place, text in _tails(lines, at, _AFTER):
        if len(rows) == 4 or (rows[-1:] and rows[-1].startswith("00000030:")):
            if header and _compiled(_KERNEL_SYNDROME).search(text):
                taken.add(place)  # the debug line of the same completion
            continue
        found = _dump_rows(text)
        if found and not header and found[0].startswith("00000000:"):
            return  # the next dump
        if (found and text.rstrip().endswith(found[-1][-8:])) or (header and "dump error cqe" in text):
            taken.add(place)  # a line with more after its row is looked at for itself
        rows += found[: 4 - len(rows)]
    decoded = error_cqe.parse("\n".join(rows))
    if not decoded:
        return
    cqe = decoded[0]
    fields["syndrome"], fields["vendor_err"] = cqe["syndrome"], cqe["vendor_err"]
    fields.setdefault("qpn", cqe["qpn"])
    fields["opcode"] = cqe["wqe_opcode_name"] or "RECV"


def _context(fields: Fields, message: str) -> None:
    """Fill pid, device and QPN of a program whose format does not name them."""
    if "pid" not in fields and "(pid " not in message:
        match = _compiled(_PID).search(message[:400])
        pid = _number(next((text for text in match.groups() if text), None)) if match else None
        if pid is not None:
            fields["pid"] = pid
    if fields["format"] not in _GUESSED:
        return
    match = _compiled(_DEVICE).search(message)
    if match and "device" not in fields:
        fields["device"] = match[0]
    match = _compiled(_QPN).search(message)
    if match and "qpn" not in fields:
        fields["qpn"] = _number(match[1])


_PROGRAMS = (
    ("tensorpipe", "tensorpipe"),
    ("nixl", "nixl"),
    ("mooncake", "mooncake"),
    ("sglang", "sglang"),
    ("vllm", "vllm"),
    ("lmcache", "lmcache"),
    ("enginecore", "vllm"),
    ("(worker", "vllm"),
    ("apiserver", "vllm"),
    ("nvshmem", "nvshmem"),
    ("ibgda", "nvshmem"),
    ("deepep", "deepep"),
    ("deep_ep", "deepep"),
    ("gloo", "gloo"),
    ("nccl", "nccl"),
    ("ucx", "ucx"),
    ("spdk", "spdk"),
    ("ceph", "ceph"),
    ("libfabric", "libfabric"),
)
_GUESSED = ("status text", STATUS_WITH_VENDOR.name, "bad completion")


def _program(low: str) -> str:
    return next((program for cue, program in _PROGRAMS if cue in low), "unknown")


def _speaks_of_failure(message: str, start: int, end: int) -> bool:
    """Tell a line that reports a failure from prose, code, documents and settings that name a status text."""
    before, after = message[:start], message[end:]
    if _compiled(_MARKUP).search(before) or len(before) > 1000:
        return False
    if _compiled(_BAD, 0).search(before):
        return True
    last = _compiled(_REST).match(after) is not None
    failed = _compiled(_CUE).search(before) is not None
    if _compiled(_INFO, 0).search(before):
        return last and failed and not _compiled(_PROSE).search(before)
    if (
        last
        and failed
        and before.rstrip(" \"'")[-1:] in (":", "=", "(", "[")
        and not _compiled(_LESSON).search(message)
    ):
        return True
    if _compiled(_PROSE).search(before) or _compiled(_PROSE).search(after[:200]):
        return False
    return last or failed or _compiled(_CUE).search(after[:200]) is not None


def _generic(message: str, low: str) -> Fields | None:
    """Read a status text, a name or a status with a vendor code in a line of a program that is not in the table."""
    if "vend" not in low and not _has(low, _GENERIC_LITERALS):
        return None
    code = _compiled(STATUS_WITH_VENDOR.pattern).search(message) if "vend" in low and "status" in low else None
    match = _compiled(_GENERIC).search(message)
    if match is None and code is None:
        return None
    if match is not None and not _speaks_of_failure(
        message, match.start("text") if match["text"] else match.start(), match.end()
    ):
        return None
    if code is not None:
        fields = _read(STATUS_WITH_VENDOR, code)
        if fields is None or _compiled(_MARKUP).search(message):
            return None
        if match is not None:
            fields["format"] = "status text"
    else:
        fields = {"program": "unknown", "format": "status text", "driver": "", "wc_status": None}
    if match is not None:
        fields["wc_status"] = _word(match["text"] or match["name"] or match["loose"] or "fatal error")
        vendor = _compiled(_VENDOR)
        found = vendor.search(message)
        if found:
            fields["vendor_err"] = _number(found[1])
    fields["program"] = _program(low)
    return fields


def _values(fields: Fields, message: str, time: str | None) -> dict[str, object] | None:
    """Finish a row: status from the syndrome, names, meanings; None for what is no failure."""
    status, syndrome = fields.get("wc_status"), fields.get("syndrome")
    if syndrome:
        status = wc_status.from_syndrome(syndrome)
    if status is not None and not 0 < status < len(wc_status.NAMES):
        return None
    values: dict[str, object] = {
        name: fields[name] for name in ("program", "format", *_COLUMNS, "vendor_err") if fields.get(name) is not None
    }
    if status is not None:
        values["wc_status"], values["wc_name"] = status, wc_status.NAMES[status]
    code = fields.get("vendor_err")
    if code is not None:
        device = str(fields.get("device") or "")
        driver = fields.get("driver") or next((name for name in _DRIVERS if device.startswith(name)), "")
        meaning = _meaning(code, status, driver or None)
        if meaning:
            values["vendor_meaning"] = meaning
    values["flush"] = int(status == _FLUSH)
    if time is None:
        start = message[:160]
        match = _compiled(_TIME, 0).search(start) if _compiled(_CLOCK, 0).search(start) else None
        time = next((text for text in match.groups() if text), None) if match else None
    if time:
        values["time"] = time
    values["text"] = message.strip()
    return values


def _one(message: str, lines: Sequence[Line], at: int, taken: set[int]) -> Fields | None:
    """Read one line by the first format that fits it."""
    low = message.lower()
    if not _has(low, _STEMS):
        return None
    for literal, form in _BY_LITERAL:
        if literal not in low:
            continue
        match = _match(form.pattern, literal, message, low)
        if match is None:
            continue
        fields = _read(form, match)
        if fields is None:
            return None
        if form.dump:
            _read_dump(fields, message[match.start() :], lines, at, taken)
        if form.tail:
            _read_tail(form, fields, message[match.end() :], lines, at)
        return fields
    return _generic(message, low)


def _read_tail(form: Format, fields: Fields, rest: str, lines: Sequence[Line], at: int) -> None:
    pattern = _compiled(form.tail)
    reach = _AFTER_HELP if form.name.startswith("openmpi") else _AFTER
    for text in (rest, *(text for _, text in _tails(lines, at, reach))):
        match = pattern.search(text)
        if match is None:
            continue
        groups = match.groupdict()
        more = _columns(groups)
        if groups.get("swapped") and form.fix is not None:
            form.fix(fields, groups)
        for name, value in more.items():
            fields.setdefault(name, value)
        if reach == _AFTER:
            return


def parse(lines: Sequence[Line]) -> Iterable[Row]:
    """Read the lines of a log; one row at most a line, in order."""
    taken: set[int] = set()
    for at, line in enumerate(lines):
        if at in taken:
            continue
        message, time = _unwrap(line.text)
        fields = _one(message, lines, at, taken)
        if fields is None:
            continue
        _context(fields, message)
        values = _values(fields, message, time)
        if values is not None:
            yield Row("completion", values, line.number)


TEXTS = (Text("completion errors", SIGNS, parse, by_line=True, log="application"),)
