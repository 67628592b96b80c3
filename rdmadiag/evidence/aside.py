"""Work out one thing in a child process: while this one goes on, or because it may take too long."""

from __future__ import annotations

import _pickle  # the quick half of pickle: the slow one, which nothing here needs, takes 2 ms to import
import os
from collections.abc import Callable
from typing import Generic, TypeVar

from rdmadiag import patterns
from rdmadiag.errors import HostRefused

Result = TypeVar("Result")


def spare_processor() -> bool:
    """Tell whether there is a second processor to use."""
    return len(os.sched_getaffinity(0)) > 1


class Aside(Generic[Result]):
    """The result of `work`, which begins at once in a child; it must return what pickles, and raise nothing.

    The kernel ends the child after `seconds`, whatever it is in.
    """

    def __init__(self, work: Callable[[], Result], seconds: float = 0.0) -> None:
        self._reader, writer = os.pipe()
        self._child = os.fork()
        if self._child:
            os.close(writer)
            return
        try:  # the child: it never returns
            import signal

            os.close(self._reader)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            content = _pickle.dumps(work(), 5)
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(content)
            signal.setitimer(signal.ITIMER_REAL, 0)
            patterns.keep()
        finally:
            os._exit(0)

    def result(self) -> Result:
        """Wait for the result. Raises TimeoutError when its time was up, HostRefused when the child died without one."""
        result = self.early()
        self.close()
        return result

    def early(self) -> Result:
        """See result; a child that gave one may still be on its way out, until `close`."""
        reader, self._reader = self._reader, -1
        with os.fdopen(reader, "rb") as pipe:
            content = pipe.read()
        try:
            result: Result = _pickle.loads(content)  # from our own child
        except (EOFError, _pickle.UnpicklingError, ValueError) as error:
            import signal

            status = self.close()
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
                raise TimeoutError from None
            raise HostRefused("text", "the process that read it died (out of memory?)") from error
        return result

    def close(self) -> int:
        """Wait until the child is gone; one that nobody waited for is ended. Returns its status, 0 when it was gone before."""
        if self._reader >= 0:
            os.close(self._reader)
            os.kill(self._child, 9)  # SIGKILL
            self._reader = -1
        child, self._child = self._child, 0
        return os.waitpid(child, 0)[1] if child else 0


class Shared(Generic[Result]):
    """Pieces of work, 0 to `pieces` - 1 (at most 256), that a child begins with at once and this process helps to end.

    Who is free takes the next piece; `work` must return what pickles, and raise nothing.
    """

    def __init__(self, pieces: int, work: Callable[[int], Result]) -> None:
        # What two processes share is in a pipe, one byte a piece: who reads the byte does the piece.
        self._work = work
        self._turns, turns = os.pipe()
        os.write(turns, bytes(range(pieces)))
        os.close(turns)
        self._child = Aside(self._some)

    def _some(self) -> dict[int, Result]:
        done = {}
        while turn := os.read(self._turns, 1):
            done[turn[0]] = self._work(turn[0])
        return done

    def results(self) -> tuple[dict[int, Result], str]:
        """Do what the child has not begun, and wait for it. Returns what each piece gave; why some are missing, if the child died."""
        done = self._some()
        try:
            return {**done, **self._child.early()}, ""
        except HostRefused as error:
            return done, error.reason

    def close(self) -> None:
        """End the child, whether or not it gave its result."""
        os.close(self._turns)
        self._child.close()
