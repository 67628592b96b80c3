"""Processes that use RDMA, their resource limits and environment: /proc, ulimit, prlimit, units and container options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence.log_line import host_of, prompt_command, split_prefix
from rdmadiag.evidence.row import Gap, Line, Row, Text
from rdmadiag.host import Host, names_in, text_of
from rdmadiag.patterns import late
from rdmadiag.sources._owners import container_of, owner_of
from rdmadiag.sources.environment import allowed, safe_value

TABLES = ("process_limit", "process", "env")

SCAN_SECONDS = 0.3
"""Longest that open files are searched for RDMA devices, where the kernel does not list the users of devices."""

ALL = 1 << 63
"""What the kernel prints as `unlimited` is -1 in the table; a number this large is too."""

Values = dict[str, Any]


# --- /proc ---


def read(host: Host) -> Iterable[Row | Gap]:
    """Read our own limits (those of whoever starts a job as we were started), then each process that uses RDMA."""
    try:
        for values in _limits(host, "/proc/self/limits"):
            yield Row("process_limit", {"comm": "rdmadiag", **values}, "/proc/self/limits")
    except NotPresent:
        pass
    except HostRefused as error:
        kind = "not_given" if isinstance(error, NotGiven) else "unreadable"
        yield Gap(("process_limit",), error.reason, kind, error.how, "/proc/self/limits")
    pids, gap = _users(host)
    if gap:
        yield gap
    yield from _processes(host, pids)


def _limits(host: Host, path: str) -> Iterator[Values]:
    for line in host.read(path).splitlines():
        if match := _PROC_LINE.match(line):
            yield _proc_values(match)


def _processes(host: Host, pids: Sequence[int]) -> Iterator[Row | Gap]:
    refused: list[str] = []
    for pid in pids:
        try:
            comm = host.read(f"/proc/{pid}/comm")
            yield Row("process", _process(host, pid, comm), f"/proc/{pid}")
            for values in _limits(host, f"/proc/{pid}/limits"):
                yield Row("process_limit", {"pid": pid, "comm": comm, **values}, f"/proc/{pid}/limits")
            yield from _environment(host, pid)
        except NotPresent:
            continue  # it has ended
        except HostRefused:
            refused.append(str(pid))
    if refused:
        reason = f"environment of processes that may not be read: {', '.join(refused[:8])}"
        kind, how = ("not_permitted", "run as root") if host.live else ("not_given", "")
        yield Gap(("env",), reason, kind, how, "/proc/PID/environ")


def _process(host: Host, pid: int, comm: str) -> Values:
    owner = late(r"^Uid:\s+(\d{1,10})", re.M).search(text_of(host, f"/proc/{pid}/status"))
    cgroup = text_of(host, f"/proc/{pid}/cgroup")
    values = {"pid": pid, "comm": comm, "container": container_of(cgroup), **owner_of(cgroup)}
    if owner:
        values["uid"] = int(owner[1])
    if state := late(r"^State:\s+([A-Za-z])\b", re.M).search(text_of(host, f"/proc/{pid}/status")):
        values["state"] = state[1]
    if (lock := _ipc_lock(host, pid)) is not None:
        values["ipc_lock"] = lock
    return values


CAP_IPC_LOCK = 14
"""Bit of the capability that lifts the limit of locked memory (Linux include/uapi/linux/capability.h)."""


def _ipc_lock(host: Host, pid: int) -> int | None:
    # The kernel asks for the capability in its first user namespace (ib_umem_get); there, all ids are mapped to themselves.
    capabilities = late(r"^CapEff:\s+([0-9a-f]{16})", re.M).search(text_of(host, f"/proc/{pid}/status"))
    if capabilities is None:
        return None
    if not int(capabilities[1], 16) >> CAP_IPC_LOCK & 1:
        return 0
    words = text_of(host, f"/proc/{pid}/uid_map").split()
    return int(words == ["0", "0", "4294967295"]) if words else None


def _environment(host: Host, pid: int) -> Iterator[Row]:
    path = f"/proc/{pid}/environ"
    for entry in host.read(path).split("\0"):
        name, _, value = entry.partition("=")
        if allowed(name):
            yield Row("env", {"pid": pid, "name": name, "value": safe_value(value)}, path)


# --- who uses RDMA ---


def rdma_processes(host: Host) -> list[int]:
    """Return the processes that have an RDMA device open, as far as that can be told. Raises NotPresent, HostRefused."""
    return _users(host)[0]


def _users(host: Host) -> tuple[list[int], Gap | None]:
    # The kernel lists the processes that have a device open (since Linux 5.14); before that, only open files tell.
    if not host.live:
        return _captured_users(host), None
    try:
        contexts = host.objects("rdma res show ctx")
    except NotPresent:
        return [], None
    except HostRefused:
        return _search(host)
    return sorted({pid for context in contexts if isinstance(pid := context.get("pid"), int)}), None


def _captured_users(host: Host) -> list[int]:
    # A capture holds the status of processes that use RDMA; of others only the name, from looking for services.
    return sorted(
        int(name) for name in names_in(host, "/proc") if name.isdecimal() and text_of(host, f"/proc/{name}/status")
    )


def _search(host: Host) -> tuple[list[int], Gap | None]:
    found: list[int] = []
    refused, end = 0, host.clock() + SCAN_SECONDS
    pids = sorted((int(name) for name in host.ls("/proc") if name.isdecimal()), reverse=True)  # jobs start late
    for place, pid in enumerate(pids):
        if host.clock() > end:
            reason = f"{len(pids) - place} of {len(pids)} processes were not searched for open RDMA devices in {SCAN_SECONDS} s"
            return found, Gap(TABLES, reason, "timeout", "rdma resource show ctx (Linux 5.14)", "/proc/PID/fd")
        try:
            if _holds_device(host, pid):
                found.append(pid)
        except NotPresent:
            continue
        except HostRefused:
            refused += 1
    reason = f"{refused} processes of other users could not be searched for open RDMA devices"
    return found, Gap(TABLES, reason, "not_permitted", "run as root", "/proc/PID/fd") if refused else None


def _holds_device(host: Host, pid: int) -> bool:
    folder = f"/proc/{pid}/fd"
    for name in host.ls(folder):
        try:
            if host.link(f"{folder}/{name}").startswith("/dev/infiniband/uverbs"):
                return True
        except NotPresent:
            continue  # closed, or a socket: not a path
    return False


# --- texts: names, units, values ---

_PROC_NAMES = {
    "cpu time": "cpu",
    "file size": "fsize",
    "data size": "data",
    "stack size": "stack",
    "core file size": "core",
    "resident set": "rss",
    "processes": "nproc",
    "open files": "nofile",
    "locked memory": "memlock",
    "address space": "as",
    "file locks": "locks",
    "pending signals": "sigpending",
    "msgqueue size": "msgqueue",
    "nice priority": "nice",
    "realtime priority": "rtprio",
    "realtime timeout": "rttime",
}
_LETTERS = {
    "c": "core",
    "d": "data",
    "e": "nice",
    "f": "fsize",
    "i": "sigpending",
    "l": "memlock",
    "m": "rss",
    "n": "nofile",
    "q": "msgqueue",
    "r": "rtprio",
    "R": "rttime",
    "s": "stack",
    "t": "cpu",
    "u": "nproc",
    "v": "as",
    "x": "locks",
}
_DASH_NAMES = {
    "time": "cpu",
    "file": "fsize",
    "data": "data",
    "stack": "stack",
    "coredump": "core",
    "memory": "rss",
    "locked memory": "memlock",
    "process": "nproc",
    "nofiles": "nofile",
    "vmemory": "as",
    "locks": "locks",
}
_KIBIBYTES = frozenset(("d", "l", "m", "s", "v"))
_UNITS = {"kbytes": 1024, "512 bytes": 512, "blocks": 1024, "512-blocks": 512}
_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_VALUE = r"(?:unlimited|infinity|-1|\d{1,20})"

_PROC_LINE = late(rf"(?:\S+:)?Max (?P<what>[a-z ]+?) {{2,}}(?P<soft>{_VALUE})\s+(?P<hard>{_VALUE})\b")
_BASH_LINE = late(rf"\s*[a-zA-Z][\w -]*?\s*\((?:(?P<unit>[\w ]+), )?-(?P<letter>[a-zA-Z])\)\s+(?P<soft>{_VALUE})\s*$")
_ZSH_LINE = late(rf"\s*-(?P<letter>[a-zA-Z]): [\w -]+?(?: \((?P<unit>[\w -]+)\))?\s+(?P<soft>{_VALUE})\s*$")
_DASH_LINE = late(rf"(?P<what>{'|'.join(_DASH_NAMES)})(?:\((?P<unit>\w+)\))?\s+(?P<soft>{_VALUE})\s*$")
_PRLIMIT_LINE = late(rf"(?P<name>[A-Z]{{2,10}})\s.*\s(?P<soft>{_VALUE})\s+(?P<hard>{_VALUE})(?:\s+\w*)?\s*$")
_UNIT_LINE = late(r"\s*(?:Default)?Limit(?P<name>[A-Z]{2,10})=(?P<soft>[^:\s]+)(?::(?P<hard>\S+))?\s*$")
_DOCKER = late(r"--ulimit[ =][\"']?(?P<name>[a-z]+)=(?P<soft>-?\d{1,19})(?::(?P<hard>-?\d{1,19}))?")
_SIZE = late(r"(\d{1,18})([KMGT]?)$")
LINE_CHARACTERS = 1000


def _amount(text: str | None, unit: int = 1) -> int | None:
    if text is None:
        return None
    if text in ("unlimited", "infinity"):
        return -1
    match = _SIZE.match(text)
    amount = (
        int(match[1]) * _SUFFIXES[match[2]] * unit
        if match
        else int(text)
        if late(r"-?\d{1,20}").fullmatch(text)
        else None
    )
    return -1 if amount is not None and (amount < 0 or amount >= ALL) else amount


def _known(values: Values) -> Values:
    return {name: value for name, value in values.items() if value is not None}


def _proc_values(match: re.Match[str]) -> Values:
    name = _PROC_NAMES.get(match["what"], match["what"])
    return _known({"name": name, "soft": _amount(match["soft"]), "hard": _amount(match["hard"])})


def _shell_values(match: re.Match[str], hard: bool) -> Values:
    groups = match.groupdict()
    letter = groups.get("letter")
    name = _LETTERS.get(letter, "") if letter else _DASH_NAMES[match["what"]]
    unit = _UNITS.get(groups.get("unit") or "", 1)
    return {"name": name, "hard" if hard else "soft": _amount(match["soft"], unit)} if name else {}


def parse_limits(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse what shows limits: `ulimit`, /proc/PID/limits, `prlimit`, unit files, and options of containers."""
    asked = _Asked("")
    for number, text in lines:
        if len(text) > LINE_CHARACTERS:
            continue
        if (command := prompt_command(text)) is not None:
            asked = _Asked(command)
        for values in _line(text, asked):
            if values.get("name"):
                yield Row("process_limit", _known({"pid": asked.pid, **values}), number)


class _Asked:
    """The command whose answer is being read."""

    def __init__(self, command: str) -> None:
        pid = late(r"/proc/(\d{1,9})/limits|prlimit .*?(?:-p|--pid)[ =]?(\d{1,9})").search(command)
        self.pid = int(pid[1] or pid[2]) if pid else None
        letters = late(r"ulimit((?: -[A-Za-z]+)+)").fullmatch(command)
        flags = letters[1].replace(" -", "") if letters else ""
        self.hard = "H" in flags
        self.letter = flags.replace("H", "").replace("S", "")


def _line(text: str, asked: _Asked) -> Iterator[Values]:
    if match := _PROC_LINE.match(text):
        yield _proc_values(match)
    elif match := _BASH_LINE.match(text) or _ZSH_LINE.match(text) or _DASH_LINE.match(text):
        yield _shell_values(match, asked.hard)
    elif match := _PRLIMIT_LINE.match(text) or _UNIT_LINE.match(text):
        if match["name"].lower() in _PROC_NAMES.values():
            yield _named(match)
    elif len(asked.letter) == 1 and late(rf"\s*{_VALUE}\s*").fullmatch(text):
        unit = 1024 if asked.letter in _KIBIBYTES else 1
        yield {"name": _LETTERS.get(asked.letter), "hard" if asked.hard else "soft": _amount(text.strip(), unit)}
        asked.letter = ""
    else:
        yield from (_named(match) for match in _DOCKER.finditer(text))


def _named(match: re.Match[str]) -> Values:
    soft, hard = _amount(match["soft"]), _amount(match["hard"])
    return {"name": match["name"].lower(), "soft": soft, "hard": hard if match["hard"] else soft}


def parse_compose(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `ulimits:` of a compose file or a container specification: `memlock: -1`, or `soft:` and `hard:` below it."""
    name, depth = "", 0
    for number, text in lines:
        match = _COMPOSE.match(text)
        if match is None:
            name = ""
        elif match["name"] not in ("soft", "hard"):
            name, depth = match["name"], len(match["indent"])
            if match["value"]:
                amount = _amount(match["value"])
                yield Row("process_limit", {"name": name, "soft": amount, "hard": amount}, number)
        elif name and match["value"] and len(match["indent"]) > depth:
            yield Row("process_limit", {"name": name, match["name"]: _amount(match["value"])}, number)


_COMPOSE = late(
    r"(?P<indent>\s*)[\"']?(?P<name>memlock|nofile|stack|nproc|core|as|soft|hard)[\"']?:"
    r"\s*(?P<value>-?\d{1,19})?[\"',\s]*$"
)
_LOGGED = late(
    r"\(ulimit -l\) to 'unlimited' \(current: (?P<kibibytes>\d{1,15}) kbytes\)|RLIMIT_MEMLOCK is (?P<bytes>\d{1,18}) bytes"
)


def parse_log(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse what UCX and libibverbs say of the memory lock limit, once a host and value."""
    seen: set[tuple[str | None, int]] = set()
    for number, text in lines:
        if match := _LOGGED.search(text):
            soft = int(match["bytes"]) if match["bytes"] else int(match["kibibytes"]) * 1024
            if (host_of(text), soft) not in seen:
                seen.add((host_of(text), soft))
                yield Row(
                    "process_limit", _known({"pid": split_prefix(text).pid, "name": "memlock", "soft": soft}), number
                )


TEXTS = (
    Text(
        "limits",
        (
            r"\((kbytes|blocks|512 bytes|bytes|seconds), -[a-z]\)[ \t]+(unlimited|[0-9]+)[ \t\r]*$",
            r"^[ \t]*-l: locked-in-memory",
            r"^locked memory\(kbytes\)[ \t]",
            r"\bMax locked memory {2,}",
            r"^MEMLOCK[ \t]+max locked",
            r"^[ \t]*(Default)?Limit(MEMLOCK|NOFILE|STACK|AS|NPROC|CORE)=",
            r"--ulimit[ =][\"']?(memlock|nofile|stack)=",
        ),
        parse_limits,
        ("ulimit", "prlimit"),
    ),
    Text("ulimits of a container", (r"^[ \t]*[\"']?memlock[\"']?:[ \t]*(-?[0-9]+)?[ \t\r,]*$",), parse_compose),
    Text(
        "memory lock limit in a log",
        (r"\(ulimit -l\) to 'unlimited' \(current: [0-9]+ kbytes\)", r"RLIMIT_MEMLOCK is [0-9]+ bytes"),
        parse_log,
        by_line=True,
        log="application",
    ),
)
