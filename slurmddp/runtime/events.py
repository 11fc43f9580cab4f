"""The records of `events.jsonl`: their fields are fixed here. Rank 0 appends them; standard library only."""

import dataclasses
import math
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from slurmddp.rundir import append_record
from slurmddp.runtime.environment import Rank


@dataclass(frozen=True, kw_only=True)
class Start:
    """The ranks have met."""

    event: ClassVar = "start"
    world_size: int
    local_world_size: int
    """Ranks on the head node."""
    nodes: int
    launcher: str
    """srun, fork, torchrun, mpi or single."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """The bundled worker finished a pass over its training data."""

    event: ClassVar = "epoch"
    epoch: int
    """Passes finished, from 1."""
    step: int
    """Optimizer steps taken since the weights were new."""
    loss: float
    """Mean over all training samples of all ranks, each counted once, as they were seen in this pass."""
    accuracy: float | None
    """Fraction of the test samples classified rightly; null for a task without classes."""
    samples_per_s: float
    """Training samples of all ranks a second."""
    lr: float


@dataclass(frozen=True, kw_only=True)
class End:
    """Rank 0 ended."""

    event: ClassVar = "end"
    status: int
    """Of `slurmddp.outcome`."""
    reason: str


def record(rank: Rank, event: Start | Epoch | End) -> dict[str, Any]:
    """Return an event as its line of JSON has it.

    Every record starts with `time` (seconds since 1970), `event`, `job`, `attempt`, `rank` and `host`; a number
    that JSON cannot write is the text `nan`, `inf` or `-inf`.
    """
    head = {"time": time.time(), "event": event.event, "job": rank.job, "attempt": rank.attempt}
    fields = {name: _finite(value) for name, value in dataclasses.asdict(event).items()}
    return {**head, "rank": rank.rank, "host": rank.host, **fields}


def write_event(rank: Rank, event: Start | Epoch | End) -> None:
    """Append an event to the run's file; only global rank 0 of a run does."""
    if rank.run_dir and rank.is_main:
        append_record(rank.run_dir.events, record(rank, event))


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
