"""All that the page of a run tells, from its folder and from Slurm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slurmddp import history
from slurmddp.history import Event
from slurmddp.masking import masked
from slurmddp.report import records
from slurmddp.report.figures import Figures, figures
from slurmddp.report.records import Submission
from slurmddp.report.timeline import Known, Timeline, build
from slurmddp.rundir import RunDir


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value of the job, with no secret in it, and where it came from."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """A run, as it was found."""

    run: RunDir
    written: float
    """When, in seconds since 1970."""
    submissions: tuple[Submission, ...]
    command: str
    """What each rank ran, with no secret in it."""
    settings: tuple[Setting, ...]
    events: tuple[Event, ...]
    timeline: Timeline
    figures: Figures
