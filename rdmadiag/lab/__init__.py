"""SoftRoCE labs: hosts with rxe devices and a switch between them, in a virtual machine or on this kernel.

`up(options)` makes a lab or finds it running, `find(name)` and `labs()` find what is up; a `Lab` runs commands.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rdmadiag.lab.client import Ran
    from rdmadiag.lab.lab import Lab, State, find, labs, look, take_down, up
    from rdmadiag.lab.options import Options
    from rdmadiag.lab.places import LabError

__all__ = ["Lab", "LabError", "Options", "Ran", "State", "find", "labs", "look", "take_down", "up"]

_ELSEWHERE = {"LabError": "places", "Options": "options", "Ran": "client"}


def __getattr__(name: str) -> Any:
    """Import what is asked for: the programs in a guest need none of it, and half of their start went there."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, 'lab')}"), name)
