"""What Slurm says of a job: the controller, then the accounting. Asks Slurm; no files."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.states import Phase

ASK_LIMIT_S: Final = 20.0
"""For each of Slurm's programs; a controller that is down takes longer than a person waits."""
_ORDER: Final[tuple[Phase, ...]] = ("failed", "cancelled", "unknown", "running", "queued", "done")


def ask(job_id: str, environ: Mapping[str, str]) -> tuple[JobInfo, str]:
    """Return what Slurm knows of a job, and why it did not answer, empty when it did.

    Where it knows nothing or does not answer the source is `files`.
    """
    held = queries.controller(job_id, environ, timeout_s=ASK_LIMIT_S)
    known = _choose(job_id, held.jobs)
    booked = None if "not found" in held.silence else _of_accounting(job_id, environ)
    if known and booked:
        known = known._replace(cancelled_by=booked.cancelled_by, max_rss=booked.max_rss, last_step=booked.last_step)
    if found := known or booked:
        return found, ""
    return of_files(job_id), held.silence


def of_files(job_id: str) -> JobInfo:
    """Return a job of which Slurm tells nothing."""
    return JobInfo(job_id=job_id, state="", source="files")


def _of_accounting(job_id: str, environ: Mapping[str, str]) -> JobInfo | None:
    found = queries.last_run(job_id, environ, timeout_s=ASK_LIMIT_S)
    return _choose(job_id, [job for job in found.jobs if re.fullmatch(rf"{job_id}(_\d+)?", job.job_id)])


def _choose(job_id: str, jobs: Sequence[JobInfo]) -> JobInfo | None:
    """Return, of an array that was meant as a whole, a task that failed if there is one; a state not given is empty."""
    job = min(jobs, key=lambda job: _ORDER.index(job.phase), default=None)
    if job is None:
        return None
    is_task = job.job_id.partition("_")[2].isdecimal()
    return job._replace(job_id=job.job_id if is_task else job_id, state="" if job.state == "UNKNOWN" else job.state)
