"""Builds the status of a job from Slurm's row and the run's files. Reads the files; Slurm is not asked."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Final

from slurmddp.errors import UsageError
from slurmddp.monitoring.status import run_progress
from slurmddp.monitoring.status.job_identity import RequestedJob
from slurmddp.monitoring.status.job_status import JobStatus, Progress
from slurmddp.monitoring.status.slurm_answers import FEW, Answers
from slurmddp.monitoring.status.tracker_links import find_tracker_links
from slurmddp.runs.files import TAIL_BYTES
from slurmddp.runs.history import History, read_newest, read_outline
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.hostlist import expand
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.pending_reasons import explain
from slurmddp.slurm.states import has_ended, meaning_of
from slurmddp.slurm.values import LATEST_START

MANY: Final = 100
"""For up to `FEW` jobs all events are read, for up to this many the last 64 KiB, for more the last 1 KiB."""

_LINES_BYTES: Final = 1024

_PREEMPTED_NOW: Final = "it is being preempted: it has its grace time to save in"
_DONE_WITHIN_GRACE: Final = "it is done; Slurm has it as PREEMPTED, because it ended within its grace time"


@dataclass
class RunHistories:
    """The runs' events; each file is read once."""

    jobs: int
    """For how many jobs they are wanted, which decides how much is read."""
    now: float
    _read: dict[RunDir, History] = field(default_factory=dict)

    def read(self, run: RunDir) -> History:
        """Return a run's events, or the newest of them."""
        if run not in self._read:
            few, some = self.jobs <= FEW, self.jobs <= MANY
            self._read[run] = read_outline(run) if few else read_newest(run, size=TAIL_BYTES if some else _LINES_BYTES)
        return self._read[run]

    def read_progress(self, run: RunDir, job_id: str, *, running: bool) -> Progress:
        """Return how far a job is; of few jobs, also where their trackers show them."""
        progress = run_progress.read_progress(run, self.read(run), job_id, running=running, now=self.now)
        return replace(progress, trackers=find_tracker_links(run, job_id)) if self.jobs <= FEW else progress


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
        state=row.state,
        reason="" if cancelled_in_queue else row.reason,
        expected_start=_expected_start(row, histories.now),
        submitted=job.submitted or row.submitted,  # Slurm's own time is that of the last requeue
        started=None if row.phase == "queued" or cancelled_in_queue else row.started,
        ended=row.ended if row.has_ended else None,
        elapsed_s=row.elapsed_s,
        limit_s=row.limit_s,
        nodes=_expand_hosts(row.nodes),
        partition=row.partition,
        exit_status=row.exit_status if row.has_ended else "",
        restarts=row.restarts,
        meaning=_PREEMPTED_NOW if row.preempted and row.state == "RUNNING" else "",
        source=row.source,
        silence=answers.queue.silence,
    )
    return _with_records(status, histories)


def _with_records(status: JobStatus, histories: RunHistories) -> JobStatus:
    """Add progress and cause from the run's files to the status of a job that Slurm knows."""
    meaning, said, run = status.meaning or _meaning(status), "", status.run
    if run is None:
        return replace(status, meaning=meaning)
    history = histories.read(run)
    progress = histories.read_progress(run, status.job_id, running=status.state == "RUNNING")
    if status.state in ("FAILED", "PREEMPTED"):
        end = run_progress.read_state(run, history, status.job_id, gone=True)
        if status.state == "FAILED":
            said = end.reason if end.state == "FAILED" else ""
            status = replace(status, exit_status=status.exit_status or end.exit_status)
        elif end.state == "COMPLETED":
            said, status = _DONE_WITHIN_GRACE, replace(status, state="COMPLETED")
    age_s = 0.0
    if status.silence and status.phase in ("queued", "running"):
        last = run_progress.last_seen(run, history, status.job_id)
        age_s = max(0.0, histories.now - last) if last else 0.0
    return replace(status, meaning=said or meaning, progress=progress, age_s=age_s)


def _from_files(job: RequestedJob, answers: Answers, histories: RunHistories) -> JobStatus:
    silence = "" if job.ref.is_local else answers.queue.silence
    name = job.run.path.name if job.run else ""
    unknown = JobStatus(job_id=job.job_id, run=job.run, name=name, state="UNKNOWN", silence=silence)
    if job.run is None:
        return replace(unknown, meaning=silence or "Slurm knows no such job, and no run here has it")
    history = histories.read(job.run)
    if job.ref.is_local:
        end = run_progress.read_local_state(job.run, job.job_id)
    else:
        end = run_progress.read_state(job.run, history, job.job_id, gone=not silence)
    seen = run_progress.last_seen(job.run, history, job.job_id)
    runs = job.ref.is_local and end.state == "RUNNING"
    progress = histories.read_progress(job.run, job.job_id, running=runs)
    age_s = max(0.0, histories.now - seen) if seen else 0.0
    ended = datetime.fromtimestamp(seen).astimezone() if seen and has_ended(end.state) else None
    began = run_progress.last_start(history, job.job_id) if runs or ended else None
    meaning = "" if end.state == "COMPLETED" else end.reason or meaning_of(end.state, job.job_id)
    if end.state == "UNKNOWN" and not job.ref.is_local:
        meaning = silence or _unknown_reason(job, answers.names.get(job.ref.array_id, ""))
    return replace(
        unknown, state=end.state, submitted=job.submitted, ended=ended, meaning=meaning, exit_status=end.exit_status,
        started=datetime.fromtimestamp(began).astimezone() if began else None,
        elapsed_s=int((histories.now if runs else seen or 0) - began) if began else None,
        age_s=age_s, progress=progress,
    )  # fmt: skip


def _unknown_reason(job: RequestedJob, other: str) -> str:
    if job.elsewhere:
        return f"the job is that of {job.elsewhere}; this folder is a copy of it, or came from another file system"
    if other:
        return f"Slurm's job of this number is named {other}, not {job.name}: it is another one"
    return "Slurm no longer knows it, and its files do not tell how it ended"


def _meaning(status: JobStatus) -> str:
    meaning = meaning_of(status.state, status.job_id)
    if meaning or status.phase != "queued":
        return meaning
    why = explain(status.reason, status.job_id)
    return "; ".join(part for part in (why.meaning, why.advice) if part)


def _expected_start(row: JobInfo, now: float) -> datetime | None:
    """Return when Slurm expects a queued job to start, if that is more than a guess."""
    if row.phase != "queued" or row.started is None:
        return None
    return row.started if row.started.timestamp() - now < LATEST_START.total_seconds() else None


@cache
def _expand_hosts(text: str) -> tuple[str, ...]:
    try:
        return expand(text) if text else ()
    except UsageError:
        return (text,)
