"""What a rank does when it is told to stop: it depends on how far it has come. Runs in the thread of the notices."""

import contextlib
import time
from collections.abc import Callable

from slurmddp import exit_codes
from slurmddp.runs.training_events import Notice
from slurmddp.runtime.exiting.classify import Verdict
from slurmddp.runtime.exiting.process_exit import LEAVING
from slurmddp.runtime.exiting.record import write_end, write_event
from slurmddp.runtime.launch.output import print_line
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.stopping import slurm_reason
from slurmddp.runtime.stopping.signals import NOTICES

SILENT_S = 3.0
"""A peer that has not acknowledged a notice by then is taken for dead."""
REACH_LIMIT_S = 25.0
"""For the loop to reach its stop, where Slurm does not say when it will kill the job; KillWait is 30 s by default."""
MARGIN_S = 5.0
"""Before Slurm's kill: what the batch script needs to put the job back into the queue."""

EARLY_S = 60.0
"""So much before its time Slurm may give notice of the time limit, which is all the time that a short job has."""
LONG_STEPS = 2.0
"""So many times the longest step so far may pass without one before the loop is taken to be stuck."""

Progress = Callable[[], tuple[float, float]]
"""Returns when the last step was finished, by `time.monotonic()`, and how many seconds the longest took."""
Confirm = Callable[[float], list[int]]
"""Tells the peers of a notice; returns those that did not acknowledge one within so many seconds."""
End = Callable[[slurm_reason.Reason], Verdict | None]
"""Says how a program that saves itself ends; None when it is about to end by itself."""


class Stopping:
    """One rank's answer to a notice."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        """Who this process is."""
        self._confirm: Confirm = lambda _: []
        self._progress: Progress = lambda: (0.0, 0.0)
        self._end: End = lambda _: None
        self.reason: slurm_reason.Reason = "signal"
        """Why the job is to stop, as far as Slurm said; known to rank 0 alone."""

    def expect_unmet(self) -> None:
        """Until the ranks have met there is nothing to save, and nobody to agree with."""
        NOTICES.then(self._leave_unmet, ends=True)

    def expect_plain(self, confirm: Confirm | None = None) -> None:
        """A program without a Checkpointer in its loop is ended; what it saved last counts."""
        self._confirm = confirm or self._confirm
        NOTICES.then(self._leave_plain, ends=True)

    def expect_left_loop(self) -> None:
        """As for a program without a loop; but one that left by an exception records that at once."""
        NOTICES.then(self._leave_plain)

    def expect_in_loop(self, progress: Progress) -> None:
        """The loop stops by itself, saved."""
        self._progress = progress
        NOTICES.then(self._see_loop_stop)

    def expect_own_end(self, end: End) -> None:
        """Rank 0's program saves itself and says how it ends; its peers go on until they are ended with it."""
        self._end = end
        NOTICES.then(self._leave_as_said if self.rank.is_main else self._acknowledge)

    def expect_nothing(self) -> None:
        """The rank is ending."""
        NOTICES.then(None)

    def _leave_unmet(self) -> None:
        verdict = Verdict(exit_codes.RETRYABLE, f"told to stop ({NOTICES.cause}) before the ranks had met")
        with NOTICES.holding(self._leave_unmet) as current:
            if current:
                self._leave(verdict, records=True)

    def _leave_plain(self) -> None:
        silent = self._confirm(SILENT_S)
        if not silent:
            self._tell()
        with NOTICES.holding(self._leave_plain) as current:
            if current and silent:
                self._leave(self._lost(silent), records=True)
            elif current:
                stopped = Verdict(exit_codes.STOPPED, f"told to stop ({self.reason})")
                self._leave(stopped, records=self.rank.is_main)

    def _acknowledge(self) -> None:
        self._confirm(SILENT_S)

    def _leave_as_said(self) -> None:
        self._tell()
        if self.reason == "time limit" and 0 < (self.rank.stop_at or 0) - time.time() < EARLY_S:
            NOTICES.dismiss()
            return
        silent = self._confirm(SILENT_S)
        verdict = self._lost(silent) if silent else self._end(self.reason)
        with NOTICES.holding(self._leave_as_said) as current:
            if current and verdict:
                self._leave(verdict, records=True)

    def _see_loop_stop(self) -> None:
        silent = self._confirm(SILENT_S)
        if silent and self._is_stuck():
            self._leave_loop(self._lost(silent))
            return
        ends_at = self._tell()
        limit_s = ends_at - MARGIN_S - time.time() if ends_at else REACH_LIMIT_S
        if self.rank.is_main and not NOTICES.until_replaced(self._see_loop_stop, max(limit_s, SILENT_S)):
            self._leave_loop(
                Verdict(exit_codes.RETRYABLE, "told to stop, but the loop did not reach its next step in time")
            )

    def _is_stuck(self) -> bool:
        """Tell, in the time of a step, that no step is finished any more."""
        _, longest_s = self._progress()
        replaced = NOTICES.until_replaced(self._see_loop_stop, LONG_STEPS * longest_s)
        return not replaced and self._progress()[0] < NOTICES.since

    def _leave_loop(self, verdict: Verdict) -> None:
        with NOTICES.holding(self._see_loop_stop) as current:
            if current:
                self._leave(verdict, records=True)

    def _tell(self) -> float | None:
        """Find out why, on rank 0, and write it down; return when Slurm will kill the job."""
        if not self.rank.is_main:
            return None
        found = slurm_reason.ask(self.rank, NOTICES.cause)
        self.reason = found.reason
        write_event(self.rank, Notice(cause=NOTICES.cause, reason=found.reason))
        return found.ends_at

    def _lost(self, silent: list[int]) -> Verdict:
        ranks = ", ".join(
            f"rank {rank}" + (f" ({host})" if (host := self.rank.host_of(rank)) else "") for rank in silent
        )
        return Verdict(
            exit_codes.RETRYABLE, f"told to stop ({NOTICES.cause}), and {ranks} did not answer within {SILENT_S:g} s"
        )

    def _leave(self, verdict: Verdict, *, records: bool) -> None:
        with contextlib.suppress(OSError):  # a disk that is full keeps nobody here
            if records:
                write_end(self.rank, verdict)
            print_line(f"{verdict.reason}; ending with status {verdict.status}")
        LEAVING.now(verdict.status)


_begun: list[Stopping] = []


def begin(rank: Rank) -> Stopping:
    """Answer notices as this rank from now on; a process that `slurmddp.worker` did not start begins to listen."""
    if not NOTICES.listens:
        NOTICES.listen()
    if rank.stop_at:
        NOTICES.stop_at(rank.stop_at)
    _begun[:] = [Stopping(rank)]
    return _begun[0]


def begun() -> Stopping | None:
    """Return what `begin` returned in this process; None before."""
    return _begun[0] if _begun else None
