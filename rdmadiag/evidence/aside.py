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
        import signal

        with os.fdopen(self._reader, "rb") as pipe:
            content = pipe.read()
        try:  # while the kernel takes the child apart
            result: Result = _pickle.loads(content)  # from our own child
            failed: Exception | None = None
        except (EOFError, _pickle.UnpicklingError, ValueError) as error:
            failed = error
        _, status = os.waitpid(self._child, 0)
        self._child = 0
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            raise TimeoutError
        if failed:
            raise HostRefused("text", "the process that read it died (out of memory?)") from failed
        return result

    def abandon(self) -> None:
        """End the child, when nobody waits for its result any more."""
        if self._child:
            os.close(self._reader)
            os.kill(self._child, 9)  # SIGKILL
            os.waitpid(self._child, 0)
            self._child = 0
