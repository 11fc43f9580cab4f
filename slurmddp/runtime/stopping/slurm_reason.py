"""Asks Slurm, on rank 0 alone, why the job is to stop, and until when. Standard library only."""

import os
from typing import Literal, NamedTuple

from slurmddp.errors import ClusterError
from slurmddp.runtime.launch.rank import Rank
from slurmddp.slurm import client
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.parsing import parse_show
from slurmddp.slurm.queries import show_command

ASK_LIMIT_S = 5.0

Reason = Literal["preempted", "requeued", "time limit", "cancelled", "signal"]
"""`requeued` is preemption without grace too: Slurm shows both alike. `signal` is what Slurm knows nothing of."""


class Why(NamedTuple):
    """What Slurm says about a job that is to stop."""

    reason: Reason
    ends_at: float | None = None
    """When Slurm will kill the job, in seconds since 1970; None when it does not say."""


def ask(rank: Rank, cause: str) -> Why:
    """Return why, for the attempt of this rank."""
    job = _show(rank.job) if rank.under_srun else None
    return _judge(job, cause, restarts=rank.attempt.partition(".")[0])


def _judge(job: JobInfo | None, cause: str, *, restarts: str) -> Why:
    """A job that Slurm is ending shows COMPLETING; only one that comes back counts a restart more already."""
    ends_at = job.ended.timestamp() if job and job.ended else None
    if job and job.preempted:
        return Why("preempted", ends_at)
    if job and job.state == "COMPLETING":
        return Why("cancelled" if str(job.restarts) == restarts else "requeued")
    return Why("signal" if cause == "SIGTERM" else "time limit", ends_at)


def _show(job_id: str) -> JobInfo | None:
    try:
        answer = client.ask(show_command(job_id), os.environ, timeout_s=ASK_LIMIT_S)
    except ClusterError:
        return None
    return next(reversed(parse_show(answer.stdout)), None)
