"""Renderers of runs of scenarios, one file an output format: `render(report, terminal, width) -> str` of rdmadiag.run-report/1.

`FILE` is the name under which `rdmadiag run` leaves it in the run's folder; a format without one is for a terminal only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rdmadiag.render import _left


def leave(report: Mapping[str, Any]) -> None:
    """Write the report of a run into its folder, in every format that has a file. Raises BadFile."""
    _left.leave(sys.modules[__name__], report)
