"""Faults, one file each: typed parameters, the data path it acts on, what it changes, how that is undone, its signs.

A fault file defines TITLE, REACH, PARAMETERS, SIGNS and `plan(target, values) -> Plan`; `rdmadiag/inject` carries plans out.
A plan is data: making one changes nothing.
"""

from __future__ import annotations

import sys
from types import ModuleType

from rdmadiag import registry
from rdmadiag.faults._contract import REACHES, Diagnosis, Moves, Parameter, Plan, Refused, Values
from rdmadiag.faults._steps import Change, Restore, Step, Table, Worker
from rdmadiag.faults._target import Cable, Target

__all__ = [
    "REACHES",
    "Cable",
    "Change",
    "Diagnosis",
    "Moves",
    "Parameter",
    "Plan",
    "Refused",
    "Restore",
    "Step",
    "Table",
    "Target",
    "Values",
    "Worker",
    "find",
    "make_plan",
    "names",
]


def names() -> list[str]:
    """Return the names of all faults, as the command line spells them."""
    return [name.replace("_", "-") for name in registry.names(sys.modules[__name__])]


def find(name: str) -> ModuleType:
    """Return a fault's module by its name. Raises BadInput, listing the known names."""
    return registry.load(sys.modules[__name__], name.replace("-", "_"))


def make_plan(name: str, values: Values, target: Target) -> Plan:
    """Check that a fault can reach a target and return what it would do there. Raises BadInput, Refused."""
    fault = find(name)
    reach = REACHES[fault.REACH]
    if target.kind not in reach.kinds:
        raise Refused(f"{name} cannot act on {target.title}: {reach.why_not[target.kind]}")
    known = {parameter.name: parameter for parameter in fault.PARAMETERS}
    checked = {key: parameter.check(values.get(key, parameter.default)) for key, parameter in known.items()}
    for key in values:
        if key not in known:
            from rdmadiag.errors import BadInput

            raise BadInput(f"fault {name} has no parameter {key!r}; it has: {', '.join(known) or 'none'}")
    plan: Plan = fault.plan(target, checked)
    return plan
