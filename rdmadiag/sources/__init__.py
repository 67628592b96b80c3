"""Evidence sources: one file a kind of evidence; reading a node and parsing a text are two functions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

from rdmadiag import registry


def load(names: Sequence[str] = ()) -> dict[str, ModuleType]:
    """Import the sources (all, or those named) by name. Raises BadInput for an unknown name."""
    package = sys.modules[__name__]
    return {name: registry.load(package, name) for name in names} if names else registry.load_all(package)
