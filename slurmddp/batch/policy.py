"""Decides the supervisor's next action from Slurm's answer and the result of an attempt. Pure.

docs/life-of-a-job.md has the actions as a diagram.
"""

from __future__ import annotations
from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Final, NamedTuple, Union

from slurmddp.exit_codes import DONE, FAILED, FENCED, STOPPED
from slurmddp.outcome import SCRIPT_KILLED
from slurmddp.runs.events import AttemptRestart, Fenced, JobEnd, JobRequeue
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.states import find_state
from slurmddp.text import count

IDLE_REQUEUES: Final = 10
"""After this many requeues in a row without a new checkpoint, the job ends."""
IDLE_TIME_LIMITS: Final = 2
"""After this many time limits in a row without a new checkpoint, the job ends: it hangs, or saves nothing."""
EARLY_S: Final = 60
"""Slurm may send the stop signal this long before its lead."""
MIN_LIMIT_S: Final = 61
"""A lead of one second, and a minute before it."""


class Result(NamedTuple):
    """The result of an attempt."""

    status: int
    """One of `slurmddp.exit_codes`; the launcher's status where no rank wrote a record."""
    reason: str


Action = Union[AttemptRestart, JobRequeue, JobEnd, Fenced]
"""What the supervisor does next, as the event that it then records."""


def check_fenced(job: JobInfo, *, restarts: int, host: str) -> str:
    """Return why this process is no longer the job's batch script; empty when it is.

    `restarts` and `host` are SLURM_RESTART_COUNT and SLURMD_NODENAME of this batch script.
    """
    if not find_state(job.state).holds_nodes:
        killed = job.exit_status.endswith(":9")  # no other batch script owns the run then
        return f"{SCRIPT_KILLED} 9" if killed else f"Slurm has the job as {job.state}"
    if (job.restarts or 0, job.batch_host) != (restarts, host):
        return f"Slurm has started the job again, restart {job.restarts} on {job.batch_host}"
    return ""


def time_left_s(job: JobInfo) -> int | None:
    """Return the seconds until the time limit; None when there is no limit."""
    return None if job.limit_s is None else max(0, job.limit_s - (job.elapsed_s or 0))


def decide_first(job: JobInfo, *, lead_s: int, margin_s: int) -> Action | None:
    """Return the first action of the batch script; None when it starts the ranks.

    A time limit shorter than lead and margin ends the job: Slurm would signal it at once, and it would requeue forever.
    """
    if job.limit_s is not None and job.limit_s < lead_s + margin_s:
        advice = f"--time {(lead_s + margin_s) // 60 + 1} or more"
        if job.limit_s > MIN_LIMIT_S:
            advice += f", or --signal-lead {job.limit_s - MIN_LIMIT_S} or less"
        notice = f"the notice comes {lead_s} s before its end, which leaves less than {margin_s} s"
        return JobEnd(FAILED, f"the time limit is {job.limit_s} s, and {notice}; give {advice}")
    return check_before_start(job, lead_s=lead_s)


def check_before_start(job: JobInfo, *, lead_s: int) -> JobRequeue | None:
    """Return a requeue when the ranks must not start, because Slurm has already sent its only stop signal."""
    left = time_left_s(job)
    if job.preempted:
        return JobRequeue("preempted; no step is started")
    if left is not None and left < lead_s:
        return JobRequeue(f"{left} s are left of the time limit; no step is started")
    return None


def decide_by_result(result: Result) -> Action | None:
    """Return the action that the result alone decides; None after a crash."""
    if result.status in (DONE, FAILED):
        return JobEnd(*result)
    if result.status == STOPPED:
        return JobRequeue(result.reason)
    return Fenced(result.reason) if result.status == FENCED else None


def decide_after_crash(
    result: Result,
    job: JobInfo,
    lost_nodes: Sequence[str],
    *,
    bad_nodes: Sequence[str] = (),
    failures: int,
    max_restarts: int,
    lead_s: int,
) -> Action:
    """Return the action after a crash: a restart in this allocation, a requeue, or the end.

    `bad_nodes` are those of the allocation that a requeue can leave out for the evidence against them. `failures`
    counts the failed attempts in a row without progress, this one included.
    """
    if requeue := check_before_start(job, lead_s=lead_s):
        return JobRequeue(f"{requeue.reason}; the last attempt: {result.reason}")
    if lost_nodes:
        return requeue_after_loss(lost_nodes)
    if bad_nodes and job.requeue is not False:
        return JobRequeue(f"without {', '.join(bad_nodes)}; the last attempt: {result.reason}", tuple(bad_nodes))
    if failures > max_restarts:
        reason = (
            f"gives up: {count(failures, 'start')} in a row failed, with no new checkpoint since "
            f"(--max-restarts {max_restarts}); the last: {result.reason}"
        )
        return JobEnd(result.status, reason)
    return AttemptRestart(*result)


def choose_nodes(allocated: Sequence[str], gone: Collection[str], needed: int) -> tuple[str, ...]:
    """Return the nodes of the next attempt, the first ones that are not gone; none where they are too few."""
    left = tuple(node for node in allocated if node not in gone)
    return left[:needed] if len(left) >= needed else ()


def requeue_after_loss(lost_nodes: Sequence[str]) -> JobRequeue:
    """Return the requeue after nodes were lost, which excludes them."""
    return JobRequeue(f"lost node{'s' * (len(lost_nodes) > 1)} {', '.join(lost_nodes)}", tuple(lost_nodes))


class Requeued(NamedTuple):
    """A requeue by the job itself. Its text is a line of the run's file `requeues`."""

    progressed: bool
    """Whether there is a newer checkpoint than when the batch script started."""
    at_time_limit: bool

    @classmethod
    def parse(cls, line: str) -> Requeued:
        """Return the requeue of a line; another text counts as progress."""
        return cls("idle" not in line.split(), "time-limit" in line.split())

    def __str__(self) -> str:
        """Return the line."""
        return ("progress" if self.progressed else "idle") + " time-limit" * self.at_time_limit


def check_requeue(past: Sequence[Requeued], now: Requeued, *, limit: int | None) -> str:
    """Return why the job must not requeue itself again; empty when it may. A `limit` alone decides, if there is one."""
    if limit is not None:
        reached = f"It has requeued itself {count(len(past), 'time')} (--max-requeues {limit})"
        return reached if len(past) >= limit else ""
    idle = [*takewhile(lambda requeued: not requeued.progressed, (now, *reversed(past)))]
    limits = sum(requeued.at_time_limit for requeued in idle)
    if now.at_time_limit and limits >= IDLE_TIME_LIMITS:
        return (
            f"It has reached its time limit {limits} times in a row without a new checkpoint. If it saves "
            "checkpoints that slurmddp does not know, name them by --checkpoints GLOB, or give --max-requeues N"
        )
    if len(idle) > IDLE_REQUEUES:
        return f"It has requeued itself {len(idle) - 1} times in a row without a new checkpoint; find out why"
    return ""
