"""Chaos Toolkit extension: our faults as actions, our diagnosis and scenarios as probes.

In an experiment: `"provider": {"type": "python", "module": "rdmadiag.chaostoolkit", "func": "inject", "arguments": {...}}`.
A failure is an exception, which the toolkit notes as a failed activity. Nothing of the toolkit is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rdmadiag.errors import BadInput, RdmadiagError

__all__ = ["findings", "inject", "injections", "no_findings", "revert", "start_injection", "stop_injection", "verdict"]

_HELD: dict[str, Any] = {}


class NotFired(RdmadiagError):
    """A fault left no trace, or could not be taken off: the experiment proves nothing."""


def _injection(
    fault: str, parameters: Mapping[str, Any] | None, for_seconds: float, lab: str | None, device: str | None
) -> Any:
    from rdmadiag import inject as injector

    if lab and device:
        raise BadInput("lab or device, not both")
    target = injector.on_device(device) if device else injector.in_lab(lab or "lab")
    return injector.inject(fault, parameters or {}, target, for_seconds)


def inject(
    fault: str,
    parameters: Mapping[str, Any] | None = None,
    for_seconds: float = 30.0,
    lab: str | None = None,
    device: str | None = None,
    must_fire: bool = True,
) -> dict[str, Any]:
    """Action: put a fault on a lab (by name) or a device of this host for a time, then take it off. Raises RdmadiagError.

    Returns how it ended with both proofs; one that did not fire is a failure unless `must_fire` is false.
    """
    with _injection(fault, parameters, for_seconds, lab, device) as injection:
        injection.wait(for_seconds + 30.0)
    return _ended(injection, must_fire)


def start_injection(
    name: str,
    fault: str,
    parameters: Mapping[str, Any] | None = None,
    for_seconds: float = 300.0,
    lab: str | None = None,
    device: str | None = None,
) -> str:
    """Action: put a fault on and go on; `stop_injection` takes it off, and so does its time. Raises RdmadiagError."""
    if name in _HELD:
        raise BadInput(f"{name!r} is the name of an injection that is on")
    injection = _injection(fault, parameters, for_seconds, lab, device)
    injection.start()
    _HELD[name] = injection
    return str(injection.tag)


def stop_injection(name: str, must_fire: bool = True) -> dict[str, Any]:
    """Action (or rollback): take off what `start_injection` put on. Raises RdmadiagError."""
    injection = _HELD.pop(name, None)
    if injection is None:
        raise BadInput(f"no injection {name!r} is on; there are {', '.join(_HELD) or 'none'}")
    injection.stop("the experiment stopped it")
    return _ended(injection, must_fire)


def _ended(injection: Any, must_fire: bool) -> dict[str, Any]:
    outcome = injection.outcome
    told: dict[str, Any] = outcome.as_json()
    if not outcome.clean:
        raise NotFired(injection.left_text())
    if must_fire and outcome.verdict != "FIRED":
        raise NotFired(f"{injection.title}: {outcome.verdict}: {outcome.fired.own.text}; {outcome.fired.other.text}")
    return told


def revert() -> list[dict[str, Any]]:
    """Rollback: take off all faults that any run of ours has left anywhere. Raises NotFired when something stays."""
    from rdmadiag import inject as injector

    results = [result._asdict() for result in injector.everything()]
    if left := [result for result in results if not result["clean"]]:
        raise NotFired(f"not off: {left}")
    return results


def injections() -> list[dict[str, Any]]:
    """Probe: the faults that are not known to be off; tolerance []."""
    from rdmadiag import inject as injector

    return list(injector.status())


def findings(given: Sequence[str] = (), window: float = 1.0, severity: str = "warning") -> list[str]:
    """Probe: the rules that `rdmadiag check` confirms at or above a severity, on this node or on what is given."""
    from rdmadiag.diagnose import check
    from rdmadiag.diagnose.rulebook import SEVERITIES

    if severity not in SEVERITIES:
        raise BadInput(f"severity {severity!r}; wanted one of {', '.join(SEVERITIES)}")
    report = check.check(check.Request(given=tuple(given), window=window)).report
    worst = SEVERITIES.index(severity)
    found = (f for f in report["findings"] if f["answer"] == "confirmed" and SEVERITIES.index(f["severity"]) >= worst)
    return sorted({str(f["rule"]) for f in found})


def no_findings(given: Sequence[str] = (), window: float = 1.0, severity: str = "warning") -> bool:
    """Probe: whether `findings` is empty; tolerance true."""
    return not findings(given, window, severity)


def verdict(
    scenario: str, parameters: Mapping[str, Any] | None = None, report: str = "rdmadiag-runs", lab: str | None = None
) -> str:
    """Probe: run a scenario in a lab and return its verdict; tolerance "PASS". Raises BadFile, BadInput."""
    from rdmadiag.render import run as formats
    from rdmadiag.scenario import campaign

    (found,) = campaign.plan([scenario], parameters or {})
    told = campaign.one(found, report, lab or "")
    formats.leave(told)
    return str(told["verdict"])
