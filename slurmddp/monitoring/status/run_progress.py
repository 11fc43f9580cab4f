"""Reads how far a job is from what happened in its run. Slurm is not asked."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from slurmddp.monitoring.status.job_status import Progress
from slurmddp.outcome import Kind
from slurmddp.runs.checkpoints import newest_checkpoint, newest_program_checkpoint
from slurmddp.runs.facts import Job
from slurmddp.runs.history import Event, number
from slurmddp.runs.layout import MANIFEST, RunDir

_PACE: Final = 20
"""The pace is computed from so many records."""
_LONGEST_S: Final = 1e10
"""Three centuries: a training with so many steps has no end."""


def read_progress(run: RunDir, job: Job, *, now: float) -> Progress:
    """Return how far a job is."""
    own, attempt = job.history, job.attempts[-1] if job.attempts else None
    last, saved = own.last("metrics"), own.last("checkpoint")
    steps = [event.count("step") for event in (last, saved) if event]
    started = own.last("attempt_start")
    pattern = started.text("checkpoints") if started else ""
    program_checkpoint = newest_program_checkpoint(pattern) if pattern else None
    step, age_s = _newest_step(run, now)
    if program_checkpoint:
        step, age_s = None, max(0.0, now - program_checkpoint.saved_at)
    runs = job.outcome.kind is Kind.RUNNING
    return Progress(
        attempt=attempt.name if attempt else "",
        step=max(steps, default=None),
        total=(last.count("total") or None) if last else None,
        loss=metric(last, "loss"),
        samples_per_s=metric(last, "samples_per_s"),
        left_s=left_s(attempt.events.all("metrics"), now) if attempt and runs else None,
        checkpoint_step=step,
        checkpoint_path=program_checkpoint.path if program_checkpoint else "",
        checkpoint_age_s=age_s,
        restarts=job.restarts,
        requeues=job.requeues,
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


def _newest_step(run: RunDir, now: float) -> tuple[int | None, float | None]:
    """Return the step of the run's newest checkpoint and its age in seconds; None for both without one."""
    with suppress(OSError):
        if newest := newest_checkpoint(run):
            return int(newest.name.partition("-")[2]), max(0.0, now - (newest / MANIFEST).stat().st_mtime)
    return None, None


def last_seen(run: RunDir, job: Job) -> float | None:
    """Return the time of a job's last event or last line of its log, in seconds since 1970."""
    times = [event.time for event in job.history.events[-1:]]
    with suppress(OSError):
        times.append(run.batch_log(job.job_id).stat().st_mtime)
    return max(times, default=None)


def last_start(job: Job) -> float | None:
    """Return when a job's last start by Slurm began, in seconds since 1970; None when that is not among the events."""
    starts = [one for one in job.attempts if one.events.last("attempt_start")]
    last = starts[-1].name.partition(".")[0] if starts else ""
    return next((one.events.began for one in starts if one.name == f"{last}.0"), None)


def metric(event: Event | None, name: str) -> float | None:
    """Return a number that the program logged; None without one."""
    values = event.fields.get("values") if event else None
    return number(values.get(name)) if isinstance(values, dict) else None
