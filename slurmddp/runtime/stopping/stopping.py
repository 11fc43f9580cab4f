"""Answers stop requests as one rank: carries out what `policy.py` decides. Runs in the signal thread."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import field, replace
from typing import Any

from slurmddp import exit_codes
from slurmddp.background import wait_until
from slurmddp.old_python import dataclass
from slurmddp.runs.exit_records import read_records
from slurmddp.runs.training_events import Notice
from slurmddp.runtime.exiting.classify import Verdict
from slurmddp.runtime.exiting.process_exit import ProcessExit
from slurmddp.runtime.exiting.record import write_end, write_event
from slurmddp.runtime.launch.process import print_line
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.stopping import policy
from slurmddp.runtime.stopping.policy import Known, Leave, Phase, Reason, StopReason, Wait
from slurmddp.runtime.stopping.signals import Answer, StopSignals
from slurmddp.slurm import client, commands
from slurmddp.slurm.parsing import parse_show

ASK_LIMIT_S = 5.0
"""For Slurm to answer."""
HEARD_LIMIT_S = 1.0
"""For the signal thread to see a signal that has already ended the program, here or in a peer."""
NOTICE_LIMIT_S = 10.0
"""The same, where the exit status says that a signal has ended the program: on a busy node it is seen late."""
SOON_S = 0.2
"""For the signal thread to see a signal that has ended a child of this process too."""
SETTLE_LIMIT_S = 6.0
"""For the signal thread to end a process that must stop; the ends of its peers are seen as errors before."""


class Progress:
    """The steps of a loop: by them a stuck loop is recognized."""

    def __init__(self) -> None:
        self.finished_at = time.monotonic()
        """When the last step was finished; before the first, when the loop began."""
        self.longest_s = 0.0
        """The seconds of the longest step."""


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What the phases of a rank give to its answers."""

    confirm: Callable[[float], list[int]] = lambda _: []
    """Confirms a stop request among all ranks; returns the ranks that did not confirm it within so many seconds."""
    describe_saved: Callable[[], str] = lambda: "slurmddp saved nothing, what the program has saved counts"
    """Returns what slurmddp has saved, for the message of a stop."""
    progress: Progress = field(default_factory=Progress)
    end_call: Callable[[Reason], "Verdict | None"] = lambda _: None
    """Saves a callable and returns how it ends; None when it is about to end by itself."""
    answer_executable: Answer = lambda: None
    rescue: Callable[[], None] = lambda: None
    """Saves what this rank still holds of the training, when the attempt fails."""


class Stopping:
    """Answers stop requests as one rank, by the policy of its phase."""

    def __init__(self, rank: Rank, signals: StopSignals, process_exit: ProcessExit) -> None:
        self.rank = rank
        """Who this process is."""
        self.signals = signals
        self.reason: Reason = "signal"
        """Why the job is to stop, as far as Slurm says; known to rank 0 alone."""
        self._hooks = Hooks()
        self._process_exit = process_exit
        self._changed = threading.Condition(threading.RLock())
        self._phase = self._answered_phase = Phase.START
        self._answered = False
        self._confirmed: bool | None = None
        signals.answer = self.answer

    def enter(self, phase: Phase, **hooks: Any) -> None:
        """Go on to a phase, with its `Hooks`. The next stop request is answered by it, or one that has come before."""
        with self._changed:
            self._phase, self._answered = phase, False
            self._hooks = replace(self._hooks, **hooks)
            self._changed.notify_all()
        self.signals.wake()

    def answer(self) -> None:
        """Do what the policy says, once in a phase; called by the signal thread."""
        with self._changed:
            if self._answered:
                return
            self._answered, self._answered_phase = True, self._phase
        who, run = self.rank, self.rank.run_dir
        hung = bool(run and os.path.exists(run.hang(who.job, who.attempt)))  # noqa: PTH110 - a sick disk raises nothing
        known: Known | None = Known(phase=self._answered_phase, rank=who, cause=self.signals.cause, is_hung=hung, now=0)
        while known:
            progress, saved = self._hooks.progress, self._hooks.describe_saved()
            stuck = progress.finished_at < self.signals.requested_at
            known = replace(known, now=time.time(), saved=saved, longest_step_s=progress.longest_s, is_stuck=stuck)
            known = self._perform(policy.decide(known), known)
            if known and (known.silent or (known.silent is not None and known.slurm)):
                with self._changed:
                    self._confirmed = not known.silent
                    self._changed.notify_all()

    def _perform(self, action: policy.Action, known: Known) -> "Known | None":
        """Do one thing; return what is known then, None when nothing is left to do."""
        if isinstance(action, Wait):
            with self._changed:
                is_over = self._changed.wait_for(lambda: self._phase is not self._answered_phase, action.limit_s)
            return replace(known, waits=known.waits + 1, is_over=is_over)
        if isinstance(action, Leave):
            self._leave(action)
        elif action == "confirm":
            if silent := self._hooks.confirm(policy.CONFIRM_LIMIT_S):
                self.rescue()  # what follows may take longer than Slurm lets the process live
            return replace(known, silent=silent)
        elif action == "ask slurm":
            return replace(known, slurm=self.record_request())
        elif action == "answer executable":
            self._hooks.answer_executable()
        elif action == "save call" and (verdict := self._hooks.end_call(self.reason)):
            self._leave(Leave(verdict))
        elif action == "dismiss":
            with self._changed:  # the next signal counts again, and the clock
                self.signals.cause = ""
                self._answered = False
        return None

    def record_request(self) -> StopReason:
        """On rank 0, ask Slurm for the reason and write it down; return what it says."""
        if not self.rank.is_main:
            return StopReason()
        cause = self.signals.cause or self.signals.handled_by_program
        found = ask_slurm(self.rank, cause)
        self.reason = found.reason
        write_event(self.rank, Notice(cause=cause, reason=found.reason))
        return found

    def _leave(self, end: Leave) -> None:
        """End the process, unless the rank has gone on to another phase since the request was answered."""
        with self._changed:
            if self._phase is not self._answered_phase:
                return
            if end.verdict.status == exit_codes.RETRYABLE:
                self.rescue()
            with contextlib.suppress(OSError):  # a full disk must not keep the process alive
                if end.record:
                    write_end(self.rank, end.verdict)
                print_line(f"{end.verdict.reason}; ending with status {end.verdict.status}")
            self._process_exit.leave(end.verdict.status)

    def rescue(self) -> None:
        """Save what this rank still holds of the training; the signal thread does not end the process meanwhile."""
        with self._changed, contextlib.suppress(Exception):
            self._hooks.rescue()

    def await_exit(self, limit_s: float) -> None:
        """Give an answer that is about to end the process the time to do so."""
        if self.signals.stop_requested and self._phase in policy.ENDING_PHASES:
            time.sleep(limit_s)

    def judge_failure(self, error: BaseException, verdict: Verdict) -> Verdict:
        """Return the verdict on a program that has failed: in a loop that all ranks were to stop, it is a consequence.

        The last finished step cannot be saved then: the program may have changed its state, and the peers wait in a
        collective.
        """
        is_candidate = policy.may_be_consequence(self._phase, error, verdict)
        if not (is_candidate and wait_until(lambda: self.signals.cause, SOON_S)):
            return verdict
        of_peer = verdict.status == exit_codes.RETRYABLE and not isinstance(error, OSError) and self.rank.world_size > 1
        if of_peer:
            cause = self._find_failed_peer()
        else:
            with self._changed:  # until it is known whether all ranks were asked to stop
                self._changed.wait_for(lambda: self._confirmed is not None, policy.CONFIRM_LIMIT_S + ASK_LIMIT_S)
            cause = verdict.reason if self._confirmed else ""
        if not cause:
            return verdict
        if not (self.rank.is_main or of_peer):
            with contextlib.suppress(OSError):
                write_end(self.rank, Verdict(exit_codes.STOPPED, cause))  # for the message of rank 0
        saved = self._hooks.describe_saved()
        return Verdict(exit_codes.STOPPED, f"stop signal received ({self.reason}); {saved} ({cause})")

    def _find_failed_peer(self) -> str:
        """Return how the first peer failed after the stop request; empty when none says so."""
        run, who = self.rank.run_dir, self.rank
        records = read_records(run.attempt(who.job, who.attempt)) if run else []
        return next((record.text for record in records if record.status == exit_codes.STOPPED), "")


def ask_slurm(rank: Rank, cause: str) -> StopReason:
    """Ask Slurm why the attempt of this rank is to stop, and when the job will be killed."""
    job = None
    if rank.under_srun or rank.attached:
        said = client.try_query(commands.show("job", rank.job), os.environ, timeout_s=ASK_LIMIT_S)
        job = next(reversed(parse_show(said)), None)
    started = rank.attempt.partition(".")[0]
    return policy.read_reason(job, cause, restarts=started, now=time.time(), stop_at=rank.stop_at)
