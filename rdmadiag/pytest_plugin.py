"""pytest plugin: labs, faults, transfers, evidence and diagnosis as fixtures, and scenarios as a mark.

Loaded with every pytest run where rdmadiag is installed, so nothing but pytest is imported before a test asks for something.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pytest

if TYPE_CHECKING:
    from rdmadiag.inject import Injection
    from rdmadiag.lab import Lab, Ran
    from rdmadiag.workloads import Host, Run

LAB_VARIABLE = "RDMADIAG_PYTEST_LAB"
"""The name of the lab of this run: set by the process that was started, read by xdist's workers."""
_NOTES: pytest.StashKey[list[str]] = pytest.StashKey()
_RUN: pytest.StashKey[ScenarioRun] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    group = parser.getgroup("rdma", "RDMA labs, faults and scenarios (rdmadiag)")
    group.addoption(
        "--rdma-lab",
        default="auto",
        choices=["auto", "native", "vm", "none"],
        help="What labs are made of: this kernel's rdma_rxe (native, root), a virtual machine (vm), whichever works (auto); "
        "none: tests that need a lab are skipped.",
    )
    group.addoption("--rdma-report", metavar="DIR", help="Keep evidence and reports of runs and tests there.")
    group.addoption("--rdma-require", action="store_true", help="Fail tests that would be skipped for want of a lab.")


def pytest_configure(config: pytest.Config) -> None:
    """Register our marks, and name the lab of this run."""
    config.addinivalue_line(
        "markers",
        "rdma_scenario(name, **parameters): run a scenario of rdmadiag, shipped or a file, before the test, "
        "which fails unless the verdict is PASS",
    )
    if not hasattr(config, "workerinput"):
        os.environ[LAB_VARIABLE] = f"pytest-{secrets.token_hex(4)}"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the lab of this run down; xdist's workers leave that to the process that started them."""
    name = os.environ.get(LAB_VARIABLE)
    if name and not hasattr(config, "workerinput") and _lab_folder(name).exists():
        from rdmadiag.lab import take_down

        take_down(name)


def _lab_folder(name: str) -> Path:
    # As rdmadiag.lab.places has it, without importing it in runs that made no lab.
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = runtime and os.path.isdir(runtime) and os.stat(runtime).st_uid == os.getuid()
    base = (
        Path(runtime, "rdmadiag")
        if usable
        else Path("/run/rdmadiag" if not os.getuid() else f"/tmp/rdmadiag-{os.getuid()}")
    )
    return base / name


def _not_here(config: pytest.Config, reason: str) -> NoReturn:
    if config.getoption("rdma_require"):
        pytest.fail(f"--rdma-require: {reason}", pytrace=False)
    pytest.skip(reason)


# --- scenarios ---


class ScenarioRun:
    """The run of a scenario that a test is marked with; filled in when the test begins."""

    report: Mapping[str, Any]
    """rdmadiag.run-report/1"""

    def __getitem__(self, name: str) -> Any:
        """Return a quantity of the run by name, None where it was not measured."""
        return self.report["quantities"].get(name, {}).get("value")

    @property
    def verdict(self) -> str:
        """The verdict."""
        return str(self.report["verdict"])

    @property
    def folder(self) -> Path:
        """Where everything that was seen of the run is kept."""
        return Path(self.report["folder"])


@pytest.fixture
def rdma_run(request: pytest.FixtureRequest) -> ScenarioRun:
    """The run of the scenario that this test is marked with (`rdma_scenario`)."""
    if request.node.get_closest_marker("rdma_scenario") is None:
        raise pytest.UsageError('rdma_run needs the mark @pytest.mark.rdma_scenario("name")')
    run: ScenarioRun = request.node.stash.setdefault(_RUN, ScenarioRun())
    return run


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Run the scenario that a test is marked with, then the test."""
    mark = pyfuncitem.get_closest_marker("rdma_scenario")
    if mark is not None:
        _run_scenario(pyfuncitem, mark)
    return (yield)


def _run_scenario(item: pytest.Function, mark: pytest.Mark) -> None:
    from rdmadiag.render import run as formats
    from rdmadiag.render.run import text
    from rdmadiag.scenario import campaign

    if len(mark.args) != 1 or not isinstance(mark.args[0], str):
        raise pytest.UsageError(f'{item.nodeid}: wanted @pytest.mark.rdma_scenario("name", parameter=value)')
    backend = _backend(item.config)
    beside = item.path.parent / mark.args[0]
    word = str(beside) if mark.args[0].endswith(".json") and beside.exists() else mark.args[0]
    (found,) = campaign.plan([word], mark.kwargs)
    report = campaign.one(found, str(_folder(item)), backend=backend)
    formats.leave(report)
    item.stash.setdefault(_RUN, ScenarioRun()).report = report
    if campaign.interrupted(report):
        pytest.exit(str(report["reason"]))
    if report["verdict"] == "UNSUPPORTED":
        _not_here(item.config, f"scenario {found.label}: {report['reason']}")
    if report["verdict"] != "PASS":
        pytest.fail(text.render(report), pytrace=False)
    item.stash.setdefault(_NOTES, []).append(text.render(report))


def _backend(config: pytest.Config) -> str:
    backend = str(config.getoption("rdma_lab"))
    if backend == "none":
        _not_here(config, "needs an RDMA lab; this run has --rdma-lab=none")
    return backend


def _folder(item: pytest.Item) -> Path:
    """Return where the evidence of a test goes: below --rdma-report, else where pytest keeps files of tests."""
    parent = item.config.getoption("rdma_report")
    if parent is None:
        from _pytest.tmpdir import TempPathFactory

        factory: TempPathFactory = item.config._tmp_path_factory  # type: ignore[attr-defined]
        parent = factory.getbasetemp() / "rdma"
    path = Path(parent) / re.sub(r"[^\w.=-]+", "_", item.nodeid).strip("_")[-120:]
    path.mkdir(parents=True, exist_ok=True)
    return path


# --- the lab ---


@pytest.fixture(scope="session")
def _rdma_lab_of_this_run(request: pytest.FixtureRequest) -> Lab:
    from rdmadiag import lab
    from rdmadiag.errors import RdmadiagError

    backend = _backend(request.config)
    try:
        return lab.up(lab.Options(backend=backend, folder=str(request.config.rootpath)), os.environ[LAB_VARIABLE])
    except RdmadiagError as error:
        _not_here(request.config, f"no RDMA lab can be made here: {error}; `rdmadiag lab doctor` says what is missing")


@pytest.fixture
def rdma_lab(_rdma_lab_of_this_run: Lab) -> Iterator[Lab]:
    """The lab of this run: two hosts with SoftRoCE and a switch, made once. One test has it at a time, with xdist too."""
    import fcntl

    lab = _rdma_lab_of_this_run
    with open(lab.folder / "pytest.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield lab


class RdmaHost(NamedTuple):
    """A host of the lab: its RDMA device and addresses (`at`), and a way to run commands on it."""

    at: Host
    lab: Lab

    @property
    def name(self) -> str:
        """h1, h2"""
        return self.at.name

    @property
    def device(self) -> str:
        """The verbs device: rxe1."""
        return self.at.device

    def run(self, *argv: str, seconds: float = 60.0, check: bool = True) -> Ran:
        """Run a command there; with `check`, one that fails fails the test. Raises LabError when time runs out."""
        ran = self.lab.run(list(argv), host=self.name, timeout_seconds=seconds)
        if check and ran.code:
            pytest.fail(
                f"{self.name}: {' '.join(argv)}: exit code {ran.code}\n{ran.text}{ran.err.decode(errors='replace')}"
            )
        return ran


@pytest.fixture
def rdma_hosts(rdma_lab: Lab) -> list[RdmaHost]:
    """The hosts of the lab."""
    from rdmadiag.lab import topology
    from rdmadiag.workloads import InLab

    place = InLab(rdma_lab)
    return [RdmaHost(place.host(name), rdma_lab) for name in topology.host_names(rdma_lab.options)]


# --- faults and transfers ---


@pytest.fixture
def inject(
    rdma_lab: Lab, request: pytest.FixtureRequest
) -> Callable[..., contextlib.AbstractContextManager[Injection]]:
    """A function that puts a fault on the lab for the time of a block: `with inject("loss", percent=5): ...`.

    The test fails when the fault left no trace (`must_fire=False`: not), and when it cannot be taken off.
    """
    from rdmadiag import inject as injector

    @contextlib.contextmanager
    def put_on(
        fault: str, *, for_seconds: float = 60.0, must_fire: bool = True, **parameters: Any
    ) -> Iterator[Injection]:
        injection = injector.inject(fault, parameters, injector.in_lab(rdma_lab), for_seconds)
        with injection:
            yield injection
        outcome = injection.outcome
        own, other = outcome.fired
        told = (
            f"fault {injection.title}: {outcome.verdict} after {outcome.held_seconds:.1f} s: {own.text}; {other.text}"
        )
        request.node.stash.setdefault(_NOTES, []).append(told)
        if must_fire and outcome.verdict != "FIRED":
            pytest.fail(f"{told}\nnothing was tested: a fault that left no trace proves nothing", pytrace=False)

    return put_on


@pytest.fixture
def kv_transfer(rdma_lab: Lab, request: pytest.FixtureRequest) -> Iterator[Callable[..., Run]]:
    """A function that starts a KV-cache transfer between the hosts: `run = kv_transfer(requests=2)`, `run.finish(60)`.

    Parameters are those of workload kv, or of another workload: `kv_transfer("mooncake", ...)`.
    """
    from rdmadiag import workloads

    with contextlib.ExitStack() as runs:

        def start(workload: str = "kv", **parameters: Any) -> Run:
            return runs.enter_context(workloads.start(workload, workloads.InLab(rdma_lab), parameters))

        yield start


# --- evidence and diagnosis ---


@pytest.fixture
def evidence(rdma_lab: Lab, request: pytest.FixtureRequest) -> Callable[..., Path]:
    """A function that collects the lab's evidence now, as `rdmadiag collect` does: the path of a bundle."""
    import sys

    from rdmadiag.workloads._place import package_path

    folder = _folder(request.node)

    def collect(name: str = "", window: float = 0.0) -> Path:
        path = folder / f"{name or f'evidence-{secrets.token_hex(4)}'}.tar.gz"
        there = f"/tmp/{secrets.token_hex(8)}.tar.gz"
        argv = [sys.executable, "-m", "rdmadiag", "collect", "-o", there, "--window", str(window), "--budget", "60"]
        ran = rdma_lab.run(argv, environment=package_path(), timeout_seconds=180)
        if ran.code:
            pytest.fail(f"evidence could not be collected: {ran.err.decode(errors='replace').strip()}")
        path.write_bytes(rdma_lab.run(["cat", there], timeout_seconds=60).out)
        rdma_lab.run(["rm", there], timeout_seconds=60)
        return path

    return collect


class Diagnosis(NamedTuple):
    """What the rules say: the whole report (rdmadiag.report/1) and the ids of those that are confirmed."""

    report: Mapping[str, Any]

    @property
    def confirmed(self) -> set[str]:
        """Rules that are proven."""
        return {finding["rule"] for finding in self.report["findings"] if finding["answer"] == "confirmed"}

    def __repr__(self) -> str:
        """Name the confirmed rules: what a failed assertion shows."""
        return f"<diagnosis, confirmed: {', '.join(sorted(self.confirmed)) or 'nothing'}>"


@pytest.fixture
def diagnose(request: pytest.FixtureRequest) -> Callable[..., Diagnosis]:
    """A function that runs `rdmadiag check` on evidence: `diagnose(after, previous=before).confirmed`; without any, on the lab now."""

    def run(*paths: str | Path, previous: str | Path | None = None) -> Diagnosis:
        from rdmadiag.diagnose import check
        from rdmadiag.render import text

        given = paths or (request.getfixturevalue("evidence")(),)
        wanted = check.Request(given=tuple(map(str, given)), previous=str(previous) if previous else None, budget=60.0)
        report = check.check(wanted).report
        request.node.stash.setdefault(_NOTES, []).append(text.render(report))
        return Diagnosis(report)

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Show what was seen of faults, scenarios and findings with a test that failed."""
    report: Any = yield
    notes = item.stash.get(_NOTES, None)
    if notes and report.failed and report.when == "call":
        report.sections.append(("rdmadiag", "\n\n".join(notes)))
    return report
