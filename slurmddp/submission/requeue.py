"""Requeues a job on request and lets it start again at once. No files written."""

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from slurmddp.errors import ClusterError, SlurmddpError
from slurmddp.runs import lookup
from slurmddp.runs.facts import describe_resume
from slurmddp.runs.layout import RunDir
from slurmddp.slurm import client, commands, queries
from slurmddp.slurm.job_info import JobInfo, is_job_id
from slurmddp.submission.cancel import unfinished_jobs

LEAVE_LIMIT_S: Final = 400.0
"""How long a job may take to leave its nodes; one that does not answer keeps it until SlurmdTimeout is over."""
START_S: Final = 3
"""The new start time, in seconds from now. If the job starts within the second in which a node kills its old processes,
it ends FAILED there with "Job credential revoked" (22.05)."""
TRIES: Final = 10
"""How often the start time is set before the job is left to wait."""
_POLL_S: Final = 0.5
_NOW_S: Final = 1.0

Environ = Mapping[str, str]


def requeue(job_id: str, *, environ: Environ, notice: Callable[[str], None]) -> JobInfo:
    """Requeue a running job, and skip the two minutes that Slurm lets it wait.

    A job that already waits for its next start is started early too. Returns the job as Slurm has it then; `notice`
    gets what it waits for. Raises UsageError for an array, SlurmddpError when the job has ended, ClusterError when it
    cannot be requeued or Slurm refuses.
    """
    job = queries.show_one(job_id, environ)
    _check_can_restart(job)
    if job.phase == "running":
        client.order(commands.requeue(job.job_id), environ)
        notice(f"job {job.job_id} leaves its nodes")
        job = _wait_until_queued(job, environ)
    return _start_early(job, environ, notice)


def find_job(word: str, runs_dir: str, environ: Environ) -> str:
    """Return the job that a word names: a job's id itself; of a run its running job, else one that is queued.

    Raises UsageError when there is no such run, or it is a sweep; SlurmddpError when none of its jobs is in the queue.
    """
    if is_job_id(word):
        return word
    meant = lookup.require_one(lookup.find([word], runs_dir)[0], word)
    jobs = [job for job in unfinished_jobs([meant], environ, verb="requeued") if job.phase in ("queued", "running")]
    if not jobs and meant.run:
        raise SlurmddpError(f"run {word} has no job that runs or waits; {_how_to_continue(meant.run)}")
    return min(reversed(jobs), key=lambda job: job.phase != "running").job_id


def _how_to_continue(run: RunDir | JobInfo) -> str:
    if isinstance(run, JobInfo):  # its output lies in the folder `logs` of its run, if it has one
        run = RunDir(Path(run.output).parent.parent)
    return f"to go on, type: {describe_resume(run)}" if run.spec.exists() else "submit it again"


def _check_can_restart(job: JobInfo) -> None:
    """Raise SlurmddpError when the job has ended, ClusterError when it cannot or does not have to be requeued."""
    if job.phase not in ("queued", "running"):
        raise SlurmddpError(f"job {job.job_id} is {job.state} and stays so; {_how_to_continue(job)}")
    if job.phase == "running" and not job.requeue:
        raise ClusterError(
            f"job {job.job_id} has Requeue=0, so that Slurm does not take it back; "
            f"`slurmddp cancel {job.job_id}`, then {_how_to_continue(job)}"
        )
    if job.phase == "queued" and not job.restarts:
        raise ClusterError(f"job {job.job_id} is {job.state} ({job.reason}) and has not run yet; wait for it")
    if re.search("held|hold", job.reason, re.IGNORECASE):
        raise ClusterError(f"job {job.job_id} is held ({job.reason}); type: scontrol release {job.job_id}")


def _wait_until_queued(job: JobInfo, environ: Environ) -> JobInfo:
    """Wait until the job is in the queue again, its old processes gone."""
    deadline = time.monotonic() + LEAVE_LIMIT_S
    while time.monotonic() < deadline:
        now = queries.show_one(job.job_id, environ)
        if now.phase == "queued" or (now.state == "RUNNING" and (now.restarts or 0) > (job.restarts or 0)):
            return now
        if now.phase != "running":
            raise ClusterError(f"job {job.job_id} ended {now.state} before it was requeued; {_how_to_continue(job)}")
        time.sleep(_POLL_S)
    raise ClusterError(
        f"job {job.job_id} is {now.state} and has not left its nodes for {LEAVE_LIMIT_S:.0f} s; "
        f"once it has, type again: slurmddp requeue {job.job_id}"
    )


def _start_early(job: JobInfo, environ: Environ, notice: Callable[[str], None]) -> JobInfo:
    """Set an early start time, until Slurm keeps it: it sets its own when the last old process has ended."""
    for _ in range(TRIES):
        soon = datetime.now(UTC) + timedelta(seconds=START_S + 1)
        if job.phase != "queued" or job.eligible is None or job.eligible <= soon:
            break  # the time tells, since the reason that Slurm gives comes later
        client.order(commands.update(job.job_id, "StartTime", f"now+{START_S}"), environ)
        time.sleep(_NOW_S)
        job = queries.show_one(job.job_id, environ)
    waits = job.phase == "queued" and job.eligible and job.eligible > datetime.now(UTC)
    why = f"not before {job.eligible:%X}" if waits else job.reason
    notice(f"job {job.job_id} is {job.state}{f' ({why})' if why else ''}")
    return job
