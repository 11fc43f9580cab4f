"""Finds what a job asks for and its cluster can never give, before the job is queued. No I/O.

Slurm accepts most such jobs and lets them wait forever (PartitionConfig, PartitionNodeLimit, PartitionTimeLimit), or
refuses them without saying what is possible.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from slurmddp.cluster.defaults import features_of, usable_cpus
from slurmddp.cluster.partitions import Cluster, Nodes, Partition
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import with_origin
from slurmddp.errors import ClusterError
from slurmddp.slurm.values import parse_number, slurm_time
from slurmddp.text import count, escape_text, list_some, quote_value, suggest

_MOST_NAMED: Final = 10


def find_problems(spec: JobSpec, cluster: Cluster) -> tuple[str, ...]:
    """Return a line for each request that no node or partition of the cluster allows; none when it fits.

    A job with several partitions may start in any of them, so the one with the fewest problems counts. Nothing is
    checked for a job without a partition where the site chooses one (JobSubmitPlugins).
    """
    if not cluster.partitions or (cluster.chooses_partitions and spec.partition is None):
        return ()
    named = _named(spec, cluster)
    if isinstance(named, str):
        return (named,)
    return min((tuple(_of_partition(spec, partition)) for partition in named), key=len)


def refuse_impossible(spec: JobSpec, cluster: Cluster, origins: Mapping[str, str], *, force: str) -> None:
    """Raise ClusterError for what no part of the cluster can ever give; `force` is what submits it all the same."""
    if problems := [with_origin(problem, origins) for problem in find_problems(spec, cluster)]:
        is_refused = isinstance(_named(spec, cluster), str)  # by sbatch in any case
        raise ClusterError("; ".join([*problems, *([] if is_refused else [f"{force} submits it all the same"])]))


def _named(spec: JobSpec, cluster: Cluster) -> tuple[Partition, ...] | str:
    known = [partition.name for partition in cluster.partitions]
    open_to_all = [partition.name for partition in cluster.partitions if not partition.hidden]
    if spec.partition is None:
        none = f"this cluster has no default partition; name one by --partition: {_some(open_to_all)}"
        return tuple(cluster.partitions_of(None)) or none
    for name in spec.partition.split(","):
        if name not in known:
            hint = suggest(name, open_to_all, f"there are {_some(open_to_all)}", show=quote_value)
            return f"--partition: {quote_value(name)} does not exist; {hint}"
    return tuple(cluster.partitions_of(spec.partition))


def _of_partition(spec: JobSpec, partition: Partition) -> Iterator[str]:
    """Yield what the partition's nodes do not have, then what its settings do not allow.

    A QOS may lift the limits of nodes and time (PartitionMaxNodes, PartitionTimeLimit). Accounts are left to Slurm,
    since a partition's list may include their children.
    """
    yield from _of_nodes(spec, partition)
    name, most_s = partition.name, None if spec.qos else partition.max_time_s
    if partition.state in ("DRAIN", "INACTIVE"):  # jobs wait in a partition that is DOWN
        yield f"partition {name} is {partition.state} and takes no jobs; choose another one by --partition"
    if spec.time and most_s is not None and (spec.time_s is None or spec.time_s > most_s):
        yield f"--time {spec.time}: partition {name} allows at most {slurm_time(most_s)}"
    if spec.qos and partition.qos is not None and spec.qos not in partition.qos:
        yield f"--qos {spec.qos}: partition {name} is for {_some(partition.qos)}"
    elif spec.qos and spec.qos in partition.denied_qos:
        yield f"--qos {spec.qos}: partition {name} does not take it"


def _of_nodes(spec: JobSpec, partition: Partition) -> list[str]:
    """Return what no node has, else what no nodes have together: one may have the GPUs and another the CPUs."""
    too_many = _node_count(spec, partition)
    if partition.unseen:
        return [too_many] if too_many else []
    checks = (_gpus, _cpus, _memory, _features)
    found = [line for line in (too_many, *(check(spec, partition) for check in checks)) if line]
    fitting = sum(nodes.count for nodes in partition.nodes if _has_all(spec, nodes))
    if found or fitting >= spec.allocated_nodes:
        return found
    wanted = [count(_cpus_of(spec), "CPU")]
    wanted += [f"GPUs {spec.gpus_per_node}"] if spec.gpus_per_node else []
    wanted += [f"memory {spec.mem}"] if spec.mem else []
    wanted += [f"feature {feature}" for feature in sorted(features_of(spec.constraint))]
    have = f"{fitting} nodes of partition {partition.name} have everything that is asked for"
    return [f"{_asked_nodes(spec)}: {have} ({', '.join(wanted)})"]


def _node_count(spec: JobSpec, partition: Partition) -> str:
    if partition.max_nodes is not None and spec.allocated_nodes > partition.max_nodes and not spec.qos:
        return f"{_asked_nodes(spec)}: partition {partition.name} allows at most {partition.max_nodes} for a job"
    if spec.allocated_nodes < partition.min_nodes and not spec.qos:
        return f"{_asked_nodes(spec)}: partition {partition.name} needs at least {partition.min_nodes} for a job"
    if spec.allocated_nodes > partition.node_count:
        return f"{_asked_nodes(spec)}: partition {partition.name} has {partition.node_count}"
    return ""


def _asked_nodes(spec: JobSpec) -> str:
    return f"--nodes {spec.nodes}" + f" with --spares {spec.spares}" * bool(spec.spares)


def _gpus(spec: JobSpec, partition: Partition) -> str:
    kinds = sorted({kind for nodes in partition.nodes for kind, _ in nodes.gpu_counts if kind})
    if spec.gpu_type and kinds and spec.gpu_type not in kinds:
        return f"--gpus-per-node {spec.gpus_per_node}: partition {partition.name} has GPUs of type {_some(kinds)}"
    most = max((nodes.gpus_of(spec.gpu_type) for nodes in partition.nodes), default=0)
    if spec.gpus <= most:
        return ""
    has = f"a node of partition {partition.name} has {most}" if most else f"partition {partition.name} has none"
    if not most:
        has += f"; for ranks without GPUs, type: --ntasks-per-node {spec.tasks_per_node}"
    if spec.gpu_type and (untyped := max((nodes.gpus_of("") for nodes in partition.nodes), default=0)):
        has = f"a node of partition {partition.name} has {untyped}, whose type Slurm does not know; leave the type out"
    return f"--gpus-per-node {spec.gpus_per_node}: {has}"


def _cpus(spec: JobSpec, partition: Partition) -> str:
    most = max((usable_cpus(nodes, partition) for nodes in partition.nodes), default=0)
    wanted = _cpus_of(spec)
    if wanted <= most:
        return ""
    if spec.tasks_per_node > most:
        return (
            f"--ntasks-per-node {spec.tasks_per_node}: a job gets {most} CPUs on a node of partition {partition.name}, "
            "and each rank needs one"
        )
    return (
        f"--cpus-per-task {spec.cpus_per_task}: {spec.tasks_per_node} ranks need {wanted} CPUs on a node, and a job "
        f"gets {most} in partition {partition.name}; at most --cpus-per-task {most // spec.tasks_per_node}"
    )


def _memory(spec: JobSpec, partition: Partition) -> str:
    sizes = [min(nodes.memory_mb, partition.max_memory_per_node_mb or nodes.memory_mb) for nodes in partition.nodes]
    most = max(sizes, default=0)
    if memory_mb(spec) <= most:
        return ""
    return f"--mem {spec.mem}: a job gets {most} MB on a node of partition {partition.name}; at most --mem {most}"


def _features(spec: JobSpec, partition: Partition) -> str:
    known = sorted({feature for nodes in partition.nodes for feature in nodes.features})
    if features_of(spec.constraint) <= {*known}:
        return ""
    has = f"they have: {_some(known)}" if known else "they have none"
    return f"--constraint {spec.constraint}: no node of partition {partition.name} has this feature; {has}"


def _has_all(spec: JobSpec, nodes: Nodes) -> bool:
    return (
        nodes.gpus_of(spec.gpu_type) >= spec.gpus
        and nodes.cpus >= _cpus_of(spec)
        and nodes.memory_mb >= memory_mb(spec)
        and features_of(spec.constraint) <= set(nodes.features)
    )


def _cpus_of(spec: JobSpec) -> int:
    return (spec.cpus_per_task or 1) * spec.tasks_per_node


def memory_mb(spec: JobSpec) -> float:
    """Return the memory for a node in MB; 0 for none, and for all of it (sbatch(1), --mem)."""
    text = spec.mem or "0"
    amount = parse_number(text) or 0
    return amount if text.isdecimal() else amount / 2**20


def waits_for_nodes(spec: JobSpec, cluster: Cluster) -> bool:
    """Return whether the job needs nodes that are down or drained now, and waits for them."""
    partitions = cluster.partitions_of(spec.partition)
    found = [nodes for partition in partitions for nodes in partition.nodes if _has_all(spec, nodes)]
    usable = sum(nodes.count for nodes in found if nodes.usable)
    return usable < spec.allocated_nodes <= sum(nodes.count for nodes in found)


def _some(names: Iterable[str]) -> str:
    """Return a few of the names, safe to print."""
    return list_some([escape_text(name) for name in names], _MOST_NAMED)
