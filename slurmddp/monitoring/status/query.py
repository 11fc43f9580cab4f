"""What became of jobs: asks Slurm as seldom as it goes, and the runs' files where it does not tell."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, Final

from slurmddp.monitoring.status.build_status import Files, statuses
from slurmddp.monitoring.status.job_identity import Wanted
from slurmddp.monitoring.status.job_status import JobStatus
from slurmddp.monitoring.status.slurm_answers import Answers
from slurmddp.runs import origin
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target
from slurmddp.runs.origin import Origin
from slurmddp.runs.submissions import submissions
from slurmddp.slurm.job_info import number

TIMEOUT_S: Final = 20.0
"""How long each of Slurm's programs may take."""

Environ = Mapping[str, str]


def look(
    targets: Sequence[Target], environ: Environ, *, timeout_s: float = TIMEOUT_S, now: float | None = None
) -> list[JobStatus]:
    """Return what became of the targets' jobs, in their order; of an array, of each task that Slurm lists.

    One squeue and one sacct whatever the number; scontrol for a few jobs. Each may take `timeout_s`. Raises
    nothing that Slurm could cause: where it does not tell, the runs' files do, or the state is UNKNOWN.
    """
    known = _Known()
    wanted = [job for target in targets for job in _wanted(target, known)]
    answers = Answers(wanted, environ, timeout_s)
    answers.ask()
    files = Files(jobs=len(wanted), now=time.time() if now is None else now)
    return [status for job in wanted for status in statuses(job, answers, files)]


def current(target: Target) -> Target:
    """Return the target with the jobs of its run's last submission alone: one, or one and those chained to it."""
    after = {record["job"]: str(record.get("after")) for record in submissions(target.run)} if target.run else {}
    jobs = target.jobs[-1:]
    while jobs and (before := after.get(jobs[0])) in target.jobs and before not in jobs:
        jobs = (str(before), *jobs)
    return replace(target, jobs=jobs)


def _submissions(run: RunDir) -> dict[str, dict[str, Any]]:
    return {record["job"]: record for record in submissions(run)}


def _wanted(target: Target, known: "_Known") -> Iterator[Wanted]:
    if target.run is None:
        yield from (Wanted(job_id=job_id) for job_id in target.jobs)
        return
    run = target.run.sweep or target.run
    for job_id in target.jobs:
        record = known.record(run, number(job_id))
        came = known.origin(run, number(job_id))
        yield Wanted(
            job_id=job_id,
            run=target.run,
            submitted=_time(record.get("time")),
            sha256=str(record.get("sha256") or ""),
            name=came.name,
            elsewhere=came.elsewhere,
        )


class _Known:
    """What the runs have on record of their submissions, each read once."""

    def __init__(self) -> None:
        self._records = cache(_submissions)
        self.origin = cache(self._origin)

    def record(self, run: RunDir, job: str) -> dict[str, Any]:
        return self._records(run).get(job, {})

    def _origin(self, run: RunDir, job: str) -> Origin:
        return origin.of(run, self.record(run, job))


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone() if isinstance(text, str) else None
    except ValueError:
        return None
