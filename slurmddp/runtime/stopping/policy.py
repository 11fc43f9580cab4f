"""Decides what a rank does next when the job is asked to stop, by its phase and what is known. Pure.

`stopping.py` carries the actions out, and asks again with what it has learned.
"""

from __future__ import annotations
import enum
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, Union

from slurmddp import exit_codes
from slurmddp.errors import SlurmddpError
from slurmddp.old_python import dataclass
from slurmddp.runtime.exiting.classify import Verdict
from slurmddp.runtime.launch.rank import Rank
from slurmddp.slurm.job_info import JobInfo

CONFIRM_LIMIT_S = 3.0
"""A peer that has not confirmed a stop request after this time is taken for dead."""
LOOP_LIMIT_S = 25.0
"""For the loop to reach its stop, where Slurm does not say when it kills the job; KillWait is 30 s by default."""
MARGIN_S = 5.0
"""Before Slurm's kill: what the batch script needs to put the job back into the queue."""
EARLY_S = 60.0
"""Slurm may signal the time limit this much too early, which is all the time that a short job has."""
NEAR_S = 600.0
"""Before the end of the job a USR2 is taken for Slurm's, also where the time limit was changed since the start."""
LEFT_LIMIT_S = 3.0
"""For a program whose loop was left after a stop request to end, before it is ended: it may have failed."""
LONG_STEPS = 2.0
"""The loop is taken for stuck when no step was finished for this many times its longest step."""


class Phase(enum.Enum):
    """How far a rank has come. It decides what a stop request means."""

    START = enum.auto()  # before all others, and while an executable starts: a stop request waits for the next phase
    RENDEZVOUS = enum.auto()  # the ranks have not met: there is nothing to save, and no peer to agree with
    SCRIPT = enum.auto()  # the program is not in a training loop: it is ended, and its last checkpoint counts
    EXECUTABLE = enum.auto()  # COMMAND is an executable: it gets the signal, and goes on if it catches it
    LOOP = enum.auto()  # the program is in a training loop, which saves and stops by itself
    LEFT_LOOP = enum.auto()  # it left the loop by `break` or an exception: as SCRIPT, but a failure is reported first
    CALL = enum.auto()  # a callable of `Executor`: rank 0 saves it, and its peers end with it
    EXIT = enum.auto()  # the rank is ending: a stop request means nothing


ENDING_PHASES: Final = frozenset({Phase.RENDEZVOUS, Phase.SCRIPT})
"""A stop request in these always ends the process; a failure that it meets meanwhile is a consequence."""

Reason = Literal["preempted", "requeued", "time limit", "cancelled", "script killed", "signal"]
"""`requeued` is also a preemption without grace time: Slurm shows both alike. `signal`: Slurm knows no reason."""
_KILL: Final = 9


class StopReason(NamedTuple):
    """What Slurm says about a job that is to stop; only rank 0 asks."""

    reason: Reason = "signal"
    ends_at: float | None = None
    """When Slurm will kill the job, in seconds since 1970; None when it does not say."""


class Wait(NamedTuple):
    """Wait until the rank goes on to another phase, for `limit_s` seconds at most."""

    limit_s: float


class Leave(NamedTuple):
    """End the process with this verdict."""

    verdict: Verdict
    record: bool = True
    """Whether this rank writes the verdict into its exit record."""


Action = Union[Literal["confirm", "ask slurm", "answer executable", "save call", "dismiss", "go on"], Wait, Leave]
"""Let all ranks confirm the request, ask Slurm for the reason, hand the request to an executable, save the callable of
`Executor`, forget a request that came too early, or leave the rank alone."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What a rank knows of a stop request."""

    phase: Phase
    rank: Rank
    cause: str
    """The signal's name, or `clock`."""
    silent: Sequence[int] | None = None
    """The ranks that did not confirm the request; None before they were asked."""
    slurm: StopReason | None = None
    """None before Slurm was asked."""
    saved: str = ""
    """What is saved, in words."""
    longest_step_s: float = 0.0
    is_hung: bool = False
    """Whether the supervisor ends the training because it hangs."""
    is_stuck: bool = False
    """Whether the loop has finished no step since the request."""
    waits: int = 0
    """How often the rank was waited for."""
    is_over: bool = False
    """Whether the rank went on to another phase meanwhile."""
    now: float
    """In seconds since 1970."""


def decide(known: Known) -> Action:
    """Return what to do next."""
    if known.is_hung:
        return Leave(Verdict(exit_codes.RETRYABLE, f"the training hung; {known.saved}"))
    return _POLICIES[known.phase](known)


def _end_script(known: Known, limit_s: float = 0.0) -> Action:
    if known.silent is None:
        return "confirm"
    if known.silent:
        return Leave(_lost_peers(known, known.silent))
    if known.slurm is None:
        return "ask slurm"
    if limit_s and not known.waits:
        return Wait(limit_s)
    has_own_launcher = known.rank.attached and known.rank.world_size > 1
    if has_own_launcher and known.cause == "SIGTERM" and known.slurm.reason == "signal":
        return Leave(Verdict(exit_codes.RETRYABLE, f"{_ENDED_BY_LAUNCHER}; {known.saved}"))
    return Leave(Verdict(exit_codes.STOPPED, f"{_received(known)}; {known.saved}"), record=known.rank.is_main)


def _await_loop(known: Known) -> Action:
    if known.silent is None:
        return "confirm"
    if known.slurm:
        return _await_loop_end(known, known.slurm) if known.rank.is_main and not known.is_over else "go on"
    if known.silent and not known.waits:
        return Wait(LONG_STEPS * known.longest_step_s)
    if known.silent and known.is_stuck and not known.is_over:
        return Leave(_lost_peers(known, known.silent))
    return "ask slurm"


def _await_loop_end(known: Known, slurm: StopReason) -> Action:
    if known.waits > bool(known.silent):  # a loop with a silent peer was waited for before, to see whether it is stuck
        reason = f"{_received(known)}, but the loop did not reach its next step in time; {known.saved}"
        return Leave(Verdict(exit_codes.RETRYABLE, reason))
    return Wait(max(slurm.ends_at - MARGIN_S - known.now if slurm.ends_at else LOOP_LIMIT_S, CONFIRM_LIMIT_S))


def _end_call(known: Known) -> Action:
    if known.rank.is_main and known.slurm is None:
        return "ask slurm"
    if known.slurm and known.slurm.reason == "time limit" and 0 < (known.rank.stop_at or 0) - known.now < EARLY_S:
        return "dismiss"
    if known.silent is None:
        return "confirm"
    if not known.rank.is_main:
        return "go on"
    return Leave(_lost_peers(known, known.silent)) if known.silent else "save call"


_ENDED_BY_LAUNCHER = "SIGTERM received: another rank has ended, or the job must stop, as rank 0 says then"
_NOT_MET = "stop signal received ({}) before the ranks had met: there was nothing to save"
_POLICIES: Final[dict[Phase, Callable[[Known], Action]]] = {
    Phase.START: lambda _: "go on",
    Phase.RENDEZVOUS: lambda known: Leave(Verdict(exit_codes.RETRYABLE, _NOT_MET.format(known.cause))),
    Phase.SCRIPT: _end_script,
    Phase.EXECUTABLE: lambda _: "answer executable",
    Phase.LOOP: _await_loop,
    Phase.LEFT_LOOP: lambda known: _end_script(known, LEFT_LIMIT_S),
    Phase.CALL: _end_call,
    Phase.EXIT: lambda _: "go on",
}


def _received(known: Known) -> str:
    return f"stop signal received ({known.slurm.reason if known.slurm else 'signal'})"


def _lost_peers(known: Known, silent: Sequence[int]) -> Verdict:
    return Verdict(
        exit_codes.RETRYABLE,
        f"lost {known.rank.list_ranks(silent)}: no answer within {CONFIRM_LIMIT_S:g} s ({known.cause}); {known.saved}",
    )


def read_reason(job: JobInfo | None, cause: str, *, restarts: str, now: float, stop_at: float | None) -> StopReason:
    """Return why Slurm stops a job, by what it shows of it; `stop_at` is the rank's, and may have been moved since.

    Slurm shows a job that it ends as COMPLETING; if the job is requeued, its restarts are already one more. A batch
    script that was killed ends the job, too. USR2 is Slurm's only near the time limit: any other is somebody's own.
    """
    ends_at = job.ended.timestamp() if job and job.ended else None
    if job and job.preempted:
        return StopReason("preempted", ends_at)
    if job and job.state == "COMPLETING" and job.exit_status.endswith(f":{_KILL}"):
        return StopReason("script killed")
    if job and job.state == "COMPLETING":
        return StopReason("cancelled" if str(job.restarts) == restarts else "requeued")
    is_near = bool((stop_at and stop_at - now < EARLY_S + MARGIN_S) or (ends_at and ends_at - now < NEAR_S))
    return StopReason("time limit" if is_near and cause != "SIGTERM" else "signal", ends_at)


def may_be_consequence(phase: Phase, error: BaseException, verdict: Verdict) -> bool:
    """Return whether a failure is the program's own, in a loop: after a stop request it is then a consequence of it."""
    failed = verdict.status == exit_codes.FAILED and not isinstance(error, SlurmddpError)
    by_program = isinstance(error, Exception) and (failed or verdict.status == exit_codes.RETRYABLE)
    return phase in (Phase.LOOP, Phase.LEFT_LOOP) and by_program
