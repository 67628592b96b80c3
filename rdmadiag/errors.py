"""Every error that rdmadiag raises on purpose, under one root."""

from __future__ import annotations


class RdmadiagError(Exception):
    """Root of all errors raised on purpose; the command line prints its text and exits 2."""


class BadInput(RdmadiagError):
    """A word, option or value that the user gave is not one that can be used."""


class BadFile(RdmadiagError):
    """A file is not what was wanted: names the file, the place in it, and what was wanted there."""

    def __init__(self, path: str, place: str, wanted: str) -> None:
        self.path, self.place, self.wanted = path, place, wanted
        where = f"{path}: {place}" if place else path
        super().__init__(f"{where}: {wanted}")


class NotPresent(RdmadiagError):
    """The node has no such file, folder or command: an answer, not a failure to look."""


class HostRefused(RdmadiagError):
    """The node did not let us read something (permission, I/O error, time): becomes a gap.

    `how` says what would make it readable.
    """

    def __init__(self, what: str, reason: str, how: str = "") -> None:
        self.what, self.reason, self.how = what, reason, how
        super().__init__(f"{what}: {reason}")


class NotGiven(HostRefused):
    """What was handed over (a captured tree, a bundle) does not hold this part of the node."""
