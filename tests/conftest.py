"""What tests share: the shipped rules, the library of texts, small evidence, and the command line."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from rdmadiag.diagnose import check, examples, rulebook
from rdmadiag.evidence.texts import Library

DATA = Path(__file__).parent / "data"

# A busy machine must fail no test: no deadline for an example of a property test.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# A background shell ignores SIGINT and SIGQUIT, nohup SIGHUP, and what tests start would inherit that; a signal that is caught here is not.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda number, frame: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is left out by `make check`: property tests, and tests that run many processes."""
    for item in items:
        function = getattr(item, "function", None)
        if getattr(function, "is_hypothesis_test", False) or "rdmadiag" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


TOLD = "told"


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str, str], None]:
    """Return a function whose texts are printed at the end of the run under their head, by xdist's workers too."""
    return lambda head, text: record_property(f"{TOLD} {head}", text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests told."""
    said: dict[str, list[str]] = {}
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, text in report.user_properties if report.when == "call" else ():
            if name.startswith(TOLD):
                said.setdefault(name.removeprefix(TOLD).strip(), []).append(str(text))
    for head, texts in said.items():
        terminalreporter.write_line(f"\n{head}: {', '.join(texts)}")


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    """Return a folder that other users may look into."""
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(0o755)
    return tmp_path


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep compiled patterns of tests out of the home folder."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="session")
def book() -> rulebook.Rulebook:
    """Return the shipped rules."""
    return rulebook.load()


@pytest.fixture(scope="session")
def library(book: rulebook.Rulebook) -> Library:
    """Return every known text and every shipped pattern, compiled."""
    return examples.library_for(book)


@pytest.fixture(scope="session")
def checked() -> Callable[..., dict[str, Any]]:
    """Return a function that checks paths and returns the report."""

    def run(*paths: str | Path, **options: Any) -> dict[str, Any]:
        return check.check(check.Request(given=tuple(map(str, paths)), budget=60.0, **options)).report

    return run


@pytest.fixture(scope="session")
def rdmadiag() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the command line in a process of its own."""

    def run(*args: str, stdin: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rdmadiag", *args]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False, **options)

    return run
