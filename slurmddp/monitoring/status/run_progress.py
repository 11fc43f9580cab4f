"""How far a run is and how a job of it ended, by the run's own files. Asks nobody."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurmddp.exit_codes import DONE, FAILED, FENCED, STOPPED
from slurmddp.monitoring.status.job_status import Happened, Progress
from slurmddp.runs.exit_records import ExitRecord, decisive, read_records
from slurmddp.runs.history import Attempt, Event, History, number
from slurmddp.runs.layout import RunDir
from slurmddp.runs.supervision import JobEnd, job_end

UNRECORDED: Final = "put back by Slurm; why is not on record (a preemption without notice, a lost node)"

_PACE: Final = 20
"""The pace is that of so many records."""
_LONGEST_S: Final = 1e10
"""Three centuries: a number of steps that means for ever."""
_FINAL: Final = (DONE, FAILED, FENCED)
"""After an attempt that ended so, the job does not go on."""


@dataclass(frozen=True)
class Ending:
    """How a job ended, or where it was last seen, by its own files."""

    state: str
    """Slurm's word for it; `UNKNOWN` when its files do not tell."""
    reason: str = ""
    exit_status: str = ""
    seen: float | None = None
    """When that was, in seconds since 1970."""


def progress(run: RunDir, history: History, job_id: str, *, running: bool, now: float) -> Progress:
    """Return how far a job is; `history` holds the run's events, or its newest."""
    own = history.of_job(job_id)
    attempt = own.attempts[-1] if own.attempts else None
    last, saved = own.last("metrics"), own.last("checkpoint")
    steps = [event.count("step") for event in (last, saved) if event]
    step, age_s = newest_checkpoint(run.checkpoints, now)
    return Progress(
        attempt=attempt.name if attempt else "",
        step=max(steps, default=None),
        total=(last.count("total") or None) if last else None,
        loss=_value(last, "loss"),
        samples_per_s=_value(last, "samples_per_s"),
        left_s=left_s(attempt.all("metrics"), now) if attempt and running else None,
        checkpoint_step=step,
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


def newest_checkpoint(folder: Path, now: float) -> tuple[int | None, float | None]:
    """Return the step of the newest whole checkpoint and its age in seconds."""
    with suppress(OSError):
        for path in sorted(folder.iterdir(), reverse=True):
            step = re.fullmatch(r"step-(\d{9})", path.name, re.ASCII)
            manifest = path / "manifest.json"
            if step and manifest.is_file():
                return int(step[1]), max(0.0, now - manifest.stat().st_mtime)
    return None, None


def ending(run: RunDir, history: History, job_id: str, *, gone: bool) -> Ending:
    """Return how a job ended by its supervisor's events; without any, by its set-up and the ranks of its last attempt.

    `gone`: Slurm no longer knows it, so that it has ended; else it may go on after an attempt.
    """
    own = history.of_job(job_id)
    seen = last_seen(run, history, job_id)
    cancelled = _cancelled(own.decision())
    end = job_end(run, job_id, own.events) or (_end_of_ranks(run, own, job_id) if not cancelled else None)
    if end and (end.is_final or (gone and not cancelled)):
        return _ended(end.status, end.reason, seen)
    if cancelled:
        return Ending("CANCELLED", cancelled, "", seen)
    if own.events and not gone:
        return Ending("PENDING" if own.events[-1].kind == "requeue" else "RUNNING", "", "", seen)
    return Ending("UNKNOWN", "", "", seen)


def local_ending(run: RunDir, job_id: str, seen: float | None) -> Ending:
    """Return how a run on this machine, without Slurm, ended by the records of its ranks; or that it goes on."""
    if run.runs_here(job_id):
        return Ending("RUNNING", "", "", seen)
    record = _last_record(run, job_id)
    if record is None:
        return Ending("UNKNOWN", "it does not run on this machine, and no rank left a record of its end", "", seen)
    if record.status == STOPPED:
        return Ending("CANCELLED", record.text, f"{STOPPED}:0", seen)
    return _ended(record.status, "" if record.status == DONE else record.text, seen)


def _ended(status: int, reason: str, seen: float | None) -> Ending:
    return Ending("COMPLETED" if status == DONE else "FAILED", reason, f"{status}:0", seen)


def _end_of_ranks(run: RunDir, own: History, job_id: str) -> JobEnd | None:
    """Return how the ranks of the last attempt ended, of a job without events of a supervisor."""
    if own.last("attempt_start") or own.last("requeue"):
        return None
    record = _last_record(run, job_id)
    return JobEnd(record.status, record.text, is_final=record.status in _FINAL) if record else None


def _last_record(run: RunDir, job_id: str) -> ExitRecord | None:
    attempts = run.attempts(job_id)
    return decisive(read_records(run.attempt(job_id, attempts[-1]))) if attempts else None


def last_seen(run: RunDir, history: History, job_id: str) -> float | None:
    """Return when a job gave its last sign, an event or a line of its log, in seconds since 1970."""
    times = [event.time for event in history.of_job(job_id).events[-1:]]
    with suppress(OSError):
        times.append(run.batch_log(job_id).stat().st_mtime)
    return max(times, default=None)


def _cancelled(last: Event | None) -> str:
    """Return how a job was cancelled, if that is the last on record and nothing but the ranks' end came after it."""
    if last and last.kind == "cancel":
        return f"cancelled by `slurmddp cancel` ({last.text('by')})"
    return "cancelled" if last and last.kind == "notice" and last.text("reason") == "cancelled" else ""


def _requeues(attempts: Sequence[Attempt]) -> Iterator[Happened]:
    """Yield the returns to the queue: those of the supervisor, and those that only a later start tells of."""
    for index, attempt in enumerate(attempts):
        after = attempts[index + 1] if index + 1 < len(attempts) else None
        said, notice = attempt.last("requeue"), attempt.last("notice")
        if said:
            yield said.time, said.text("reason")
        elif after and after.name.partition(".")[0] != attempt.name.partition(".")[0]:
            yield after.began, notice.text("reason") if notice else UNRECORDED


def _value(event: Event | None, name: str) -> float | None:
    values = event.fields.get("values") if event else None
    return number(values.get(name)) if isinstance(values, dict) else None
