"""A cluster, its partitions and nodes, as values. No processes."""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

Preemption = Literal["off", "requeue", "cancel", "suspend", "gang"]

_UNUSABLE: Final = ("down", "drain", "fail", "future", "unknown", "inval", "no_respond")
"""Beginnings of the states of sinfo(1) in which a node gets no jobs. A node in power saving gets jobs."""


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """Equal nodes of one partition in the same state."""

    names: str
    """As a host list: `n[1-4]`."""
    count: int
    state: str
    """The state of sinfo in lower case, without marks: `idle`, `mixed`, `down`, `drained`."""
    cpus: int
    memory_mb: int
    gpus: int = 0
    gpu_type: str = ""
    """Empty when the site names no type, or the node has several."""
    gpu_counts: tuple[tuple[str, int], ...] = ()
    """The GPUs by type; the type is empty when the site names none."""
    free_gpus: int | None = None
    """GPUs of all of them that no job has; None when Slurm does not say."""
    features: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether jobs can get them, now or when other jobs end."""
        return not self.state.startswith(_UNUSABLE)

    def gpus_of(self, kind: str) -> int:
        """Return the GPUs of a type on one node; of any type for an empty one."""
        return sum(count for name, count in self.gpu_counts if name == kind) if kind else self.gpus


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition with its limits; None means no limit."""

    name: str
    default: bool = False
    hidden: bool = False
    """Whether Slurm shows it only with `--all`."""
    state: str = "UP"
    """`UP`, `DOWN`, `DRAIN` or `INACTIVE`."""
    nodes: tuple[Nodes, ...] = ()
    unseen: int = 0
    """The number of nodes that the site hides from this user (PrivateData=nodes)."""
    max_time_s: int | None = None
    default_time_s: int | None = None
    max_nodes: int | None = None
    min_nodes: int = 0
    whole_nodes: bool = False
    """Whether every job gets whole nodes (OverSubscribe=EXCLUSIVE, or select/linear)."""
    max_cpus_per_node: int | None = None
    max_memory_per_node_mb: int | None = None
    default_memory: str = ""
    """As scontrol shows it: `DefMemPerCPU=2000`; empty when the partition sets none."""
    accounts: tuple[str, ...] | None = None
    """The allowed accounts; None when all are."""
    denied_accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] | None = None
    denied_qos: tuple[str, ...] = ()
    groups: tuple[str, ...] | None = None
    """The allowed groups of users; None when all are."""
    preemption: Preemption = "off"
    """What happens to a preempted job."""
    grace_s: int = 0
    """The grace period of a preempted job."""

    @property
    def usable(self) -> tuple[Nodes, ...]:
        """The nodes that jobs can get."""
        return tuple(group for group in self.nodes if group.usable)

    @property
    def node_count(self) -> int:
        """The number of nodes in all states."""
        return sum(group.count for group in self.nodes) + self.unseen


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, as its controller shows it to this user."""

    name: str = ""
    version: str = ""
    """Slurm's, as in 22.05.8."""
    partitions: tuple[Partition, ...] = ()
    requeue: bool = True
    """Whether jobs are requeued by default (JobRequeue)."""
    expedites: bool = False
    """Whether a job may ask for expedited requeue (25.11, enable_expedited_requeue)."""
    preempts_by_qos: bool = False
    """Whether preemption goes by QOS; the grace period is then that of the QOS."""
    signals_on_preemption: bool = False
    """Whether a preempted job gets its `--signal` instead of SIGTERM (send_user_signal)."""
    chooses_partitions: bool = False
    """Whether the site may choose the partition of a job that names none (JobSubmitPlugins)."""
    memory_is_counted: bool = False
    """Whether Slurm allocates memory (SelectTypeParameters has Memory)."""
    kill_wait_s: int = 30
    max_array_size: int = 1001
    accounts: tuple[str, ...] | None = None
    """The accounts of this user; None when unknown."""
    qos: tuple[str, ...] | None = None
    """The QOS of this user; None when unknown."""
    default_account: str = ""
    unlearned: tuple[str, ...] = ()
    """What is unknown and why, one line each."""

    def partitions_of(self, names: str | None) -> Iterator[Partition]:
        """Yield the partitions in a list as `gpu,long`, without unknown ones; the default one for None."""
        if names is None:
            yield from [partition for partition in self.partitions if partition.default][:1]
            return
        known = {partition.name: partition for partition in self.partitions}
        yield from (known[name] for name in names.split(",") if name in known)
