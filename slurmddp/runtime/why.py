"""Asks Slurm, on rank 0 alone, why the job is to stop, and until when. Starts one process; standard library only."""

import os
import re
import subprocess
import time
from typing import Literal, NamedTuple

from slurmddp.runtime.environment import Rank

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
    job = _show(rank.job) if rank.under_srun else {}
    return _judge(job, cause, restarts=rank.attempt.partition(".")[0])


def _judge(job: dict[str, str], cause: str, *, restarts: str) -> Why:
    """A job that Slurm is ending shows COMPLETING; only one that comes back counts a restart more already."""
    ends_at = _seconds(job.get("EndTime", ""))
    if job.get("PreemptTime", "None") != "None":
        return Why("preempted", ends_at)
    if job.get("JobState") == "COMPLETING":
        return Why("cancelled" if job.get("Restarts") == restarts else "requeued")
    return Why("signal" if cause == "SIGTERM" else "time limit", ends_at)


def _show(job: str) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "SLURM_TIME_FORMAT"}
    command = ["scontrol", "--oneliner", "show", "job", job]
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(re.findall(r"(\w+)=(\S*)", done.stdout))


def _seconds(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
