"""What became of jobs: asks Slurm as seldom as it goes, and the runs' files where it does not tell."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, Final

from slurmddp.handover import submissions
from slurmddp.rundir import RunDir
from slurmddp.slurmjobs.row import number
from slurmddp.status.answers import Answers
from slurmddp.status.identity import Wanted
from slurmddp.status.told import Files, statuses
from slurmddp.status.values import JobStatus
from slurmddp.target import Target

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
    known_of = cache(_submissions)
    wanted = [job for target in targets for job in _wanted(target, known_of)]
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


def _wanted(target: Target, known_of: Callable[[RunDir], dict[str, dict[str, Any]]]) -> Iterator[Wanted]:
    known = known_of(target.run.sweep or target.run) if target.run else {}
    for job_id in target.jobs:
        record = known.get(number(job_id), {})
        yield Wanted(
            job_id=job_id,
            run=target.run,
            submitted=_time(record.get("time")),
            sha256=str(record.get("sha256") or ""),
        )


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone() if isinstance(text, str) else None
    except ValueError:
        return None
