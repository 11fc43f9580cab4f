"""Asks Slurm why the job is to stop, and when it will be killed; only rank 0 asks. Standard library only."""

import os
from typing import Literal, NamedTuple

from slurmddp.runtime.launch.rank import Rank
from slurmddp.slurm import client, commands
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.parsing import parse_show

ASK_LIMIT_S = 5.0

Reason = Literal["preempted", "requeued", "time limit", "cancelled", "signal"]
"""`requeued` is also a preemption without grace time: Slurm shows both alike. `signal`: Slurm knows no reason."""


class StopReason(NamedTuple):
    """What Slurm says about a job that is to stop."""

    reason: Reason
    ends_at: float | None = None
    """When Slurm will kill the job, in seconds since 1970; None when it does not say."""


def ask_slurm(rank: Rank, cause: str) -> StopReason:
    """Return why the attempt of this rank is to stop."""
    job = _show(rank.job) if rank.under_srun else None
    return _judge(job, cause, restarts=rank.attempt.partition(".")[0])


def _judge(job: JobInfo | None, cause: str, *, restarts: str) -> StopReason:
    """Slurm shows a job that it ends as COMPLETING; if the job is requeued, its restarts are already one more."""
    ends_at = job.ended.timestamp() if job and job.ended else None
    if job and job.preempted:
        return StopReason("preempted", ends_at)
    if job and job.state == "COMPLETING":
        return StopReason("cancelled" if str(job.restarts) == restarts else "requeued")
    return StopReason("signal" if cause == "SIGTERM" else "time limit", ends_at)


def _show(job_id: str) -> JobInfo | None:
    said = client.try_query(commands.show("job", job_id), os.environ, timeout_s=ASK_LIMIT_S)
    return next(reversed(parse_show(said)), None)
