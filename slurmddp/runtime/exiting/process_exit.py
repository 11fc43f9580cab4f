"""Ends a rank's process without running destructors. Standard library only.

First the threads that the user's program started are joined and its exit handlers run. Then the process leaves by
`os._exit`, before the interpreter destroys modules and with them process groups, which can hang or abort.
"""

import atexit
import contextlib
import gc
import io
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from slurmddp import exit_codes

FLUSH_LIMIT_S = 10.0
"""For writing out files that the program did not close."""
ARCHIVES = (("zipfile", "ZipFile"), ("gzip", "GzipFile"), ("bz2", "BZ2File"), ("lzma", "LZMAFile"))
"""Classes of files that are complete only when they are closed."""


class ProcessExit:
    """How this process ends."""

    def __init__(self) -> None:
        """Register the exit handler. Handlers run in reverse: it runs last if this comes before all other imports."""
        self.last_handler: Callable[[], int] = lambda: exit_codes.FAILED
        """Called after everything else; returns the exit status."""
        self._process = 0
        self._limits: queue.SimpleQueue[tuple[float | None, int]] | None = None
        atexit.register(self._leave_at_exit)

    def arm(self) -> None:
        """Take over the end of this process, and of none that it forks."""
        self._process = os.getpid()

    def is_armed_here(self) -> bool:
        """Return whether this is the process that called `arm`, and not one that it forked."""
        return os.getpid() == self._process

    def set_exit_deadline(self, limit_s: "float | None", status: int) -> None:
        """Leave with `status` if the process has not ended in so many seconds from now; None for no limit.

        The first call must come before the interpreter ends: later it allows no new thread.
        """
        if self._limits is None:
            self._limits = queue.SimpleQueue()
            threading.Thread(target=_enforce_deadlines, args=[self._limits], daemon=True).start()
        self._limits.put((limit_s, status))

    def leave(self, status: int) -> NoReturn:
        """Leave from any thread, without the program's exit handlers; its open text files are flushed."""
        self.set_exit_deadline(FLUSH_LIMIT_S, status)
        _flush_open_files(((io.TextIOWrapper, "flush"),))
        _exit(status)

    def _leave_at_exit(self) -> None:
        if not self.is_armed_here():
            return
        status = exit_codes.FAILED
        try:
            status = self.last_handler()
            if self._limits:
                self.set_exit_deadline(FLUSH_LIMIT_S, status)
            # a program may set a module to None
            archives = tuple(getattr(sys.modules[module], name) for module, name in ARCHIVES if sys.modules.get(module))
            _flush_open_files(((io.TextIOWrapper, "flush"), (archives, "close"), (io.BufferedWriter, "flush")))
        finally:
            _exit(status)


def freeze_imports() -> None:
    """Keep the collector and the finalizers off all objects, before a fork: each would copy the pages that ranks share.

    That is half a second for each rank; torch alone has a finalizer for each of its 174 libraries of operators.
    """
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # noqa: SLF001 - no public list
        finalizer.atexit = False
    gc.freeze()


def _enforce_deadlines(limits: "queue.SimpleQueue[tuple[float | None, int]]") -> None:
    """Leave when a deadline passes before the next one is set."""
    limit_s, status = limits.get()
    while True:
        try:
            limit_s, status = limits.get(timeout=limit_s)
        except queue.Empty:
            _exit(status)


def _flush_open_files(kinds: Sequence[tuple[Any, str]]) -> None:
    """Write out the buffers of open files, as the interpreter would, a kind after the other; destroy nothing else."""
    objects = gc.get_objects()
    classes = set(map(type, objects))
    for kind, finish in kinds:
        wanted = {each for each in classes if issubclass(each, kind)}
        for file in [item for item in objects if type(item) in wanted]:
            with contextlib.suppress(Exception):
                getattr(file, finish)()


def _exit(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[union-attr]  # None, if a program has closed it
    os._exit(status)
