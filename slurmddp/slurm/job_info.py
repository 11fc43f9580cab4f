"""A job as one of Slurm's programs shows it, as a value. No processes, no files."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from slurmddp.slurm.states import OVER, PHASES, Phase

Source = Literal["squeue", "sacct", "scontrol", "files"]
"""Who tells of a job; `files` are the run's own."""


@dataclass(frozen=True)
class JobId:
    """A job as sbatch names it; the cluster only where several share a database."""

    number: str
    cluster: str = ""


@dataclass(frozen=True)
class Job:
    """A job as the controller, or the accounting, knows it."""

    job_id: str
    state: str
    submitted: datetime | None = None
    reason: str = ""

    @property
    def phase(self) -> Phase:
        """Where in its life the job is."""
        return PHASES.get(self.state, "unknown")

    @property
    def ended(self) -> bool:
        """Whether it will not run again by itself."""
        return self.phase in OVER


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A job as the controller holds it: what it was accepted with, and where it stands."""

    job_id: str
    """`17`, or `17_3` for a task of an array."""
    name: str
    state: str
    reason: str
    requeue: bool
    """Whether Slurm lets it be requeued."""
    restarts: int
    partition: str
    time_limit: str
    """As Slurm writes it: `D-HH:MM:SS` or `UNLIMITED`."""
    nodes: int
    """The least number of nodes it can have."""
    excluded: str = ""
    """The nodes it must not have, as a host list."""
    eligible: datetime | None = None
    """Since when, or from when on, it may start, by the controller's clock."""
    output: str = ""
    """The path of its output."""
    errors: str = ""
    """The path of its standard error."""
    user: str = ""
    submitted: datetime | None = None
    started: datetime | None = None
    """When it is expected to, for one that waits."""
    ended: datetime | None = None
    elapsed: str = ""
    """How long it has run, as Slurm writes it."""
    node_list: str = ""
    exit_status: str = ""
    """Status and signal: `77:0`."""

    @property
    def phase(self) -> Phase:
        """Where in its life the job is."""
        return PHASES.get(self.state, "unknown")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A job as one of Slurm's programs shows it; empty or None for what it does not show."""

    job_id: str
    state: str
    source: Source
    name: str = ""
    user: str = ""
    submitted: datetime | None = None
    started: datetime | None = None
    """When it is expected to, for one that waits."""
    ended: datetime | None = None
    elapsed_s: int | None = None
    limit_s: int | None = None
    nodes: str = ""
    """As a host list: `n[1-4]`."""
    partition: str = ""
    reason: str = ""
    exit_status: str = ""
    restarts: int | None = None
    output: str = ""
    """Where its output goes: scontrol alone tells."""
    errors: str = ""
    """Where its standard error goes: scontrol alone tells."""
    max_rss: str = ""
    """The most memory that a task of it had, as `3904M`: sacct alone tells, where it was asked for the steps."""
    last_step: str = ""
    """The state of the step that was started last: sacct alone tells, where it was asked for the steps."""
    by: str = ""
    """Who cancelled it, by number: sacct alone tells."""

    @property
    def number(self) -> str:
        """The number of the job, or of the array that it is of."""
        return number(self.job_id)


@dataclass(frozen=True)
class Heard:
    """What a program said."""

    rows: tuple[Row, ...] = ()
    silence: str = ""
    """Why it said nothing; empty when it did."""


def number(job_id: str) -> str:
    """Return the number of a job, or of the array that a task is of."""
    return job_id.partition("_")[0].partition("+")[0]
