"""A scaling study: plan one run for each size and repeat, submit the missing ones, wait, and read the measurements.

All results are in the folders of the runs, so the same command continues an interrupted study.
"""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from slurmddp.cluster.limits import find_problems
from slurmddp.cluster.request import Request, build_request
from slurmddp.config.job_files import read_named
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.errors import ClusterError, UsageError
from slurmddp.monitoring import follow
from slurmddp.runs import history
from slurmddp.runs.history import Event, number
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import submissions
from slurmddp.scaling.measurements import Point, Scaling
from slurmddp.submission.compatibility import active_jobs, check_same
from slurmddp.submission.submit import submit
from slurmddp.submission.submit_once import Notice
from slurmddp.text import count, quote_value

STEPS: Final = 100
"""Steps of each job, unless --steps is given."""


class PlannedJob(NamedTuple):
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
        return self._replace(request=msgspec.structs.replace(self.request, resolved=resolved))


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
    command = spec.parsed_command
    script = None if command.path_place is None else command.words[command.path_place]
    if script and Path(script).is_file() and (spec.no_python or b"slurmddp" not in read_named(script, "COMMAND:")):
        raise UsageError(
            f"COMMAND: {quote_value(script)} does not use slurmddp, so its steps cannot be measured; iterate over "
            "run.steps of slurmddp.Checkpointer (a script whose loop is in a module needs `import slurmddp`)"
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


def run_jobs(
    jobs: Sequence[PlannedJob], *, together: bool, environ: Mapping[str, str], notice: Notice
) -> list[PlannedJob]:
    """Submit the jobs without a measurement and wait for their end; return the jobs that still have none.

    Each job waits for the one before it, so that they do not affect each other, unless `together` is set. Raises
    UsageError if a run was made with another program, ClusterError if Slurm refuses a job or does not answer.
    """
    given = jobs[0].spec.dependency or ""
    if "?" in given and len(jobs) > 1 and not together:  # no second one can be added to it, see sbatch(1)
        raise UsageError(
            f"--dependency {quote_value(given)}: `?` means or, but each size must wait for the one before it, too; "
            "give --together, or join the jobs by commas"
        )
    for job in jobs:
        if not job.spec.reset:
            check_same(job.run, job.request.resolved, instead="--reset to measure again")
    last, waiting = "", []
    for job in jobs:
        if not job.spec.reset and _timing(job):
            continue
        running = [known.job_id for known in active_jobs(job.run, environ, job.spec)]
        last = running[-1] if running else _submit(job if together or not last else job.after(last), environ, notice)
        waiting.append((job, last))
    for job, job_id in waiting:
        ended = follow.wait_for_job(job.run, job_id, environ, notice=notice)
        if ended.meaning.wait_status:
            notice(f"job {job_id} for {count(job.gpus, 'GPU')} ended as {ended.word}; its output is in {job.run.logs}")
    return [job for job in jobs if not _timing(job)]


def _submit(job: PlannedJob, environ: Mapping[str, str], notice: Notice) -> str:
    done = submit(job.request, change=False, environ=environ, notice=notice)
    number = done.job_id.number
    if done.unrecorded:
        raise ClusterError(f"job {number} is queued, but could not be recorded: {done.unrecorded}")
    notice(f"{count(job.gpus, 'GPU')}: job {number}, run {job.spec.job_name}")
    return number


def _timing(job: PlannedJob) -> Event | None:
    """Return the measurement of the run's newest job, if it has the same steps and size; None otherwise."""
    newest = submissions(job.run)[-1:]
    found = history.read_outline(job.run).of_job(newest[0]["job"]).last("timing") if newest else None
    same = found and (found.count("asked"), found.count("world_size")) == (job.spec.steps, job.gpus)
    return found if same else None


def read_points(jobs: Sequence[PlannedJob], *, warm_up: int) -> tuple[list[Point], list[str]]:
    """Return the measured sizes, without the first `warm_up` steps of each job, and why the others are missing."""
    points, missing = [], []
    for gpus, group in groupby(jobs, key=lambda job: job.gpus):
        repeats = list(group)
        timings = [timing for job in repeats if (timing := _timing(job))]
        measured = [timing for timing in timings if _blocks(timing, "times_s", warm_up)]
        if measured:
            points.append(_build_point(gpus, repeats[0].spec.nodes, measured, warm_up))
        else:
            missing.append(_explain_missing(repeats[0], timings, warm_up))
    return points, missing


def _build_point(gpus: int, nodes: int, measured: Sequence[Event], warm_up: int) -> Point:
    shares = []
    for timing in measured:
        times, waits = (_blocks(timing, name, warm_up) for name in ("times_s", "waits_s"))
        if len(waits) == len(times):
            shares += [min(1.0, wait / time) for wait, time in zip(waits, times, strict=True)]
    if gpus == 1:  # a single rank waits for no other; what DDP measures there is its own overhead
        shares = [0.0]
    return Point(
        gpus=gpus,
        nodes=nodes,
        repeats_s=tuple(_blocks(timing, "times_s", warm_up) for timing in measured),
        samples=measured[-1].count("samples") or None,
        communication=statistics.median(shares) if shares else None,
        steps=measured[-1].count("total") or None,
    )


def _blocks(timing: Event, name: str, warm_up: int = 0) -> tuple[float, ...]:
    """Return the numbers of the blocks of steps that begin after the warm-up."""
    values = timing.fields.get(name)
    found = [number(value) for value in values] if isinstance(values, list) else []
    known = [value for value in found if value is not None and 0 <= value < math.inf]
    return tuple(known[-(-warm_up // max(1, timing.count("block"))) :])


def _explain_missing(job: PlannedJob, timings: Sequence[Event], warm_up: int) -> str:
    size, run = count(job.gpus, "GPU"), job.spec.job_name
    if timings:
        steps = max(timing.count("block") * len(_blocks(timing, "times_s")) for timing in timings)
        return (
            f"{size}: the training ended after {steps} steps, of which {warm_up} are warm-up; make it longer "
            "(--epochs of the bundled worker), or give a smaller --warm-up"
        )
    last = history.read_outline(job.run).last("end")
    if last and last.count("status") == 0:
        return (
            f"{size}: run {run} succeeded without a measurement; only programs that iterate over run.steps of "
            "slurmddp.Checkpointer can be measured"
        )
    return f"{size}: run {run} has no measurement; its output is in {job.run.logs}"
