"""The records of `events.jsonl`: the one writer, and the events of the supervisor. Standard library only.

Rank 0 writes what happens in the training (`training_events`), the supervisor what it decides, and `slurmddp cancel`
who cancelled the job.
"""

import contextlib
import dataclasses
import math
import time
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from slurmddp.rundir import RunDir, append_record


@dataclass(frozen=True, kw_only=True)
class AttemptStart:
    """The supervisor starts the ranks."""

    event: ClassVar = "attempt_start"
    nodes: str
    """As a host list."""
    log_offset: int
    """Size of the batch log then, in bytes: what is said of this attempt begins there."""
    allocated: float | None
    """When Slurm gave the job these nodes, in seconds since 1970, by the controller's clock; null when unknown."""


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """The ranks have ended."""

    event: ClassVar = "attempt_end"
    status: int
    """Of `slurmddp.outcome`; another number where no rank left a record."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Restart:
    """The supervisor starts the ranks again in the same allocation."""

    event: ClassVar = "restart"
    status: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Requeue:
    """The supervisor puts the job back into the queue."""

    event: ClassVar = "requeue"
    reason: str
    excluded: tuple[str, ...]
    """Nodes that the job is to have no more."""


@dataclass(frozen=True, kw_only=True)
class Fenced:
    """The supervisor starts nothing, because the run or the job is another attempt's by now."""

    event: ClassVar = "fenced"
    reason: str


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """The job ends by itself, and does not come back."""

    event: ClassVar = "job_end"
    status: int
    """Of the batch script."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """A person cancelled a job that had started, by `slurmddp cancel`, on `host`."""

    event: ClassVar = "cancel"
    by: str


OfBatch = AttemptStart | AttemptEnd | Restart | Requeue | Fenced | JobEnd


class Event(Protocol):
    """A dataclass whose fields are the record's own."""

    event: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Author:
    """Which process of which attempt writes."""

    job: str
    attempt: str
    rank: int | None = None
    """None for the supervisor and the command line."""
    host: str


def record(author: Author, event: Event) -> dict[str, Any]:
    """Return an event as its line of JSON has it.

    Every record starts with `time` (seconds since 1970), `event`, `job`, `attempt`, `rank` and `host`; a number
    that JSON cannot write is the text `nan`, `inf` or `-inf`.
    """
    head = {"time": time.time(), "event": event.event, "job": author.job, "attempt": author.attempt}
    fields = {name: _finite(value) for name, value in dataclasses.asdict(event).items()}
    return {**head, "rank": author.rank, "host": author.host, **fields}


def append(run: RunDir, author: Author, event: Event) -> None:
    """Append an event to the run's file. When the disk is full, the event is lost."""
    with contextlib.suppress(OSError):
        append_record(run.events, record(author, event))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
