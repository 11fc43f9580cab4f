"""Finds the rows of Slurm that are a run's job. Pure.

A cluster that was set up again gives the same job numbers again. A row is the run's job when it has the name of the
run and was not submitted earlier. A requeued job has a later time of submission (22.05); so has another job of the
same number and name, and only its script shows the difference.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Final

from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobInfo, JobRef

_RANGE: Final = re.compile(r"(\d+)(?:-(\d+)(?::([1-9]\d*))?)?", re.ASCII)
SLACK: Final = timedelta(minutes=5)
"""The clocks of this machine and of the controller may differ by so much."""


@dataclass(frozen=True, kw_only=True)
class RequestedJob:
    """A job whose status is wanted, with the record of its submission; empty for a job of no run."""

    job_id: str
    run: RunDir | None = None
    submitted: datetime | None = None
    sha256: str = ""
    name: str = ""
    """The job's name in Slurm: that of the run's folder at the submission."""
    elsewhere: Path | None = None
    """The original folder that the job belongs to, when the run's folder is a copy."""

    @cached_property
    def ref(self) -> JobRef:
        """The parts of its id."""
        return JobRef.parse(self.job_id)


def matching_rows(wanted: RequestedJob, rows: Iterable[JobInfo]) -> list[JobInfo]:
    """Return the rows that can be the job or its tasks, in their order; none for a job of another folder."""
    if wanted.elsewhere:
        return []
    own = [row for row in rows if _covers(row, wanted) and not _is_earlier(row, wanted)]
    return list(_up_to_other_name(wanted, own)) if wanted.run else own


def is_doubtful(wanted: RequestedJob, row: JobInfo) -> bool:
    """Return whether only the script can tell: the row was submitted later, by requeueing or as another job."""
    late = row.submitted and wanted.submitted and row.submitted > wanted.submitted + SLACK
    return bool(late and wanted.sha256)


def newest_rows(rows: Sequence[JobInfo]) -> list[JobInfo]:
    """Return the last row of each job or task; a row of waiting tasks is left out when each task has its own."""
    last = {row.job_id: row for row in rows}
    own = {row.job_id for row in rows if not row.ref.is_task_list}
    return [row for row in last.values() if row.job_id in own or not _is_stale(row, own)]


class RowIndex:
    """Slurm's rows by job and by task: thousands of tasks are looked up one by one."""

    def __init__(self, rows: Iterable[JobInfo]) -> None:
        self._rows: dict[str, list[JobInfo]] = {}
        for row in rows:
            for key in {row.number, f"{row.number}_[" if row.ref.is_task_list else row.job_id}:
                self._rows.setdefault(key, []).append(row)

    def rows_of(self, wanted: RequestedJob) -> Sequence[JobInfo]:
        """Return the rows of a job; for a task its own row, else that of the tasks that wait together."""
        if wanted.ref.is_task:
            return self._rows.get(wanted.job_id, ()) or self._rows.get(f"{wanted.ref.array_id}_[", ())
        return self._rows.get(wanted.ref.array_id, ())


def earliest_submission(times: Iterable[datetime | None]) -> datetime | None:
    """Return the first of these times minus `SLACK`; None when one of them is not known."""
    known = list(times)
    if not known or any(moment is None for moment in known):
        return None
    return min(moment for moment in known if moment) - SLACK


@cache
def task_indices(job_id: str) -> frozenset[int] | None:
    """Return the task indices of `17_[1-3,7%2]`; None where Slurm has shortened the list."""
    inside = re.search(r"\[(.*?)(?:%\d+)?\]$", job_id)
    parts = [_RANGE.fullmatch(part) for part in inside[1].split(",")] if inside else [None]
    if not all(parts):
        return None
    ranges = (range(int(part[1]), int(part[2] or part[1]) + 1, int(part[3] or 1)) for part in parts if part)
    return frozenset(chain.from_iterable(ranges))


def _covers(row: JobInfo, wanted: RequestedJob) -> bool:
    if row.number != wanted.ref.array_id:
        return False
    if not wanted.ref.is_task or row.job_id == wanted.job_id:
        return True
    waiting = task_indices(row.job_id) if row.ref.is_task_list else frozenset[int]()
    return waiting is None or wanted.ref.task_index in waiting


def _is_earlier(row: JobInfo, wanted: RequestedJob) -> bool:
    return bool(row.submitted and wanted.submitted and row.submitted < wanted.submitted - SLACK)


def _up_to_other_name(wanted: RequestedJob, rows: Iterable[JobInfo]) -> Iterator[JobInfo]:
    """Yield the rows before the first one with another name; a row without a name is from sacct, which may lag."""
    for row in rows:
        if row.name not in ("", wanted.name):
            return
        yield row


def _is_stale(row: JobInfo, own: set[str]) -> bool:
    waiting = task_indices(row.job_id)
    return bool(waiting) and all(f"{row.number}_{task}" in own for task in waiting or ())
