"""Queries the status of jobs: with few questions to Slurm, and from the runs' files where it is silent."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

from slurmddp.monitoring.status.build_status import RunHistories, build_statuses
from slurmddp.monitoring.status.job_identity import RequestedJob
from slurmddp.monitoring.status.job_status import JobStatus
from slurmddp.monitoring.status.slurm_answers import Answers
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target
from slurmddp.runs.submissions import Origin, last_time, parse_time, read_origin, settings_of, submissions
from slurmddp.slurm.job_info import JobRef

TIMEOUT_S: Final = 20.0
"""How long each of Slurm's programs may take."""

Environ = Mapping[str, str]


def query_jobs(
    targets: Sequence[Target], environ: Environ, *, timeout_s: float = TIMEOUT_S, now: float | None = None
) -> list[JobStatus]:
    """Return the status of the targets' jobs, in their order; of an array, that of each task that Slurm lists.

    It takes one squeue and one sacct for any number of jobs, and scontrol for a few jobs. Each may take `timeout_s`.
    Raises nothing when Slurm fails: then the runs' files tell the state, or it is UNKNOWN.
    """
    grouped = query_targets(targets, environ, timeout_s=timeout_s, now=now)
    return [status for group in grouped for status in group]


def query_targets(
    targets: Sequence[Target], environ: Environ, *, timeout_s: float = TIMEOUT_S, now: float | None = None
) -> list[list[JobStatus]]:
    """Return what `query_jobs` returns, in a list for each target."""
    known = {target.run: _by_job(target.records) for target in targets if target.run and not target.run.sweep}
    read_sweep = cache(lambda run: _by_job(submissions(run)))

    @cache
    def read_submission(run: RunDir, array_id: str) -> tuple[Mapping[str, Any], Origin]:
        record = (known.get(run) or read_sweep(run)).get(array_id, {})
        return record, read_origin(run, record)

    wanted = [list(_wanted(target, read_submission)) for target in targets]
    answers = Answers([job for group in wanted for job in group], environ, timeout_s)
    answers.ask()
    histories = RunHistories(jobs=len(answers.wanted), now=time.time() if now is None else now)
    return [[status for job in group for status in build_statuses(job, answers, histories)] for group in wanted]


def last_submission(target: Target) -> Target:
    """Return the target with only the jobs of its run's last submission: one job and its chain; of a sweep all arrays.

    Each of a sweep's settings may be in another of them.
    """
    if any(map(settings_of, target.records)):
        return target
    after = {record["job"]: str(record.get("after")) for record in target.records}
    jobs = target.jobs[-1:]
    while jobs and (before := after.get(jobs[0])) in target.jobs and before not in jobs:
        jobs = (str(before), *jobs)
    return target.only(jobs)


def submission_time(target: Target) -> datetime:
    """Return when the newest job of a target's run was submitted; the year 1 if that is not known."""
    return last_time(target.records)


def _by_job(records: Iterable[Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    return {record["job"]: record for record in records}


def _wanted(
    target: Target, read_submission: Callable[[RunDir, str], tuple[Mapping[str, Any], Origin]]
) -> Iterator[RequestedJob]:
    if target.run is None:
        yield from (RequestedJob(job_id=job_id) for job_id in target.jobs)
        return
    run = target.run.sweep or target.run
    for job_id in target.jobs:
        record, origin = read_submission(run, JobRef.parse(job_id).array_id)
        yield RequestedJob(
            job_id=job_id,
            run=target.run,
            submitted=parse_time(record.get("time")),
            sha256=str(record.get("sha256") or ""),
            name=origin.name,
            elsewhere=origin.elsewhere,
        )
