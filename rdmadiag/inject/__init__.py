"""Puts faults on nodes and always takes them off: the only door through which a node is changed.

with inject("loss", {"percent": 5}, in_lab(), for_seconds=30) as injection:
    ...                      # the fault holds; injection.fired() gives two independent proofs
injection.outcome            # how it ended, whether the node is as it was before
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rdmadiag.inject.injector import Injection, NotApplied, Outcome, RevertFailed
from rdmadiag.inject.journal import JournalError
from rdmadiag.inject.proof import Fired, Proof
from rdmadiag.inject.revert import Reverted, everything, heal, status
from rdmadiag.inject.target import Aim, in_lab, on_device

__all__ = [
    "Aim",
    "Fired",
    "Injection",
    "JournalError",
    "NotApplied",
    "Outcome",
    "Proof",
    "RevertFailed",
    "Reverted",
    "everything",
    "heal",
    "in_lab",
    "inject",
    "on_device",
    "status",
]


def inject(
    fault: str,
    parameters: Mapping[str, Any] | None = None,
    target: Aim | None = None,
    for_seconds: float = 30.0,
    *,
    abort_when: Callable[[], str | None] | None = None,
    **settings: Any,
) -> Injection:
    """Return a fault as a context manager; `target` defaults to the lab `lab`, `for_seconds` is the longest that it may hold.

    Raises BadInput, Refused, LabError, BadFile before anything is changed.
    """
    return Injection(fault, parameters or {}, target or in_lab(), for_seconds, abort_when=abort_when, **settings)
