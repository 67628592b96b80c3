"""The pytest plugin, in test runs of its own; what needs a lab is in tests/softroce and tests/examples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenario.test_render_runs import made

pytest_plugins = ["pytester"]

PLAIN = """
import sys
def test_plain():
    assert 1 + 1 == 2
def test_what_is_loaded():
    ours = sorted(name for name in sys.modules if name.partition(".")[0] == "rdmadiag")
    assert ours == ["rdmadiag", "rdmadiag.pytest_plugin"], ours
    assert not {"click", "rich", "numpy", "jsonschema", "hyperscan", "scapy", "pyroute2"} & set(sys.modules)
"""
MARKED = """
import pytest
@pytest.mark.rdma_scenario("loss", percent=1)
def test_marked(rdma_run):
    assert rdma_run.verdict == "PASS"
    assert rdma_run["corrupt"] == 0
"""


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Run pytest in a process of its own, with the plugin loaded as its entry point does."""
    return pytester.runpytest_subprocess(*args)


def test_a_test_that_wants_nothing_of_us_loads_nothing_of_us(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PLAIN)
    run(pytester).assert_outcomes(passed=2)


def test_the_entry_point_names_the_plugin() -> None:
    text = (Path(__file__).parent.parent / "setup.cfg").read_text()
    assert "pytest11 =\n    rdmadiag = rdmadiag.pytest_plugin" in text


@pytest.mark.parametrize(
    "body", [MARKED, "def test_it(rdma_hosts): pass", "def test_it(inject, kv_transfer, evidence): pass"]
)
def test_without_a_lab_tests_are_skipped_with_the_reason(pytester: pytest.Pytester, body: str) -> None:
    pytester.makepyfile(body)
    result = run(pytester, "--rdma-lab=none", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*needs an RDMA lab*--rdma-lab=none*"])


@pytest.mark.parametrize("body", [MARKED, "def test_it(rdma_hosts): pass"])
def test_where_a_lab_is_required_they_fail_instead(pytester: pytest.Pytester, body: str) -> None:
    pytester.makepyfile(body)
    result = run(pytester, "--rdma-lab=none", "--rdma-require")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*--rdma-require: needs an RDMA lab*"])


def test_a_mark_without_a_name_is_wrong_use(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.rdma_scenario\ndef test_it(): pass")
    result = run(pytester)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*wanted @pytest.mark.rdma_scenario*"])


def test_an_unknown_scenario_or_parameter_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.rdma_scenario('qqqq')\ndef test_a(): pass\n"
        "@pytest.mark.rdma_scenario('loss', speed=1)\ndef test_b(): pass"
    )
    result = run(pytester)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*no scenario 'qqqq'*", "*no parameter 'speed'; it has percent*"])


def test_the_fixture_without_the_mark_is_wrong_use(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(rdma_run): pass")
    run(pytester).stdout.fnmatch_lines(["*rdma_run needs the mark*"])


def stored(pytester: pytest.Pytester, **parts: object) -> None:
    """Let a run of a scenario be one that is told here: how it is shown is what is tested."""
    folder = pytester.path / "run"
    folder.mkdir()
    report = made() | parts | {"folder": str(folder)}
    pytester.makeconftest(
        f"import json\nfrom rdmadiag.scenario import campaign\nREPORT = json.loads({json.dumps(json.dumps(report))})\n"
        "campaign.one = lambda found, parent, **settings: REPORT\n"
    )
    pytester.makepyfile(MARKED)


def test_a_scenario_that_passes_lets_its_test_ask_more(pytester: pytest.Pytester) -> None:
    stored(pytester)
    run(pytester).assert_outcomes(passed=1)
    assert {path.name for path in (pytester.path / "run").iterdir()} >= {"report.html", "report.json", "junit.xml"}


def test_a_scenario_that_fails_shows_verdict_timeline_and_findings(pytester: pytest.Pytester) -> None:
    stored(pytester, verdict="FAIL", reason="corrupt is 3, wanted 0")
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*FAIL*example*", "*corrupt is 3, wanted 0*", "*goodput |*", "*fault   |*#*", "*packet-loss-on-path*"])  # fmt: skip


def test_one_that_cannot_run_here_is_a_skip_with_its_reason_unless_required(pytester: pytest.Pytester) -> None:
    stored(pytester, verdict="UNSUPPORTED", reason="QP 17 has rnr_retry 7")
    result = run(pytester, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*QP 17 has rnr_retry 7*"])
    assert run(pytester, "--rdma-require").ret == 1


@pytest.mark.parametrize("verdict", ["NOT_FIRED", "INVALID", "ABORTED", "REVERT_FAILED"])
def test_no_other_verdict_passes(pytester: pytest.Pytester, verdict: str) -> None:
    stored(pytester, verdict=verdict)
    run(pytester).assert_outcomes(failed=1)


def test_our_options_are_in_the_help_of_pytest() -> None:
    command = [sys.executable, "-m", "pytest", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert all(option in text for option in ("--rdma-lab", "--rdma-report", "--rdma-require"))
