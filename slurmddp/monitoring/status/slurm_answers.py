"""Asks Slurm for some jobs: squeue, then sacct for those it does not know, then scontrol for a few. No files."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from slurmddp.monitoring.status import job_identity
from slurmddp.monitoring.status.job_identity import RequestedJob
from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo, Listing

FEW: Final = 8
"""Up to so many jobs, or running jobs among many, scontrol is asked for details."""

_MAX_SCRIPT_CHECKS: Final = 20
"""The scripts of up to so many jobs are compared, with one question for each."""


@dataclass
class Answers:
    """Slurm's answers about the jobs."""

    wanted: Sequence[RequestedJob]
    environ: Mapping[str, str]
    timeout_s: float
    queue: Listing = field(default_factory=Listing)
    rows: dict[RequestedJob, list[JobInfo]] = field(default_factory=dict)
    reused_numbers: set[RequestedJob] = field(default_factory=set)
    """Jobs whose number now belongs to another job of the same name."""

    def ask(self) -> None:
        """Ask squeue, then sacct for jobs it does not know, then scontrol for a few; not for runs on this machine."""
        asked = [job for job in self.wanted if not job.ref.is_local]
        self.rows = {job: [] for job in self.wanted if job.ref.is_local}
        if not asked:
            return
        ids = list(dict.fromkeys(job.job_id for job in asked))
        self.queue = queries.queue(ids, self.environ, timeout_s=self.timeout_s)
        self._add_rows(asked, self.queue.jobs)
        self._drop_other_jobs()
        if missing := [job for job in asked if self._is_incomplete(job)]:
            self._add_rows(missing, self._accounting(missing))
        running = [job for job in asked if any(row.state == "RUNNING" for row in self.rows[job])]
        detailed = asked if len(asked) <= FEW else running  # only scontrol shows that one is being preempted
        if len(detailed) <= FEW and not self.queue.silence:
            self._add_details(detailed)

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The names of the jobs that squeue knows, by number."""
        return {row.number: row.name for row in self.queue.jobs}

    def _add_rows(self, wanted: Iterable[RequestedJob], rows: Iterable[JobInfo]) -> None:
        nearest = job_identity.RowIndex(rows)
        for job in wanted:
            known = self.rows.setdefault(job, [])
            found = self._own_rows(job, nearest.rows_of(job))
            ids = {row.job_id for row in known}
            more = [row for row in found if row.job_id not in ids and self._is_possible(row)]
            self.rows[job] = job_identity.newest_rows([*known, *more])

    def _own_rows(self, job: RequestedJob, rows: Iterable[JobInfo]) -> list[JobInfo]:
        found = job_identity.newest_rows(job_identity.matching_rows(job, rows))
        return [row for row in found if not (job in self.reused_numbers and job_identity.is_doubtful(job, row))]

    def _is_possible(self, row: JobInfo) -> bool:
        """Return whether a row can be true: a job that the controller does not know has ended, also if sacct lags."""
        return row.source == "squeue" or bool(self.queue.silence) or row.has_ended

    def _drop_other_jobs(self) -> None:
        """Remove the rows of jobs that have a run's number and name, but another script."""
        doubts = [job for job in self.wanted for row in self.rows[job] if job_identity.is_doubtful(job, row)]
        deadline = time.monotonic() + self.timeout_s
        for job in list(dict.fromkeys(doubts))[:_MAX_SCRIPT_CHECKS]:
            left_s = max(0.0, deadline - time.monotonic())
            if queries.script_digest(job.ref.array_id, self.environ, timeout_s=left_s) not in (None, job.sha256):
                self.reused_numbers.add(job)
                self.rows[job] = []

    def _is_incomplete(self, job: RequestedJob) -> bool:
        """Return whether sacct may know more: a job that squeue does not know, or ended tasks of an array."""
        rows = self.rows[job]
        return not rows or (rows[0].ref.suffix.startswith("_") and not job.ref.is_task)

    def add_exit_status(self, row: JobInfo) -> JobInfo:
        """Return a row with the exit status, if the controller answers."""
        return row if self.queue.silence else queries.add_exit_status(row, self.environ, timeout_s=self.timeout_s)

    def _accounting(self, missing: Sequence[RequestedJob]) -> tuple[JobInfo, ...]:
        since = job_identity.earliest_submission(job.submitted for job in missing)
        ids = list(dict.fromkeys(job.ref.array_id for job in missing))
        return queries.accounting(ids, since, self.environ, timeout_s=self.timeout_s).jobs

    def _add_details(self, wanted: Iterable[RequestedJob]) -> None:
        """Add what only scontrol knows; for a job that squeue and sacct do not know, add the whole row."""
        for job in dict.fromkeys(wanted):
            rows = self.rows[job]
            if rows and rows[0].source == "sacct":
                continue
            answer = queries.controller(job.job_id, self.environ, timeout_s=self.timeout_s)
            if answer.silence:
                return
            shown = {row.job_id: row for row in self._own_rows(job, answer.jobs)}
            detailed = [_with_details(row, shown.get(row.job_id)) for row in rows]
            self.rows[job] = detailed or list(shown.values())


def _with_details(row: JobInfo, more: JobInfo | None) -> JobInfo:
    return row._replace(exit_status=more.exit_status, restarts=more.restarts, preempted=more.preempted) if more else row
