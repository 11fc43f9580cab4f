"""The records of `events.jsonl` that rank 0 writes: their fields are fixed here. No I/O; standard library only."""

from dataclasses import dataclass
from typing import ClassVar, Self

from slurmddp.finding import Finding


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
    ranks: dict[str, str]
    """The ranks of each host, as in `0-3,8`, the hosts in the order of the nodes."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The look before COMMAND found something."""

    event: ClassVar = "finding"
    check: str
    """What was looked at: folder, names, versions, script, gpus, affinity, shm or clock."""
    level: str
    """`warning`, or `error` for what ends the job."""
    on_host: str
    """The node on which it is so; empty where it is none's own."""
    what: str
    advice: str

    @classmethod
    def of(cls, finding: Finding) -> Self:
        """Return the event of a finding."""
        return cls(
            check=finding.check, level=finding.level, on_host=finding.host, what=finding.what, advice=finding.advice
        )


@dataclass(frozen=True, kw_only=True)
class Resume:
    """The ranks go on from a checkpoint."""

    event: ClassVar = "resume"
    step: int
    """Steps taken before."""
    checkpoint: str
    """The folder's name."""
    from_world_size: int
    """Ranks that saved it."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """The first step begins."""

    event: ClassVar = "loop"
    step: int
    """Steps taken before."""
    total: int
    """Steps of the whole training."""


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Numbers that the program logged."""

    event: ClassVar = "metrics"
    step: int
    """Steps finished since the weights were new."""
    total: int
    """Steps of the whole training."""
    values: dict[str, float | None]
    """By the program's own names; the bundled worker's are epoch, loss, accuracy, samples_per_s and lr."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint is durable."""

    event: ClassVar = "checkpoint"
    step: int
    held_s: float
    """Seconds that the training was held up."""
    write_s: float
    """Seconds until it was durable, beside the training."""


@dataclass(frozen=True, kw_only=True)
class CheckpointFailed:
    """A checkpoint could not be written; the one before stays."""

    event: ClassVar = "checkpoint-failed"
    step: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """A rank's backward takes longer than the others', again and again, and every step waits for it."""

    event: ClassVar = "straggler"
    slow_rank: int
    slow_host: str
    """Empty when the hosts are unknown."""
    backward_s: float
    """Of that rank, in one step."""
    others_s: float
    """Of the rank in the middle."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long steps took, where the job was told to end after so many (`--steps`)."""

    event: ClassVar = "timing"
    step: int
    """Steps finished since the weights were new."""
    total: int
    """Steps of the whole training, had it not ended before."""
    asked: int
    """Steps that this attempt was to take."""
    world_size: int
    samples: int | None
    """Samples that a step takes on all ranks together; null without a `slurmddp.Sampler`."""
    block: int
    """Steps that each of the times below is the mean of."""
    times_s: tuple[float, ...]
    """Seconds a step, block after block, of rank 0; the first ones are the slow ones of any beginning."""
    waits_s: tuple[float, ...]
    """Seconds that the last backward of each block waited for other ranks' gradients; empty without DDP."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """The job is to stop."""

    event: ClassVar = "notice"
    cause: str
    """SIGTERM, SIGUSR1, SIGUSR2 or clock."""
    reason: str
    """What Slurm says of it: preempted, requeued (or preempted without grace), time limit, cancelled; else signal."""


@dataclass(frozen=True, kw_only=True)
class End:
    """Rank 0 ended."""

    event: ClassVar = "end"
    status: int
    """Of `slurmddp.outcome`."""
    reason: str


OfRank = Start | Found | Resume | Loop | Metrics | Checkpoint | CheckpointFailed | Straggler | Timing | Notice | End
