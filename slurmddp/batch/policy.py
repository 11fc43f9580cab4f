"""What the supervisor does next: pure functions from what Slurm says and how the ranks ended to an action. No I/O.

The actions are the states of a job's life; docs/life-of-a-job.md has them as a diagram.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from slurmddp.exit_codes import DONE, FAILED, FENCED, STOPPED
from slurmddp.slurm.job_info import JobInfo

HEALTHY_S: Final = 600
"""An attempt that has lived so long, and a job that was requeued after so long, was of use."""
IDLE_REQUEUES: Final = 10
"""Short requeues in a row without a new checkpoint, after which the job stays out of the queue."""
_HELD_STATES: Final = frozenset({"RUNNING", "CONFIGURING", "RESIZING", "SIGNALING", "SUSPENDED", "STOPPED"})
"""States in which a job has its allocation and is not leaving it."""


class Ending(NamedTuple):
    """How an attempt ended."""

    status: int
    """Of `slurmddp.exit_codes`; the launcher's where no rank left a record."""
    reason: str


class Start:
    """Start the ranks."""


class Restart(NamedTuple):
    """Start the ranks again in the same allocation."""

    ending: Ending


class Requeue(NamedTuple):
    """Put the job back into the queue, under the same job id."""

    reason: str
    lost_nodes: tuple[str, ...] = ()
    """Nodes that the job is to have no more."""


class End(NamedTuple):
    """The job is over, and the run free for another job."""

    status: int
    reason: str


class Fence(NamedTuple):
    """Another attempt owns the job or the run: leave, and write nothing more."""

    reason: str


Action = Start | Restart | Requeue | End | Fence


class Crash(NamedTuple):
    """What a crash is judged by, beside how the ranks ended."""

    failures: int
    """Attempts that failed in a row, this one included, without progress."""
    max_restarts: int


def fence(job: JobInfo, *, restarts: int, host: str) -> Fence | None:
    """Return why this process is not the job's any more, None while it is.

    `restarts` and `host` are SLURM_RESTART_COUNT and SLURMD_NODENAME of the batch script.
    """
    if job.state not in _HELD_STATES:
        return Fence(f"Slurm has the job as {job.state}")
    if (job.restarts or 0, job.batch_host) != (restarts, host):
        return Fence(f"Slurm has started it anew, restart {job.restarts} on {job.batch_host}")
    return None


def left_s(job: JobInfo) -> int | None:
    """Return the seconds until the time limit; None when there is no limit."""
    return None if job.limit_s is None else max(0, job.limit_s - (job.elapsed_s or 0))


def first(job: JobInfo, *, lead_s: int, margin_s: int) -> Action:
    """Return what to do when the batch script begins.

    Slurm sends the notice at once when the time limit leaves no time before it; such a job would come back for ever.
    """
    if job.limit_s is not None and job.limit_s < lead_s + margin_s:
        return End(FAILED, _short_limit(job.limit_s, lead_s, margin_s))
    return before_start(job, lead_s=lead_s) or Start()


def _short_limit(limit_s: int, lead_s: int, margin_s: int) -> str:
    advice = f"--time {(lead_s + margin_s) // 60 + 1} or more"
    if limit_s > MIN_LIMIT_S:
        advice += f", or --signal-lead {limit_s - MIN_LIMIT_S} or less"
    return (
        f"the time limit is {limit_s} s, and the notice comes {lead_s} s before its end, which leaves less than "
        f"{margin_s} s; give {advice}"
    )


MIN_LIMIT_S: Final = 61
"""A lead of one second, and a minute before it."""


def before_start(job: JobInfo, *, lead_s: int) -> Requeue | None:
    """Return why no ranks are to be started: the notice comes once, and may have come when no rank could hear it."""
    left = left_s(job)
    if job.preempted:
        return Requeue("preempted; no step is started")
    if left is not None and left < lead_s:
        return Requeue(f"{left} s are left of the time limit; no step is started")
    return None


def after_attempt(ending: Ending) -> Action | None:
    """Return what follows from the ranks' own records alone; None when a new start may help."""
    if ending.status in (DONE, FAILED):
        return End(ending.status, ending.reason)
    if ending.status == STOPPED:
        return Requeue(ending.reason)
    return Fence(ending.reason) if ending.status == FENCED else None


def after_crash(ending: Ending, job: JobInfo, lost_nodes: Sequence[str], crash: Crash, *, lead_s: int) -> Action:
    """Return what follows when a new start may help: in the same allocation, or in another one."""
    if requeue := before_start(job, lead_s=lead_s):
        return requeue
    if lost_nodes:
        return Requeue(f"lost node(s) {', '.join(lost_nodes)}", tuple(lost_nodes))
    if crash.failures > crash.max_restarts:
        reason = (
            f"gives up: {crash.failures} start(s) in a row failed, with no new checkpoint since "
            f"(--max-restarts {crash.max_restarts}); the last: {ending.reason}"
        )
        return End(ending.status, reason)
    return Restart(ending)


class Requeued(NamedTuple):
    """One requeue that the job has asked for before."""

    checkpoint: str
    """The newest checkpoint's name then; `none` without one."""
    alive_s: int
    """Seconds that the batch script had run."""


def may_requeue(past: Sequence[Requeued], now: Requeued, *, limit: int | None) -> str:
    """Return why the job must not requeue itself once more; empty when it may."""
    if limit is not None and len(past) >= limit:
        return f"It has requeued itself {len(past)} time(s) (--max-requeues {limit})"
    idle = 0
    for requeued in past:
        of_use = requeued.checkpoint != now.checkpoint or requeued.alive_s >= HEALTHY_S
        idle = 0 if of_use else idle + 1
    if idle >= IDLE_REQUEUES and now.alive_s < HEALTHY_S:
        return f"It has requeued itself {idle} times in a row without a new checkpoint; find out why"
    return ""
