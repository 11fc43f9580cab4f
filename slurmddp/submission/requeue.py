"""Puts a job back into the queue at a person's wish, and lets it start again at once. No files written."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from slurmddp.errors import ClusterError, UsageError
from slurmddp.monitoring.status import look
from slurmddp.runs import lookup
from slurmddp.runs.layout import RunDir
from slurmddp.slurm import client, queries
from slurmddp.slurm.job_info import JobInfo

BACK_S: Final = 400.0
"""How long a job may take to leave its nodes; one that does not answer keeps it until SlurmdTimeout is over."""
START_S: Final = 3
"""How soon the job is told to start. A start within the second in which a node was told to kill the old one ends the
job FAILED there, "Job credential revoked" (22.05)."""
TRIES: Final = 10
"""How often the job is told to start before it is left to wait."""
_POLL_S: Final = 0.5
_NOW_S: Final = 1.0

Environ = Mapping[str, str]


def requeue(job_id: str, *, exclude: Sequence[str], environ: Environ, notice: Callable[[str], None]) -> JobInfo:
    """Requeue a job that runs, keep it off the nodes in `exclude`, and spare it Slurm's two minutes of waiting.

    One that waits already for its next start is told to start too. Returns the job as Slurm has it then; `notice`
    is told what it waits for. Raises UsageError for an array, ClusterError when the job cannot come back, or Slurm
    refuses.
    """
    job = _one(job_id, environ)
    _check(job)
    if exclude:
        client.order(queries.nodes_command(",".join(exclude)), environ)
    if job.phase == "running":
        client.order(queries.requeue_command(job.job_id), environ)
        notice(f"job {job.job_id} leaves its nodes")
        job = _back(job, environ)
    if exclude:
        job = _keep_off(job, exclude, environ)
    return _start_soon(job, environ, notice)


def find(word: str, runs_dir: str, environ: Environ) -> str:
    """Return the id of the job that a person means: the id itself, or a run's job that runs, else one that waits.

    Raises UsageError when there is no such run, or it is a sweep; ClusterError when none of its jobs is in the queue.
    """
    if lookup.JOB_ID.fullmatch(word):
        return word
    meant = lookup.one(word, runs_dir)
    found = look([meant], environ)
    if silence := next((job.silence for job in found if job.silence), ""):
        raise ClusterError(f"the controller does not say how the jobs of {word} are ({silence})")
    jobs = [job for job in found if job.phase in ("queued", "running")]
    if not jobs and meant.run:
        raise ClusterError(f"run {word} has no job that runs or waits; {_hint(meant.run)}")
    return min(jobs, key=lambda job: job.phase != "running").job_id


def _hint(run: RunDir) -> str:
    if not run.spec.exists():
        return "submit its name again: it continues from its last checkpoint"
    spec = run.spec.relative_to(Path.cwd()) if run.spec.is_relative_to(Path.cwd()) else run.spec
    return f"to go on from its last checkpoint type: slurmddp submit {spec}"


def _one(job_id: str, environ: Environ) -> JobInfo:
    found = queries.show(job_id, environ)
    if not found:
        raise ClusterError(f"Slurm does not know job {job_id}; submit its name again: a run continues")
    if len(found) > 1:
        raise UsageError(f"job {job_id} is an array; give one task of it, as in {found[-1].job_id}")
    return found[0]


def _check(job: JobInfo) -> None:
    """Raise ClusterError when the job cannot start again, or does not have to."""
    if job.phase not in ("queued", "running"):
        raise ClusterError(f"job {job.job_id} is {job.state} and stays so; {_hint(_run_of(job))}")
    if job.phase == "running" and not job.requeue:
        raise ClusterError(
            f"job {job.job_id} has Requeue=0, so that Slurm does not take it back; "
            f"`slurmddp cancel {job.job_id}`, then {_hint(_run_of(job))}"
        )
    if job.phase == "queued" and not job.restarts:
        raise ClusterError(f"job {job.job_id} is {job.state} ({job.reason}) and has not run yet; wait for it")
    if re.search("held|hold", job.reason, re.IGNORECASE):
        raise ClusterError(f"job {job.job_id} is held ({job.reason}); type: scontrol release {job.job_id}")


def _run_of(job: JobInfo) -> RunDir:
    """Return the folder of the job's run, if it has one: its output lies in the folder `logs` there."""
    return RunDir(Path(job.output).parent.parent)


def _back(job: JobInfo, environ: Environ) -> JobInfo:
    """Wait until the job is in the queue again, its old processes gone."""
    deadline = time.monotonic() + BACK_S
    while time.monotonic() < deadline:
        now = _one(job.job_id, environ)
        if now.phase == "queued" or (now.state == "RUNNING" and (now.restarts or 0) > (job.restarts or 0)):
            return now
        if now.phase != "running":
            raise ClusterError(f"job {job.job_id} ended {now.state} before it was requeued; {_hint(_run_of(job))}")
        time.sleep(_POLL_S)
    raise ClusterError(
        f"job {job.job_id} is {now.state} and has not left its nodes for {BACK_S:.0f} s; "
        f"once it has, type again: slurmddp requeue {job.job_id}"
    )


def _keep_off(job: JobInfo, exclude: Sequence[str], environ: Environ) -> JobInfo:
    if job.phase != "queued":
        raise ClusterError(f"job {job.job_id} has started again before --exclude could be set; type the same again")
    nodes = dict.fromkeys(([job.excluded_nodes] if job.excluded_nodes else []) + list(exclude))
    client.order(queries.update_command(job.job_id, "ExcNodeList", ",".join(nodes)), environ)
    return _one(job.job_id, environ)


def _start_soon(job: JobInfo, environ: Environ, notice: Callable[[str], None]) -> JobInfo:
    """Spare the job the wait of a requeued one; Slurm sets it anew when the last old process is gone, so look."""
    for _ in range(TRIES):
        if not _starts_later(job):
            break
        client.order(queries.update_command(job.job_id, "StartTime", f"now+{START_S}"), environ)
        time.sleep(_NOW_S)
        job = _one(job.job_id, environ)
    waits = job.phase == "queued" and job.eligible and job.eligible > datetime.now(UTC)
    why = f"not before {job.eligible:%X}" if waits else job.reason
    notice(f"job {job.job_id} is {job.state}{f' ({why})' if why else ''}")
    return job


def _starts_later(job: JobInfo) -> bool:
    """Whether the job waits for a time further away; the reason that Slurm gives comes later than the time itself."""
    soon = datetime.now(UTC) + timedelta(seconds=START_S + 1)
    return job.phase == "queued" and job.eligible is not None and job.eligible > soon
