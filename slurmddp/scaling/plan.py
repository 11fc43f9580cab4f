"""The jobs of a scaling study: one for each size and repeat, each a run of its own. Submits nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from slurmddp.cluster import Cluster
from slurmddp.cluster.defaults import sized
from slurmddp.cluster.limits import problems
from slurmddp.cluster.request import Request
from slurmddp.config.command import script_of
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import ClusterError, UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.scaling.measurements import Scaling, counted
from slurmddp.text import shown

STEPS: Final = 100
"""Of each job, where nobody says."""


@dataclass(frozen=True)
class Planned:
    """One job of the study."""

    gpus: int
    """Ranks of the whole job; where nodes have no GPUs, of the CPU."""
    repeat: int
    """From 1."""
    request: Request

    @property
    def spec(self) -> JobSpec:
        """The job."""
        return self.request.resolved.spec

    @property
    def run(self) -> RunDir:
        """Its folder."""
        return RunDir.named(self.spec.runs_dir, self.spec.job_name)

    def after(self, job_id: str) -> "Planned":
        """Return the same job, to start when another one has ended."""
        ends = ",".join(filter(None, (self.spec.dependency, f"afterany:{job_id}")))
        return replace(
            self, request=msgspec.structs.replace(self.request, resolved=_with(self.request.resolved, dependency=ends))
        )


@dataclass(frozen=True)
class Plan:
    """All jobs of a study, the smallest first."""

    name: str
    jobs: tuple[Planned, ...]
    node_size: int
    """GPUs of a node that is filled."""


def plan(resolved: Resolved, whole: Request, sizes: Sequence[int], *, scaling: Scaling, repeats: int) -> Plan:
    """Return the jobs that measure these sizes; each fills a node before it takes the next.

    `whole` is the same job fitted to the cluster, which is what the sizes are fitted to as well. Raises UsageError for
    sizes that leave a node half full, or a batch that cannot be divided; ClusterError for a size that the cluster can
    never give.
    """
    _check(resolved.spec, sizes)
    node_size = _node_size(resolved.spec, whole)
    jobs: list[Planned] = []
    for gpus in sorted(set(sizes)):
        one = _sized(resolved, gpus, node_size, min(sizes), scaling)
        named = ((repeat, _named(one, resolved.spec.job_name, gpus, repeat)) for repeat in range(1, repeats + 1))
        jobs += [Planned(gpus, repeat, _request(job, whole)) for repeat, job in named]
    _check_possible(jobs, whole.cluster)
    return Plan(resolved.spec.job_name, tuple(jobs), node_size)


def _check(spec: JobSpec, sizes: Sequence[int]) -> None:
    if not sizes:
        raise UsageError("scale needs sizes to measure, as in --gpus 1,2,4,8")
    if spec.is_one_process:
        raise UsageError("--strategy dp is one process on one node; a scaling study needs --strategy ddp or fsdp")
    _check_measurable(spec)
    if spec.gpus and spec.ntasks_per_node not in (None, spec.gpus):
        raise UsageError("scale gives each GPU one rank; leave --ntasks-per-node out")


def _check_measurable(spec: JobSpec) -> None:
    """Refuse a program that would train to its end on each size and tell nothing; a module is not looked into."""
    script = script_of(spec.command)
    if script is None or not Path(script).is_file():
        return
    if spec.no_python or b"slurmddp" not in Path(script).read_bytes():
        raise UsageError(
            f"COMMAND: {shown(script)} does not use slurmddp, so its steps can be neither counted nor timed; loop by "
            "the run.steps of slurmddp.Checkpointer, or time it yourself and give --from-csv (a script that leaves the "
            "loop to a module says so by `import slurmddp`)"
        )


def _node_size(spec: JobSpec, whole: Request) -> int:
    """Return how many ranks fill a node: its GPUs, or what was given for one without."""
    size = spec.gpus or spec.ntasks_per_node or whole.resolved.spec.gpus
    if not size:
        why = whole.silence or "its nodes have no GPUs that a job could count on"
        raise ClusterError(f"how many GPUs fill a node is not known ({why}); give --gpus-per-node or --ntasks-per-node")
    return size


def _sized(resolved: Resolved, gpus: int, node_size: int, smallest: int, scaling: Scaling) -> Resolved:
    spec = resolved.spec
    if gpus > node_size and gpus % node_size:
        full = gpus // node_size * node_size
        raise UsageError(
            f"--gpus {gpus} leaves a node of {node_size} partly empty; give {full} or {full + node_size}, or another "
            "--gpus-per-node"
        )
    each, nodes = min(gpus, node_size), max(1, gpus // node_size)
    by_ranks = not spec.gpus and spec.ntasks_per_node
    size = (
        {"ntasks_per_node": each} if by_ranks else {"gpus_per_node": ":".join(filter(None, (spec.gpu_type, str(each))))}
    )
    worker = _divided(spec.worker, smallest, gpus) if scaling == "strong" and not spec.command else spec.worker
    return _with(resolved, nodes=nodes, steps=spec.steps or STEPS, worker=worker, **size)


def _divided(worker: WorkerOptions, smallest: int, gpus: int) -> WorkerOptions:
    """Return the worker with the batch of a rank that leaves the samples of a step as on the smallest size."""
    batch = worker.batch_size * smallest
    if batch % gpus:
        raise UsageError(
            f"--strong: the {batch} samples of a step cannot be divided among {counted(gpus)}; give another "
            f"--batch-size (of a rank on {counted(smallest)})"
        )
    return msgspec.structs.replace(worker, batch_size=batch // gpus)


def _named(resolved: Resolved, name: str, gpus: int, repeat: int) -> Resolved:
    return _with(resolved, job_name=f"{name}-scale-{gpus}" + (f"-r{repeat}" if repeat > 1 else ""))


def _with(resolved: Resolved, **values: Any) -> Resolved:
    origins = {**resolved.origins, **{key.replace("_", "-"): "scale" for key in values if key != "worker"}}
    return resolved._replace(spec=msgspec.structs.replace(resolved.spec, **values), origins=origins)


def _request(resolved: Resolved, whole: Request) -> Request:
    if whole.cluster is None:
        return Request(resolved, silence=whole.silence)
    full = sized(resolved, whole.cluster)
    computed = tuple(key for key, origin in full.origins.items() if origin != resolved.origins[key])
    return Request(full, whole.cluster, computed=computed)


def _check_possible(jobs: Sequence[Planned], cluster: Cluster | None) -> None:
    """Refuse the study before its first job is submitted when one of its sizes can never be had."""
    found = dict.fromkeys(_problems(jobs, cluster)) if cluster else ()
    if found:
        raise ClusterError("; ".join(found))


def _problems(jobs: Sequence[Planned], cluster: Cluster) -> Iterator[str]:
    for job in jobs:
        yield from (f"{counted(job.gpus)}: {problem}" for problem in problems(job.spec, cluster))


def sizes(text: str, option: str) -> tuple[int, ...]:
    """Return the numbers in `1,2,4`; raise UsageError for anything else."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and 0 < int(word) < 10**6 for word in words):
        raise UsageError(f"{option}: {shown(text)} is not a list of whole numbers, 1 or more, as in 1,2,4,8")
    return tuple(sorted({int(word) for word in words}))
