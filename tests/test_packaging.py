"""Rules, scenarios and schemas reach the user from a wheel and from an editable install."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def rules_listed(folder: Path, environment: dict[str, str]) -> int:
    command = [sys.executable, "-m", "rdmadiag", "rules", "list"]
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return len(result.stdout.splitlines())


def test_every_package_of_ours_is_named_in_setup_cfg() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    named = set(settings["options"]["packages"].split())
    ours = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "rdmadiag").rglob("__init__.py")}
    assert named == ours | {"rdmadiag.rules", "rdmadiag.scenarios"}


@pytest.mark.slow
def test_a_wheel_carries_rules_and_schemas_and_runs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("rdmadiag", "rules", "scenarios"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(source),
    ]
    subprocess.run(build, capture_output=True, text=True, timeout=300, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    shipped = len(list((unpacked / "rdmadiag/rules").rglob("*.json")))
    assert shipped == len(list((ROOT / "rules").rglob("*.json"))) > 60
    assert (unpacked / "rdmadiag/evidence/schema.sql").exists()
    assert (unpacked / "rdmadiag/lab/guest.c").exists()
    assert (unpacked / "rdmadiag/render/report.schema.json").exists()
    assert rules_listed(tmp_path, {**os.environ, "PYTHONPATH": str(unpacked)}) == shipped - 1


def test_an_editable_install_finds_the_rules_from_anywhere(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    assert rules_listed(tmp_path, environment) == len(list((ROOT / "rules").rglob("*.json"))) - 1
