"""Which empty tables leave a query without a row: seen in the program that SQLite makes of it, before it is run.

A program (`EXPLAIN`, https://sqlite.org/opcode.html) loops over cursors; where a loop over an empty table is the only way to `ResultRow`,
there is no row. Every branch but those of cursors that are empty is taken to go both ways, so what is said to be empty is; an
instruction that is not known here (of another release of SQLite) says nothing.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_EMPTY = _names("Rewind Last Sort SorterSort SeekGE SeekGT SeekLE SeekLT NotFound NotExists SeekRowid IfEmpty")
"""Jump to P2 when the cursor P1 has no row."""
_JUMPS = _names(
    """Found Next Prev SorterNext IdxGT IdxGE IdxLT IdxLE IfNoHope SeekScan Once If IfNot IsNull NotNull Eq Ne Lt Le Gt Ge ElseEq IfPos
    IfNotZero DecrJumpZero IfNullRow IfNotOpen Filter MustBeInt IsType"""
)
"""Go on, or jump to P2."""
_INSERTS = _names("Insert IdxInsert SorterInsert")
_MAKES = _names("OpenEphemeral OpenAutoindex SorterOpen")
_READS = _names("OpenRead ReopenIdx")
_OPENS = _READS | _MAKES | _names("OpenPseudo OpenDup")
_PLAIN = _names(
    """ResultRow OpenRead ReopenIdx OpenDup OpenPseudo DeferredSeek SeekHit Column Integer Int64 String String8 Null SoftNull Concat
    MakeRecord Copy SCopy Move AggStep AggStep1 AggFinal AggValue AggInverse Function PureFunc SorterData Compare CollSeq NullRow
    BeginSubrtn ZeroOrNull NewRowid RealAffinity Rowid Variable Affinity Blob Real FilterAdd Add Noop Cast BitAnd BitOr Multiply Or And
    Sequence Delete AddImm Divide Subtract ShiftRight ShiftLeft Remainder Permutation Close ClrSubtype Not BitNot Count IdxRowid RowData
    ResetSorter Transaction Explain ReleaseReg IsTrue TypeCheck ColumnsUsed CursorHint CursorLock CursorUnlock"""
)
"""Go on."""


class _Step(NamedTuple):
    name: str
    p1: int
    p2: int
    p3: int


class _Program:
    def __init__(self, steps: Sequence[_Step]) -> None:
        self.steps = steps
        begun = [step for step in steps if step.name == "InitCoroutine"]  # where P2 is 0, it begins again
        self.begins = {step.p1: step.p3 for step in begun}  # of a coroutine, by its register
        self.ends = {step.p1: step.p2 for step in begun if step.p2}
        if len({(step.p1, step.p3) for step in begun}) > len(self.ends) or len(self.begins) > len(self.ends):
            raise KeyError("InitCoroutine")
        self.same = {step.p1: step.p2 for step in steps if step.name == "OpenDup"}
        opened = {(step.p1, step.p2 if step.name in _READS else step.name) for step in steps if step.name in _OPENS}
        numbers = [number for number, _ in opened]
        self.mixed = {
            number for number in numbers if numbers.count(number) > 1
        }  # numbers of cursors that are used for several things

    def cursor(self, number: int) -> int:
        while number in self.same and self.same[number] != number:
            number = self.same[number]
        return number

    def yields_a_row(self, empty: Collection[int]) -> bool:
        """Tell whether `ResultRow` can be reached while the cursors `empty` have no row. Raises KeyError for an unknown instruction."""
        filled: set[int] = set()  # cursors into which something was put
        made = {self.cursor(step.p1) for step in self.steps if step.name in _MAKES} - self.mixed
        while True:  # until nothing more is put anywhere
            reached = self._reach({*empty, *(made - filled)} - self.mixed)
            if any(self.steps[place].name == "ResultRow" for place in reached):
                return True
            puts = {self.cursor(self.steps[place].p1) for place in reached if self.steps[place].name in _INSERTS}
            if puts <= filled:
                return False
            filled |= puts

    def _reach(self, empty: set[int]) -> set[int]:
        reached: set[int] = set()
        calls: defaultdict[int, set[int]] = defaultdict(set)  # by register: where reached calls go on
        returns: defaultdict[int, set[int]] = defaultdict(set)
        waiting = [0]
        while waiting:
            place = waiting.pop()
            if place in reached or place >= len(self.steps):
                continue
            reached.add(place)
            step = self.steps[place]
            if step.name == "Gosub":
                calls[step.p1].add(place + 1)
                waiting += [step.p2, *(place + 1 for _ in returns[step.p1])]
            elif step.name == "Return":
                returns[step.p1].add(place)
                before = [one.p1 + 1 for one in self.steps if one.name == "Integer" and one.p2 == step.p1]  # until 3.38
                waiting += [*calls[step.p1], *before, *([place + 1] if step.p3 else [])]
            else:
                waiting += self._next(place, step, empty)
        return reached

    def _next(self, place: int, step: _Step, empty: set[int]) -> Sequence[int]:
        name, p1, p2, p3 = step
        if name in _EMPTY:
            return (p2,) if self.cursor(p1) in empty else (place + 1, p2)
        if name in _JUMPS:
            return place + 1, p2
        if name in ("Init", "Goto"):
            return (p2,)
        if name == "Jump":
            return p1, p2, p3
        if name == "Halt":
            return ()
        if name == "InitCoroutine":
            return (p2 or place + 1,)
        if name in ("Yield", "EndCoroutine"):
            return self._turns(place, p1)
        if name in _PLAIN or name in _INSERTS or name in _MAKES:
            return (place + 1,)
        raise KeyError(name)

    def _turns(self, place: int, register: int) -> Sequence[int]:
        # Between a coroutine and those that ask it: each goes on after any Yield of the other, or where it begins and ends.
        begin, end = self.begins[register], self.ends[register]
        inside = begin <= place < end
        yields = [n for n, step in enumerate(self.steps) if step.name == "Yield" and step.p1 == register]
        ended = [self.steps[n].p2 for n in yields if not begin <= n < end]
        if self.steps[place].name == "EndCoroutine":
            return ended
        if inside:
            return [n + 1 for n in yields if not begin <= n < end]
        return [begin, *(n + 1 for n in yields if begin <= n < end)]


def needed(db: sqlite3.Connection, query: str, parameters: Mapping[str, Any]) -> frozenset[str]:
    """Return the tables of which each one, while it is empty, leaves the query without a row."""
    of_page = dict(db.execute("SELECT rootpage, tbl_name FROM sqlite_schema WHERE rootpage"))
    rows = db.execute(f"EXPLAIN {query}", parameters).fetchall()
    steps = [_Step(name, p1, p2, p3) for _, name, p1, p2, p3, *_ in rows]
    cursors: defaultdict[str, set[int]] = defaultdict(set)
    for step in steps:
        if step.name in _READS:
            cursors[of_page.get(step.p2, "")].add(step.p1)
    try:
        program = _Program(steps)
        return frozenset(name for name, numbers in cursors.items() if name and not program.yields_a_row(numbers))
    except KeyError:
        return frozenset()
