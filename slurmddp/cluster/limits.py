"""What of a request its cluster can never give, said before the queue. No I/O.

Slurm itself accepts most of it and lets the job wait for ever (PartitionConfig, PartitionNodeLimit,
PartitionTimeLimit), or refuses it without a word on what would be possible.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from slurmddp.cluster.defaults import features_of
from slurmddp.cluster.partitions import Cluster, Nodes, Partition
from slurmddp.config.job_spec import JobSpec
from slurmddp.slurm.time import slurm_time
from slurmddp.text import shown

_MEGABYTES: Final = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}


def problems(spec: JobSpec, cluster: Cluster) -> tuple[str, ...]:
    """Return a line for each thing that no node, partition or account of the cluster allows; none when it fits.

    A job that names several partitions may start in any of them: what one of them allows is no problem. Where the site
    sends jobs that name none to partitions of its choice, only Slurm can judge them.
    """
    if not cluster.partitions or (cluster.chooses_partitions and spec.partition is None):
        return ()
    named = _named(spec, cluster)
    if isinstance(named, str):
        return (named,)
    found = [tuple(_of_partition(spec, partition)) for partition in named]
    return (*min(found, key=len), *_of_user(spec, cluster))


def _named(spec: JobSpec, cluster: Cluster) -> tuple[Partition, ...] | str:
    known = [partition.name for partition in cluster.partitions]
    open_to_all = [partition.name for partition in cluster.partitions if not partition.hidden]
    if spec.partition is None:
        return tuple(cluster.partitions_of(None)) or (
            f"this cluster has no default partition; name one by --partition: {_some(open_to_all)}"
        )
    for name in spec.partition.split(","):
        if name not in known:
            return f"--partition: {shown(name)} is not here; {_nearest(name, open_to_all)}"
    return tuple(cluster.partitions_of(spec.partition))


def _of_partition(spec: JobSpec, partition: Partition) -> Iterator[str]:
    checks = (_node_count,) if partition.unseen else (_node_count, _gpus, _cpus, _memory)
    of_nodes = [line for check in checks if (line := check(spec, partition))]
    others = [line for check in (_state, _time, _qos) if (line := check(spec, partition))]
    yield from of_nodes or filter(None, (_together(spec, partition),))
    yield from others


def _state(_: JobSpec, partition: Partition) -> str:
    if partition.state not in ("DRAIN", "INACTIVE"):  # in one that is DOWN jobs wait until it is up
        return ""
    return f"partition {partition.name} is {partition.state} and takes no jobs; choose another one by --partition"


def _time(spec: JobSpec, partition: Partition) -> str:
    """A QOS may lift the limits of time and nodes (PartitionTimeLimit, PartitionMaxNodes)."""
    most_s = None if spec.qos else partition.max_time_s
    if not spec.time or most_s is None or (spec.time_s is not None and spec.time_s <= most_s):
        return ""
    return f"--time {spec.time}: partition {partition.name} allows at most {slurm_time(most_s)}"


def _node_count(spec: JobSpec, partition: Partition) -> str:
    if partition.max_nodes is not None and spec.nodes > partition.max_nodes and not spec.qos:
        return f"--nodes {spec.nodes}: partition {partition.name} allows at most {partition.max_nodes} for a job"
    if spec.nodes < partition.min_nodes and not spec.qos:
        return f"--nodes {spec.nodes}: partition {partition.name} wants at least {partition.min_nodes} for a job"
    if spec.nodes > partition.node_count:
        return f"--nodes {spec.nodes}: partition {partition.name} has {partition.node_count}"
    return ""


def _gpus(spec: JobSpec, partition: Partition) -> str:
    kinds = sorted({kind for nodes in partition.nodes for kind, _ in nodes.gpu_counts if kind})
    if spec.gpu_type and kinds and spec.gpu_type not in kinds:
        return f"--gpus-per-node {spec.gpus_per_node}: partition {partition.name} has GPUs of type {_some(kinds)}"
    most = max((nodes.gpus_of(spec.gpu_type) for nodes in partition.nodes), default=0)
    if spec.gpus <= most:
        return ""
    has = f"a node of partition {partition.name} has {most}" if most else f"partition {partition.name} has none"
    return f"--gpus-per-node {spec.gpus_per_node}: {has}"


def _cpus(spec: JobSpec, partition: Partition) -> str:
    most = max((min(nodes.cpus, partition.max_cpus_per_node or nodes.cpus) for nodes in partition.nodes), default=0)
    wanted = _cpus_of(spec)
    if wanted <= most:
        return ""
    if spec.tasks_per_node > most:
        return (
            f"--ntasks-per-node {spec.tasks_per_node}: a job gets {most} CPUs on a node of partition {partition.name}, "
            "and each rank needs one"
        )
    return (
        f"--cpus-per-task {spec.cpus_per_task}: {spec.tasks_per_node} ranks want {wanted} CPUs on a node, and a job "
        f"gets {most} in partition {partition.name}; at most --cpus-per-task {most // spec.tasks_per_node}"
    )


def _memory(spec: JobSpec, partition: Partition) -> str:
    sizes = [min(nodes.memory_mb, partition.max_memory_per_node_mb or nodes.memory_mb) for nodes in partition.nodes]
    most = max(sizes, default=0)
    if memory_mb(spec) <= most:
        return ""
    return f"--mem {spec.mem}: a job gets {most} MB on a node of partition {partition.name}; at most --mem {most}"


def _together(spec: JobSpec, partition: Partition) -> str:
    """Some nodes may have the GPUs and others the CPUs; whether enough have all that is wanted is another question."""
    count = sum(nodes.count for nodes in partition.nodes if _has_all(spec, nodes))
    if count >= spec.nodes or partition.unseen:
        return ""
    return (
        f"--nodes {spec.nodes}: {count} nodes of partition {partition.name} have all that is asked for "
        f"({', '.join(_wanted(spec))})"
    )


def _has_all(spec: JobSpec, nodes: Nodes) -> bool:
    return (
        nodes.gpus_of(spec.gpu_type) >= spec.gpus
        and nodes.cpus >= _cpus_of(spec)
        and nodes.memory_mb >= memory_mb(spec)
        and features_of(spec.constraint) <= set(nodes.features)
    )


def _wanted(spec: JobSpec) -> Iterator[str]:
    yield f"{_cpus_of(spec)} CPUs"
    if spec.gpus_per_node:
        yield f"GPUs {spec.gpus_per_node}"
    if spec.mem:
        yield f"memory {spec.mem}"
    for feature in sorted(features_of(spec.constraint)):
        yield f"feature {feature}"


def _cpus_of(spec: JobSpec) -> int:
    return (spec.cpus_per_task or 1) * spec.tasks_per_node


def memory_mb(spec: JobSpec) -> float:
    """Return the memory asked for on a node, in MB; 0 is also what stands for all of it (sbatch(1), --mem)."""
    match = re.fullmatch(r"([0-9]+)([KMGT]?)", spec.mem or "0")
    return int(match[1]) * _MEGABYTES[match[2]] if match else 0


def _qos(spec: JobSpec, partition: Partition) -> str:
    """Accounts are left to Slurm: those of a partition's list may stand for all accounts below them."""
    if spec.qos and partition.qos is not None and spec.qos not in partition.qos:
        return f"--qos {spec.qos}: partition {partition.name} is for {_some(partition.qos)}"
    if spec.qos and spec.qos in partition.denied_qos:
        return f"--qos {spec.qos}: partition {partition.name} does not take it"
    return ""


def waits_for_nodes(spec: JobSpec, cluster: Cluster) -> bool:
    """Tell whether too few nodes are in use now, and enough are down or drained: jobs wait for them."""
    partitions = cluster.partitions_of(spec.partition)
    found = [nodes for partition in partitions for nodes in partition.nodes if _has_all(spec, nodes)]
    return sum(nodes.count for nodes in found if nodes.usable) < spec.nodes <= sum(nodes.count for nodes in found)


def _of_user(spec: JobSpec, cluster: Cluster) -> Iterator[str]:
    for key, given, own in (("account", spec.account, cluster.accounts), ("qos", spec.qos, cluster.qos)):
        if given and own is not None and given not in own:
            yield f"--{key}: {shown(given)} is not yours; {_nearest(given, own)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415 needed only when something is wrong

    known = list(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(shown, near))}?" if near else f"there are {_some(known)}"


def _some(names: Iterable[str], most: int = 10) -> str:
    """Return a few of the names, safe to print."""
    listed = [shown(name)[1:-1] for name in names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
