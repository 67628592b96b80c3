"""The folder of a run: everything that happened, as it was seen, so that it can be judged again.

```
scenario.json        the scenario as it was run, with what was chosen
run.json             when, where, with what; the faults as they were held; how it ended (rdmadiag.run/1)
events.jsonl         what happened, by time [s since the workload began]
samples.jsonl        counters, QP and port states of each node, every quarter of a second
evidence/before|during|after/NODE.tar.gz     bundles, as `rdmadiag collect` writes them
evidence/captures/NETDEV.pcapng.gz           RoCE packets of each host, from before the workload until a fault ends
workload/            what the workload left: result.json, and texts that `rdmadiag check --from` reads
```
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rdmadiag.diagnose.rulebook import read_json
from rdmadiag.errors import BadFile, BadInput

SCHEMA = "rdmadiag.run/1"
BEFORE, DURING, AFTER = "before", "during", "after"
PHASES = (BEFORE, DURING, AFTER)
CAPTURES = "captures"
LOOKED = "looked"
"""Event: the evidence of a phase has been collected; up to then collecting took processor time from the workload."""
FILE_BYTES = 64 << 20
"""Longest file of a run that is read [bytes]."""


class Folder:
    """One run's folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @staticmethod
    def make(parent: str | Path, name: str) -> Folder:
        """Make a new folder for a run below another one; a name that is taken gets a number. Raises BadInput."""
        for number in range(1, 10000):
            path = Path(parent, name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                if Path(parent).exists() and not Path(parent).is_dir():
                    raise BadInput(f"--report {parent}: is not a folder") from None
                continue
            except OSError as error:
                raise BadInput(f"--report {parent}: {error.strerror}") from error
            return Folder(path)
        raise BadInput(f"--report {parent}: holds thousands of runs of {name}; give another folder")

    def file(self, *parts: str) -> Path:
        """Return the path of a file in it, its folder made."""
        path = self.path.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, name: str, value: Any) -> None:
        """Write one JSON file, whole or not at all."""
        path = self.file(*name.split("/"))
        part = path.with_name(f".{path.name}.part")
        part.write_text(json.dumps(value, indent=1, default=str) + "\n", encoding="utf-8")
        os.replace(part, path)

    def write_lines(self, name: str, values: Iterable[Any]) -> None:
        """Write a file of one JSON value a line."""
        with self.file(name).open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(value, separators=(",", ":"), default=str) + "\n" for value in values)

    def read(self, name: str, schema: str = "") -> dict[str, Any]:
        """Read one JSON object. Raises BadFile, naming what was wanted."""
        path = str(self.path / name)
        data = read_json(path, FILE_BYTES)
        if not isinstance(data, dict) or (schema and data.get("schema") != schema):
            raise BadFile(
                path, "/schema" if schema else "", f"wanted an object{f' of schema {schema}' if schema else ''}"
            )
        return data

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a file of lines; the last line may be cut off. Raises BadFile for what is not such a file."""
        path = self.path / name
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                texts = file.read(FILE_BYTES).split("\n")
        except OSError as error:
            raise BadFile(str(path), "", f"cannot be read: {error.strerror}") from error
        for number, text in enumerate(texts, 1):
            if not text.strip():
                continue
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                if number >= len(texts) - 1:
                    return
                raise BadFile(str(path), f"line {number}", "not JSON") from None
            if not isinstance(value, dict):
                raise BadFile(str(path), f"line {number}", "wanted a JSON object")
            yield value

    def bundles(self, phase: str) -> list[str]:
        """Return the bundles of a phase, sorted."""
        return sorted(map(str, (self.path / "evidence" / phase).glob("*.tar.gz")))

    def captures(self) -> list[str]:
        """Return the captures, sorted."""
        return sorted(map(str, (self.path / "evidence" / CAPTURES).glob("*.pcapng.gz")))

    def texts(self) -> list[str]:
        """Return what the workload left that `rdmadiag check --from` reads."""
        return sorted(
            str(path)
            for path in (self.path / "workload").glob("*")
            if path.suffix in (".txt", ".log", ".jsonl") and path.stat().st_size
        )
