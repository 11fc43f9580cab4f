"""Writes the records of `events.jsonl`, and defines the events of the supervisor. Standard library only.

Rank 0 writes the events of the training (`training_events`), the supervisor its decisions, and `slurmddp cancel` who
cancelled the job.
"""

from __future__ import annotations
import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from slurmddp.runs.files import append_record, json_value
from slurmddp.runs.layout import RunDir

if TYPE_CHECKING:
    from slurmddp.runs.training_events import RankEvent


class AttemptStart(NamedTuple):
    """The supervisor starts the ranks."""

    nodes: str
    """As a host list."""
    log_offset: int
    """Size of the batch log at the start, in bytes: the lines of this attempt begin there."""
    allocated: float | None
    """When Slurm allocated the nodes, in seconds since 1970 by the controller's clock; null when unknown."""
    queued: float | None = None
    """When Slurm put the job into the queue before, by the same clock: at its submission, or its requeue."""
    checkpoints: str = ""
    """The glob of the checkpoints that the program writes by its own means (`--checkpoints`); empty without."""
    memory_mb: int | None = None
    """The memory of the job on each node; null without a limit, or where Slurm does not say."""
    job_name: str = ""
    """The job's name in Slurm."""
    errors_offset: int = 0
    """Size of the file of `#SBATCH --error` at the start, in bytes."""
    event: str = "attempt_start"


class AttemptEnd(NamedTuple):
    """The ranks have ended."""

    status: int
    """Of `slurmddp.exit_codes`; another number where no rank left a record."""
    reason: str
    event: str = "attempt_end"


class AttemptRestart(NamedTuple):
    """The supervisor starts the ranks again in the same allocation."""

    status: int
    reason: str
    event: str = "restart"


class JobRequeue(NamedTuple):
    """The supervisor puts the job back into the queue."""

    reason: str
    excluded: tuple[str, ...] = ()
    """Nodes that the requeued job must not get."""
    event: str = "requeue"


class Hang(NamedTuple):
    """The ranks make no progress: none works, and some wait for others that do not come."""

    reason: str
    """Which rank stands out, where it is, and what the others wait for."""
    stalled_s: float
    """Seconds since a rank last made progress or worked."""
    hung_ranks: tuple[int, ...]
    """Those that stand out; empty when that is not clear."""
    hung_hosts: tuple[str, ...]
    place: str
    """Where the first of them is in the program."""
    ends: bool
    """Whether the ranks are ended for it (`--hang-timeout`)."""
    event: str = "hang"


class HangEnd(NamedTuple):
    """A hang is over: a rank makes progress or works, or all have ended."""

    event: str = "hang_end"


class Usage(NamedTuple):
    """What each rank of an attempt uses."""

    ranks: dict[str, tuple[Any, ...]]
    """By rank, or as `0 of step 1` where several trainings run at once: its host, CPUs and bytes of host memory; where
    NVML knows its GPU, the share of the time in which it was busy, its bytes that are used, all of them, the watts."""
    event: str = "usage"


class Fenced(NamedTuple):
    """The supervisor starts nothing, because another attempt now owns the run or the job."""

    reason: str
    event: str = "fenced"


class JobEnd(NamedTuple):
    """The job ends by itself and is not requeued."""

    status: int
    """Of the batch script."""
    reason: str
    event: str = "job_end"


class Cancel(NamedTuple):
    """A person cancelled a job that had started, by `slurmddp cancel`, on `host`."""

    by: str
    event: str = "cancel"


class Found(NamedTuple):
    """A check before COMMAND found something, or that of a node that waits as a spare."""

    check: str
    """The check's name: folder, names, versions, script, gpus, affinity, shm, clock or spare."""
    level: str
    """`warning`, or `error` for what ends the job, or makes a node no spare."""
    on_host: str
    """The node that it is about; empty when it is about no single node."""
    what: str
    advice: str
    event: str = "finding"


SupervisorEvent = Union[
    AttemptStart, AttemptEnd, AttemptRestart, Hang, HangEnd, Usage, JobRequeue, Fenced, JobEnd, Found
]


class Author(NamedTuple):
    """The process that writes an event."""

    job: str
    attempt: str
    host: str
    rank: int | None = None
    """None for the supervisor and the command line."""


def record(author: Author, event: SupervisorEvent | RankEvent | Cancel) -> dict[str, Any]:
    """Return an event as its line of JSON has it.

    Every record starts with `time` (seconds since 1970), `event`, `job`, `attempt`, `rank` and `host`; a number
    that JSON cannot write is the text `nan`, `inf` or `-inf`.
    """
    head = {"time": time.time(), "event": event.event, "job": author.job, "attempt": author.attempt}
    return {**head, "rank": author.rank, "host": author.host, **json_value(event._asdict())}


def append(run: RunDir, author: Author, event: SupervisorEvent | RankEvent | Cancel) -> None:
    """Append an event to the run's file. When the disk is full, the event is lost."""
    with contextlib.suppress(OSError):
        append_record(run.events, record(author, event))
