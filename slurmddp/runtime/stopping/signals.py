"""Receives stop requests: SIGTERM, SIGUSR1, SIGUSR2, or the clock. Standard library only; no network, no files.

A Python signal handler does not run while the main thread is inside a collective. Therefore a thread, the signal
thread, reads the wakeup descriptor and calls `StopSignals.answer`.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
CLOCK: Final = "clock"
"""The cause of a stop request that no signal brought: the time limit is near."""
CLOCK_CHECK_S: Final = 60.0
"""`select` waits on the monotonic clock; the wall clock, which may be corrected, is read this often."""

UNREAD_LIMIT_S: Final = 10.0
"""For the signal thread to run on a busy node."""

Answer = Callable[[], None]


class StopSignals:
    """Whether this process was asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.cause = ""
        """Name of the signal, or `clock`; empty without a stop request."""
        self.requested_at = 0.0
        """Time of the stop request, by `time.monotonic()`."""
        self.signal_seen = threading.Event()
        """Set soon after any of the signals, also when a handler of the program's own received it."""
        self.handled_by_program = ""
        """Name of the last of these signals that the program itself handled; empty for none."""
        self.answer: Answer = lambda: None
        """Called by the signal thread after each signal and each `wake`, as long as a stop is requested."""
        self._stop_at: float | None = None
        self._pipe: tuple[int, int] | None = None
        self._passed_on: set[int] = set()
        self._reading = threading.Lock()
        self._mask = threading.local()

    @property
    def stop_requested(self) -> bool:
        """Whether this process was asked to stop."""
        return bool(self.cause)

    @property
    def all_handlers_ours(self) -> bool:
        """Whether the program has replaced none of the signal handlers."""
        return all(map(self._is_ours, SIGNALS))

    def listen(self) -> bool:
        """Install the signal handlers in this process, and not in those that it forks; return False if they were."""
        if self._pipe:
            return False
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._reset_in_child)
        threading.Thread(target=self._watch, name="signals", daemon=True).start()
        return True

    def has_come(self) -> bool:
        """Return whether any of the signals has come, also when the signal thread has not seen it yet."""
        deadline = time.monotonic() + UNREAD_LIMIT_S
        while self._pipe and time.monotonic() < deadline:
            with self._reading:
                if not select.select([self._pipe[0]], [], [], 0)[0]:
                    break
            time.sleep(0.001)
        return self.signal_seen.is_set()

    def stop_at(self, time_s: float) -> None:
        """Request a stop at `time_s`, in seconds since 1970; it does not matter if the clock is set meanwhile."""
        self._stop_at = time.monotonic() + time_s - time.time()
        self.wake()

    def wake(self, number: int = 0) -> None:
        """Let the signal thread look again."""
        if self._pipe:
            with contextlib.suppress(BlockingIOError):
                os.write(self._pipe[1], bytes([number]))

    def _handle(self, number: int, _: "FrameType | None") -> None:
        """Wake the signal thread also when the program has replaced the wakeup descriptor by its own."""
        self.wake(number)

    def _watch(self) -> None:
        while True:
            cause = self._wait_for_cause()
            if cause and not self.stop_requested:
                self.requested_at = time.monotonic()
                self.cause = cause
            if self.stop_requested:
                self.answer()

    def _wait_for_cause(self) -> str:
        """Wait for a signal, the clock or `wake`; return the cause of a stop request, empty for none."""
        pipe = self._pipe[0] if self._pipe else -1
        ready, _, _ = select.select([pipe], [], [], self._wait_limit_s())
        with self._reading:
            numbers = os.read(pipe, 4096) if ready else b""
            signals = [number for number in numbers if number in SIGNALS]
            ours = [number for number in signals if self._is_ours(number)]
            if len(ours) < len(signals):
                self.handled_by_program = signal.Signals(signals[-1]).name
            if signals:
                self.signal_seen.set()
        own = [number for number in SIGNALS if callable(signal.getsignal(number)) and not self._is_ours(number)]
        if ours and own:
            # The program saves itself at a signal of its own, which then stands for the others too. It is sent once for
            # each signal: descriptor and handler may both bring the same one.
            if not self._passed_on.issuperset(ours):
                self._passed_on.update(ours)
                os.kill(os.getpid(), own[0])
            return ""
        if ours:
            return signal.Signals(ours[0]).name
        return CLOCK if self._wait_limit_s() == 0 else ""

    def _wait_limit_s(self) -> "float | None":
        """Return how long to wait for the clock; a program with signal handlers of its own stops by those alone."""
        if self._stop_at is None or self.stop_requested or not self.all_handlers_ours:
            return None
        return min(CLOCK_CHECK_S, max(0.0, self._stop_at - time.monotonic()))

    def _is_ours(self, number: int) -> bool:
        return signal.getsignal(number) == self._handle

    def _hold(self) -> None:
        """Block the signals while this thread forks: the child must not answer one with the handlers of its parent."""
        self._mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def _release(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask.before)

    def _reset_in_child(self) -> None:
        """In a forked process SIGTERM ends it, and USR1 and USR2, which Slurm sends to it too, are ignored."""
        ours = [number for number in SIGNALS if self._is_ours(number)]
        self._pipe = None
        if ours:
            signal.set_wakeup_fd(-1)
        for number in ours:
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
        self._release()
