"""Run a scaling study: submit the missing jobs, wait for them, and read their measurements.

All results are in the folders of the runs, so the same command continues an interrupted study.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from slurmddp.errors import ClusterError, UsageError
from slurmddp.monitoring import follow
from slurmddp.runs import history
from slurmddp.runs.history import Event, number
from slurmddp.runs.submissions import submissions
from slurmddp.scaling.measurements import Point
from slurmddp.scaling.plan import PlannedJob
from slurmddp.submission.compatibility import active_jobs, check_same
from slurmddp.submission.submit import submit
from slurmddp.text import count, quote_value

Notice = Callable[[str], None]


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
        running = [known.job_id for known in active_jobs(job.run, environ)]
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
    found = history.read(job.run).of_job(newest[0]["job"]).last("timing") if newest else None
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
    last = history.read(job.run).last("end")
    if last and last.count("status") == 0:
        return (
            f"{size}: run {run} succeeded without a measurement; only programs that iterate over run.steps of "
            "slurmddp.Checkpointer can be measured: measure others yourself, and give --from-csv"
        )
    return f"{size}: run {run} has no measurement; its output is in {job.run.logs}"
