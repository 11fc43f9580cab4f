"""The jobs of a scaling study: one run for each size and repeat. Nothing is submitted here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from slurmddp.cluster.limits import find_problems
from slurmddp.cluster.request import Request, build_request
from slurmddp.config.job_files import read_named
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.errors import ClusterError, UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.scaling.measurements import Scaling
from slurmddp.text import count, quote_value

STEPS: Final = 100
"""Steps of each job, unless --steps is given."""


@dataclass(frozen=True)
class PlannedJob:
    """One job of the study."""

    gpus: int
    """Ranks of the whole job; they use CPUs if the nodes have no GPUs."""
    request: Request

    @property
    def spec(self) -> JobSpec:
        """The description of the job."""
        return self.request.resolved.spec

    @property
    def run(self) -> RunDir:
        """The folder of the job's run."""
        return RunDir.named(self.spec.runs_dir, self.spec.job_name)

    def after(self, job_id: str) -> "PlannedJob":
        """Return the same job with a dependency: it starts when another job has ended."""
        ends = ",".join(filter(None, (self.spec.dependency, f"afterany:{job_id}")))
        resolved = self.request.resolved.replace("scale", dependency=ends)
        return replace(self, request=msgspec.structs.replace(self.request, resolved=resolved))


def plan_study(
    resolved: Resolved, fitted: Request, sizes: Sequence[int], *, scaling: Scaling, repeats: int
) -> list[PlannedJob]:
    """Return the jobs that measure these sizes; each fills a node before it uses the next.

    `fitted` is the same job fitted to the cluster. Raises UsageError for sizes that fill a node only partly, and for a
    batch that cannot be divided; ClusterError for a size that the cluster does not have.
    """
    _check(resolved.spec)
    spec, cluster = resolved.spec, fitted.cluster
    node_size = spec.gpus or spec.ntasks_per_node or fitted.resolved.spec.gpus
    if not node_size:
        why = fitted.silence or "its nodes have no GPUs that a job could count on"
        raise ClusterError(f"how many GPUs fill a node is not known ({why}); give --gpus-per-node or --ntasks-per-node")
    jobs: list[PlannedJob] = []
    for gpus in sorted(set(sizes)):
        sized = _resize(resolved, gpus, node_size, min(sizes), scaling)
        for repeat in range(1, repeats + 1):
            name = f"{resolved.spec.job_name}-scale-{gpus}" + (f"-r{repeat}" if repeat > 1 else "")
            one = sized.replace("scale", job_name=name)
            request = build_request(one, cluster) if cluster else Request(one, silence=fitted.silence)
            jobs.append(PlannedJob(gpus, request))
    if cluster:  # before the first job is submitted
        for job in jobs:
            partition = next(cluster.partitions_of(job.spec.partition), None)
            if partition and job.spec.gpus and job.spec.nodes > partition.node_count:
                most = partition.node_count * job.spec.gpus
                has = f"--gpus {job.gpus}: partition {partition.name} has {count(most, 'GPU')}"
                raise ClusterError(f"{has}; give at most {most}, or another --partition")
            if found := find_problems(job.spec, cluster):
                raise ClusterError(f"--gpus {job.gpus}: {'; '.join(found)}")
    return jobs


def _check(spec: JobSpec) -> None:
    """Raise UsageError for a job that is not one rank for each GPU, or whose steps cannot be measured."""
    if spec.is_one_process:
        raise UsageError("--strategy dp is one process on one node; a scaling study needs --strategy ddp or fsdp")
    command = spec.parsed_command
    script = None if command.path_place is None else command.words[command.path_place]
    if script and Path(script).is_file() and (spec.no_python or b"slurmddp" not in read_named(script, "COMMAND:")):
        raise UsageError(
            f"COMMAND: {quote_value(script)} does not use slurmddp, so its steps cannot be measured; iterate over "
            "run.steps of slurmddp.Checkpointer, or measure the times yourself and give --from-csv (a script whose "
            "loop is in a module needs `import slurmddp`)"
        )
    if spec.gpus and spec.ntasks_per_node not in (None, spec.gpus):
        raise UsageError("scale gives each GPU one rank; leave --ntasks-per-node out")


def _resize(resolved: Resolved, gpus: int, node_size: int, smallest: int, scaling: Scaling) -> Resolved:
    spec = resolved.spec
    if gpus > node_size and gpus % node_size:
        full = gpus // node_size * node_size
        raise UsageError(
            f"--gpus {gpus} leaves a node of {node_size} partly empty; give {full} or {full + node_size}, or another "
            "--gpus-per-node"
        )
    each, nodes = min(gpus, node_size), max(1, gpus // node_size)
    on_cpus = not spec.gpus and spec.ntasks_per_node
    typed = f"{spec.gpu_type}:{each}" if spec.gpu_type else str(each)
    size = {"ntasks_per_node": each} if on_cpus else {"gpus_per_node": typed}
    worker, batch = spec.worker, spec.worker.batch_size * smallest
    if scaling == "strong" and not spec.command:  # the samples of a step stay constant
        if batch % gpus:
            raise UsageError(
                f"--strong: the {batch} samples of a step cannot be divided among {count(gpus, 'GPU')}; give another "
                f"--batch-size (of a rank on {count(smallest, 'GPU')})"
            )
        worker = msgspec.structs.replace(worker, batch_size=batch // gpus)
    return resolved.replace("scale", nodes=nodes, steps=spec.steps or STEPS, worker=worker, **size)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes in a text like `1,2,4`; raise UsageError for any other text."""
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"0*[1-9][0-9]{0,5}", word) for word in words):
        raise UsageError(f"--gpus: {quote_value(text)} is not a list of whole numbers, 1 to 999999, as in 1,2,4,8")
    return tuple(sorted({int(word) for word in words}))
