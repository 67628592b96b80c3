"""Capture a node as a bundle: all that a check reads of it, as it was, so that a check of the bundle says what one of the node would.

Everything is read through a recording door by the sources themselves. Secrets are taken out before anything is written:
of a process's environment only the variables that matter to RDMA are kept, and what follows words like password is cut.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from rdmadiag import __version__, sources
from rdmadiag.errors import BadFile
from rdmadiag.evidence import bundle, children
from rdmadiag.evidence.row import Gap, Printed, Row
from rdmadiag.host import Host
from rdmadiag.host.recording import RecordingHost, recorded_tree
from rdmadiag.sources.environment import allowed, safe_value

BUNDLE_BYTES = 128 << 20
"""Most bytes in a bundle before it is packed [bytes]; a node with 100,000 QPs has 60 MB."""
TEXT_BYTES = 32 << 20
"""Longest output of one command [bytes]; of a longer log the end is kept."""
ENDINGS = {".tar.gz": "gz", ".tgz": "gz", ".tar.xz": "xz", ".tar.bz2": "bz2", ".tar": ""}

Noted = dict[str, dict[str, Any]]


class Captured(NamedTuple):
    """A node as it was: files of the bundle by name, and what could not be seen."""

    node: str
    files: dict[str, bytes]
    gaps: list[tuple[str, Gap]]


def capture(
    host: Host,
    window: float,
    budget: float,
    redact: Callable[[str], str] | None = None,
    patience: float = 1.0,
) -> Captured:
    """Look at a node as a check does, and return its bundle; two samples of counters `window` [s] apart.

    `redact` replaces names and addresses in every text, if given. `patience` times its limit each source may take.
    """
    modules = {name: module for name, module in sources.load().items() if hasattr(module, "read")}
    before, now = RecordingHost(host).noted, RecordingHost(host).noted
    first_seconds = last_seconds = host.clock()
    gaps: list[tuple[str, Gap]] = []
    recorders: Mapping[str, Any] = {name: _Recorder(name, module, patience) for name, module in modules.items()}
    for step, items, clock, _ in children.look(_steps(modules, window), recorders, host, window, budget):
        for item in items:
            if isinstance(item, Gap):
                if step.phase != "first" and item.kind in ("timeout", "crash", "truncated"):
                    gaps.append((step.source, item))
            elif isinstance(item, Printed):
                _merge(before if step.phase == "first" else now, json.loads(item.text))
        if step.phase == "first":
            first_seconds = clock
        elif step.phase == "last":
            last_seconds = clock or last_seconds
    for noted in (before, now):
        _take_secrets_out(noted)
    name = host.name
    if redact is not None:
        before, now, name = _redacted(before, redact), _redacted(now, redact), redact(name)
        gaps = [(source, gap._replace(reason=redact(gap.reason), subject=redact(gap.subject))) for source, gap in gaps]
    files = _files(host, name, before if window > 0 else None, now, (first_seconds, last_seconds), gaps)
    return Captured(name, {path: text.encode() for path, text in files.items()}, gaps)


class _Recorder:
    # A source whose `read` hands over all that it read through the door, as one text of JSON.
    def __init__(self, name: str, module: ModuleType, patience: float) -> None:
        self.name, self.module = name, module
        self.TABLES = module.TABLES
        self.SAMPLED = getattr(module, "SAMPLED", False)
        self.SECONDS = patience * getattr(module, "SECONDS", children.SOURCE_SECONDS)

    def read(self, host: Host, skip: frozenset[str] = frozenset()) -> Iterator[Printed | Gap | Row]:
        door = RecordingHost(host)
        for item in children.run_source(self.name, self.module, door, skip):
            if isinstance(item, Gap) and item.kind in ("restricted", "crash"):
                yield item
            elif isinstance(item, Row) and item.table == "counter":
                yield Row("counter", {}, "")  # there is something to wait for
        yield Printed("recording", json.dumps(door.noted), "")


def _steps(modules: Mapping[str, ModuleType], window: float) -> list[children.Step]:
    sampled = [name for name, module in modules.items() if getattr(module, "SAMPLED", False)]
    steps = [children.Step(name, "first") for name in sampled if window > 0]
    steps += [children.Step(name, "once") for name in modules if name not in sampled]
    return steps + [children.Step(name, "last") for name in sampled]


def _merge(noted: Noted, more: Noted) -> None:
    for kind, entries in more.items():
        noted[kind].update(entries)


# --- what is left out ---

_SECRET_WORD = r"(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|credential|private[_-]?key)"
_SECRET = re.compile(
    rf"(?i)(\b[\w.-]*{_SECRET_WORD}[\w.-]*[\"']?\s*[=:]\s*|(?<![\w-])--?[\w-]*{_SECRET_WORD}[\w-]*[ \0])([\"']?)[^\s\"'\0]+"
)
_LOGIN = re.compile(r"(\w://)[^/@\s]+@")
_ENVIRON = re.compile(r"/proc/(\d+|self)/environ$")


def _take_secrets_out(noted: Noted) -> None:
    for path, content in noted["files"].items():
        if _ENVIRON.match(path):
            text = content.encode("latin-1").decode(errors="replace")
            kept = [entry.partition("=") for entry in text.split("\0")]
            content = "\0".join(f"{name}={safe_value(value)}" for name, _, value in kept if allowed(name))
            content = content.encode().decode("latin-1")
        noted["files"][path] = _without_secrets(content)
    for command, text in noted["commands"].items():
        noted["commands"][command] = _without_secrets(text)


def _without_secrets(text: str) -> str:
    return _LOGIN.sub(r"\1", _SECRET.sub(r"\1\2(removed)", text))


_SERIALS = re.compile(r"/(?:\w*serial\w*|\w*uuid|machine-id|wwid|phys_switch_id|phys_port_id|asset_tag\w*)$")


def _redacted(noted: Noted, redact: Callable[[str], str]) -> Noted:
    def anywhere(value: Any) -> Any:
        if isinstance(value, list):
            return [anywhere(entry) for entry in value]
        return redact(value) if isinstance(value, str) else value

    found: Noted = {
        kind: {redact(key): anywhere(value) for key, value in entries.items()} for kind, entries in noted.items()
    }
    found["files"] = {redact(path): _redacted_file(path, content, redact) for path, content in noted["files"].items()}
    return found


def _redacted_file(path: str, content: str, redact: Callable[[str], str]) -> str:
    data = content.encode("latin-1")
    if path.endswith("/config"):
        return _without_serial(data).decode("latin-1")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""  # binary, and not known what is in it
    if _SERIALS.search(path) and text.strip():
        return hashlib.sha256(redact(f"00000000-0000-4000-8000-{text.encode().hex()[:12]:0<12}").encode()).hexdigest()[
            :12
        ]
    return redact(text).encode().decode("latin-1")


def _without_serial(config: bytes) -> bytes:
    # PCIe extended capability 3 holds the device's serial number, 8 bytes behind its header.
    data, at = bytearray(config), 0x100
    for _ in range(64):
        if at < 0x100 or at + 12 > len(data):
            break
        head = int.from_bytes(data[at : at + 4], "little")
        if head & 0xFFFF == 3:
            data[at + 4 : at + 12] = bytes(8)
        at = head >> 20
    return bytes(data)


# --- the files ---


def _files(
    host: Host,
    node: str,
    before: Noted | None,
    now: Noted,
    seconds: tuple[float, float],
    gaps: list[tuple[str, Gap]],
) -> dict[str, str]:
    commands: dict[str, str] = {}
    files: dict[str, str] = {}
    for command, text in sorted(now["commands"].items()):
        name = f"{re.sub(r'[^A-Za-z0-9.]+', '-', command).strip('-')}.{'txt' if command == 'dmesg' else 'json'}"
        if len(text) > TEXT_BYTES or sum(map(len, files.values())) + len(text) > BUNDLE_BYTES:
            if command != "dmesg":
                now["refused"][command] = ["more than a bundle holds was left out", "run rdmadiag check on the node"]
                continue
            text = text[-TEXT_BYTES:].partition("\n")[2]
        commands[command] = name
        files[f"{bundle.COMMANDS}/{name}"] = text
    files["tree.txt"] = recorded_tree(now, seconds[1], host.live, host.root)
    if before is not None:
        files["tree.before.txt"] = recorded_tree(before, seconds[0], host.live, host.root)
    told = [{"source": source, **gap._asdict(), "tables": list(gap.tables)} for source, gap in gaps]
    manifest = {
        "schema": bundle.SCHEMA,
        "rdmadiag": __version__,
        "node": node,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commands": commands,
        "gaps": told,
        "files": {name: len(text.encode()) for name, text in files.items()},
    }
    return {bundle.MANIFEST: json.dumps(manifest, indent=1), **files}


def write(path: str, captured: Captured) -> int:
    """Write a bundle as an archive packed as its name ends. Returns its length [bytes]. Raises BadFile."""
    packing = next((kind for end, kind in ENDINGS.items() if path.endswith(end)), None)
    if packing is None:
        raise BadFile(path, "", f"its name must end in one of {', '.join(ENDINGS)}")
    out = io.BytesIO()
    mode: Any = f"w:{packing}"
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, content in captured.files.items():
            member = tarfile.TarInfo(f"rdmadiag-{_file_name(captured.node)}/{name}")
            member.size, member.mtime, member.mode = len(content), int(time.time()), 0o600
            archive.addfile(member, io.BytesIO(content))
    try:
        with open(path, "xb") as file:  # never over a file that is there
            file.write(out.getvalue())
    except OSError as error:
        raise BadFile(path, "", f"cannot be written: {error.strerror}") from error
    return len(out.getvalue())


def _file_name(node: str) -> str:
    return re.sub(r"[^\w.-]+", "_", node) or hashlib.sha256(node.encode()).hexdigest()[:8]
