"""What became of jobs: asks Slurm as seldom as it goes, and the runs' files where it does not tell."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, cached_property
from typing import Any, Final

from slurmddp import slurm
from slurmddp.cluster.pending import explain
from slurmddp.errors import UsageError
from slurmddp.handover import submissions
from slurmddp.history import History, read_newest, read_outline
from slurmddp.hostlist import expand
from slurmddp.rundir import TAIL_BYTES, RunDir
from slurmddp.slurm import PHASES
from slurmddp.status import asking, identity, records
from slurmddp.status.asking import Heard, Row
from slurmddp.status.identity import Wanted
from slurmddp.status.values import JobStatus
from slurmddp.target import Target

TIMEOUT_S: Final = 20.0
"""How long each of Slurm's programs may take."""
FEW: Final = 8
"""Of so many jobs scontrol tells more, and all that has happened to them is read."""

SOME: Final = 100
"""Of so many jobs the last 64 KiB of events are read, of more the last 1 KiB: where it stands, and its pace."""

_LINES_BYTES: Final = 1024
_DOUBTS: Final = 20
"""Of so many jobs a look compares the script, one question each."""

_ENDED: Final[Mapping[str, str]] = {
    "COMPLETED": "",
    "FAILED": "its script ended with an error",
    "TIMEOUT": "its time limit was reached",
    "NODE_FAIL": "a node of it failed, and Slurm did not put it back into the queue",
    "OUT_OF_MEMORY": "it took more memory than it may have",
    "BOOT_FAIL": "a node of it did not start",
    "DEADLINE": "its deadline has passed",
    "PREEMPTED": "it had to leave for a more urgent job, and Slurm did not put it back into the queue",
    "LAUNCH_FAILED": "a node failed to start it",
    "CANCELLED": "it was cancelled",
    "REVOKED": "another cluster took it",
}
"""What the states mean in which a job ends, where nothing else tells."""

_OVER: Final = frozenset({"done", "failed", "cancelled"})

Environ = Mapping[str, str]


def look(
    targets: Sequence[Target], environ: Environ, *, timeout_s: float = TIMEOUT_S, now: float | None = None
) -> list[JobStatus]:
    """Return what became of the targets' jobs, in their order; of an array, of each task that Slurm lists.

    One squeue and one sacct whatever the number; scontrol for up to `FEW` jobs. Each may take `timeout_s`. Raises
    nothing that Slurm could cause: where it does not tell, the runs' files do, or the state is UNKNOWN.
    """
    known_of = cache(_submissions)
    wanted = [job for target in targets for job in _wanted(target, known_of)]
    answers = _Answers(wanted, environ, timeout_s)
    answers.ask()
    files = _Files(jobs=len(wanted), now=time.time() if now is None else now)
    return [status for job in wanted for status in _statuses(job, answers, files)]


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
        record = known.get(asking.number(job_id), {})
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


@dataclass
class _Answers:
    """What Slurm says of the jobs."""

    wanted: Sequence[Wanted]
    environ: Environ
    timeout_s: float
    queue: Heard = field(default_factory=Heard)
    rows: dict[Wanted, list[Row]] = field(default_factory=dict)
    given_again: set[Wanted] = field(default_factory=set)
    """Those whose number another job of the same name has by now."""

    def ask(self) -> None:
        """Ask squeue, then sacct for what it does not know, then scontrol for a few."""
        if not self.wanted:
            return
        ids = list(dict.fromkeys(job.job_id for job in self.wanted))
        self.queue = asking.queue(ids, self.environ, timeout_s=self.timeout_s)
        self._take(self.wanted, self.queue.rows)
        self._drop_others()
        if missing := [job for job in self.wanted if self._is_incomplete(job)]:
            self._take(missing, self._accounting(missing))
        if len(self.wanted) <= FEW and not self.queue.silence:
            self._detail()

    @cached_property
    def names(self) -> Mapping[str, str]:
        """What the jobs are called that squeue knows, by number."""
        return {row.number: row.name for row in self.queue.rows}

    def _take(self, wanted: Iterable[Wanted], rows: Iterable[Row]) -> None:
        nearest = identity.Nearest(rows)
        for job in wanted:
            known = self.rows.setdefault(job, [])
            found = self._own(job, nearest.of(job))
            ids = {row.job_id for row in known}
            more = [row for row in found if row.job_id not in ids and self._is_true(row)]
            self.rows[job] = identity.newest([*known, *more])

    def _own(self, job: Wanted, rows: Iterable[Row]) -> list[Row]:
        found = identity.newest(identity.of(job, rows))
        return [row for row in found if not (job in self.given_again and identity.is_doubtful(job, row))]

    def _is_true(self, row: Row) -> bool:
        """Whether a row can be: what the controller has forgotten has ended, whatever the accounting still holds."""
        return row.source == "squeue" or bool(self.queue.silence) or PHASES.get(row.state) in _OVER

    def _drop_others(self) -> None:
        """Take out what has a run's number and name, and another script."""
        doubts = [job for job in self.wanted for row in self.rows[job] if identity.is_doubtful(job, row)]
        deadline = time.monotonic() + self.timeout_s
        for job in list(dict.fromkeys(doubts))[:_DOUBTS]:
            left_s = max(0.0, deadline - time.monotonic())
            if slurm.script_digest(job.number, self.environ, timeout_s=left_s) not in (None, job.sha256):
                self.given_again.add(job)
                self.rows[job] = []

    def _is_incomplete(self, job: Wanted) -> bool:
        """Whether the accounting may know more: of a job that squeue does not, and of an array's tasks."""
        rows = self.rows[job]
        return not rows or ("_" in rows[0].job_id and "_" not in job.job_id)

    def _accounting(self, missing: Sequence[Wanted]) -> tuple[Row, ...]:
        since = asking.earliest((job.submitted for job in missing), identity.SLACK)
        ids = list(dict.fromkeys(job.number for job in missing))
        return asking.accounting(ids, since, self.environ, timeout_s=self.timeout_s).rows

    def _detail(self) -> None:
        """Add what only scontrol tells, and all that it does where neither of the others knows a job."""
        for job, rows in self.rows.items():
            if rows and rows[0].source == "sacct":
                continue
            heard = asking.controller(job.job_id, self.environ, timeout_s=self.timeout_s)
            if heard.silence:
                return
            shown = {row.job_id: row for row in self._own(job, heard.rows)}
            detailed = [_detailed(row, shown.get(row.job_id)) for row in rows]
            self.rows[job] = detailed or list(shown.values())


def _detailed(row: Row, more: Row | None) -> Row:
    return replace(row, exit_status=more.exit_status, restarts=more.restarts) if more else row


@dataclass
class _Files:
    """The runs' events, each read once."""

    jobs: int
    """For how many they are wanted: for few all that has happened is read, for many the last lines."""
    now: float
    _read: dict[RunDir, History] = field(default_factory=dict)

    def of(self, run: RunDir) -> History:
        if run not in self._read:
            few, some = self.jobs <= FEW, self.jobs <= SOME
            self._read[run] = read_outline(run) if few else read_newest(run, size=TAIL_BYTES if some else _LINES_BYTES)
        return self._read[run]


def _statuses(job: Wanted, answers: _Answers, files: _Files) -> Iterator[JobStatus]:
    rows = answers.rows[job]
    if not rows:
        yield _from_files(job, answers, files)
    for row in rows:
        yield _from_row(job, row, answers, files)


def _from_row(job: Wanted, row: Row, answers: _Answers, files: _Files) -> JobStatus:
    single = "_" in job.job_id and "[" in row.job_id
    job_id = job.job_id if single else row.job_id
    phase = PHASES.get(row.state, "unknown")
    status = JobStatus(
        job_id=job_id,
        run=job.run,
        name=job.run.path.name if job.run and job.run.sweep else row.name or (job.run.path.name if job.run else ""),
        state=row.state,
        reason=row.reason,
        expected_start=row.started if phase == "queued" else None,
        submitted=row.submitted,
        started=None if phase == "queued" else row.started,
        ended=row.ended if phase in _OVER else None,
        elapsed_s=row.elapsed_s,
        limit_s=row.limit_s,
        nodes=_hosts(row.nodes),
        partition=row.partition,
        exit_status=row.exit_status if phase in _OVER else "",
        restarts=row.restarts,
        source=row.source,
        silence=answers.queue.silence,
    )
    return _with_records(status, files)


def _with_records(status: JobStatus, files: _Files) -> JobStatus:
    """Add what the run's files tell of a job that Slurm knows."""
    meaning, said, run = _meaning(status), "", status.run
    if run is None:
        return replace(status, meaning=meaning)
    history = files.of(run)
    progress = records.progress(run, history, status.job_id, running=status.phase == "running", now=files.now)
    if status.phase == "failed" and status.state == "FAILED":
        end = records.ending(run, history, status.job_id, gone=True)
        said = end.reason if end.state == "FAILED" else ""
        status = replace(status, exit_status=status.exit_status or end.exit_status)
    age_s = 0.0
    if status.silence and status.phase in ("queued", "running"):
        last = records.last_seen(run, history, status.job_id)
        age_s = max(0.0, files.now - last) if last else 0.0
    return replace(status, meaning=said or meaning, progress=progress, age_s=age_s)


def _from_files(job: Wanted, answers: _Answers, files: _Files) -> JobStatus:
    silence = answers.queue.silence
    name = job.run.path.name if job.run else ""
    unknown = JobStatus(job_id=job.job_id, run=job.run, name=name, state="UNKNOWN", silence=silence)
    if job.run is None:
        return replace(unknown, meaning=silence or "Slurm knows no such job, and no run here has it")
    history = files.of(job.run)
    end = records.ending(job.run, history, job.job_id, gone=not silence)
    progress = records.progress(job.run, history, job.job_id, running=False, now=files.now)
    age_s = max(0.0, files.now - end.seen) if end.seen else 0.0
    ended = datetime.fromtimestamp(end.seen).astimezone() if end.seen and PHASES.get(end.state) in _OVER else None
    meaning = "" if end.state == "COMPLETED" else end.reason or _ENDED.get(end.state, "")
    if end.state == "UNKNOWN":
        meaning = silence or _unknown(answers.names.get(job.number, ""))
    return replace(
        unknown, state=end.state, submitted=job.submitted, ended=ended, meaning=meaning, exit_status=end.exit_status,
        age_s=age_s, progress=progress,
    )  # fmt: skip


def _unknown(other: str) -> str:
    if other:
        return f"Slurm's job of this number is named {other}: another one, or the run's folder was renamed or copied"
    return "Slurm no longer knows it, and its script left no last word"


def _meaning(status: JobStatus) -> str:
    if status.phase == "queued":
        why = explain(status.reason, status.job_id)
        return "; ".join(part for part in (why.meaning, why.advice) if part)
    return _ENDED.get(status.state, "")


@cache
def _hosts(text: str) -> tuple[str, ...]:
    try:
        return expand(text) if text else ()
    except UsageError:
        return (text,)
