"""Regular expressions that are compiled when they are first used: a run needs few of the many that parsers have.

What `re` makes of an expression is kept in the user's cache folder: a check of a node needs 170 of them, and 0.1 ms each to
work out. Python has no public way for that; where its inner one is another, nothing is kept and all is worked out.
"""

from __future__ import annotations

import marshal
import os
import re
import sys
from array import array
from typing import Any, AnyStr, cast

from rdmadiag import cache

MOST = 4000
"""Expressions kept; the program has about 250, and lines of logs need those of rules."""

_METHODS = ("match", "search", "fullmatch", "finditer", "findall", "sub", "split")
_KEY = sys.version.encode()

_Name = tuple[str | bytes, int]
_Code = tuple[int, bytes, int, dict[str, int]]
"""Flags, code of the `re` machine, groups, and names of groups."""
_kept: dict[_Name, _Code] = {}
_new: dict[_Name, re.Pattern[Any]] = {}
_lates: dict[tuple[str | bytes, int], _Late] = {}
_process = os.getpid()


class _Late:
    """Stands for a compiled expression; becomes it at the first call of one of its methods."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self.pattern, self.flags = source, flags

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)
        found: re.Pattern[Any] = compiled(self.pattern, self.flags)
        for method in _METHODS:
            setattr(self, method, getattr(found, method))
        return getattr(self, name)


def late(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile(source, flags)` would, compiled at its first use (re.error is raised then); one for each expression."""
    found = _lates.get((source, flags)) or _lates.setdefault((source, flags), _Late(source, flags))
    return cast("re.Pattern[AnyStr]", found)


def compiled(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile(source, flags)` would, out of what is kept where it is there. Raises re.error."""
    if not _kept:
        _kept.update(_load() or {("", 0): (0, b"", 0, {})})
    name = (source, int(flags))
    if name in _kept:
        try:
            return cast("re.Pattern[AnyStr]", _rebuilt(source, *_kept[name]))
        except (
            AttributeError,
            TypeError,
            RuntimeError,
        ):  # another release's: RuntimeError is what `_sre` says of wrong code
            pass
    found = _of_this_process()[name] = re.compile(source, flags)
    return found


def keep() -> None:
    """Keep what was compiled in this process, at its end, for later ones."""
    if not _of_this_process():
        return
    known = _load()
    count = len(known)
    for name, found in _new.items():
        if name not in known:
            try:
                known[name] = (found.flags, _code_of(*name), found.groups, dict(found.groupindex))
            except (AttributeError, TypeError):
                continue
    _new.clear()
    if count < len(known) <= MOST:
        cache.save("expressions", _KEY, marshal.dumps(known))


def _of_this_process() -> dict[_Name, re.Pattern[Any]]:
    # A child has not to keep what its parent compiled.
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        _new.clear()
    return _new


def _load() -> dict[_Name, _Code]:
    content = cache.load("expressions", _KEY)
    return dict(marshal.loads(content)) if content else {}


def _code_of(source: str | bytes, flags: int) -> bytes:
    # As re.compile does it: the module was in two files until Python 3.10.
    inner: Any = re
    parser, compiler = (
        (inner._parser, inner._compiler) if hasattr(re, "_parser") else (inner.sre_parse, inner.sre_compile)
    )
    return array("I", compiler._code(parser.parse(source, flags), flags)).tobytes()


def _rebuilt(source: str | bytes, flags: int, code: bytes, groups: int, names: dict[str, int]) -> Any:
    inner: Any = sys.modules["_sre"]
    by_number: list[str | None] = [None] * (groups + 1)
    for name, number in names.items():
        by_number[number] = name
    return inner.compile(source, flags, array("I", code).tolist(), groups, names, tuple(by_number))
