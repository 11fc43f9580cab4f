"""Whether a run can take another job: the same program, the same kind of job, and no job that is still active."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from slurmddp.cluster.request import Request
from slurmddp.config import resolve
from slurmddp.config.command import script_place
from slurmddp.config.job_files import read_job_file
from slurmddp.config.resolve import Resolved
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import read_origin, submissions
from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo
from slurmddp.text import quote_value
from slurmddp.version import __version__

_RECENT_JOBS: Final = 20
"""So many of a run's last jobs are looked up in the queue."""


def check_same(run: RunDir, resolved: Resolved, *, instead: str = "--continue to mean it") -> None:
    """Refuse to mix two programs in one run; raises UsageError with what differs, and what to do `instead`."""
    if not run.spec.exists():
        return
    before = _program(dict(read_job_file(run.spec).table))
    now = _program(resolve.build_record(resolved, directory=str(Path.cwd()), version=__version__))
    for key in ("command", "worker"):
        if before.get(key) != now.get(key):
            raise UsageError(
                f"run {run.path.name} was made with another {key}: {difference(before.get(key), now.get(key))}; "
                f"choose another --name, or {instead}"
            )


def check_kind(request: Request, run: RunDir) -> None:
    """Raise UsageError when a sweep is to go on with a run of one job, or the other way round."""
    for last in submissions(run)[-1:]:
        if ("settings" in last) != (request.array is not None):
            what = "a sweep; `slurmddp sweep` goes on with it" if "settings" in last else "one job, and no sweep"
            raise UsageError(f"run {run.path.name} is {what}; choose another --name")


def check_idle(request: Request, run: RunDir, environ: Mapping[str, str]) -> None:
    """Raise UsageError when a job of the run is queued or running, unless the new job depends on that one.

    An array is not checked: its tasks are only those settings that have no job.
    """
    dependency = request.resolved.spec.dependency or ""
    for job in () if request.array or dependency == "singleton" else active_jobs(run, environ):
        if job.job_id not in re.findall(r"\d+", dependency):
            raise UsageError(
                f"run {run.path.name} belongs to job {job.job_id}, which is {job.state}; wait for it, cancel it with "
                f"`slurmddp cancel {job.job_id}`, or choose another --name"
            )


def active_jobs(run: RunDir, environ: Mapping[str, str]) -> list[JobInfo]:
    """Return the run's jobs that are queued or running.

    Slurm may give a job number again: only a job with the run's own script counts. A copy of a run's folder has none
    of the original's jobs. Raises ClusterError when the controller does not answer.
    """
    records = {record["job"]: record for record in submissions(run)[-_RECENT_JOBS:]}
    known = queries.jobs(list(records), environ) if records else []
    waiting = [job for job in known if not job.has_ended and job.job_id in records]
    own = [job for job in waiting if not read_origin(run, records[job.job_id]).elsewhere]
    return [job for job in own if queries.script_digest(job.job_id, environ) == records[job.job_id].get("sha256")]


def difference(before: Any, now: Any) -> str:
    """Return how a recorded command, or the worker's table, has changed; what looks like a secret is masked."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return ", ".join(f"{key} {quote_value(before.get(key))} became {quote_value(now.get(key))}" for key in keys)
    return f"{_shown_command(before)} became {_shown_command(now)}"


def _shown_command(words: Any) -> str:
    return quote_value(list(map(str, words)) if words else words)


def _program(table: dict[str, Any]) -> dict[str, Any]:
    """Return a job's table with the full path of its script, which does not depend on the working directory."""
    words = table.get("command", [])
    place = script_place(tuple(words)) if words else None
    if place is None:
        return table
    return table | {"command": [*words[:place], str(Path.cwd() / words[place]), *words[place + 1 :]]}
