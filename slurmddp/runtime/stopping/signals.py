"""Hears that the job is to stop: TERM, USR1, USR2, or its own clock. Standard library only; no network, no files.

The handlers are the first lines of a rank. A Python handler does not run while the main thread is inside a
collective, so a thread reads the wakeup descriptor, and that thread acts: what it does changes as the rank goes from
its imports to its training and to its end (`Notices.then`).
"""

import contextlib
import multiprocessing.util
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
CLOCK: Final = "clock"
"""The cause of a notice that no signal brought: the time limit is near."""
CLOCK_LOOK_S: Final = 60.0
"""The wait is on the monotonic clock; this often it is set by the wall clock, which may have been put right."""

Act = Callable[[], None]


class Notices:
    """Whether this process was told to stop, and what it does about it."""

    def __init__(self) -> None:
        self.cause = ""
        """Name of the signal, or `clock`; empty as long as nobody has told us to stop."""
        self.heard = threading.Event()
        """Set soon after any of the signals came, also to a handler of the program's own."""
        self.since = 0.0
        """When, by `time.monotonic()`."""
        self._act: Act | None = None
        self._acted = False
        self._ends = False
        self._changed = threading.Condition(threading.RLock())
        self._stop_at: float | None = None
        self._pipe: tuple[int, int] | None = None
        self._passed_on: set[int] = set()

    @property
    def given(self) -> bool:
        """Whether this process was told to stop."""
        return bool(self.cause)

    @property
    def listens(self) -> bool:
        """Whether `listen` was called."""
        return self._pipe is not None

    @property
    def alone(self) -> bool:
        """Whether no handler of the program's own has taken the place of ours."""
        return all(map(self._is_ours, SIGNALS))

    def listen(self) -> None:
        """Take the signals over, in this process and not in those that it forks."""
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.register_at_fork(after_in_child=self._be_child)
        multiprocessing.util.register_after_fork(self, _outlive_notice)
        threading.Thread(target=self._watch, name="notices", daemon=True).start()

    def stop_at(self, time_s: float) -> None:
        """Take it for a notice when the wall clock reaches `time_s`, in seconds since 1970."""
        self._stop_at = time_s
        self._wake()

    def then(self, act: Act | None, *, ends: bool = False) -> None:
        """Let the thread call `act` at the next notice, at once if one was given; None: notices mean nothing now.

        `ends` tells that the act always ends the process. An act that is under way goes on, but `holding` tells it
        that it is too late to end the process.
        """
        with self._changed:
            self._act, self._acted, self._ends = act, False, ends
            self._changed.notify_all()
        self._wake()

    def dismiss(self) -> None:
        """Take a notice back that came too early: the next signal counts, and the clock. Called by an act."""
        with self._changed:
            self.cause, self._acted = "", False

    def settle(self, limit_s: float) -> None:
        """Give an act that is about to end the process the time to; the failure it meets is its consequence."""
        if self.given and self._ends:
            time.sleep(limit_s)

    @contextlib.contextmanager
    def holding(self, act: Act) -> Iterator[bool]:
        """Keep what a notice means from changing; gives whether it is still `act`."""
        with self._changed:
            yield self._act == act

    def until_replaced(self, act: Act, limit_s: float) -> bool:
        """Wait until another act has taken this one's place; tell whether it did within the limit."""
        with self._changed:
            return self._changed.wait_for(lambda: self._act != act, limit_s)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Tell the thread, also when the program has taken the wakeup descriptor for itself."""
        del frame
        self._wake(number)

    def _wake(self, number: int = 0) -> None:
        if self._pipe:
            with contextlib.suppress(BlockingIOError):
                os.write(self._pipe[1], bytes([number]))

    def _watch(self) -> None:
        while True:
            self._note(self._heard())
            with self._changed:
                act = None if self._acted or not self.given else self._act
                self._acted = self._acted or act is not None
            if act:
                act()

    def _heard(self) -> str:
        """Wait for signals or the clock; return the cause of a notice, empty for none."""
        pipe = self._pipe[0] if self._pipe else -1
        ready, _, _ = select.select([pipe], [], [], self._patience_s())
        numbers = os.read(pipe, 4096) if ready else b""
        signals = [number for number in numbers if number in SIGNALS]
        if signals:
            self.heard.set()
        ours = [number for number in signals if self._is_ours(number)]
        if ours and self._handles_term_alone():
            self._pass_on(set(ours))
            return ""
        if ours:
            return signal.Signals(ours[0]).name
        return CLOCK if self._patience_s() == 0 else ""

    def _pass_on(self, numbers: set[int]) -> None:
        """Tell the program by TERM, once for each signal: the descriptor and the handler may bring it one by one."""
        if not numbers <= self._passed_on:
            self._passed_on |= numbers
            os.kill(os.getpid(), signal.SIGTERM)

    def _handles_term_alone(self) -> bool:
        """Tell a program that saves itself at SIGTERM, and so is told by that of what USR1 and USR2 mean."""
        return callable(signal.getsignal(signal.SIGTERM)) and not self._is_ours(signal.SIGTERM)

    def _patience_s(self) -> float | None:
        """Return how long the clock allows to wait; a program with handlers of its own stops by those alone."""
        if self._stop_at is None or self.given or not self.alone:
            return None
        return min(CLOCK_LOOK_S, max(0.0, self._stop_at - time.time()))

    def _is_ours(self, number: int) -> bool:
        return signal.getsignal(number) == self._handle

    def _note(self, cause: str) -> None:
        if cause and not self.given:
            self.since = time.monotonic()
            self.cause = cause

    def _be_child(self) -> None:
        """Give a forked process TERM's own meaning; USR1 and USR2, which Slurm sends to it too, mean the rank."""
        ours = [number for number in SIGNALS if self._is_ours(number)]
        self._pipe = None
        if not ours:
            return
        signal.set_wakeup_fd(-1)
        for number in ours:
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)


NOTICES = Notices()


def _outlive_notice(_: Notices) -> None:
    """Keep a process of multiprocessing, such as a loader's worker, alive until the rank has saved.

    TERM ends it only when its parent sends it, as `terminate` does: the one place that tells the sender is
    sigwaitinfo.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    threading.Thread(target=_end_by_parent, args=[os.getppid()], daemon=True).start()


def _end_by_parent(parent: int) -> None:
    while os.getppid() == parent:
        if signal.sigwaitinfo([signal.SIGTERM]).si_pid == parent:
            break
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
