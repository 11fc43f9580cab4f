"""What a cluster offers to a job, as values. No processes."""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

Preemption = Literal["off", "requeue", "cancel", "suspend", "gang"]

_UNUSABLE: Final = ("down", "drain", "fail", "future", "unknown", "inval", "no_respond")
"""States of sinfo(1) in which a node does not get jobs soon, by their beginning; one that is switched off to save
power is switched on for a job."""


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of one partition that are alike and in the same state."""

    names: str
    """As a host list: `n[1-4]`."""
    count: int
    state: str
    """As sinfo has it, in small letters and without the marks behind it: `idle`, `mixed`, `down`, `drained`."""
    cpus: int
    memory_mb: int
    gpus: int = 0
    gpu_type: str = ""
    """Empty where the site names none, or the node has several."""
    gpu_counts: tuple[tuple[str, int], ...] = ()
    """Each type, and how many of it; the type is empty where the site names none."""
    features: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether jobs can get them, now or when other jobs have ended."""
        return not self.state.startswith(_UNUSABLE)

    def gpus_of(self, kind: str) -> int:
        """Return how many GPUs of that type one of them has; of any type for an empty one."""
        return sum(count for name, count in self.gpu_counts if name == kind) if kind else self.gpus


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition, with what it lets a job have; None where it sets no limit."""

    name: str
    default: bool = False
    hidden: bool = False
    """Whether Slurm shows it only to those who ask for all."""
    state: str = "UP"
    """`UP`, `DOWN`, `DRAIN` or `INACTIVE`."""
    nodes: tuple[Nodes, ...] = ()
    unseen: int = 0
    """How many nodes it has that the site does not show to this user (PrivateData=nodes): nothing is known of them."""
    max_time_s: int | None = None
    default_time_s: int | None = None
    max_nodes: int | None = None
    min_nodes: int = 0
    whole_nodes: bool = False
    """Whether every job gets all of its nodes (OverSubscribe=EXCLUSIVE, or a cluster that knows nothing else)."""
    max_cpus_per_node: int | None = None
    max_memory_per_node_mb: int | None = None
    default_memory: str = ""
    """As scontrol shows it: `DefMemPerCPU=2000`; empty when the partition sets none."""
    accounts: tuple[str, ...] | None = None
    """The only ones allowed; None when all are."""
    denied_accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] | None = None
    denied_qos: tuple[str, ...] = ()
    groups: tuple[str, ...] | None = None
    """The only groups of users allowed; None when all are."""
    preemption: Preemption = "off"
    """What happens to a job there when a more urgent one wants its nodes."""
    grace_s: int = 0
    """How long a preempted job may go on, in seconds."""

    @property
    def usable(self) -> tuple[Nodes, ...]:
        """The nodes that jobs can get."""
        return tuple(group for group in self.nodes if group.usable)

    @property
    def node_count(self) -> int:
        """All its nodes, whatever state they are in."""
        return sum(group.count for group in self.nodes) + self.unseen


class Qos(msgspec.Struct, frozen=True, kw_only=True):
    """A quality of service whose jobs can be preempted."""

    name: str
    preempted_by: tuple[str, ...]
    """The QOS whose jobs come first."""
    preemption: Preemption = "off"
    grace_s: int = 0


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, as its controller describes it to this user."""

    name: str = ""
    version: str = ""
    """Slurm's, as in 22.05.8."""
    partitions: tuple[Partition, ...] = ()
    requeue: bool = True
    """Whether jobs are requeued where they do not say (JobRequeue)."""
    preempts_by_qos: bool = False
    """Whether jobs are preempted for a better QOS, which then has the grace time, and not the partition."""
    signals_on_preemption: bool = False
    """Whether a preempted job gets its `--signal` at once, in the place of SIGTERM (send_user_signal)."""
    chooses_partitions: bool = False
    """Whether the site may send a job that names no partition to another one than the default (JobSubmitPlugins)."""
    memory_is_counted: bool = False
    """Whether a job is given memory as it is given CPUs (SelectTypeParameters has Memory)."""
    kill_wait_s: int = 30
    max_array_size: int = 1001
    max_script_bytes: int = 4 * 2**20
    """Of a batch script (slurm.conf(5), SchedulerParameters, max_script_size)."""
    accounts: tuple[str, ...] | None = None
    """Those this user may charge; None when nobody says."""
    qos: tuple[str, ...] | None = None
    """Those this user may name; None when nobody says."""
    default_account: str = ""
    accounts_above: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """For each of this user's accounts those above it, the nearest first; empty where no partition names accounts."""
    preemptable_qos: tuple[Qos, ...] = ()
    """Those of all QOS whose jobs can be preempted, where that goes by QOS and the accounting says it."""
    unlearned: tuple[str, ...] = ()
    """What could not be learned and why, a line each."""

    @property
    def default(self) -> Partition | None:
        """The partition of a job that names none."""
        return next((partition for partition in self.partitions if partition.default), None)

    def partitions_of(self, names: str | None) -> Iterator[Partition]:
        """Yield the partitions that a request names, as in `gpu,long`; the default one for None; unknown ones not."""
        if names is None:
            yield from (self.default,) if self.default else ()
            return
        known = {partition.name: partition for partition in self.partitions}
        yield from (known[name] for name in names.split(",") if name in known)
