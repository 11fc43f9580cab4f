"""Ends a rank's process so that no destructor can spoil what is done. Standard library only.

Whatever the user's program left for its exit (threads to join, atexit handlers) happens; then the process leaves by
`os._exit`, before the interpreter takes modules, and with them process groups, apart.
"""

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable

from slurmddp import outcome

Last = Callable[[], int]
"""Called after everything else; returns the exit status."""


class Leaving:
    """How this process ends."""

    def __init__(self) -> None:
        self.last: Last = lambda: outcome.FAILED
        self._registered = False
        self._process = 0
        self._timer: threading.Timer | None = None

    def register(self) -> None:
        """Be the last to run at exit: handlers run in reverse, so that this comes before any other import."""
        if not self._registered:
            atexit.register(self._leave)
            self._registered = True

    def arm(self) -> None:
        """Take over the end of this process, and of none that it forks."""
        self.register()
        self._process = os.getpid()

    def is_armed_here(self) -> bool:
        """Tell the process that is to be ended from those that it forked later."""
        return os.getpid() == self._process

    def give_up_after(self, limit_s: float, status: int) -> None:
        """Leave with `status` when threads and exit handlers take longer than so many seconds."""
        self._timer = threading.Timer(limit_s, _exit, [status])
        self._timer.daemon = True
        self._timer.start()

    def _leave(self) -> None:
        if not self.is_armed_here():
            return
        if self._timer:
            self._timer.cancel()
        status = outcome.FAILED
        try:
            status = self.last()
        finally:
            _exit(status)


LEAVING = Leaving()


def _exit(status: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)
