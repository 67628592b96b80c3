"""Renderers of what `rdmadiag prove` found, one file an output format: `render(report, terminal, width) -> str` of rdmadiag.prove/1.

`FILE` is the name under which it is left in the folder of the trials; a format without one is for a terminal only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rdmadiag.render import _left


def leave(report: Mapping[str, Any]) -> None:
    """Write the report beside its trials, in every format that has a file. Raises BadFile."""
    _left.leave(sys.modules[__name__], report)
