"""What Slurm says of some jobs: squeue, then sacct for what it does not know, then scontrol for a few. No files."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from slurmddp.monitoring.status import job_identity
from slurmddp.monitoring.status.job_identity import Wanted
from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo, Listing

FEW: Final = 8
"""Of so many jobs scontrol tells more."""

_DOUBTS: Final = 20
"""Of so many jobs a look compares the script, one question each."""


@dataclass
class Answers:
    """What Slurm says of the jobs."""

    wanted: Sequence[Wanted]
    environ: Mapping[str, str]
    timeout_s: float
    queue: Listing = field(default_factory=Listing)
    rows: dict[Wanted, list[JobInfo]] = field(default_factory=dict)
    given_again: set[Wanted] = field(default_factory=set)
    """Those whose number another job of the same name has by now."""

    def ask(self) -> None:
        """Ask squeue, then sacct for what it does not know, then scontrol for a few; none of them for runs here."""
        asked = [job for job in self.wanted if not job.is_local]
        self.rows = {job: [] for job in self.wanted if job.is_local}
        if not asked:
            return
        ids = list(dict.fromkeys(job.job_id for job in asked))
        self.queue = queries.queue(ids, self.environ, timeout_s=self.timeout_s)
        self._take(asked, self.queue.jobs)
        self._drop_others()
        if missing := [job for job in asked if self._is_incomplete(job)]:
            self._take(missing, self._accounting(missing))
        if len(asked) <= FEW and not self.queue.silence:
            self._detail()

    @cached_property
    def names(self) -> Mapping[str, str]:
        """What the jobs are called that squeue knows, by number."""
        return {row.number: row.name for row in self.queue.jobs}

    def _take(self, wanted: Iterable[Wanted], rows: Iterable[JobInfo]) -> None:
        nearest = job_identity.Nearest(rows)
        for job in wanted:
            known = self.rows.setdefault(job, [])
            found = self._own(job, nearest.of(job))
            ids = {row.job_id for row in known}
            more = [row for row in found if row.job_id not in ids and self._is_true(row)]
            self.rows[job] = job_identity.newest([*known, *more])

    def _own(self, job: Wanted, rows: Iterable[JobInfo]) -> list[JobInfo]:
        found = job_identity.newest(job_identity.of(job, rows))
        return [row for row in found if not (job in self.given_again and job_identity.is_doubtful(job, row))]

    def _is_true(self, row: JobInfo) -> bool:
        """Whether a row can be: what the controller has forgotten has ended, whatever the accounting still holds."""
        return row.source == "squeue" or bool(self.queue.silence) or row.has_ended

    def _drop_others(self) -> None:
        """Take out what has a run's number and name, and another script."""
        doubts = [job for job in self.wanted for row in self.rows[job] if job_identity.is_doubtful(job, row)]
        deadline = time.monotonic() + self.timeout_s
        for job in list(dict.fromkeys(doubts))[:_DOUBTS]:
            left_s = max(0.0, deadline - time.monotonic())
            if queries.script_digest(job.number, self.environ, timeout_s=left_s) not in (None, job.sha256):
                self.given_again.add(job)
                self.rows[job] = []

    def _is_incomplete(self, job: Wanted) -> bool:
        """Whether the accounting may know more: of a job that squeue does not, and of an array's tasks."""
        rows = self.rows[job]
        return not rows or ("_" in rows[0].job_id and "_" not in job.job_id)

    def _accounting(self, missing: Sequence[Wanted]) -> tuple[JobInfo, ...]:
        since = job_identity.earliest(job.submitted for job in missing)
        ids = list(dict.fromkeys(job.number for job in missing))
        return queries.accounting(ids, since, self.environ, timeout_s=self.timeout_s).jobs

    def _detail(self) -> None:
        """Add what only scontrol tells, and all that it does where neither of the others knows a job."""
        for job, rows in self.rows.items():
            if job.is_local or (rows and rows[0].source == "sacct"):
                continue
            heard = queries.controller(job.job_id, self.environ, timeout_s=self.timeout_s)
            if heard.silence:
                return
            shown = {row.job_id: row for row in self._own(job, heard.jobs)}
            detailed = [_detailed(row, shown.get(row.job_id)) for row in rows]
            self.rows[job] = detailed or list(shown.values())


def _detailed(row: JobInfo, more: JobInfo | None) -> JobInfo:
    return row._replace(exit_status=more.exit_status, restarts=more.restarts) if more else row
