"""Stop policy of each phase of a rank: what it does when the job is asked to stop. Runs in the signal thread."""

import contextlib
import enum
import threading
import time
from collections.abc import Callable
from typing import Final

from slurmddp import exit_codes
from slurmddp.errors import SlurmddpError
from slurmddp.runs.exit_records import read_record
from slurmddp.runs.training_events import Notice
from slurmddp.runtime.exiting.classify import Verdict
from slurmddp.runtime.exiting.process_exit import ProcessExit
from slurmddp.runtime.exiting.record import write_end, write_event
from slurmddp.runtime.launch.output import print_line
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.stopping import slurm_reason
from slurmddp.runtime.stopping.signals import Answer, StopSignals

CONFIRM_LIMIT_S = 3.0
"""A peer that has not confirmed a stop request after this time is taken for dead."""
LOOP_LIMIT_S = 25.0
"""For the loop to reach its stop, where Slurm does not say when it kills the job; KillWait is 30 s by default."""
MARGIN_S = 5.0
"""Before Slurm's kill: what the batch script needs to put the job back into the queue."""
HEARD_LIMIT_S = 1.0
"""For the signal thread to see a signal that has already ended the program, here or in a peer."""
NOTICE_LIMIT_S = 10.0
"""The same, where the exit status says that a signal has ended the program: on a busy node it is seen late."""
SOON_S = 0.2
"""For the signal thread to see a signal that has ended a child of this process too."""
SETTLE_LIMIT_S = 6.0
"""For the signal thread to end a process that must stop; the ends of its peers are seen as errors before."""
EARLY_S = 60.0
"""Slurm may signal the time limit this much too early, which is all the time that a short job has."""
LEFT_LIMIT_S = 3.0
"""For a program whose loop was left after a stop request to end, before it is ended: it may have failed."""
LONG_STEPS = 2.0
"""The loop is taken for stuck when no step was finished for this many times its longest step."""

Confirm = Callable[[float], list[int]]
"""Confirms a stop request among all ranks; returns the ranks that did not confirm it within so many seconds."""
EndCall = Callable[[slurm_reason.Reason], Verdict | None]
"""Saves a callable and returns how it ends; None when it is about to end by itself."""


class Phase(enum.Enum):
    """How far a rank has come. It decides what a stop request means."""

    START = enum.auto()  # before all others, and while an executable starts: a stop request waits for the next phase
    RENDEZVOUS = enum.auto()  # the ranks have not met: there is nothing to save, and no peer to agree with
    SCRIPT = enum.auto()  # the program is not in a training loop: it is ended, and its last checkpoint counts
    EXECUTABLE = enum.auto()  # COMMAND is an executable: `Stopping.answer_executable` answers
    LOOP = enum.auto()  # the program is in a training loop, which saves and stops by itself
    LEFT_LOOP = enum.auto()  # it left the loop by `break` or an exception: as SCRIPT, but a failure is reported first
    CALL = enum.auto()  # a callable of `Executor`: rank 0 saves it by `Stopping.end_call`, and its peers end with it
    EXIT = enum.auto()  # the rank is ending: a stop request means nothing


LOOP_PHASES: Final = frozenset({Phase.LOOP, Phase.LEFT_LOOP})
ENDING_PHASES: Final = frozenset({Phase.RENDEZVOUS, Phase.SCRIPT})
"""A stop request in these always ends the process; a failure that it meets meanwhile is a consequence."""


class Progress:
    """The steps of a loop: by them a stuck loop is recognized."""

    finished_at = 0.0
    """When the last step was finished, by `time.monotonic()`."""
    longest_s = 0.0
    """The seconds of the longest step."""

    def begin(self) -> None:
        """Count the time of the first step from now."""
        self.finished_at = time.monotonic()

    def finish_step(self) -> None:
        """Count a finished step."""
        now = time.monotonic()
        self.longest_s = max(self.longest_s, now - self.finished_at)
        self.finished_at = now


class Stopping:
    """Answers stop requests as one rank, by the policy of its phase."""

    def __init__(self, rank: Rank, signals: StopSignals, process_exit: ProcessExit) -> None:
        self.rank = rank
        """Who this process is."""
        self.signals = signals
        self.reason: slurm_reason.Reason = "signal"
        """Why the job is to stop, as far as Slurm says; known to rank 0 alone."""
        self.confirm: Confirm = lambda _: []
        self.progress = Progress()
        self.end_call: EndCall = lambda _: None
        self.describe_saved: Callable[[], str] = lambda: "slurmddp saved nothing"
        """What slurmddp has saved, for the message of a stop."""
        self.answer_executable: Answer = lambda: None
        self._policies: dict[Phase, Answer] = {
            Phase.START: lambda: None,
            Phase.RENDEZVOUS: self._leave_rendezvous,
            Phase.SCRIPT: self._leave_script,
            Phase.EXECUTABLE: lambda: self.answer_executable(),  # noqa: PLW0108 - the attribute is set later
            Phase.LOOP: self._await_loop_end,
            Phase.LEFT_LOOP: self._leave_left_loop,
            Phase.CALL: self._leave_call,
            Phase.EXIT: lambda: None,
        }
        self._process_exit = process_exit
        self._changed = threading.Condition(threading.RLock())
        self._phase = self._answered_phase = Phase.START
        self._answered = False
        self._confirmed: bool | None = None
        signals.answer = self.answer

    def enter(self, phase: Phase) -> None:
        """Go on to a phase. Its policy answers the next stop request, or at once the one that has come before."""
        with self._changed:
            self._phase, self._answered = phase, False
            self._changed.notify_all()
        self.signals.wake()

    def answer(self) -> None:
        """Apply the policy of the present phase, once in a phase; called by the signal thread."""
        with self._changed:
            if self._answered:
                return
            self._answered, self._answered_phase = True, self._phase
        self._policies[self._answered_phase]()

    def await_exit(self, limit_s: float) -> None:
        """Give a policy that is about to end the process the time to do so."""
        if self.signals.stop_requested and self._phase in ENDING_PHASES:
            time.sleep(limit_s)

    def judge_failure(self, error: BaseException, verdict: Verdict) -> Verdict:
        """Return the verdict on a program that has failed: in a loop that all ranks were to stop, it is a consequence.

        The last finished step cannot be saved then: the program may have changed its state, and the peers wait in a
        collective.
        """
        if not (self._phase in LOOP_PHASES and _is_by_program(error, verdict) and self.signals.await_stop(SOON_S)):
            return verdict
        of_peer = verdict.status == exit_codes.RETRYABLE and not isinstance(error, OSError) and self.rank.world_size > 1
        cause = self._find_failed_peer() if of_peer else verdict.reason if self._is_confirmed() else ""
        if not cause:
            return verdict
        if not (self.rank.is_main or of_peer):
            with contextlib.suppress(OSError):
                write_end(self.rank, Verdict(exit_codes.STOPPED, cause))  # for the message of rank 0
        return Verdict(exit_codes.STOPPED, f"stop signal received ({self.reason}); {self.describe_saved()} ({cause})")

    def _is_confirmed(self) -> bool:
        """Return whether all ranks were asked to stop; wait until it is known."""
        with self._changed:
            self._changed.wait_for(lambda: self._confirmed is not None, CONFIRM_LIMIT_S + slurm_reason.ASK_LIMIT_S)
        return bool(self._confirmed)

    def _set_confirmed(self, silent: list[int]) -> None:
        with self._changed:
            self._confirmed = not silent
            self._changed.notify_all()

    def _find_failed_peer(self) -> str:
        """Return how the first peer failed after the stop request; empty when none says so."""
        run, who = self.rank.run_dir, self.rank
        paths = [run.rank_record(who.job, who.attempt, rank) for rank in range(who.world_size)] if run else []
        found = [record for path in paths if (record := read_record(path)) and record.status == exit_codes.STOPPED]
        return min(found, key=lambda record: record.time).text if found else ""

    def _leave_rendezvous(self) -> None:
        reason = f"stop signal received ({self.signals.cause}) before the ranks had met: there was nothing to save"
        self._leave(Verdict(exit_codes.RETRYABLE, reason))

    def _leave_script(self, limit_s: float = 0) -> None:
        silent = self.confirm(CONFIRM_LIMIT_S)
        if silent:
            self._set_confirmed(silent)
            self._leave(self._lost_peers(silent))
            return
        self.record_request()
        self._set_confirmed(silent)
        if not self._phase_ends_within(limit_s):
            reason = f"stop signal received ({self.reason}); {self.describe_saved()}"
            self._leave(Verdict(exit_codes.STOPPED, reason), record=self.rank.is_main)

    def _leave_left_loop(self) -> None:
        self._leave_script(LEFT_LIMIT_S)

    def _leave_call(self) -> None:
        if not self.rank.is_main:
            self.confirm(CONFIRM_LIMIT_S)
            return
        self.record_request()
        if self.reason == "time limit" and 0 < (self.rank.stop_at or 0) - time.time() < EARLY_S:
            self._dismiss_request()
            return
        silent = self.confirm(CONFIRM_LIMIT_S)
        verdict = self._lost_peers(silent) if silent else self.end_call(self.reason)
        if verdict:
            self._leave(verdict)

    def _await_loop_end(self) -> None:
        silent = self.confirm(CONFIRM_LIMIT_S)
        if silent:
            self._set_confirmed(silent)
        if silent and self._is_loop_stuck():
            self._leave(self._lost_peers(silent))
            return
        ends_at = self.record_request()
        self._set_confirmed(silent)
        limit_s = ends_at - MARGIN_S - time.time() if ends_at else LOOP_LIMIT_S
        if self.rank.is_main and not self._phase_ends_within(max(limit_s, CONFIRM_LIMIT_S)):
            reason = f"stop signal received ({self.reason}), but the loop did not reach its next step in time"
            self._leave(Verdict(exit_codes.RETRYABLE, f"{reason}; {self.describe_saved()}"))

    def _is_loop_stuck(self) -> bool:
        """Return, after the time of a step, whether no step was finished since the stop request."""
        ended = self._phase_ends_within(LONG_STEPS * self.progress.longest_s)
        return not ended and self.progress.finished_at < self.signals.requested_at

    def _phase_ends_within(self, limit_s: float) -> bool:
        """Wait until the rank goes on to another phase than the answered one; return whether it did in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._phase is not self._answered_phase, limit_s)

    def _dismiss_request(self) -> None:
        with self._changed:
            self.signals.dismiss()
            self._answered = False

    def record_request(self) -> float | None:
        """On rank 0, ask Slurm for the reason and write it down; return when Slurm will kill the job."""
        if not self.rank.is_main:
            return None
        cause = self.signals.cause or self.signals.handled_by_program
        found = slurm_reason.ask_slurm(self.rank, cause)
        self.reason = found.reason
        write_event(self.rank, Notice(cause=cause, reason=found.reason))
        return found.ends_at

    def _lost_peers(self, silent: list[int]) -> Verdict:
        return Verdict(
            exit_codes.RETRYABLE,
            f"lost {self.rank.list_ranks(silent)}: no answer within {CONFIRM_LIMIT_S:g} s ({self.signals.cause}); "
            f"{self.describe_saved()}",
        )

    def _leave(self, verdict: Verdict, *, record: bool = True) -> None:
        """End the process, unless the rank has gone on to another phase since the request was answered."""
        with self._changed:
            if self._phase is not self._answered_phase:
                return
            with contextlib.suppress(OSError):  # a full disk must not keep the process alive
                if record:
                    write_end(self.rank, verdict)
                print_line(f"{verdict.reason}; ending with status {verdict.status}")
            self._process_exit.leave(verdict.status)


def _is_by_program(error: BaseException, verdict: Verdict) -> bool:
    """Return whether an exception that ends the rank is one of the program or its libraries, and no exit."""
    failed = verdict.status == exit_codes.FAILED and not isinstance(error, SlurmddpError)
    return isinstance(error, Exception) and (failed or verdict.status == exit_codes.RETRYABLE)
