"""Fills the values that a job leaves open from its partition: GPUs, CPUs, time, memory. No I/O.

A given value never changes, and a value that cannot be determined is left to Slurm.
"""

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import structs

from slurmddp.cluster.partitions import Cluster, Nodes, Partition
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.slurm.hostlist import names_in
from slurmddp.slurm.values import slurm_time
from slurmddp.supervisor_options import DEFAULTS

_CPU_OPTIONS: Final = (
    *("cpus-per-gpu", "hint", "ntasks-per-core", "cores-per-socket", "threads-per-core"),
    *("extra-node-info", "core-spec"),
)
_MEMORY_OPTIONS: Final = ("mem-per-cpu", "mem-per-gpu")

SHORT_S: Final = 4 * DEFAULTS.signal_lead
"""The default lead before the time limit is shorter for time limits below this."""

Size = tuple[str, str | int, str]
"""A field of JobSpec, its value, and the reason for it."""


def fill_open_values(resolved: Resolved, cluster: Cluster) -> Resolved:
    """Return the job with open values filled from its partition, each with its reason.

    With several partitions, the values come from the first. Where the cluster expedites requeues, the job asks for it.
    """
    partition = next(cluster.partitions_of(resolved.spec.partition), None)
    if partition is None:
        return resolved
    for find_size in (_gpus, _cpus, _time, *([_memory] if cluster.memory_is_counted else [])):
        if size := find_size(resolved.spec, partition):
            name, value, reason = size
            resolved = resolved.replace(reason, **{name: value})
    return structs.replace(resolved, spec=structs.replace(resolved.spec, expedite=cluster.expedites))


def fitting_nodes(spec: JobSpec, partition: Partition) -> tuple[Nodes, ...]:
    """Return the nodes with the GPUs, features and names that the job asks for.

    They are chosen from the usable nodes, or from all nodes when none is usable. Nodes without GPUs count only when no
    fitting node has GPUs.
    """
    wanted, excluded, features = names_in(spec.nodelist), names_in(spec.exclude), features_of(spec.constraint)
    known = tuple(
        nodes
        for nodes in partition.usable or partition.nodes
        if nodes.gpus_of(spec.gpu_type) >= spec.gpus
        and features <= set(nodes.features)
        and (not wanted or not wanted.isdisjoint(names_in(nodes.names)))
        and (not excluded or not names_in(nodes.names) <= excluded)
    )
    return tuple(nodes for nodes in known if nodes.gpus) or known


def features_of(constraint: str | None) -> set[str]:
    """Return the features that a node must have; none for an expression with operators other than `&`."""
    if constraint is None or set(constraint) & set("|[]()*!,"):
        return set()
    return {name.strip() for name in constraint.split("&")}


def _gpus(spec: JobSpec, partition: Partition) -> Size | None:
    if spec.gpus_per_node or spec.ntasks_per_node or _has(spec, "gres"):
        return None
    found = fitting_nodes(spec, partition)
    if any(len(nodes.gpu_counts) > 1 for nodes in found):  # whole GPUs and parts of GPUs: the user must choose
        return None
    gpus = min((nodes.gpus for nodes in found), default=0)
    return ("gpus_per_node", str(gpus), f"all GPUs of a node in partition {partition.name}") if gpus else None


def _cpus(spec: JobSpec, partition: Partition) -> Size | None:
    if spec.cpus_per_task or _has(spec, *_CPU_OPTIONS):
        return None
    found = _shares(spec, partition, lambda nodes: usable_cpus(nodes, partition))
    share, whole, gpus = min(found, default=(0, 0, 0))
    if share < spec.tasks_per_node:
        return None
    part = "" if share == whole else f", for {spec.gpus} of its {gpus} GPUs {share}"
    reason = f"partition {partition.name}: {whole} CPUs a node{part} / {spec.tasks_per_node} ranks"
    return "cpus_per_task", share // spec.tasks_per_node, reason


def usable_cpus(nodes: Nodes, partition: Partition) -> int:
    """Return how many CPUs of a node one job can have."""
    return min(nodes.cpus, partition.max_cpus_per_node or nodes.cpus)


def _shares(spec: JobSpec, partition: Partition, amount_of: Callable[[Nodes], int]) -> Iterator[tuple[int, int, int]]:
    """Yield for the fitting nodes what a job gets of an amount of theirs, the amount, and the number of GPUs.

    A job gets the part that belongs to its GPUs, and all of it with whole nodes. With `exclusive=user` the user's other
    jobs may share the node, so the job gets the part.
    """
    whole = partition.whole_nodes or "exclusive" in spec.sbatch
    for nodes in fitting_nodes(spec, partition):
        amount, shared = amount_of(nodes), 0 < spec.gpus < nodes.gpus and not whole
        yield amount * spec.gpus // nodes.gpus if shared else amount, amount, nodes.gpus


def _time(spec: JobSpec, partition: Partition) -> Size | None:
    """Return a short limit of the partition, on which the lead depends; account or QOS may cut a longer one."""
    limit_s = partition.default_time_s or partition.max_time_s
    if spec.time or not limit_s or limit_s >= SHORT_S:
        return None
    what = "default" if partition.default_time_s else "longest"
    return "time", slurm_time(limit_s), f"the {what} time of partition {partition.name}"


def _memory(spec: JobSpec, partition: Partition) -> Size | None:
    """Return the memory that belongs to the GPUs; None for CPU jobs, and where the site has a default."""
    site_decides = partition.default_memory or partition.max_memory_per_node_mb
    if spec.mem or not spec.gpus or site_decides or _has(spec, *_MEMORY_OPTIONS):
        return None
    sizes = list(_shares(spec, partition, lambda nodes: nodes.memory_mb))
    if all(size == whole for size, whole, _ in sizes):
        return ("mem", "0", f"all memory of a node in partition {partition.name}") if sizes else None
    size, whole, gpus = min(sizes)
    return "mem", str(size), f"partition {partition.name}: {whole} MB a node, for {spec.gpus} of its {gpus} GPUs"


def _has(spec: JobSpec, *keys: str) -> bool:
    return any(item.partition("=")[0] in keys for item in spec.sbatch)
