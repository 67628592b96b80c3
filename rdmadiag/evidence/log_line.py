"""What stands before the message of a log line: times, hosts, process ids and wrappers, peeled off layer by layer.

Pure text. A line can wear several layers (a container runtime's, a log driver's, then the program's own); the time is
that of the outermost layer which has one, host and process those of the innermost. Meant for lines that matter already.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
from typing import NamedTuple

from rdmadiag.patterns import late

LEAP_YEAR = 1972
"""Year given to stamps that have none, so that 29 February is a day."""

YEAR_SECONDS = 366 * 86400.0
LAYERS = 8
"""Most layers peeled off one line."""


class Prefix(NamedTuple):
    """What was peeled off a line; stamps of one `style` compare: 'boot', 'epoch', 'utc', 'local', 'yearless'."""

    rest: str
    time: str | None = None
    seconds: float | None = None
    style: str | None = None
    host: str | None = None
    pid: int | None = None


_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_CLOCK = r"(?P<clock>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
_DATE = r"(?P<year>\d{4})[-/](?P<monthday>\d\d[-/]\d\d)"
_ZONE = r"(?P<zone>Z|[+-]\d\d:?\d\d)?"
_LEVEL = r"(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)"
_HOST = r"(?P<host>[A-Za-z0-9][\w.-]*)"
_TAG = r"[\w./@()-]+"
_NUMBERS = r"(?P<month_number>\d{1,2})(?P<day>\d\d)"

# Layers: how the first two characters of a line with this layer look, and the layer.
_LAYERS = (
    (r"\[[\d ]", r"\[\s*(?P<time>(?P<stamp>\d+\.\d+))(?: <\s*\d+\.\d+>)?\](?:\[\s*[TC]\d+\])?:? ?"),  # dmesg, UCX
    (r"\[[<+ ]", r"\[[<+\s]*\d+\.\d+>?\] ?"),  # dmesg --show-delta, relative
    (r"\[[A-Z]", rf"\[(?P<time>[A-Z][a-z]{{2}} {_MONTH} +(?P<day>\d+) {_CLOCK} (?P<year>\d{{4}}))\] ?"),  # dmesg -T
    (r"\[[A-Z]", rf"\[(?P<time>{_MONTH} *(?P<day>\d+) (?P<clock>\d\d:\d\d))\] ?"),  # dmesg -H
    (r"\[\d", rf"\[(?P<time>{_DATE}[T ]{_CLOCK} ?{_ZONE})(?:,? [^\]]{{1,40}})?\] ?"),  # NCCL, SGLang, Mooncake
    (r"\[[IWEF]", rf"\[[IWEF](?P<time>{_NUMBERS} {_CLOCK}) (?:\d+ )?[\w./-]+:\d+\] ?"),  # PyTorch
    (r"\[p", r"\[pod/(?P<host>[^/\]\s]+)/[^\]\s]+\] ?"),  # kubectl logs --prefix
    (r"\[\d", r"\[\d+,\d+\]<std(?:out|err)>:? ?"),  # mpirun --tag-output
    (r"\[[\dr]", r"\[(?:rank)?\d+\]: ?"),  # torchrun
    (r"\[[\dA-Za-z]", rf"\[{_HOST}\]\[\[\d+,\d+\],\d+\]\[[^\]]*\] ?"),  # Open MPI BTL
    (r"\[[\dA-Za-z]", rf"\[{_HOST}:(?P<pid>\d+)(?::\d+)?\]\s*"),  # UCX, Open MPI
    (r"<\d", r"<\d{1,3}>(?:1 )?(?=\S)"),  # syslog priority
    (r"\(.", r"\([\w./ -]+ pid=(?P<pid>\d+)(?:, ip=(?P<host>[\w.:-]+))?\) ?(?:\[repeated[^\]]*\] ?)?"),  # vLLM, Ray
    (r"\d\d", rf"(?P<time>{_DATE}[T ]{_CLOCK} ?{_ZONE})(?=[\s\]:|]|$)[:|]? ?"),  # ISO, python, Go
    (r"\d\d", r"(?P<time>(?P<stamp>\d{9,11}\.\d{1,6})) (?=[A-Za-z0-9][\w.-]* \S+: )"),  # journalctl -o short-unix
    (
        r"[A-Z][a-z]",
        rf"(?P<time>[A-Z][a-z]{{2}} {_DATE} {_CLOCK} (?:(?P<zone>UTC)|[A-Z]{{3,5}}|[+-]\d\d)) ",
    ),  # journalctl -o short-full
    (r"\d[\d,]", r"\d+,\d+,(?P<time>(?P<micro>\d+)),[^;\s]*;"),  # /dev/kmsg
    (r"\d[\d:]", r"\d{1,6}: ?(?=\[|[A-Za-z0-9][\w.-]*:\d+:\d+ )"),  # srun --label
    (
        r"[A-Z][a-z]",
        rf"(?P<time>{_MONTH} +(?P<day>\d+) {_CLOCK}) {_HOST} (?:{_TAG}(?:\[(?P<pid>\d+)\])?: ?)?",
    ),  # syslog
    (r"[IWEF]\d", rf"[IWEF](?P<time>(?P<year>\d{{4}})?{_NUMBERS} {_CLOCK}) +(?P<pid>\d+) [\w./-]+:\d+\] ?"),  # glog
    (r"[A-Z][A-Z]", rf"{_LEVEL} +(?P<time>(?P<monthday>\d\d-\d\d) {_CLOCK}) (?:\[[^\]]*\] ?|\S+\] ?)?"),  # vLLM
    (r"[A-Z][A-Z]", rf"{_LEVEL}:[\w.]+: ?"),  # python logging, unconfigured
    (r"[A-Z][A-Z]", rf"{_LEVEL} (?P<time>{_DATE}[T ]{_CLOCK})(?: \S+:\d+\])? ?"),
    (r"[adklsu][a-z]", r"(?:kern|user|daemon|syslog|auth|authpriv|local[0-7])\s*:\w+\s*: ?"),  # dmesg -x
    (r"st", r"(?:stdout|stderr) [FP] "),  # container runtime interface, after its time
    (r"[A-Za-z\d].", rf"{_HOST}:(?P<pid>\d+):\d+ (?:\[\w+\] ?)?"),  # NCCL
    (r"[A-Za-z].", r"(?P<host>[A-Za-z][\w.-]*) +\| (?=[^|]*$)"),  # docker compose
    (r"- ", rf"- [\w.]+ - {_LEVEL} - "),  # python logging, after its time
)
_PATTERNS = tuple((late(start), late(layer)) for start, layer in _LAYERS)


@functools.lru_cache(maxsize=4096)
def _candidates(start: str) -> tuple[re.Pattern[str], ...]:
    return tuple(layer for first, layer in _PATTERNS if first.match(start))


_LIBMLX = late(rf"mlx[45]: {_HOST}: got completion")  # part of the message, so not a layer
_SYSLOG_TAIL = late(rf"{_HOST} (?:kernel|{_TAG}\[(?P<pid>\d+)\]): ?")


@functools.lru_cache(maxsize=256)
def split_prefix(line: str) -> Prefix:
    """Peel off every layer before the message."""
    found = Prefix(line.strip())
    for _ in range(LAYERS):
        step = _peel_json(found) if found.rest[:1] == "{" else _peel(found)
        if step is None:
            break
        found = step
    return found


def strip_prefix(line: str) -> str:
    """Return the message of a line: what is left when times, hosts and wrappers are peeled off."""
    return split_prefix(line).rest


def host_of(line: str) -> str | None:
    """Return the host (or pod, or compose service) that a line names as where it was printed."""
    found = split_prefix(line)
    if found.host is None and (match := _LIBMLX.match(found.rest)):
        return match["host"]
    return found.host


def parse_time(line: str) -> tuple[float | None, str | None]:
    """Return a line's time in seconds, and as printed; seconds compare only with stamps of the same style."""
    found = split_prefix(line)
    return found.seconds, found.time


def seconds_between(first: float, last: float, style: str | None = None) -> float:
    """Return how long `last` came after `first` [s]; stamps without a year may pass New Year's Eve once."""
    span = last - first
    return span + YEAR_SECONDS if style == "yearless" and span < -YEAR_SECONDS / 2 else span


class Since(float):
    """How old a log line may be [s]; with `moment`, the time before which lines are left out [s since 1970].

    With a moment, stamps without a zone are of the zone that this machine is in, and those since boot need `end_epoch`.
    """

    moment: float | None = None

    @classmethod
    def at(cls, moment: float, now: float) -> Since:
        """Return what a moment of the past asks for, counted from now."""
        found = cls(max(now - moment, 0.0))
        found.moment = moment
        return found

    def holds(self, prefix: Prefix, age: float | None, boot_epoch: float | None) -> bool | None:
        """Tell whether a line is recent enough; None where its time cannot be told. `boot_epoch`: when its node booted."""
        if self.moment is None:
            return None if age is None else age <= self
        if prefix.seconds is None:
            return None
        if prefix.style in ("epoch", "utc"):
            return prefix.seconds >= self.moment
        if prefix.style == "boot":
            return None if boot_epoch is None else boot_epoch + prefix.seconds >= self.moment
        wall = datetime.datetime.fromtimestamp(self.moment)
        if prefix.style == "local":
            return prefix.seconds >= wall.replace(tzinfo=datetime.timezone.utc).timestamp()
        wall = wall.replace(year=LEAP_YEAR, tzinfo=datetime.timezone.utc)
        span = prefix.seconds - wall.timestamp()
        return 0 <= span <= YEAR_SECONDS / 2 or span < -YEAR_SECONDS / 2


def _peel(found: Prefix) -> Prefix | None:
    for pattern in _candidates(found.rest[:2]):
        match = pattern.match(found.rest)
        if match:
            return _add(found, match)
    return None


def _add(found: Prefix, match: re.Match[str]) -> Prefix:
    groups = match.groupdict()
    rest = found.rest[match.end() :].lstrip()
    time, seconds, style = found.time, found.seconds, found.style
    if time is None and (stamp := _stamp(groups)):
        seconds, style = stamp
        time = (groups["time"] or "").strip()
        if (groups.get("monthday") or groups.get("stamp")) and (tail := _SYSLOG_TAIL.match(rest)):
            groups.update(tail.groupdict())
            rest = rest[tail.end() :]
    pid = groups.get("pid")
    number = int(pid) if pid and len(pid) < 11 else found.pid
    return Prefix(rest, time, seconds, style, groups.get("host") or found.host, number)


def _stamp(groups: dict[str, str | None]) -> tuple[float, str] | None:
    if stamp := groups.get("stamp"):
        seconds = float(stamp)
        return seconds, "epoch" if seconds >= 1e9 else "boot"
    if micro := groups.get("micro"):
        return int(micro[:18]) / 1e6, "boot"
    clock = groups.get("clock")
    return _calendar(groups, clock) if clock else None


def _calendar(groups: dict[str, str | None], clock: str) -> tuple[float, str] | None:
    year, month, day = groups.get("year"), groups.get("month"), groups.get("day")
    if monthday := groups.get("monthday"):
        number, day = int(monthday[:2]), monthday[3:]
    else:
        number = _MONTHS.index(month) + 1 if month else int(groups.get("month_number") or 0)
    midnight = _midnight(int(year or LEAP_YEAR), number, int(day or 0))
    if midnight is None:
        return None
    seconds = midnight + _seconds_of_day(clock)
    if zone := groups.get("zone"):
        return seconds - _offset(zone), "utc"
    return seconds, "local" if year else "yearless"


_EPOCH = datetime.date(1970, 1, 1).toordinal()


@functools.lru_cache(maxsize=64)
def _midnight(year: int, month: int, day: int) -> float | None:
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    return (datetime.date(year, month, 1).toordinal() + day - 1 - _EPOCH) * 86400.0


def _seconds_of_day(clock: str) -> float:
    hours, minutes, *seconds = clock.replace(",", ".").split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds[0] if seconds else 0)


def _offset(zone: str) -> float:
    if zone in ("Z", "UTC"):
        return 0.0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600.0 + int(digits[2:]) * 60.0
    return -seconds if zone[0] == "-" else seconds


_ISO = late(rf"{_DATE}[T ]{_CLOCK}{_ZONE}")


def _peel_json(found: Prefix) -> Prefix | None:
    # Docker's json-file driver, and programs that log JSON (zap, journalctl -o json).
    try:
        fields = json.loads(found.rest)
    except (ValueError, RecursionError):
        return None
    texts = {key: value for key, value in fields.items() if isinstance(value, str)} if isinstance(fields, dict) else {}
    message = next((texts[key] for key in ("log", "msg", "message", "MESSAGE") if texts.get(key)), None)
    if message is None:
        return None
    host = next((texts[key] for key in ("_HOSTNAME", "hostname", "host") if texts.get(key)), found.host)
    inner = found._replace(rest=message.strip(), host=host)
    when = next((texts[key] for key in ("time", "ts", "timestamp", "@timestamp") if texts.get(key)), "")
    match = _ISO.match(when)
    stamp = _stamp(match.groupdict()) if match and found.time is None else None
    return inner._replace(time=when, seconds=stamp[0], style=stamp[1]) if stamp else inner


_PROMPTS = tuple(
    late(source)
    for source in (
        r"\s*(?:\([\w .-]+\) ?)?\[[\w.-]+@[\w.-]+[^\]]*\] ?[#$%>] ?(?P<command>\S.*)",  # [root@node ~]#
        r"\s*(?:\([\w .-]+\) ?)?[\w.-]+@(?P<host>[\w.-]+)(?::[^#$%>]*)?[#$%>] ?(?P<command>\S.*)",  # root@node:~#
        r"\s*(?:bash|sh)-[\d.]+[#$] ?(?P<command>\S.*)",
        r"\s*[A-Za-z][\w.-]*:[\w~/.-]* ?[#$%>] (?P<command>\S.*)",  # node:~ # command
        r"\s*\+{1,3} (?P<command>[\w./].*)",  # set -x
        r"\s*[$%] ?(?P<command>[\w./(].*)",
        r"\s*[#>] (?P<command>[a-z./][\w./+-]*(?: .*)?$)",
        r"Invoked Command: (?P<command>\S.*)",  # sysinfo-snapshot
    )
)


def prompt_command(line: str) -> str | None:
    """Return the command of a shell prompt line (`$ ibstat`, `root@node:~# ibstat`), or None for another line."""
    if not line.startswith("Invoked ") and not late(r"[$#%>+]").search(line[:120]):
        return None
    for pattern in _PROMPTS:
        if match := pattern.match(line):
            return match["command"].strip()
    return None
