"""Which of Slurm's rows is a run's job: its numbers are given again, by a cluster that was set up anew. Pure.

A job of a run has the name that the run had then, and was not submitted before it was. What came back into the queue
has a later time of submission (22.05); so does another job of the same number and name, which only its script tells
from it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Final

from slurmddp.runs.layout import LOCAL, RunDir
from slurmddp.slurm.job_info import JobInfo, number

SLACK: Final = timedelta(minutes=5)
"""So much may the clock here and the controller's differ."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A job that is asked for, and what is on record of it; empty for a job of no run."""

    job_id: str
    run: RunDir | None = None
    submitted: datetime | None = None
    sha256: str = ""
    name: str = ""
    """What Slurm calls the run's job: as the run's folder was called when it was submitted."""
    elsewhere: Path | None = None
    """The folder whose job it is, where the run's is a copy of that."""

    @property
    def number(self) -> str:
        """The number of the job, or of the array that it is of."""
        return number(self.job_id)

    @property
    def is_local(self) -> bool:
        """Whether it is no job, but a run on this machine."""
        return self.job_id.startswith(LOCAL)


def of(wanted: Wanted, rows: Iterable[JobInfo]) -> list[JobInfo]:
    """Return the rows that can be the job's, or its tasks', in their order; none of another folder's job."""
    if wanted.elsewhere:
        return []
    own = [row for row in rows if _covers(row, wanted) and not _is_earlier(row, wanted)]
    return list(_until_another(wanted, own)) if wanted.run else own


def is_doubtful(wanted: Wanted, row: JobInfo) -> bool:
    """Whether only its script could tell: it was submitted later, by requeueing or as another job."""
    late = row.submitted and wanted.submitted and row.submitted > wanted.submitted + SLACK
    return bool(late and wanted.sha256)


def newest(rows: Sequence[JobInfo]) -> list[JobInfo]:
    """Return one row a job or task, the last; and those that wait together, unless all of them have their own."""
    last = {row.job_id: row for row in rows}
    own = {row.job_id for row in rows if "[" not in row.job_id}
    return [row for row in last.values() if "[" not in row.job_id or not _is_stale(row, own)]


class Nearest:
    """Slurm's rows, to be found by the job that they can be of; ten thousand tasks are looked up one by one."""

    def __init__(self, rows: Iterable[JobInfo]) -> None:
        self._by_number: dict[str, list[JobInfo]] = {}
        self._single: dict[str, list[JobInfo]] = {}
        self._together: dict[str, list[JobInfo]] = {}
        for row in rows:
            self._by_number.setdefault(row.number, []).append(row)
            several = "[" in row.job_id
            (self._together if several else self._single).setdefault(row.number if several else row.job_id, []).append(
                row
            )

    def of(self, wanted: Wanted) -> Sequence[JobInfo]:
        """Return the rows of a job; of a task its own, or else those of tasks that wait together."""
        if "_" in wanted.job_id:
            return self._single.get(wanted.job_id, ()) or self._together.get(wanted.number, ())
        return self._by_number.get(wanted.number, ())


def earliest(times: Iterable[datetime | None]) -> datetime | None:
    """Return the first of these times, and `SLACK` before it; None when one of them is not known."""
    known = list(times)
    if not known or any(moment is None for moment in known):
        return None
    return min(moment for moment in known if moment) - SLACK


@cache
def tasks(job_id: str) -> frozenset[int] | None:
    """Return the tasks of `17_[1-3,7%2]`; None where Slurm has cut them short."""
    inside = re.search(r"\[(.*?)(?:%\d+)?\]$", job_id)
    if not inside or not re.fullmatch(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*", inside[1], re.ASCII):
        return None
    found: set[int] = set()
    for part in inside[1].split(","):
        first, last, step = re.fullmatch(r"(\d+)(?:-(\d+))?(?::(\d+))?", part).groups()  # type: ignore[union-attr]  # as above
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(found)


def _covers(row: JobInfo, wanted: Wanted) -> bool:
    if row.number != wanted.number:
        return False
    task = wanted.job_id.partition("_")[2]
    if not task or row.job_id == wanted.job_id:
        return True
    known = tasks(row.job_id) if "[" in row.job_id else frozenset[int]()
    return known is None or int(task) in known


def _is_earlier(row: JobInfo, wanted: Wanted) -> bool:
    return bool(row.submitted and wanted.submitted and row.submitted < wanted.submitted - SLACK)


def _until_another(wanted: Wanted, rows: Iterable[JobInfo]) -> Iterator[JobInfo]:
    """Yield the rows up to the first of another name; the accounting may not know the name yet."""
    for row in rows:
        if row.name not in ("", wanted.name):
            return
        yield row


def _is_stale(row: JobInfo, own: set[str]) -> bool:
    waiting = tasks(row.job_id)
    return bool(waiting) and all(f"{row.number}_{task}" in own for task in waiting or ())
