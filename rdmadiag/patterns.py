"""Regular expressions that are compiled when they are first used: a run needs few of the many that parsers have."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("match", "search", "fullmatch", "finditer", "findall", "sub", "split")


class _Late:
    """Stands for a compiled expression; becomes it at the first call of one of its methods."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self.pattern, self.flags = source, flags

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self.flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(self, name)


def late(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile(source, flags)` would, compiled at its first use (re.error is raised then)."""
    return cast("re.Pattern[AnyStr]", _Late(source, flags))
