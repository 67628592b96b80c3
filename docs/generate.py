"""Write the generated pages: docs/rules.md, tables.md, faults.md, the second half of scenarios.md; `--check` only tells whether they are up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from rdmadiag import faults
from rdmadiag.diagnose import rulebook
from rdmadiag.evidence import store

DOCS = Path(__file__).parent


def rules_page() -> str:
    """Return the page of all rules, by layer."""
    book = rulebook.load()
    lines = [
        "# Rules",
        "",
        f"{len(book)} rules, generated from `rules/` by `make docs`; `rdmadiag rules show ID` prints one whole.",
        "",
    ]
    layers: dict[str, list[rulebook.Rule]] = {}
    for rule in book:
        layers.setdefault(rule.layer, []).append(rule)
    for layer, rules in sorted(layers.items()):
        lines += [f"## {layer}", "", "| rule | kind | severity | says | explains |", "|---|---|---|---|---|"]
        for rule in rules:
            lines.append(f"| `{rule.id}` | {rule.kind} | {rule.severity} | {rule.title} | {', '.join(rule.explains)} |")
        lines.append("")
    return "\n".join(lines)


def tables_page() -> str:
    """Return the page of all evidence tables."""
    lines = [
        "# Evidence tables",
        "",
        "Generated from `rdmadiag/evidence/schema.sql` by `make docs`; `rdmadiag tables` prints the same.",
        "",
    ]
    for table in store.tables().values():
        lines += [
            f"## {table.name}{' (view)' if table.view else ''}",
            "",
            table.meaning,
            "",
            "| column | type | meaning, unit, source |",
            "|---|---|---|",
        ]
        lines += [f"| `{c.name}` | {c.type} | {c.meaning.replace('|', chr(92) + '|')} |" for c in table.columns]
        lines.append("")
    return "\n".join(lines)


def faults_page() -> str:
    """Return the page of all faults."""
    lines = [
        "# Faults",
        "",
        "Generated from `rdmadiag/faults/` by `make docs`; `rdmadiag inject list` prints the same. [inject.md](inject.md) says how they come off.",
        "",
        "| fault | does | parameters (default) | acts on | signs that it must leave |",
        "|---|---|---|---|---|",
    ]
    for name in faults.names():
        fault = faults.find(name)
        parameters = "<br>".join(
            f"`{p.option}` {p.default}{' ' * bool(p.unit)}{p.unit}: {p.meaning}" for p in fault.PARAMETERS
        )
        lines.append(f"| `{name}` | {fault.TITLE} | {parameters} | {fault.REACH} | {'<br>'.join(fault.SIGNS)} |")
    lines += ["", "## Data paths", "", "| path | is | not on |", "|---|---|---|"]
    for name, reach in faults.REACHES.items():
        lines.append(
            f"| {name} | {reach.meaning} | {'<br>'.join(f'{kind}: {why}' for kind, why in reach.why_not.items())} |"
        )
    return "\n".join([*lines, ""])


SCENARIOS_HEAD = "## Quantities\n"


def scenarios_page() -> str:
    """Return the page on scenarios: what is written by hand, then quantities and the shipped scenarios."""
    from rdmadiag.scenario import quantities, scenario

    hand, _, _ = (DOCS / "scenarios.md").read_text().partition(SCENARIOS_HEAD)
    lines = [
        hand + SCENARIOS_HEAD,
        "Generated from `rdmadiag/scenario/quantities.py` and `scenarios/` by `make docs`, from here on.",
        "",
        "| quantity | unit | meaning | witness |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{q.name}` | {q.unit or '-'} | {q.meaning} | {q.witness} |" for q in quantities.QUANTITIES.values()]
    found = [scenario.load(name) for name in scenario.names()]
    lines += ["", "## Shipped scenarios", "", f"{len(found)} scenarios; `rdmadiag scenario show ID` prints one.", ""]
    lines += ["| scenario | workload | faults | what happens |", "|---|---|---|---|"]
    for one in found:
        faults = ", ".join(entry.fault for entry in one.timeline) or "-"
        worth = f" **Finding:** {one.finding}" if one.finding else ""
        lines.append(f"| `{one.id}` | {one.workload} | {faults} | {one.title}.{worth} |")
    return "\n".join([*lines, ""])


PAGES = {"rules.md": rules_page, "tables.md": tables_page, "faults.md": faults_page, "scenarios.md": scenarios_page}


def stale() -> list[str]:
    """Return the names of generated pages that are not up to date."""
    return [name for name, page in PAGES.items() if not (DOCS / name).exists() or (DOCS / name).read_text() != page()]


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(f"not up to date, run make docs: {', '.join(stale())}" if stale() else 0)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
