"""A job as it will be submitted: the values that it leaves open are filled from the cluster. Asks Slurm once."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from slurmddp.cluster.defaults import fill_open_values
from slurmddp.cluster.partitions import Cluster, Partition
from slurmddp.config.job_spec import JOB_FIELDS, JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.errors import ClusterError
from slurmddp.slurm import client
from slurmddp.slurm.commands import SHOW_BY_INPUT
from slurmddp.slurm.values import slurm_time
from slurmddp.text import count

if TYPE_CHECKING:
    from slurmddp.config.job_array import Array


class Request(msgspec.Struct, frozen=True):
    """A job, and the cluster that its open values come from."""

    resolved: Resolved
    cluster: Cluster | None = None
    silence: str = ""
    """Why no cluster is known; empty when one is."""
    computed: tuple[str, ...] = ()
    """The keys of the options whose values come from the cluster."""
    array: "Array | None" = None
    """The tasks, where it is an array."""

    @property
    def programs(self) -> tuple[JobSpec, ...]:
        """The job with each program that it will run."""
        return self.array.programs if self.array else (self.resolved.spec,)

    @property
    def summary(self) -> str:
        """What the job asks for, in a few words: `train: 2 nodes x 8 GPUs, 16 ranks, partition gpu, no time limit`."""
        spec = self.resolved.spec
        if spec.script:
            return f"{spec.job_name}: {spec.script.path}"
        partition = next(self.cluster.partitions_of(spec.partition), None) if self.cluster else None
        size = f"{count(spec.nodes, 'node')}{f' x {_format_gpus(spec)}' if spec.gpus_per_node else ''}"
        size += f" and {count(spec.spares, 'spare node')}" if spec.spares else ""
        is_shared = 0 < spec.gpus < spec.tasks_per_node
        shares = f" ({spec.tasks_per_node} share {_format_gpus(spec)} on each node)" if is_shared else ""
        ranks = count(spec.nodes * spec.tasks_per_node, "rank") + shares
        name = spec.partition or (partition.name if partition else "")
        words = filter(None, (size, ranks, f"partition {name}" if name else "", _time_limit(spec, partition)))
        settings = "each setting " if self.array else ""
        return f"{spec.job_name}: {settings}{', '.join(words)}"


def fill_from_cluster(resolved: Resolved, environ: Mapping[str, str]) -> Request:
    """Return the job with its open values filled; unchanged where no cluster answers, or where it cannot decide."""
    if silence := _why_undecided(resolved.spec):
        return Request(resolved, silence=silence)
    try:
        client.find_program(SHOW_BY_INPUT[0], environ)
        from slurmddp.cluster.inspect import query_cluster  # noqa: PLC0415 where no Slurm is, there is nothing to ask

        cluster = query_cluster(environ)
    except ClusterError as error:
        return Request(resolved, silence=str(error))
    return build_request(resolved, cluster)


def build_request(resolved: Resolved, cluster: Cluster) -> Request:
    """Return the job with its open values filled from this cluster."""
    full = fill_open_values(resolved, cluster)
    before, after = resolved.origins, full.origins
    changed = [key for key, field in JOB_FIELDS.items() if after.get(field.name) != before.get(field.name)]
    return Request(full, cluster, computed=tuple(changed))


def _why_undecided(spec: JobSpec) -> str:
    """Return why the job's partition on this cluster is not known; empty when it is."""
    if spec.script:
        return f"{spec.script.path} asks for what it needs"
    if spec.launcher == "manual":
        return "--launcher manual asks no cluster for anything"
    if any(item.startswith("clusters=") for item in spec.sbatch):
        return "--sbatch clusters sends the job to another cluster"
    if spec.reservation and spec.partition is None:
        return "the reservation chooses the partition; name it by --partition"
    return ""


def _format_gpus(spec: JobSpec) -> str:
    return count(spec.gpus, f"{spec.gpu_type} GPU".lstrip())


def _time_limit(spec: JobSpec, partition: Partition | None) -> str:
    """Return the time limit in words; empty when it depends on a partition that is not known."""
    if spec.time:
        return "no time limit" if spec.time_s is None else f"time limit {spec.time}"
    if partition is None:
        return ""
    limit_s = partition.default_time_s if partition.default_time_s is not None else partition.max_time_s
    return "no time limit" if limit_s is None else f"the partition's time limit {slurm_time(limit_s)}"
