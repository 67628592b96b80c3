"""Engines that are installed on request: wheels from PyPI into a folder of the user's cache, changed there and nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rdmadiag.lab.places import cache_folder
from rdmadiag.workloads._contract import WorkloadError

INSTALL_SECONDS = 900.0


class Engine(NamedTuple):
    """What is installed: a package at a version that was tried; `module` is imported to see that it works.

    `prepare` changes the unpacked wheel; it raises WorkloadError with what is missing here.
    """

    package: str
    version: str
    module: str
    why: str
    prepare: Callable[[Path], None] | None = None


def folder(name: str) -> Path:
    """Return where an engine is, or will be, for this Python."""
    return cache_folder("engines") / f"{name}-cp{sys.version_info[0]}{sys.version_info[1]}"


def installed(name: str) -> str:
    """Return the version that is installed; empty: none."""
    try:
        return (folder(name) / "rdmadiag-version").read_text().strip()
    except OSError:
        return ""


def install(name: str, engine: Engine, version: str = "", progress: Callable[[str], None] = lambda text: None) -> str:
    """Install an engine unless this version is there; return the version. Raises WorkloadError; what was there stays then."""
    wanted, target = version or engine.version, folder(name)
    if installed(name) == wanted:
        return wanted
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as made:
        part = Path(made, "engine")
        progress(f"fetching {engine.package} {wanted} from PyPI")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", "--target", str(part), f"{engine.package}=={wanted}"]
        _run(command, f"{engine.package} {wanted} could not be installed")
        if engine.prepare:
            engine.prepare(part)
        progress(f"trying it: import {engine.module}")
        _run([sys.executable, "-c", f"import {engine.module}"], f"{engine.module} cannot be imported", str(part))
        (part / "rdmadiag-version").write_text(f"{wanted}\n")
        old = Path(made, "old")
        if target.exists():
            target.rename(old)
        part.rename(target)
    return wanted


def remove(name: str) -> None:
    """Take an engine away."""
    shutil.rmtree(folder(name), ignore_errors=True)


def _run(command: list[str], what: str, path: str = "") -> None:
    values = {**os.environ, **({"PYTHONPATH": path} if path else {})}
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
            env=values,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorkloadError(f"{what}: {error}") from error
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise WorkloadError(f"{what}: {'; '.join(lines[-3:])[-600:] or f'exit code {result.returncode}'}")
