"""Questions and requests to Slurm, and threads for them, since Slurm's programs may be slow. No terminal."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from slurmddp.background import run_in_background
from slurmddp.monitoring import status
from slurmddp.monitoring.status import JobStatus
from slurmddp.outcome import Phase
from slurmddp.runs import lookup
from slurmddp.submission import cancel, requeue

POLL_S: Final = 10.0
"""Seconds between two questions; sites throttle users who ask the controller more often."""
_ORDER: Final[Mapping[Phase, int]] = {"running": 0, "queued": 1, "unknown": 2}

Environ = Mapping[str, str]
Verb = Literal["cancel", "requeue"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Answer:
    """An answer of Slurm."""

    jobs: tuple[JobStatus, ...]
    time: float
    """In seconds since 1970."""


async def run_in_thread(work: Callable[[], Result]) -> Result:
    """Return the result of `work`, done in a daemon thread: unlike Textual's threads, it does not delay the exit."""
    return await asyncio.shield(asyncio.wrap_future(run_in_background(work)))


def query(words: Sequence[str], runs_dir: str, environ: Environ) -> Answer:
    """Ask Slurm for the jobs that the words name: running before pending before ended jobs, the newest first."""
    runs = [status.last_submission(target) for target in lookup.find(words, runs_dir)]
    targets = [setting for run in runs for setting in lookup.settings(run)]
    jobs = {job.job_id: job for job in sorted(status.query_jobs(targets, environ), key=_sort_key)}
    return Answer(tuple(jobs.values()), time.time())


def change_job(verb: Verb, job: JobStatus, environ: Environ, notice: Callable[[str], None]) -> str:
    """Cancel or requeue a job, and return what was done; `notice` gets what it waits for."""
    if verb == "cancel":
        cancel.cancel([job], environ, notice)
        return f"job {job.job_id} is cancelled"
    requeue.requeue(job.job_id, exclude=(), environ=environ, notice=notice)
    return f"job {job.job_id} is requeued"


def _sort_key(job: JobStatus) -> tuple[int, float]:
    moment = job.ended or job.started or job.submitted
    return _ORDER.get(job.phase, 3), -moment.timestamp() if moment else 0.0
