"""Reads from a run's files how far a job is and how it ended. Slurm is not asked."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from slurmddp.exit_codes import DONE, FAILED, FENCED, STOPPED
from slurmddp.monitoring.status.job_status import Happened, Progress
from slurmddp.runs.exit_records import ExitRecord, read_decisive_record
from slurmddp.runs.history import Attempt, Event, History, number
from slurmddp.runs.layout import MANIFEST, RunDir
from slurmddp.runs.ownership import is_running_here
from slurmddp.runs.program_checkpoints import newest_program_checkpoint
from slurmddp.runs.supervisor_records import JobOutcome, job_outcome

UNRECORDED: Final = "not by the job itself: by `scontrol requeue`, a preemption without grace time, or a lost node"

_PACE: Final = 20
"""The pace is computed from so many records."""
_LONGEST_S: Final = 1e10
"""Three centuries: a training with so many steps has no end."""
_FINAL: Final = (DONE, FAILED, FENCED)
"""The job does not continue after an attempt with one of these."""


@dataclass(frozen=True)
class RecordedState:
    """The state of a job by its own files."""

    state: str
    """Slurm's word for it; `UNKNOWN` when its files do not tell."""
    reason: str = ""
    exit_status: str = ""


def read_progress(run: RunDir, history: History, job_id: str, *, running: bool, now: float) -> Progress:
    """Return how far a job is; `history` holds the run's events, or its newest."""
    own = history.of_job(job_id)
    attempt = own.attempts[-1] if own.attempts else None
    last, saved = own.last("metrics"), own.last("checkpoint")
    steps = [event.count("step") for event in (last, saved) if event]
    started = own.last("attempt_start")
    pattern = started.text("checkpoints") if started else ""
    program_checkpoint = newest_program_checkpoint(pattern) if pattern else None
    step, age_s = newest_checkpoint(run, now)
    if program_checkpoint:
        step, age_s = None, max(0.0, now - program_checkpoint.saved_at)
    return Progress(
        attempt=attempt.name if attempt else "",
        step=max(steps, default=None),
        total=(last.count("total") or None) if last else None,
        loss=metric(last, "loss"),
        samples_per_s=metric(last, "samples_per_s"),
        left_s=left_s(attempt.all("metrics"), now) if attempt and running else None,
        checkpoint_step=step,
        checkpoint_path=program_checkpoint.path if program_checkpoint else "",
        checkpoint_age_s=age_s,
        restarts=tuple((event.time, event.text("reason")) for event in own.all("restart")),
        requeues=tuple(_requeues(own.attempts)),
    )


def left_s(metrics: Sequence[Event], now: float) -> float | None:
    """Return the seconds to the last step, at the pace of the newest records.

    None while there is no pace, by clocks that went back, and for a training without an end.
    """
    recent = metrics[-_PACE:]
    if len(recent) < 2:  # noqa: PLR2004 a pace has two ends
        return None
    first, last = recent[0], recent[-1]
    steps, total = last.count("step") - first.count("step"), last.count("total")
    took_s = last.time - first.time
    if steps <= 0 or took_s <= 0 or not total:
        return None
    rest_s = (total - last.count("step")) * took_s / steps - (now - last.time)
    return max(0.0, rest_s) if rest_s < _LONGEST_S else None


def newest_checkpoint(run: RunDir, now: float) -> tuple[int | None, float | None]:
    """Return the step of the run's newest checkpoint and its age in seconds; None for both without one."""
    with suppress(OSError):
        if newest := run.newest_checkpoint:
            return int(newest.name.partition("-")[2]), max(0.0, now - (newest / MANIFEST).stat().st_mtime)
    return None, None


def read_state(run: RunDir, history: History, job_id: str, *, gone: bool) -> RecordedState:
    """Return the state of a job by its supervisor's events; without any, by the exit records of its last attempt.

    `gone` says that Slurm does not know it any more: it has ended. Else it may continue after an attempt.
    """
    own = history.of_job(job_id)
    cancelled = _cancellation(own.decision())
    end = job_outcome(run, job_id, own.events) or (_end_of_ranks(run, own, job_id) if not cancelled else None)
    if end and (end.is_final or (gone and not cancelled)):
        return _end_state(end.status, end.reason)
    if cancelled:
        return RecordedState("CANCELLED", cancelled)
    if own.events and not gone:
        return RecordedState("PENDING" if own.events[-1].kind == "requeue" else "RUNNING")
    return RecordedState("UNKNOWN")


def read_local_state(run: RunDir, job_id: str) -> RecordedState:
    """Return the state of a run on this machine: RUNNING while its process exists, else by its exit records."""
    if is_running_here(run.owner, job_id):
        return RecordedState("RUNNING")
    record = _last_record(run, job_id)
    if record is None:
        return RecordedState("UNKNOWN", "it does not run on this machine, and no rank left a record of its end")
    if record.status == STOPPED:
        return RecordedState("CANCELLED", record.text, f"{STOPPED}:0")
    return _end_state(record.status, "" if record.status == DONE else record.text)


def _end_state(status: int, reason: str) -> RecordedState:
    return RecordedState("COMPLETED" if status == DONE else "FAILED", reason, f"{status}:0")


def _end_of_ranks(run: RunDir, own: History, job_id: str) -> JobOutcome | None:
    """Return how the last attempt ended, for a job without events of a supervisor."""
    if own.last("attempt_start") or own.last("requeue"):
        return None
    record = _last_record(run, job_id)
    return JobOutcome(record.status, record.text, is_final=record.status in _FINAL) if record else None


def _last_record(run: RunDir, job_id: str) -> ExitRecord | None:
    attempts = run.attempts(job_id)
    return read_decisive_record(run.attempt(job_id, attempts[-1])) if attempts else None


def last_seen(run: RunDir, history: History, job_id: str) -> float | None:
    """Return the time of a job's last event or last line of its log, in seconds since 1970."""
    times = [event.time for event in history.of_job(job_id).events[-1:]]
    with suppress(OSError):
        times.append(run.batch_log(job_id).stat().st_mtime)
    return max(times, default=None)


def last_start(history: History, job_id: str) -> float | None:
    """Return when a job's last start by Slurm began, in seconds since 1970; None when that is not among the events."""
    starts = [one for one in history.of_job(job_id).attempts if one.last("attempt_start")]
    last = starts[-1].name.partition(".")[0] if starts else ""
    return next((one.began for one in starts if one.name == f"{last}.0"), None)


def _cancellation(last: Event | None) -> str:
    """Return how a job was cancelled; empty when something other than the ranks' end is on record after that."""
    if last and last.kind == "cancel":
        return f"cancelled by `slurmddp cancel` ({last.text('by')})"
    return "cancelled" if last and last.kind == "notice" and last.text("reason") == "cancelled" else ""


def _requeues(attempts: Sequence[Attempt]) -> Iterator[Happened]:
    """Yield the requeues: those of the supervisor, and those by Slurm, which only a later start shows."""
    for index, attempt in enumerate(attempts):
        after = attempts[index + 1] if index + 1 < len(attempts) else None
        said, notice = attempt.last("requeue"), attempt.last("notice")
        if said:
            yield said.time, said.text("reason")
        elif after and after.name.partition(".")[0] != attempt.name.partition(".")[0]:
            yield after.began, notice.text("reason") if notice else UNRECORDED


def metric(event: Event | None, name: str) -> float | None:
    """Return a number that the program logged; None without one."""
    values = event.fields.get("values") if event else None
    return number(values.get(name)) if isinstance(values, dict) else None
