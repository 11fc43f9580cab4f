"""Defines the events that rank 0 writes to `events.jsonl`. No I/O; standard library only."""

from __future__ import annotations
from typing import NamedTuple, Union

from slurmddp.runs.events import Found


class Start(NamedTuple):
    """The rendezvous of all ranks is done."""

    world_size: int
    local_world_size: int
    """Ranks on the head node."""
    nodes: int
    launcher: str
    """srun, fork, torchrun, mpi or single."""
    ranks: dict[str, str]
    """The ranks of each host, as in `0-3,8`, the hosts in the order of the nodes."""
    event: str = "start"


class Resume(NamedTuple):
    """The ranks resume from a checkpoint."""

    step: int
    """Steps taken before."""
    checkpoint: str
    """The folder's name."""
    from_world_size: int
    """Ranks that saved it."""
    event: str = "resume"


class Loop(NamedTuple):
    """The first step begins."""

    step: int
    """Steps taken before."""
    total: int
    """Steps of the whole training."""
    event: str = "loop"


class Metrics(NamedTuple):
    """Numbers that the program logged."""

    step: int
    """Steps finished since the weights were new."""
    total: int
    """Steps of the whole training."""
    values: dict[str, float | None]
    """By the program's own names; the bundled worker's are epoch, loss, accuracy, samples_per_s and lr."""
    event: str = "metrics"


class Checkpoint(NamedTuple):
    """A checkpoint is durable."""

    step: int
    held_s: float
    """Seconds that the training waited for it."""
    write_s: float
    """Seconds until it was durable, written in the background."""
    event: str = "checkpoint"


class CheckpointFailed(NamedTuple):
    """A checkpoint could not be written; the previous one stays."""

    step: int
    reason: str
    event: str = "checkpoint-failed"


class Straggler(NamedTuple):
    """The backward of one rank repeatedly takes longer than that of the others, and every step waits for it."""

    slow_rank: int
    slow_host: str
    """Empty when the hosts are unknown."""
    backward_s: float
    """Of that rank, in one step."""
    others_s: float
    """Of the median rank."""
    event: str = "straggler"


class Timing(NamedTuple):
    """How long the steps took, in a job with `--steps`."""

    step: int
    """Steps finished since the weights were new."""
    total: int
    """Steps of the whole training without `--steps`."""
    asked: int
    """The value of `--steps` for this attempt."""
    world_size: int
    samples: int | None
    """Samples that a step takes on all ranks together; null without a `slurmddp.Sampler`."""
    block: int
    """Steps that each of the times below is the mean of."""
    times_s: tuple[float, ...]
    """Seconds per step of rank 0, block after block; the first blocks include the slow start."""
    waits_s: tuple[float, ...]
    """Seconds that the last backward of each block waited for other ranks' gradients; empty without DDP."""
    event: str = "timing"


class Notice(NamedTuple):
    """The job was asked to stop."""

    cause: str
    """SIGTERM, SIGUSR1, SIGUSR2 or clock."""
    reason: str
    """What Slurm says of it: preempted, requeued (or preempted without grace), time limit, cancelled; else signal."""
    event: str = "notice"


class End(NamedTuple):
    """Rank 0 ended."""

    status: int
    """Of `slurmddp.exit_codes`."""
    reason: str
    event: str = "end"


RankEvent = Union[Start, Found, Resume, Loop, Metrics, Checkpoint, CheckpointFailed, Straggler, Timing, Notice, End]
