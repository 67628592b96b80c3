"""The rooms of the package are in one order: a room imports only rooms above it, and heavy imports happen late."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "rdmadiag"
ORDER = [
    "errors",
    "registry",
    "cache",
    "patterns",
    "explain",
    "plan",
    "roce",
    "netlink",
    "host",
    "evidence",
    "sources",
    "diagnose",
    "verbs",
    "lab",
    "kv",
    "workloads",
    "bench",
    "faults",
    "inject",
    "scenario",
    "prove",
    "fleet",
    "render",
    "cli",
    "chaostoolkit",
    "pytest_plugin",
]
HEAVY = {"scapy", "pyroute2", "numpy", "pyverbs", "jsonschema", "rich"}


def room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "rdmadiag" else None


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def test_a_room_imports_only_rooms_above_it() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if own in ("__init__", "__main__"):
            continue
        for name in imports(path):
            other = room(name)
            if other in ("__version__", None) or other not in ORDER:
                continue
            if ORDER.index(other) > ORDER.index(own):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert wrong == []


def test_every_room_has_its_place_in_the_order() -> None:
    rooms = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if not path.name.startswith("_")}
    assert rooms <= set(ORDER)


def test_a_check_of_shipped_rules_imports_nothing_heavy() -> None:
    code = "import sys; from rdmadiag.cli import main; main(['check', '--window', '0', '--format', 'json'])"
    code = f"import atexit, sys; atexit.register(lambda: print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)); {code}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr.strip().splitlines()[-1:] == ["[]"], result.stderr


def test_sources_touch_the_node_only_by_its_door() -> None:
    forbidden = {"os", "subprocess", "pathlib", "glob", "shutil", "ctypes"}
    wrong = []
    for path in (PACKAGE / "sources").rglob("*.py"):
        text = path.read_text()
        calls = {
            n.func.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        }
        if {name.partition(".")[0] for name in imports(path)} & forbidden or "open" in calls or "socket.socket" in text:
            wrong.append(path.name)
    assert wrong == []
