"""Ends a rank's process so that no destructor can spoil what is done. Standard library only.

Whatever the user's program left for its exit (threads to join, atexit handlers) happens; then the process leaves by
`os._exit`, before the interpreter takes modules, and with them process groups, apart.
"""

import atexit
import contextlib
import gc
import io
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

from slurmddp import exit_codes

FLUSH_LIMIT_S = 10.0
"""For what the program wrote and did not close."""
ARCHIVES = (("zipfile", "ZipFile"), ("gzip", "GzipFile"), ("bz2", "BZ2File"), ("lzma", "LZMAFile"))
"""Files that are whole only when they are closed."""

Last = Callable[[], int]
"""Called after everything else; returns the exit status."""


class Leaving:
    """How this process ends."""

    def __init__(self) -> None:
        self.last: Last = lambda: exit_codes.FAILED
        self._registered = False
        self._process = 0
        self._limits: queue.SimpleQueue[tuple[float | None, int]] | None = None

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

    def give_up_after(self, limit_s: float | None, status: int) -> None:
        """Leave with `status` when the end takes longer than so many seconds from now; None for no limit.

        The first call must come before the interpreter ends: later it allows no new thread.
        """
        if self._limits is None:
            self._limits = queue.SimpleQueue()
            threading.Thread(target=_watch, args=[self._limits], daemon=True).start()
        self._limits.put((limit_s, status))

    def now(self, status: int) -> NoReturn:
        """Leave from any thread, without the program's exit handlers; its open text files are flushed."""
        self.give_up_after(FLUSH_LIMIT_S, status)
        _flush((io.TextIOWrapper,), "flush")
        _exit(status)

    def _leave(self) -> None:
        if not self.is_armed_here():
            return
        status = exit_codes.FAILED
        try:
            status = self.last()
            if self._limits:
                self.give_up_after(FLUSH_LIMIT_S, status)
            _flush_files()
        finally:
            _exit(status)


LEAVING = Leaving()


def _watch(limits: "queue.SimpleQueue[tuple[float | None, int]]") -> None:
    """Leave when no new limit comes before the last one has passed."""
    limit_s, status = limits.get()
    while True:
        try:
            limit_s, status = limits.get(timeout=limit_s)
        except queue.Empty:
            _exit(status)


def _flush_files() -> None:
    """Write out what open files hold, as the interpreter would; nothing else is taken apart."""
    _flush((io.TextIOWrapper,), "flush")
    _flush(tuple(_archives()), "close")
    _flush((io.BufferedWriter,), "flush")


def _flush(kinds: tuple[type, ...], finish: str) -> None:
    for item in gc.get_objects():
        if issubclass(type(item), kinds):
            with contextlib.suppress(Exception):
                getattr(item, finish)()


def _archives() -> Iterator[type]:
    """Return the classes of those that the program has imported."""
    for module, name in ARCHIVES:
        if module in sys.modules:
            yield getattr(sys.modules[module], name)


def _exit(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)
