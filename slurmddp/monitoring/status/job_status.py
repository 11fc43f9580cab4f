"""The status of a job as values, and its progress, which is read from the run's files. No processes."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

from slurmddp.outcome import Kind, Outcome, Phase
from slurmddp.runs.checkpoints import find_newest_saved
from slurmddp.runs.facts import Job
from slurmddp.runs.files import open_or_empty
from slurmddp.runs.history import Event, describe_event
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobInfo, JobRef, Source
from slurmddp.text import mask_secrets

_PACE: Final = 20
"""The pace is computed from so many records."""
_LONGEST_S: Final = 1e10
"""Three centuries: a training with so many steps has no end."""

Happened = tuple[float, str]
"""When, in seconds since 1970, and why."""


class Progress(NamedTuple):
    """How far a job's training is, by the run's own records; None for what is not on record."""

    attempt: str = ""
    """The newest start of its ranks, `<SLURM_RESTART_COUNT>.<n>`; empty before the first."""
    step: int | None = None
    total: int | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    left_s: float | None = None
    """Until the last step at the pace of this attempt; only while it runs."""
    checkpoint_step: int | None = None
    """Of the run's newest checkpoint, whichever job made it; None for a checkpoint that the program wrote by itself."""
    checkpoint_path: str = ""
    """The newest checkpoint that the program wrote by itself, where it counts before slurmddp's own."""
    checkpoint_age_s: float | None = None
    stall: Happened | None = None
    """Since when its ranks have made no progress, and which stands out; only while it runs."""
    use: str = ""
    """What the ranks of the newest attempt use, in words; empty when it is not known."""
    restarts: tuple[Happened, ...] = ()
    """Starts of the ranks in the same allocation, the oldest first."""
    requeues: tuple[Happened, ...] = ()
    """Returns to the queue, the oldest first."""
    damage: tuple[str, ...] = ()
    """Records that were left out, as in `events.jsonl: line 812 is cut off`. Empty if many jobs were asked for."""


class JobStatus(NamedTuple):
    """The status of one job, or of one task of an array."""

    job_id: str
    """`17`, `17_3` for a task of an array, `17_[4-9]` for those that wait together."""
    run: RunDir | None
    name: str
    outcome: Outcome
    reason: str = ""
    """Slurm's word for why it waits, or why it ended."""
    meaning: str = ""
    """The reason in plain words, and what can be done."""
    expected_start: datetime | None = None
    submitted: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    elapsed_s: int | None = None
    """Since Slurm started it last."""
    total_s: int | None = None
    """How long its run has had nodes by then, in all jobs and attempts; None when not all of it is on record."""
    node_hours: float | None = None
    """The same, times the nodes."""
    gpu_hours: float | None = None
    """The same, times the GPUs of a node; None for a job without GPUs."""
    limit_s: int | None = None
    """None without a limit, or when it is not known."""
    nodes: tuple[str, ...] = ()
    partition: str = ""
    restarts: int | None = None
    """How often Slurm has put it back into the queue; None when it is not known."""
    source: Source = "files"
    age_s: float = 0.0
    """Age of the status: 0 when Slurm has just given it, else the time since the last record."""
    silence: str = ""
    """Why Slurm did not answer; empty when it did, also when it does not know the job."""
    progress: Progress | None = None
    slurm: JobInfo | None = None
    """Slurm's own answer; None without one."""

    @property
    def ref(self) -> JobRef:
        """The parts of its id."""
        return JobRef.parse(self.job_id)

    @property
    def state(self) -> str:
        """The word for it: Slurm's own, but for an end of which the job knows more."""
        return self.outcome.word

    @property
    def phase(self) -> Phase:
        """Where in its life the job is."""
        return self.outcome.meaning.phase

    @property
    def hang(self) -> Happened | None:
        """Since when its ranks hang, and which stands out; None if they do not."""
        return self.progress.stall if self.progress else None


def read_spec(run: RunDir) -> dict[str, Any]:
    """Return the job as it was last submitted; empty if spec.toml cannot be read."""
    import tomllib  # noqa: PLC0415 only a job that has been running has this read

    with suppress(ValueError, RecursionError), open_or_empty((run.sweep or run).spec) as file:
        return tomllib.load(file)
    return {}


def count_gpus(run: RunDir) -> int:
    """Return the GPUs of a node, by the job as it was last submitted."""
    number = str(read_spec(run).get("gpus-per-node", "")).rpartition(":")[2]
    return int(number) if re.fullmatch("[0-9]{1,3}", number) else 0


def read_progress(run: RunDir, job: Job, *, now: float) -> Progress:
    """Return how far a job is."""
    own, attempt = job.history, job.attempts[-1] if job.attempts else None
    last, saved = own.last("metrics"), own.last("checkpoint")
    values = last.values if last else {}
    newest = find_newest_saved(run, own.checkpoint_glob)
    runs = job.outcome.kind is Kind.RUNNING
    hang = attempt.events.hang if attempt and runs else None
    return Progress(
        attempt=attempt.name if attempt else "",
        step=max((event.count("step") for event in (last, saved) if event), default=None),
        total=(last.count("total") or None) if last else None,
        loss=values.get("loss"),
        samples_per_s=values.get("samples_per_s"),
        left_s=left_s(attempt.events.all("metrics"), now) if attempt and runs else None,
        checkpoint_step=newest.step if newest else None,
        checkpoint_path=newest.path if newest and newest.step is None else "",
        checkpoint_age_s=max(0.0, now - newest.saved_at) if newest else None,
        stall=(hang.time - (hang.number("stalled_s") or 0), mask_secrets(hang.text("reason"))) if hang else None,
        use=describe_event(used) if attempt and (used := attempt.events.last("usage")) else "",
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


def last_seen(run: RunDir, job: Job) -> float | None:
    """Return the time of a job's last event or last line of its log, in seconds since 1970."""
    times = [event.time for event in job.history.events[-1:]]
    with suppress(OSError):
        times.append(run.batch_log(job.job_id).stat().st_mtime)
    return max(times, default=None)
