"""The snippets for programs that run rdmadiag: each is parsed or run as far as that goes without the program itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from rdmadiag.cli import cli

ROOT = Path(__file__).parent.parent
CALLERS = ROOT / "docs/callers"
FAULTY, FINE = ROOT / "tests/data/nodes/rxe-rnr", ROOT / "tests/data/nodes/mlx5-roce-8nic-h100"


def tools(folder: Path, node: Path | None) -> dict[str, str]:
    """Return an environment whose rdmadiag looks at a captured node instead of this machine, and whose scontrol notes its words."""
    folder.mkdir()
    given = f"--from {node}" if node else "--from /nosuch"
    (folder / "rdmadiag").write_text(f'#!/bin/sh\nexec {sys.executable} -m rdmadiag "$@" {given}\n')
    (folder / "scontrol").write_text(
        f'#!/bin/sh\nfor word; do echo "$word"; done >> {folder}/said\necho "State=$STATE"\n'
    )
    for name in ("rdmadiag", "scontrol"):
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SLURMD_NODENAME": "n7", "STATE": "IDLE"}


def run(script: str, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(CALLERS / script), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)


def commands_of(text: str) -> list[str]:
    return re.findall(r"rdmadiag (check[^\n\"|>]*)", text)


def test_every_option_of_every_snippet_is_one() -> None:
    found = 0
    for path in [*CALLERS.iterdir(), ROOT / "docs/callers.md"]:
        text = path.read_text()
        lines = (
            [" ".join(rule["args"]) for rule in json.loads(text)["rules"]]
            if path.suffix == ".json"
            else commands_of(text)
        )
        for line in lines:
            words = re.split(r" 2>|\)|`", line)[0].split()[1:]
            words = [word for word in words if word not in ("FILE",)]
            command: Any = cli.get_command(click.Context(cli), "check")
            command.make_context("check", words, resilient_parsing=False)
            found += 1
    assert found >= 8


def test_the_node_problem_detector_config_has_the_fields_of_its_custom_plugin_monitor() -> None:
    config = json.loads((CALLERS / "node-problem-detector.json").read_text())
    assert config["plugin"] == "custom" and config["pluginConfig"]["max_output_length"] == 80
    conditions = {condition["type"] for condition in config["conditions"]}
    for rule in config["rules"]:
        assert rule["type"] in ("permanent", "temporary") and rule["condition"] in conditions
        assert "npd" in rule["args"] and rule["reason"] and rule["path"].startswith("/")
        assert int(rule["timeout"][:-1]) <= int(config["pluginConfig"]["timeout"][:-1])


def test_slurm_drains_a_node_that_is_proven_wrong_with_the_reason(tmp_path: Path) -> None:
    done = run("slurm-health-check.sh", tools(tmp_path / "t", FAULTY))
    said = (tmp_path / "t/said").read_text().splitlines()
    assert done.returncode == 0
    assert said[-4:-1] == ["update", "NodeName=n7", "State=DRAIN"]
    assert said[-1].startswith("Reason=rdmadiag: rnr-retries-exhausted rxe1/1: The receiver")


@pytest.mark.parametrize("node", [FINE, None], ids=["fine", "could not look"])
def test_slurm_drains_no_node_that_is_fine_or_that_could_not_be_looked_at(node: Path | None, tmp_path: Path) -> None:
    assert run("slurm-health-check.sh", tools(tmp_path / "t", node)).returncode == 0
    assert not (tmp_path / "t/said").exists()


def test_slurm_keeps_the_reason_of_a_node_that_is_drained_already(tmp_path: Path) -> None:
    run("slurm-health-check.sh", {**tools(tmp_path / "t", FAULTY), "STATE": "IDLE+DRAIN"})
    assert "update" not in (tmp_path / "t/said").read_text()


def test_the_textfile_script_writes_metrics_and_leaves_the_old_ones_when_it_cannot_check(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert run("prometheus-textfile.sh", tools(tmp_path / "a", FAULTY), str(out)).returncode == 0
    text = (out / "rdmadiag.prom").read_text()
    assert {family.name for family in text_string_to_metric_families(text)} >= {"rdmadiag_verdict", "rdmadiag_finding"}
    assert run("prometheus-textfile.sh", tools(tmp_path / "b", None), str(out)).returncode == 2
    assert [path.name for path in out.iterdir()] == ["rdmadiag.prom"] and (out / "rdmadiag.prom").read_text() == text


def test_the_manifests_parse_and_name_what_they_mount() -> None:
    manifest = yaml.safe_load((CALLERS / "daemonset.yaml").read_text())
    assert manifest["kind"] == "DaemonSet" and manifest["apiVersion"] == "apps/v1"
    template = manifest["spec"]["template"]
    assert manifest["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    container = template["spec"]["containers"][0]
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in template["spec"]["volumes"]}
    assert subprocess.run(["sh", "-n", "-c", container["args"][0]], check=False).returncode == 0
    assert "steps" in yaml.safe_load((CALLERS / "ci.yml").read_text())["jobs"]["rdma"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for name in ("rdmadiag-check.service", "rdmadiag-check.timer"):
        text = (CALLERS / name).read_text().replace("/usr/local/bin/rdmadiag", "/bin/true")
        (tmp_path / name).write_text(text)
    command = [
        "systemd-analyze",
        "verify",
        "--man=no",
        str(tmp_path / "rdmadiag-check.timer"),
        str(tmp_path / "rdmadiag-check.service"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "rdmadiag" not in done.stderr, done.stderr


def test_nagios_blocks_close_and_have_what_an_object_needs() -> None:
    blocks = re.findall(r"define (\w+) \{\n(.*?)\n\}", (CALLERS / "nagios.cfg").read_text(), re.S)
    fields = {kind: dict(line.split(None, 1) for line in body.splitlines()) for kind, body in blocks}
    assert fields["service"]["check_command"] == fields["command"]["command_name"]
    assert "--format nagios" in fields["command"]["command_line"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_made_for_each_shell(shell: str) -> None:
    environment = {**os.environ, "_RDMADIAG_COMPLETE": f"{shell}_source"}
    code = "import sys; sys.argv[0] = 'rdmadiag'; from rdmadiag.cli import main; main([])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert f"_RDMADIAG_COMPLETE={shell}_complete" in done.stdout


def test_completion_offers_commands_and_options() -> None:
    def offered(words: str, number: int) -> str:
        environment = {
            **os.environ,
            "_RDMADIAG_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(number),
        }
        code = "from rdmadiag.cli import main; main([])"
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60, check=False
        ).stdout

    assert "plain,collect" in offered("rdmadiag co", 1)
    assert "plain,--previous" in offered("rdmadiag check --pr", 2)
    assert "plain,nagios" in offered("rdmadiag check --format na", 3)


def test_manual_pages_are_made_for_every_command_and_man_takes_them(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs/man.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    made = {path.name for path in tmp_path.iterdir()}
    assert {"rdmadiag.1", "rdmadiag-check.1", "rdmadiag-collect.1", "rdmadiag-expect-init.1"} <= made, done.stdout
    page = (tmp_path / "rdmadiag-check.1").read_text()
    for part in (".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS", "previous"):
        assert part in page
    if shutil.which("man"):
        for name in made:
            told = subprocess.run(
                ["man", "--warnings=w", "-l", str(tmp_path / name)],
                capture_output=True,
                text=True,
                env={**os.environ, "MANPAGER": "cat", "LC_ALL": "C.UTF-8"},
                timeout=60,
                check=False,
            )
            assert told.returncode == 0 and "NAME" in told.stdout and told.stderr == "", told.stderr
