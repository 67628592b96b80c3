"""A package's modules are its plug-ins, found by file name and imported on demand."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from rdmadiag.errors import BadInput


def names(package: ModuleType) -> list[str]:
    """Return the plug-in names of a package, sorted; a name is the file name without `.py`."""
    found: set[str] = set()
    for folder in package.__path__:
        found.update(entry[:-3] for entry in os.listdir(folder) if entry.endswith(".py") and entry[0] != "_")
    return sorted(found)


def load(package: ModuleType, name: str) -> ModuleType:
    """Import one plug-in. Raises BadInput, listing the known names, for an unknown one."""
    known = names(package)
    if name not in known:
        raise BadInput(f"no {package.__name__.rpartition('.')[2]} named {name!r}; known: {', '.join(known)}")
    return importlib.import_module(f"{package.__name__}.{name}")


def load_all(package: ModuleType) -> dict[str, ModuleType]:
    """Import all plug-ins; returned by name, sorted."""
    return {name: importlib.import_module(f"{package.__name__}.{name}") for name in names(package)}
