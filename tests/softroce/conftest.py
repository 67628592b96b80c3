"""One lab for the whole run, on real SoftRoCE. A lab that cannot be made fails the tests that need it: none is skipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rdmadiag import lab as labs
from rdmadiag.inject import everything
from rdmadiag.kv import in_lab

ROOT = Path(__file__).parent.parent.parent
# The cache as it was before tests/conftest.py moved it: a kernel and saved states are in it.
CACHE = os.environ.get("XDG_CACHE_HOME")
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def environment() -> dict[str, str]:
    """Return this process's environment with the cache that holds the kernel."""
    values = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    return values | ({"XDG_CACHE_HOME": CACHE} if CACHE else {})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave these out of `make check`, and have `make test` run them one after the other: they share a lab and the processors."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("slow")
            item.add_marker("lab")


def wait_until(what: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something is true; fail when it does not come true in ample time."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def processes_of(name: str) -> list[int]:
    """Return the processes that have a lab's folder in their command line: its keeper and its guests."""
    mark, found = f"{labs.places.labs_folder()}/{name}", []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0] if words else "Z"
        except OSError:
            continue
        if state != "Z" and (f"{mark}\0" in words or f"{mark}/" in words):
            found.append(int(entry.name))
    return found


def command(*args: str) -> list[str]:
    """Return the words that run `rdmadiag lab`."""
    return our_words("lab", *args)


def our_words(*args: str) -> list[str]:
    """Return the words that run our command line."""
    return [sys.executable, "-m", "rdmadiag", *args]


def ours(*args: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run our command line and return what it printed."""
    return subprocess.run(
        our_words(*args),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environment(),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture(scope="session")
def cli() -> Cli:
    """Return a function that runs `rdmadiag lab ...` and returns what it printed."""

    def run(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
        settings: dict[str, object] = {"stdin": subprocess.DEVNULL} | (
            {"input": options["input"]} if "input" in options else {}
        )
        if "input" in settings:
            del settings["stdin"]
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            command(*args),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env=environment(),
            cwd=ROOT,
            **settings,
        )

    return run


@pytest.fixture(scope="session")
def lab(cli: Cli) -> Iterator[labs.Lab]:
    """Return the lab of this run: two hosts, one rail, 200 Mbit/s."""
    name = f"test-{os.getpid()}"
    made = cli("up", name)
    assert made.returncode == 0, made.stderr
    yield labs.find(name)
    cli("down", name)


class Worker:
    """A process in the lab that has pyverbs loaded: call it with the name of a function of verbs_cases and its arguments."""

    def __init__(self, lab: str) -> None:
        words = command("exec", lab, "--", sys.executable, "-S", "-m", "tests.softroce.worker")
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=in_lab.environment() | environment(),
            cwd=ROOT,
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, f"the worker in the lab ended (exit code {self._process.wait(30)})"
        return line.strip()

    def __call__(self, function: str, **arguments: Any) -> Any:
        """Run a function there and return its result; fail with its error."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([function, arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        assert "error" not in answer, answer["trace"]
        return answer["result"]

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)


@pytest.fixture(scope="session")
def verbs(lab: labs.Lab) -> Iterator[Worker]:
    """Return the worker of this run."""
    worker = Worker(lab.name)
    yield worker
    worker.close()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a test a journal of injections of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def clean(lab: labs.Lab) -> Iterator[Callable[[], str]]:
    """Return a function that reads the switch's state; at the end it must be as it was."""

    def look() -> str:
        text = "nft list tables; tc qdisc show; ip -o link; ip -o addr; ip route; ls /run/rdmadiag-inject 2>/dev/null; ls /tmp/nothing 2>/dev/null"
        return "".join(lab.run(["sh", "-c", text], host=host).text for host in ("switch", ""))

    before = look()
    yield look
    everything()
    assert look() == before


@pytest.fixture
def name(cli: Cli) -> Iterator[str]:
    """Return the name of a lab that a test makes itself; whatever is left of it is taken down."""
    chosen = f"t-{uuid.uuid4().hex[:8]}"
    yield chosen
    cli("down", chosen)


@pytest.fixture
def real_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process see the cache that holds the kernel, as the command line does here."""
    if CACHE is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", CACHE)


PINGPONG = """
timeout 60 ibv_rc_pingpong -d {one} -g 1 -n {count} -p {port} > /dev/null & server=$!
tries=0
until timeout 30 ibv_rc_pingpong -d {two} -g 1 -n {count} -p {port} {address} > /tmp/client.txt 2>&1; do
  tries=$((tries+1)); [ $tries -lt 20 ] || {{ cat /tmp/client.txt; exit 1; }}
  grep -q "Couldn't connect" /tmp/client.txt || {{ cat /tmp/client.txt; exit 2; }}
  sleep 0.5
done
wait $server
"""


def pingpong(one: str, two: str, address: str, count: int = 200, port: int = 18515) -> list[str]:
    """Return a command: RC messages between two devices of one kernel; the first may still be starting."""
    return ["sh", "-c", PINGPONG.format(one=one, two=two, address=address, count=count, port=port)]
