"""The manifest of a bundle, which `rdmadiag collect` writes: what its files are, and what could not be collected."""

from __future__ import annotations

import json
import posixpath
from typing import Any, NamedTuple

from rdmadiag.evidence.row import Gap

SCHEMA = "rdmadiag.bundle/1"
MANIFEST = "manifest.json"
COMMANDS = "commands"
MANIFEST_BYTES = 4 << 20


class Manifest(NamedTuple):
    """What a bundle says of itself: each command with the file of its output, gaps with the source that left them, and its node."""

    commands: dict[str, str]
    gaps: list[tuple[str, Gap]]
    node: str


def manifest(content: bytes | str | None) -> Manifest | None:
    """Read a manifest; None for what is none. Files are names in the folder of commands, never paths out of it."""
    if not isinstance(content, bytes) or len(content) > MANIFEST_BYTES:
        return None
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        return None
    files = data.get("commands")
    commands = {
        command: posixpath.basename(name)
        for command, name in (files.items() if isinstance(files, dict) else ())
        if isinstance(name, str)
    }
    gaps = data.get("gaps")
    found = [gap for entry in (gaps if isinstance(gaps, list) else ()) if (gap := _gap(entry))]
    return Manifest(commands, found, data["node"] if isinstance(data.get("node"), str) else "")


def _gap(entry: Any) -> tuple[str, Gap] | None:
    if not isinstance(entry, dict):
        return None
    words = [entry.get(name) for name in ("source", "reason", "kind", "how", "subject")]
    tables = entry.get("tables")
    if not all(isinstance(word, str) for word in words) or not isinstance(tables, list):
        return None
    source, reason, kind, how, subject = map(str, words)
    return source, Gap(tuple(str(table) for table in tables), reason, kind, how, subject)
