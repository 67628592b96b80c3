"""The console blocks of README and docs are run, and print what they show; generated pages are what would be generated."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from rdmadiag import explain, faults, registry
from rdmadiag.diagnose import rulebook

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


class Shown(NamedTuple):
    """A command of a console block, what the page shows of it, and its page."""

    page: str
    command: str
    output: list[str]


def blocks() -> list[Shown]:
    """Return the commands of all console blocks; a line `...` in what is shown stands for any lines."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.S):
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, *output = part.rstrip("\n").split("\n")
                while command.endswith("\\"):
                    command = command[:-1] + output.pop(0)
                found.append(Shown(page.name, command, output))
    return found


def matches(shown: list[str], printed: list[str]) -> bool:
    """Tell whether printed lines are those shown, `...` standing for any number of lines, `…` for the rest of a line."""
    pattern = "".join(
        r"(?:.*\n)*?"
        if line.strip() == "..."
        else "(?:" + ".*".join(map(re.escape, line.rstrip().split("…"))) + r")[ ]*\n"
        for line in shown
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


@pytest.mark.parametrize(
    "shown",
    [b for b in blocks() if not b.command.startswith(("make ", "sudo ", "git ", "kubectl ", "pip "))],
    ids=lambda b: f"{b.page}: {b.command[:60]}",
)
def test_a_console_block_prints_what_it_shows(shown: Shown) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    result = subprocess.run(
        ["bash", "-c", shown.command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    printed = (result.stdout + result.stderr).rstrip("\n").split("\n")
    assert matches(shown.output, printed) or shown.output == [], "\n".join(["printed:", *printed])


def test_the_pages_have_console_blocks() -> None:
    assert len(blocks()) >= 10


def test_nothing_in_the_repository_names_the_machine_it_was_made_on() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    home = (
        str(ROOT if str(ROOT.parent) in ("/", "/tmp", "/root", "/home", "/opt", "/srv", "/var/tmp") else ROOT.parent)
        + "/"
    )
    found = []
    for name in filter(None, listed):
        path = ROOT / name
        if path.is_file() and path.stat().st_size < 1 << 20 and home.encode() in path.read_bytes() and home != "/":
            found.append(name)
    assert found == []


def test_generated_pages_are_up_to_date() -> None:
    result = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_rules_topics_faults_and_scenarios_that_the_page_on_the_articles_names_exist(book: rulebook.Rulebook) -> None:
    page = (ROOT / "docs/seeds.md").read_text()
    known = {name.replace("_", "-") for package in (explain, faults) for name in registry.names(package)}
    known |= {path.stem for path in (ROOT / "scenarios").glob("*.json")}
    named = set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", page)) - {"nvidia-peermem"}
    assert sorted(name for name in named if name not in book and name not in known) == []
