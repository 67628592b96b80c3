"""What a scenario requires of a lab, and whether it is there: else the run is UNSUPPORTED, with what was seen."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rdmadiag.lab import Lab, LabError
from rdmadiag.workloads._place import package_path


def missing(requires: Mapping[str, Any], programs: Sequence[str], lab: Lab) -> str:
    """Return what is not there, and what was seen instead; empty when all is."""
    host = "h1" if lab.options.apart else ""

    def run(*words: str) -> tuple[int, str]:
        try:
            ran = lab.run(list(words), host=host, environment=package_path(), timeout_seconds=60)
        except LabError as error:
            return 127, str(error)
        return ran.code, ran.text.strip()

    wanted = requires.get("kernel_at_least")
    if wanted and (release := run("uname", "-r")[1]) and _number(release) < _number(wanted):
        return f"the lab's kernel is {release}; wanted {wanted} or newer"
    for module in requires.get("modules", []):
        if run("modprobe", "-n", "-q", module)[0]:
            return f"the lab's kernel has no module {module}"
    tools = [*requires.get("tools", []), *programs]
    if tools:
        text = 'for t; do command -v "$t" >/dev/null || echo "$t"; done'
        code, absent = run("sh", "-c", text, "sh", *tools)
        if code or absent:
            return f"not in the lab: {', '.join(absent.split()) or 'a shell'}"
    for module in requires.get("python", []):
        text = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        if run(sys.executable, "-c", text)[0]:
            return f"the lab's Python finds no module {module}"
    return ""


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release)[:2])
