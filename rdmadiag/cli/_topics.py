"""What `explain` and `plan` share: topics are the modules of a package; each answers words with a dict."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from rdmadiag import registry
from rdmadiag.cli import _output


def listed(package: ModuleType, form: str) -> None:
    """Print the topics of a package."""
    modules = [(name.replace("_", "-"), registry.load(package, name)) for name in registry.names(package)]
    topics = [(name, module) for name, module in modules if hasattr(module, "decode")]
    entries = [
        {"name": name, "help": module.HELP, "examples": [" ".join(words) for words in module.EXAMPLES]}
        for name, module in topics
    ]
    _output.listing(
        form, "topics", "topics", entries, lambda: _output.columns([(name, module.HELP) for name, module in topics])
    )


def answered(form: str, schema: str, topic: str, value: dict[str, Any]) -> None:
    """Print what a topic answers."""
    if form == "json":
        _output.emit(_output.as_json({"schema": f"rdmadiag.{schema}/1", "topic": topic, **value}))
    else:
        _output.emit("\n".join(_output.wrapped(line) for line in _lines(value)))


def _lines(value: dict[str, object], indent: str = "") -> list[str]:
    from rdmadiag.render.text import printable

    lines: list[str] = []
    for key, item in value.items():
        name = key.replace("_", " ")
        if isinstance(item, dict):
            lines += [f"{indent}{name}:", *_lines(item, indent + "  ")]
        elif isinstance(item, (list, tuple)):
            lines.append(f"{indent}{name}:")
            for entry in item:
                lines += (
                    _lines(entry, indent + "  ")
                    if isinstance(entry, dict)
                    else [f"{indent}  - {printable(str(entry))}"]
                )
        elif item not in (None, ""):
            lines.append(f"{indent}{name}: {printable(str(item))}")
    return lines
