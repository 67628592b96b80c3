"""Renderers of what `rdmadiag prove` found, one file an output format: `render(report, terminal, width) -> str` of rdmadiag.prove/1.

`FILE` is the name under which it is left in the folder of the trials; a format without one is for a terminal only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from rdmadiag import registry
from rdmadiag.errors import BadFile


def leave(report: Mapping[str, Any]) -> None:
    """Write the report beside its trials, in every format that has a file. Raises BadFile."""
    for module in registry.load_all(sys.modules[__name__]).values():
        if hasattr(module, "FILE"):
            path = os.path.join(report["folder"], module.FILE)
            try:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(module.render(report) + "\n")
            except OSError as error:
                raise BadFile(path, "", f"cannot be written: {error.strerror}") from error
