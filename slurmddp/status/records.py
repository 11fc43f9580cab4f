"""How far a run is and how a job of it ended, by the run's own files. Asks nobody."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurmddp.history import Attempt, Event, History, number
from slurmddp.outcome import DONE, FAILED, FENCED
from slurmddp.rundir import RunDir
from slurmddp.status.values import Happened, Progress

UNRECORDED: Final = "put back by Slurm; why is not on record (a preemption without notice, a lost node)"

_PACE: Final = 20
"""The pace is that of so many records."""
_LONGEST_S: Final = 1e10
"""Three centuries: a number of steps that means for ever."""
_TAIL_BYTES: Final = 8192
_LAST_WORD: Final = re.compile(
    r" slurmddp: (?:job \S+, attempt \S+, ended with status (?P<status>\d{1,9}): (?P<why>.*)"
    r"|(?P<over>gives up: .*|set-up failed .*|.*: its state is saved; submit .*|.*, starts nothing: .*)"
    r"|(?P<other>.*))"
)


@dataclass(frozen=True)
class Ending:
    """How a job ended, or where it was last seen, by its own words."""

    state: str
    """Slurm's word for it; `UNKNOWN` when there is no word."""
    reason: str = ""
    exit_status: str = ""
    seen: float | None = None
    """When that was, in seconds since 1970."""


@dataclass(frozen=True)
class _Word:
    status: int | None
    why: str
    final: bool
    """Whether the job cannot go on after it."""


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
    """Return how a job ended by its script's last words and its events.

    `gone`: Slurm no longer knows it, so that it has ended; else it may go on after a word that is not the last.
    """
    own = history.of_job(job_id)
    events = own.events
    seen = last_seen(run, history, job_id)
    said = _last_words(run.batch_log(job_id))
    if said and (said.final or gone):
        status = "" if said.status is None else f"{said.status}:0"
        return Ending("COMPLETED" if said.status == DONE else "FAILED", said.why, status, seen)
    if why := _cancelled(own.decision()):
        return Ending("CANCELLED", why, "", seen)
    if events and not gone:
        return Ending("PENDING" if events[-1].kind == "requeue" else "RUNNING", "", "", seen)
    return Ending("UNKNOWN", "", "", seen)


def last_seen(run: RunDir, history: History, job_id: str) -> float | None:
    """Return when a job gave its last sign, an event or a word of its script, in seconds since 1970."""
    times = [event.time for event in history.of_job(job_id).events[-1:]]
    with suppress(OSError):
        times.append(run.batch_log(job_id).stat().st_mtime)
    return max(times, default=None)


def _last_words(log: Path) -> _Word | None:
    """Return the end that a job's script has told of; None when its last word is of something else."""
    said = [match for match in _LAST_WORD.finditer(_tail(log)) if any(match.groups())][-2:]
    if not said or said[-1]["other"]:
        return None
    status = next((int(match["status"]) for match in reversed(said) if match["status"]), None)
    final = bool(said[-1]["over"]) or status in (DONE, FAILED, FENCED)
    return _Word(status, said[-1]["over"] or said[-1]["why"], final=final)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _cancelled(last: Event | None) -> str:
    """Return how a job was cancelled, if that is the last on record and nothing but the ranks' end came after it."""
    if last and last.kind == "cancel":
        return f"cancelled by `slurmddp cancel` ({last.text('by')})"
    return "cancelled" if last and last.kind == "notice" and last.text("reason") == "cancelled" else ""


def _requeues(attempts: Sequence[Attempt]) -> Iterator[Happened]:
    """Yield the returns to the queue: those of the batch script, and those that only a later start tells of."""
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
