"""Leave a report in its folder, in every output format that has a file there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from rdmadiag import registry
from rdmadiag.errors import BadFile


def leave(formats: ModuleType, report: Mapping[str, Any]) -> None:
    """Write a report into its folder, in every format of a package of renderers that has a FILE. Raises BadFile."""
    for module in registry.load_all(formats).values():
        if hasattr(module, "FILE"):
            path = os.path.join(report["folder"], module.FILE)
            try:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(module.render(report) + "\n")
            except OSError as error:
                raise BadFile(path, "", f"cannot be written: {error.strerror}") from error
