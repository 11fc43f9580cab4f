"""The status of a job, as values. No files, no processes."""

import math
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from slurmddp.outcome import Outcome, Phase
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobInfo, JobRef, Source

Happened = tuple[float, str]
"""When, in seconds since 1970, and why."""


@dataclass(frozen=True, kw_only=True)
class Progress:
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
    """The newest checkpoint that the program wrote by itself (`--checkpoints`)."""
    checkpoint_age_s: float | None = None
    restarts: tuple[Happened, ...] = ()
    """Starts of the ranks in the same allocation, the oldest first."""
    requeues: tuple[Happened, ...] = ()
    """Returns to the queue, the oldest first."""
    trackers: tuple[str, ...] = ()
    """Where experiment trackers show the run: `wandb: https://...`. Empty if many jobs were asked for."""
    damage: tuple[str, ...] = ()
    """Records that were left out, as in `events.jsonl: line 812 is cut off`. Empty if many jobs were asked for."""


@dataclass(frozen=True, kw_only=True)
class JobStatus:
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

    @cached_property
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
        return self.outcome.kind.phase

    @property
    def exit_status(self) -> str:
        """Status and signal as Slurm has them, `77:0`; empty before the end."""
        return self.outcome.exit_status


def json_value(value: Any) -> Any:
    """Return a value for JSON: times in ISO 8601; `nan` and `inf`, which JSON cannot write, as texts."""
    if isinstance(value, dict):
        return {name: json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
