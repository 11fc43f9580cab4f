"""Builds the status of a job from Slurm's row and the run's files. Reads the files.

Slurm is asked only for the exit status of a job that failed and has recorded nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Final

from slurmddp.monitoring.status.job_identity import RequestedJob
from slurmddp.monitoring.status.job_status import JobStatus, Progress
from slurmddp.monitoring.status.run_progress import last_seen, last_start, read_progress
from slurmddp.monitoring.status.slurm_answers import FEW, Answers
from slurmddp.monitoring.status.tracker_links import find_tracker_links
from slurmddp.outcome import Kind, Outcome
from slurmddp.runs.facts import Job, judge_by_slurm, read_job
from slurmddp.runs.files import TAIL_BYTES
from slurmddp.runs.history import History, read_newest, read_outline
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.hostlist import try_expand
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.pending_reasons import explain
from slurmddp.slurm.states import meaning_of
from slurmddp.slurm.values import LATEST_START

MANY: Final = 100
"""For up to `FEW` jobs all events are read, for up to this many the last 64 KiB, for more the last 1 KiB."""

_LINES_BYTES: Final = 1024

_PREEMPTED_NOW: Final = "it is being preempted: it has its grace time to save in"


@dataclass
class RunHistories:
    """The runs' events; each file is read once."""

    jobs: int
    """For how many jobs they are wanted, which decides how much is read."""
    now: float
    _read: dict[RunDir, History] = field(default_factory=dict)

    def read_job(self, run: RunDir, job_id: str, slurm: JobInfo | None, *, silent: bool) -> Job:
        """Return what happened to a job of a run."""
        if run not in self._read:
            few, some = self.jobs <= FEW, self.jobs <= MANY
            self._read[run] = read_outline(run) if few else read_newest(run, size=TAIL_BYTES if some else _LINES_BYTES)
        return read_job(run, job_id, slurm, silent=silent, history=self._read[run])

    def read_progress(self, run: RunDir, job: Job) -> Progress:
        """Return how far a job is; of few jobs, also where their trackers show them."""
        progress = read_progress(run, job, now=self.now)
        if self.jobs > FEW:
            return progress
        return replace(progress, trackers=find_tracker_links(run, job.job_id), damage=self._read[run].damage)


def build_statuses(job: RequestedJob, answers: Answers, histories: RunHistories) -> Iterator[JobStatus]:
    """Yield the status of a job, or of each task of an array that Slurm lists."""
    rows = answers.rows[job]
    if not rows:
        yield _from_files(job, answers, histories)
    for row in rows:
        yield _from_row(job, row, answers, histories)


def _from_row(job: RequestedJob, row: JobInfo, answers: Answers, histories: RunHistories) -> JobStatus:
    job_id = job.job_id if job.ref.is_task and row.ref.is_task_list else row.job_id
    cancelled_in_queue = row.state == "CANCELLED" and not row.nodes
    status = JobStatus(
        job_id=job_id,
        run=job.run,
        name=job.run.path.name if job.run else row.name,
        outcome=judge_by_slurm(row),
        reason="" if cancelled_in_queue else row.reason,
        expected_start=_expected_start(row, histories.now),
        submitted=job.submitted or row.submitted,  # Slurm's own time is that of the last requeue
        started=None if row.phase == "queued" or cancelled_in_queue else row.started,
        ended=row.ended if row.has_ended else None,
        elapsed_s=row.elapsed_s,
        limit_s=row.limit_s,
        nodes=_expand_hosts(row.nodes),
        partition=row.partition,
        restarts=row.restarts,
        source=row.source,
        slurm=row,
        silence=answers.queue.silence,
    )
    if job.run is None:
        return replace(status, meaning=_meaning(status, row))
    facts = histories.read_job(job.run, job_id, row, silent=False)
    if facts.outcome.needs_exit_status:
        row = answers.add_exit_status(row)
        facts = histories.read_job(job.run, job_id, row, silent=False)
    status = replace(status, slurm=row, outcome=facts.outcome, progress=histories.read_progress(job.run, facts))
    age_s = 0.0
    if status.silence and not status.outcome.final:
        last = last_seen(job.run, facts)
        age_s = max(0.0, histories.now - last) if last else 0.0
    return replace(status, meaning=_meaning(status, row), age_s=age_s)


def _from_files(job: RequestedJob, answers: Answers, histories: RunHistories) -> JobStatus:
    silence = "" if job.ref.is_local else answers.queue.silence
    name = job.run.path.name if job.run else ""
    unknown = JobStatus(job_id=job.job_id, run=job.run, name=name, outcome=Outcome(kind=Kind.UNKNOWN), silence=silence)
    if job.run is None:
        return replace(unknown, meaning=silence or "Slurm knows no such job, and no run here has it")
    facts = histories.read_job(job.run, job.job_id, None, silent=bool(silence))
    outcome, seen = facts.outcome, last_seen(job.run, facts)
    runs = job.ref.is_local and outcome.kind is Kind.RUNNING
    began = last_start(facts) if runs or outcome.final else None
    meaning = outcome.reason
    if outcome.kind is Kind.UNKNOWN and not job.ref.is_local:
        meaning = silence or _unknown_reason(job, answers.names.get(job.ref.array_id, ""))
    return replace(
        unknown,
        outcome=outcome,
        submitted=job.submitted,
        started=_local_time(began),
        ended=_local_time(seen) if outcome.final else None,
        elapsed_s=int((histories.now if runs else seen or 0) - began) if began else None,
        meaning="" if outcome.kind is Kind.DONE else meaning,
        age_s=max(0.0, histories.now - seen) if seen else 0.0,
        progress=histories.read_progress(job.run, facts),
    )


def _local_time(time: float | None) -> datetime | None:
    return datetime.fromtimestamp(time).astimezone() if time else None


def _unknown_reason(job: RequestedJob, other: str) -> str:
    if job.elsewhere:
        return f"the job is that of {job.elsewhere}; this folder is a copy of it, or came from another file system"
    if other:
        return f"Slurm's job of this number is named {other}, not {job.name}: it is another one"
    return "Slurm no longer knows it, and its files do not tell how it ended"


def _meaning(status: JobStatus, row: JobInfo) -> str:
    """Return why a job waits, what it does, or why it ended, in words."""
    if status.outcome.final:
        return status.outcome.reason
    if row.preempted and row.state == "RUNNING":
        return _PREEMPTED_NOW
    stands = meaning_of(row.state, status.job_id)
    if stands or status.phase != "queued":
        return stands
    why = explain(status.reason, status.job_id)
    return "; ".join(part for part in (why.meaning, why.advice) if part)


def _expected_start(row: JobInfo, now: float) -> datetime | None:
    """Return when Slurm expects a queued job to start, if that is more than a guess."""
    if row.phase != "queued" or row.started is None:
        return None
    return row.started if row.started.timestamp() - now < LATEST_START.total_seconds() else None


@cache
def _expand_hosts(text: str) -> tuple[str, ...]:
    return (try_expand(text) or (text,)) if text else ()
