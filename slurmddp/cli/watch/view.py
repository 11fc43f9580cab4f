"""The contents of the screen of `slurmddp watch`. Values only."""

from dataclasses import dataclass
from typing import Literal

from slurmddp.cli.watch.braille import Point
from slurmddp.monitoring.status import JobStatus
from slurmddp.runs.history import Event

Page = Literal["jobs", "output", "help"]


@dataclass(frozen=True, kw_only=True)
class View:
    """The contents of one frame."""

    now: float
    """Seconds since 1970."""
    jobs: tuple[JobStatus, ...] = ()
    chosen: int = 0
    """Index of the job that the lower part of the screen shows."""
    asked: float | None = None
    """Time of Slurm's last answer, in seconds since 1970; None before the first."""
    asking: bool = False
    """Whether an answer of Slurm is awaited."""
    loss: tuple[Point, ...] = ()
    rate: tuple[Point, ...] = ()
    """Samples a second."""
    events: tuple[Event, ...] = ()
    output: tuple[str, ...] = ()
    """The last lines of output, without control characters."""
    page: Page = "jobs"
    rank: int = 0
    """The rank whose output is shown."""
    back: int = 0
    """Number of lines by which the output is scrolled back."""
    question: str = ""
    """The request that waits for confirmation."""
    message: str = ""
    """The result of the last request."""

    @property
    def job(self) -> JobStatus | None:
        """The chosen job."""
        return self.jobs[self.chosen] if self.chosen < len(self.jobs) else None
