"""Engines that are installed on request: wheels from PyPI into a folder of the user's cache, changed there and nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rdmadiag.lab.places import cache_folder
from rdmadiag.workloads._contract import WorkloadError

INSTALL_SECONDS = 900.0
_VERSION = "rdmadiag-version"


class Engine(NamedTuple):
    """What is installed: a package at a version that was tried; `module` is imported to see that it works.

    `prepare` changes the unpacked wheel; it raises WorkloadError with what is missing here.
    """

    package: str
    version: str
    module: str
    prepare: Callable[[Path], None] | None = None


def _prefix(name: str) -> str:
    return f"{name}-cp{sys.version_info[0]}{sys.version_info[1]}-"


def folder(name: str) -> Path | None:
    """Return where an engine is installed for this Python; None: it is not."""
    found = [path.parent for path in cache_folder("engines").glob(f"{_prefix(name)}*/{_VERSION}")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def installed(name: str) -> str:
    """Return the version that is installed; empty: none."""
    found = folder(name)
    return (found / _VERSION).read_text().strip() if found else ""


def install(name: str, engine: Engine, version: str = "", progress: Callable[[str], None] = lambda text: None) -> str:
    """Install an engine unless this version is there; return the version. Raises WorkloadError; what was there stays then."""
    wanted, parent = version or engine.version, cache_folder("engines")
    if installed(name) == wanted:
        return wanted
    with tempfile.TemporaryDirectory(dir=parent, prefix=".") as made:
        part = Path(made, "engine")
        progress(f"fetching {engine.package} {wanted} from PyPI")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", "--target", str(part), f"{engine.package}=={wanted}"]
        _run(command, f"{engine.package} {wanted} could not be installed")
        if engine.prepare:
            engine.prepare(part)
        progress(f"trying it: import {engine.module}")
        _run([sys.executable, "-c", f"import {engine.module}"], f"{engine.module} cannot be imported", str(part))
        (part / _VERSION).write_text(f"{wanted}\n")
        remove(name)
        # A name of its own each time: a lab that is up may go on seeing what it saw under a name before.
        part.rename(parent / f"{_prefix(name)}{wanted}-{time.time_ns():x}")
    return wanted


def remove(name: str) -> None:
    """Take an engine away."""
    for path in cache_folder("engines").glob(f"{_prefix(name)}*"):
        shutil.rmtree(path, ignore_errors=True)


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
