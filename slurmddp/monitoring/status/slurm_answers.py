"""Asks Slurm for some jobs: scontrol for a few, squeue for many, then sacct for those it does not know. No files.

A cluster that was set up again gives the same job numbers again. A row is the run's job when it has the name of the
run and was not submitted earlier; a requeued job has a later time of submission (22.05).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Final

from slurmddp.runs.layout import RunDir
from slurmddp.slurm import queries
from slurmddp.slurm.hostlist import index_ranges
from slurmddp.slurm.job_info import JobInfo, JobRef, Listing

TIMEOUT_S: Final = 20.0
"""How long each of Slurm's programs may take."""
FEW: Final = 8
"""Up to so many jobs scontrol is asked for, which shows more than squeue; also so many running jobs among many."""
_DETAILS: Final = ("exit_status", "restarts", "preempted")
"""What only scontrol shows of a job that runs."""
SLACK: Final = timedelta(minutes=5)
"""The clocks of this machine and of the controller may differ by so much."""


@dataclass(frozen=True, eq=False)
class RequestedJob:
    """A job whose status is wanted, with the record of its submission; empty for a job of no run or an executor's."""

    job_id: str
    run: RunDir | None = None
    submitted: datetime | None = None
    name: str = ""
    """The job's name in Slurm: that of the run's folder at the submission."""
    elsewhere: Path | None = None
    """The original folder that the job belongs to, when the run's folder is a copy."""

    @property
    def ref(self) -> JobRef:
        """The parts of its id."""
        return JobRef.parse(self.job_id)


class Answers:
    """Slurm's answers about the jobs; `queue` is what the controller says of them."""

    def __init__(self, wanted: Sequence[RequestedJob], environ: Mapping[str, str]) -> None:
        self.wanted, self.environ, self.queue = wanted, environ, Listing()
        self.rows: dict[RequestedJob, list[JobInfo]] = {}

    def ask(self, *, brief: bool = False) -> None:
        """Ask squeue, then sacct for jobs it does not know; not for runs on this machine.

        Unless `brief`, ask scontrol: for a few jobs in the place of squeue, else for the details of a few that run.
        """
        asked = [job for job in self.wanted if not job.ref.is_local]
        self.rows = {job: [] for job in self.wanted if job.ref.is_local}
        if not asked:
            return
        ids = list(dict.fromkeys(job.job_id for job in asked))
        is_few = len(asked) <= FEW and not brief
        ask = queries.controller if is_few else queries.queue
        self.queue = ask(ids, self.environ, timeout_s=TIMEOUT_S)
        self._add_rows(asked, self.queue.jobs)
        self._ask_accounting(asked)
        running = [job for job in asked if any(row.state == "RUNNING" for row in self.rows[job])]
        if running and not (brief or is_few or self.queue.silence) and len(running) <= FEW:
            self._add_details(running)

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The names of the jobs that the controller knows, by number."""
        return {row.number: row.name for row in self.queue.jobs}

    def add_exit_status(self, row: JobInfo) -> JobInfo:
        """Return a row with the exit status, which squeue does not show, if the controller answers."""
        if self.queue.silence or row.exit_status or row.source != "squeue":
            return row
        shown = queries.controller([row.job_id], self.environ, timeout_s=TIMEOUT_S).jobs
        return next((row._replace(exit_status=one.exit_status) for one in shown if one.job_id == row.job_id), row)

    def _add_rows(self, wanted: Iterable[RequestedJob], rows: Iterable[JobInfo]) -> None:
        """Add the rows that can be true: a job that the controller does not know has ended, also if sacct lags."""
        nearest = RowIndex(rows)
        for job in wanted:
            known = self.rows.setdefault(job, [])
            ids = {row.job_id for row in known}
            found = newest_rows(matching_rows(job, nearest.rows_of(job)))
            true = (row for row in found if row.source != "sacct" or self.queue.silence or row.has_ended)
            known += (row for row in true if row.job_id not in ids)
            self.rows[job] = newest_rows(known)

    def _ask_accounting(self, asked: Sequence[RequestedJob]) -> None:
        """Ask sacct for jobs that the controller has forgotten, and for arrays, of which it may know more tasks."""
        first = ((job, row.ref) for job in asked for row in self.rows[job][:1])
        arrays = {job for job, ref in first if ref.suffix.startswith("_") and not job.ref.is_task}
        missing = [job for job in asked if job in arrays or not self.rows[job]]
        if not missing:
            return
        times = [job.submitted for job in missing]
        since = None if None in times else min(filter(None, times)) - SLACK
        ids = list(dict.fromkeys(job.ref.array_id for job in missing))
        self._add_rows(missing, queries.accounting(ids, since, self.environ, timeout_s=TIMEOUT_S).jobs)

    def _add_details(self, running: Sequence[RequestedJob]) -> None:
        """Add what only scontrol shows, as that one is being preempted."""
        shown = queries.controller([job.job_id for job in running], self.environ, timeout_s=TIMEOUT_S).jobs
        told = {one.job_id: {name: getattr(one, name) for name in _DETAILS} for one in shown}
        for job in running:
            self.rows[job] = [row._replace(**told.get(row.job_id, {})) for row in self.rows[job]]


def matching_rows(wanted: RequestedJob, rows: Iterable[JobInfo]) -> list[JobInfo]:
    """Return the rows that can be the job or its tasks, in their order; none for a job of another folder.

    Of a run they end at the first row with another name; a row without a name is from sacct, which may lag.
    """
    own, ref = list[JobInfo](), wanted.ref
    for row in () if wanted.elsewhere else rows:
        is_earlier = row.submitted and wanted.submitted and row.submitted < wanted.submitted - SLACK
        if is_earlier or row.number != ref.array_id:
            continue
        if ref.is_task and row.job_id != wanted.job_id:
            waiting = task_indices(row.job_id) if row.ref.is_task_list else frozenset[int]()
            if waiting is not None and ref.task_index not in waiting:
                continue
        if wanted.name and row.name not in ("", wanted.name):
            break
        own.append(row)
    return own


def newest_rows(rows: Sequence[JobInfo]) -> list[JobInfo]:
    """Return the last row of each job or task; a row of waiting tasks is left out when each task has its own."""
    if len(rows) < 2:  # noqa: PLR2004 nothing to choose from
        return list(rows)
    newest = {row.job_id: row for row in rows}
    own = {job_id for job_id, row in newest.items() if not row.ref.is_task_list}
    for row in [row for row in newest.values() if row.ref.is_task_list]:
        waiting = task_indices(row.job_id)
        if waiting and own.issuperset(f"{row.number}_{task}" for task in waiting):
            del newest[row.job_id]
    return list(newest.values())


class RowIndex:
    """Slurm's rows by job and by task: thousands of tasks are looked up one by one."""

    def __init__(self, rows: Iterable[JobInfo]) -> None:
        self._rows: dict[str, list[JobInfo]] = {}
        for row in rows:
            for key in {row.number, f"{row.number}_[" if row.ref.is_task_list else row.job_id}:
                self._rows.setdefault(key, []).append(row)

    def rows_of(self, wanted: RequestedJob) -> Sequence[JobInfo]:
        """Return the rows of a job; for a task its own row, else that of the tasks that wait together."""
        ref = wanted.ref
        if ref.is_task:
            return self._rows.get(wanted.job_id, ()) or self._rows.get(f"{ref.array_id}_[", ())
        return self._rows.get(ref.array_id, ())


@cache
def task_indices(job_id: str) -> frozenset[int] | None:
    """Return the task indices of `17_[1-3,7%2]`; None where Slurm has shortened the list."""
    ranges = index_ranges(job_id.partition("[")[2].removesuffix("]"))
    return frozenset(chain.from_iterable(ranges)) if 0 < sum(map(len, ranges)) <= 2**22 else None  # MaxArraySize
