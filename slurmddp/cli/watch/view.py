"""What the screen of `slurmddp watch` shows, as a value. No files, no processes, no terminal."""

from dataclasses import dataclass
from typing import Literal

from slurmddp.cli.watch.braille import Point
from slurmddp.monitoring.status import JobStatus
from slurmddp.runs.history import Event

Page = Literal["jobs", "output", "help"]


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU of this machine, as nvidia-ml sees it."""

    index: int
    busy: float
    """Of 1, while a kernel ran."""
    memory: float
    """Of 1."""
    watts: float | None = None
    celsius: int | None = None


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything that one frame shows."""

    now: float
    """Seconds since 1970."""
    jobs: tuple[JobStatus, ...] = ()
    chosen: int = 0
    """The job that the lower part is about."""
    asked: float | None = None
    """When Slurm's last answer came, in seconds since 1970; None before the first."""
    asking: bool = False
    """Whether it is being asked."""
    loss: tuple[Point, ...] = ()
    rate: tuple[Point, ...] = ()
    """Samples a second."""
    events: tuple[Event, ...] = ()
    output: tuple[str, ...] = ()
    """The last lines, which can do nothing to a terminal."""
    gpus: tuple[Gpu, ...] = ()
    page: Page = "jobs"
    rank: int = 0
    """Whose output is shown."""
    back: int = 0
    """So many lines before the last one the output ends."""
    question: str = ""
    """What waits for a yes or no."""
    message: str = ""
    """What the last wish has led to."""

    @property
    def job(self) -> JobStatus | None:
        """The chosen job."""
        return self.jobs[self.chosen] if self.chosen < len(self.jobs) else None
