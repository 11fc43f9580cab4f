"""A job as Slurm sees it, whichever of its programs was asked. Values; no processes, no files."""

from datetime import datetime
from typing import Literal, NamedTuple

from slurmddp.slurm.states import OVER, Phase, phase_of

Source = Literal["squeue", "sacct", "scontrol", "files"]
"""Which program showed the job; `files` are the run's own."""


class JobId(NamedTuple):
    """A job as sbatch names it; the cluster only where several share a database."""

    number: str
    cluster: str = ""


class JobInfo(NamedTuple):
    """A job as one of Slurm's programs shows it; empty or None for what that program does not show."""

    job_id: str
    """`17`, `17_3` for a task of an array, `17_[4-9]` for tasks that wait together."""
    state: str
    """Slurm's word; `UNKNOWN` where none was given."""
    source: Source
    name: str = ""
    user: str = ""
    submitted: datetime | None = None
    started: datetime | None = None
    """For a job that waits, when it is expected to start."""
    ended: datetime | None = None
    """For a job that runs, when its time limit ends."""
    eligible: datetime | None = None
    """The earliest time it may start, by the controller's clock."""
    elapsed_s: int | None = None
    limit_s: int | None = None
    """The time limit; None for none, 0 for one that Slurm prints as INVALID."""
    nodes: str = ""
    """As a host list: `n[1-4]`."""
    node_count: int | None = None
    """The least number of nodes that it can have."""
    partition: str = ""
    reason: str = ""
    exit_status: str = ""
    """Status and signal of the batch script: `77:0`."""
    restarts: int | None = None
    requeue: bool | None = None
    """Whether Slurm may requeue it."""
    batch_host: str = ""
    preempted: bool = False
    """Whether PreemptTime is set."""
    excluded_nodes: str = ""
    """As a host list."""
    required_nodes: str = ""
    """The nodes it must have (ReqNodeList), as a host list."""
    output: str = ""
    """The path of its standard output."""
    errors: str = ""
    """The path of its standard error."""
    max_rss: str = ""
    """The most memory that one of its tasks used, as `3904M`; from sacct, with steps."""
    last_step: str = ""
    """The state of the step that was started last; from sacct, with steps."""
    cancelled_by: str = ""
    """The number of the user who cancelled it; from sacct."""

    @property
    def phase(self) -> Phase:
        """Where in its life the job is."""
        return phase_of(self.state)

    @property
    def has_ended(self) -> bool:
        """Whether it will not run again by itself."""
        return self.phase in OVER

    @property
    def number(self) -> str:
        """The number of the job, or of the array that it is of."""
        return number(self.job_id)


class Listing(NamedTuple):
    """The jobs that a program listed."""

    jobs: tuple[JobInfo, ...] = ()
    silence: str = ""
    """Why it listed none; empty when it answered."""


def number(job_id: str) -> str:
    """Return the number of a job, or of the array that a task is of."""
    return job_id.partition("_")[0].partition("+")[0]
