"""The records of `events.jsonl`: the one writer, and the events of the supervisor. Standard library only.

Rank 0 writes what happens in the training (`training_events`), the supervisor what it decides, and `slurmddp cancel`
who cancelled the job.
"""

import contextlib
import math
import time
from typing import Any, NamedTuple, Protocol

from slurmddp.runs.layout import RunDir, append_record


class AttemptStart(NamedTuple):
    """The supervisor starts the ranks."""

    nodes: str
    """As a host list."""
    log_offset: int
    """Size of the batch log then, in bytes: what is said of this attempt begins there."""
    allocated: float | None
    """When Slurm gave the job these nodes, in seconds since 1970, by the controller's clock; null when unknown."""
    event: str = "attempt_start"


class AttemptEnd(NamedTuple):
    """The ranks have ended."""

    status: int
    """Of `slurmddp.exit_codes`; another number where no rank left a record."""
    reason: str
    event: str = "attempt_end"


class Restart(NamedTuple):
    """The supervisor starts the ranks again in the same allocation."""

    status: int
    reason: str
    event: str = "restart"


class Requeue(NamedTuple):
    """The supervisor puts the job back into the queue."""

    reason: str
    excluded: tuple[str, ...]
    """Nodes that the job is to have no more."""
    event: str = "requeue"


class Fenced(NamedTuple):
    """The supervisor starts nothing, because the run or the job is another attempt's by now."""

    reason: str
    event: str = "fenced"


class JobEnd(NamedTuple):
    """The job ends by itself, and does not come back."""

    status: int
    """Of the batch script."""
    reason: str
    event: str = "job_end"


class Cancel(NamedTuple):
    """A person cancelled a job that had started, by `slurmddp cancel`, on `host`."""

    by: str
    event: str = "cancel"


OfBatch = AttemptStart | AttemptEnd | Restart | Requeue | Fenced | JobEnd


class Event(Protocol):
    """A named tuple whose fields are the record's own."""

    @property
    def event(self) -> str: ...  # noqa: D102 - what happened
    def _asdict(self) -> dict[str, Any]: ...


class Author(NamedTuple):
    """Which process of which attempt writes."""

    job: str
    attempt: str
    host: str
    rank: int | None = None
    """None for the supervisor and the command line."""


def record(author: Author, event: Event) -> dict[str, Any]:
    """Return an event as its line of JSON has it.

    Every record starts with `time` (seconds since 1970), `event`, `job`, `attempt`, `rank` and `host`; a number
    that JSON cannot write is the text `nan`, `inf` or `-inf`.
    """
    head = {"time": time.time(), "event": event.event, "job": author.job, "attempt": author.attempt}
    fields = {name: _finite(value) for name, value in event._asdict().items()}
    return {**head, "rank": author.rank, "host": author.host, **fields}


def append(run: RunDir, author: Author, event: Event) -> None:
    """Append an event to the run's file. When the disk is full, the event is lost."""
    with contextlib.suppress(OSError):
        append_record(run.events, record(author, event))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
