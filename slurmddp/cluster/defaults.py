"""What a request leaves open, filled from what its partition has: GPUs, CPUs, memory, time. No I/O.

A value that was given is never touched, and one that cannot be told is left to Slurm.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from slurmddp.cluster.partitions import Cluster, Nodes, Partition
from slurmddp.config.job_spec import DEFAULT_LEAD_S, JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.errors import UsageError
from slurmddp.slurm.hostlist import expand
from slurmddp.slurm.time import slurm_time

_CPU_OPTIONS: Final = (
    "cpus-per-gpu",
    "hint",
    "ntasks-per-core",
    "cores-per-socket",
    "threads-per-core",
    "extra-node-info",
    "core-spec",
)
_MEMORY_OPTIONS: Final = ("mem-per-cpu", "mem-per-gpu")

SHORT_S: Final = 4 * DEFAULT_LEAD_S
"""Of a time limit above this the notice comes as long before as of any other."""

Size = tuple[str, object, str]
"""A key, its value, and the reason for it."""


def sized(resolved: Resolved, cluster: Cluster) -> Resolved:
    """Return the job with what it leaves open filled for the partition it names, each value with its reason.

    Of several partitions only the first counts: nobody knows which one the job will get, and the least of them all
    would waste most.
    """
    partition = next(cluster.partitions_of(resolved.spec.partition), None)
    if partition is None:
        return resolved
    for size in (_gpus, _cpus, _time):
        resolved = _with(resolved, size(resolved.spec, partition))
    return _with(resolved, _memory(resolved.spec, partition)) if cluster.memory_is_counted else resolved


def _with(resolved: Resolved, size: Size | None) -> Resolved:
    if size is None:
        return resolved
    key, value, reason = size
    spec = msgspec.structs.replace(resolved.spec, **{key.replace("-", "_"): value})
    return resolved._replace(spec=spec, origins={**resolved.origins, key: reason})


def fitting(spec: JobSpec, partition: Partition) -> tuple[Nodes, ...]:
    """Return the nodes that have the GPUs, of the type, the features and the names asked for, and no others' names.

    Of those that are in use; where all are down or drained, of all: they will come back. Where some have GPUs, nodes
    without do not count.
    """
    known = tuple(nodes for nodes in partition.usable or partition.nodes if _fits(spec, nodes))
    return tuple(nodes for nodes in known if nodes.gpus) or known


def _fits(spec: JobSpec, nodes: Nodes) -> bool:
    wanted, excluded = _expanded(spec.nodelist), _expanded(spec.exclude)
    return (
        nodes.gpus_of(spec.gpu_type) >= spec.gpus
        and features_of(spec.constraint) <= set(nodes.features)
        and (not wanted or not wanted.isdisjoint(_expanded(nodes.names)))
        and (not excluded or not _expanded(nodes.names) <= excluded)
    )


def _expanded(names: str | None) -> frozenset[str]:
    """Return their names; none for a file, or a list that is written in a way of its own."""
    try:
        return frozenset(expand(names)) if names else frozenset()
    except UsageError:
        return frozenset()


def features_of(constraint: str | None) -> set[str]:
    """Return the features that a node must have; none for an expression that only Slurm can judge."""
    if constraint is None or set(constraint) & set("|[]()*!,"):
        return set()
    return {name.strip() for name in constraint.split("&")}


def _gpus(spec: JobSpec, partition: Partition) -> Size | None:
    if spec.gpus_per_node or spec.ntasks_per_node or _has(spec, "gres"):
        return None
    found = fitting(spec, partition)
    if any(len(nodes.gpu_counts) > 1 for nodes in found):  # parts of GPUs beside whole ones: which, must be said
        return None
    gpus = min((nodes.gpus for nodes in found), default=0)
    return ("gpus-per-node", str(gpus), f"all GPUs of a node in partition {partition.name}") if gpus else None


def _cpus(spec: JobSpec, partition: Partition) -> Size | None:
    if spec.cpus_per_task or _has(spec, *_CPU_OPTIONS):
        return None
    shares = [(_share(spec, partition, nodes, _cpus_of(nodes, partition)), nodes) for nodes in fitting(spec, partition)]
    share, nodes = min(shares, key=lambda found: found[0], default=(0, None))
    if nodes is None or share < spec.tasks_per_node:
        return None
    whole = f"{_cpus_of(nodes, partition)} CPUs a node"
    part = "" if share == _cpus_of(nodes, partition) else f", for {spec.gpus} of its {nodes.gpus} GPUs {share}"
    reason = f"partition {partition.name}: {whole}{part} / {spec.tasks_per_node} ranks"
    return "cpus-per-task", share // spec.tasks_per_node, reason


def _cpus_of(nodes: Nodes, partition: Partition) -> int:
    return min(nodes.cpus, partition.max_cpus_per_node or nodes.cpus)


def _share(spec: JobSpec, partition: Partition, nodes: Nodes, amount: int) -> int:
    """Return how much of a node's amount goes with the GPUs asked for: others may want its other GPUs.

    A job that only other users, or other groups, may not share nodes with (`exclusive=user`) gets what it asks for.
    """
    whole = partition.whole_nodes or "exclusive" in spec.sbatch
    shared = 0 < spec.gpus < nodes.gpus and not whole
    return amount * spec.gpus // nodes.gpus if shared else amount


def _time(spec: JobSpec, partition: Partition) -> Size | None:
    """Say a limit so short that the notice before it depends on it; a longer one may be cut by account or QOS."""
    limit_s = partition.default_time_s or partition.max_time_s
    if spec.time or not limit_s or limit_s >= SHORT_S:
        return None
    what = "default" if partition.default_time_s else "longest"
    return "time", slurm_time(limit_s), f"the {what} time of partition {partition.name}"


def _memory(spec: JobSpec, partition: Partition) -> Size | None:
    """Give a job the memory that goes with its GPUs; CPU jobs and sites with a default of their own keep theirs."""
    if spec.mem or not spec.gpus or partition.default_memory or _has(spec, *_MEMORY_OPTIONS):
        return None
    sizes = [(_share(spec, partition, nodes, nodes.memory_mb), nodes) for nodes in fitting(spec, partition)]
    size, nodes = min(sizes, key=lambda found: found[0], default=(0, None))
    if nodes is None or partition.max_memory_per_node_mb:
        return None
    if all(whole == group.memory_mb for whole, group in sizes):
        return "mem", "0", f"all memory of a node in partition {partition.name}"
    return (
        "mem",
        str(size),
        f"partition {partition.name}: {nodes.memory_mb} MB a node, for {spec.gpus} of its {nodes.gpus} GPUs",
    )


def _has(spec: JobSpec, *keys: str) -> bool:
    return any(key in keys for key in _keys(spec))


def _keys(spec: JobSpec) -> Iterator[str]:
    for item in spec.sbatch:
        yield item.partition("=")[0]
