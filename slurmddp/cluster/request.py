"""A job as it will be asked for: what it leaves open is filled from the cluster that answers here. Asks Slurm once."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from slurmddp.cluster import Cluster, inspect
from slurmddp.cluster.defaults import sized
from slurmddp.config.job_spec import JOB_FIELDS, JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.errors import ClusterError

if TYPE_CHECKING:
    from slurmddp.config.job_array import Array


class Request(msgspec.Struct, frozen=True):
    """A job, and the cluster that it was fitted to."""

    resolved: Resolved
    cluster: Cluster | None = None
    silence: str = ""
    """Why no cluster is known; empty when one is."""
    computed: tuple[str, ...] = ()
    """The keys whose values come from the cluster."""
    array: "Array | None" = None
    """The tasks, where it is an array."""

    @property
    def programs(self) -> tuple[JobSpec, ...]:
        """The job with each program that it is to run."""
        return self.array.programs if self.array else (self.resolved.spec,)

    def explained(self) -> Iterator[str]:
        """Yield a line for each value that the cluster has decided, or why there is none."""
        if self.silence:
            yield f"what depends on the cluster is left to it: {self.silence}"
            return
        spec, origins = self.resolved.spec, self.resolved.origins
        for key in self.computed:
            yield f"--{key} {getattr(spec, JOB_FIELDS[key].name)}: {origins[key]}"


def fitted(resolved: Resolved, environ: Mapping[str, str]) -> Request:
    """Return the job with what it leaves open filled; as it is where no cluster answers, or none will have it."""
    elsewhere = _elsewhere(resolved.spec)
    if elsewhere:
        return Request(resolved, silence=elsewhere)
    try:
        cluster = inspect.look(environ)
    except ClusterError as error:
        return Request(resolved, silence=str(error))
    full = sized(resolved, cluster)
    computed = tuple(key for key, origin in full.origins.items() if origin != resolved.origins[key])
    return Request(full, cluster, computed=computed)


def _elsewhere(spec: JobSpec) -> str:
    """Return why this cluster's default partition says nothing of the job; empty when it does."""
    if spec.launcher == "manual":
        return "--launcher manual asks no cluster for anything"
    if any(item.startswith("clusters=") for item in spec.sbatch):
        return "--sbatch clusters sends the job to another cluster"
    if spec.reservation and spec.partition is None:
        return "the reservation chooses the partition; name it by --partition"
    return ""
