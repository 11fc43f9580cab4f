"""Carries a scaling study out: submits what is missing, waits, and reads what the runs have measured.

Everything it knows lies in the runs' own folders, so that a study that was left goes on with the same words.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from slurmddp.errors import ClusterError, UsageError
from slurmddp.monitoring import follow
from slurmddp.runs import history
from slurmddp.runs.history import Event, number
from slurmddp.runs.submissions import submissions
from slurmddp.scaling.measurements import Point, counted
from slurmddp.scaling.plan import Plan, Planned
from slurmddp.submission.compatibility import check_same
from slurmddp.submission.submit import submit, unfinished
from slurmddp.text import shown

Notice = Callable[[str], None]


def perform(plan: Plan, *, together: bool, environ: Mapping[str, str], notice: Notice) -> list[Planned]:
    """Submit what has not been measured, and wait for its end; return the jobs that have measured nothing.

    Each job waits for the one before it, that they do not disturb each other; not so with `together`. Raises
    UsageError when a run was made with another program, ClusterError when Slurm refuses or does not answer.
    """
    _check_can_wait(plan.jobs, together=together)
    for job in plan.jobs:
        if not job.spec.reset:
            check_same(job.run, job.request.resolved, instead="--reset to measure anew")
    waiting = list(_submitted(plan.jobs, together=together, environ=environ, notice=notice))
    for job, job_id in waiting:
        ended = follow.wait(job.run, job_id, environ, notice=notice)
        if ended.phase != "done":
            notice(f"job {job_id} for {counted(job.gpus)} ended {ended.state}; its output is in {job.run.logs}")
    return [job for job in plan.jobs if not _timing(job)]


def _check_can_wait(jobs: Sequence[Planned], *, together: bool) -> None:
    """Refuse what each job but the first would also have to wait for, where that is not to be written (sbatch(1))."""
    given = jobs[0].spec.dependency or ""
    if "?" in given and len(jobs) > 1 and not together:
        raise UsageError(
            f"--dependency {shown(given)}: `?` is or, and each size waits for the one before it, too; give --together, "
            "or jobs that must all have ended, with commas"
        )


def _submitted(
    jobs: Sequence[Planned], *, together: bool, environ: Mapping[str, str], notice: Notice
) -> Iterator[tuple[Planned, str]]:
    """Yield the jobs that are queued or running now, by their ids, after all that is missing was submitted."""
    last, found = "", []
    for job in jobs:
        if not job.spec.reset and _timing(job):
            continue
        running = [known.job_id for known in unfinished(job.run, environ)]
        last = running[-1] if running else _submit(job if together or not last else job.after(last), environ, notice)
        found.append((job, last))
    yield from found


def _submit(job: Planned, environ: Mapping[str, str], notice: Notice) -> str:
    done = submit(job.request, change=False, environ=environ, notice=notice)
    number = done.job_id.number
    if done.unrecorded:
        raise ClusterError(f"job {number} is queued, but could not be recorded: {done.unrecorded}")
    notice(f"{counted(job.gpus)}: job {number}, run {job.spec.job_name}")
    return number


def _timing(job: Planned) -> Event | None:
    """Return what the run's newest job has measured, if it was asked for the same; None when nothing is there."""
    newest = submissions(job.run)[-1:]
    found = history.read(job.run).of_job(newest[0]["job"]).last("timing") if newest else None
    same = found and (found.count("asked"), found.count("world_size")) == (job.spec.steps, job.gpus)
    return found if same else None


def points(plan: Plan, *, warm_up: int) -> tuple[list[Point], list[str]]:
    """Return the sizes that were measured, without the first `warm_up` steps of each job, and why others are not."""
    found, lost = [], []
    for gpus, group in groupby(plan.jobs, key=lambda job: job.gpus):
        jobs = list(group)
        timings = [timing for job in jobs if (timing := _timing(job))]
        kept = [(timing, times) for timing in timings if (times := _steady(timing, warm_up))]
        if kept:
            found.append(_point(gpus, jobs[0].spec.nodes, kept, warm_up))
        else:
            lost.append(_why_lost(jobs[0], timings, warm_up))
    return found, lost


def _point(gpus: int, nodes: int, kept: Sequence[tuple[Event, tuple[float, ...]]], warm_up: int) -> Point:
    newest = kept[-1][0]
    alone = [0.0] if gpus == 1 else []  # what DDP then measures is its own doing
    shares = alone or [share for timing, times in kept for share in _shares(timing, times, warm_up)]
    return Point(
        gpus=gpus,
        nodes=nodes,
        repeats_s=tuple(times for _, times in kept),
        samples=newest.count("samples") or None,
        communication=statistics.median(shares) if shares else None,
        steps=newest.count("total") or None,
    )


def _steady(timing: Event, warm_up: int) -> tuple[float, ...]:
    """Return the times of the blocks that begin after the warm-up."""
    return _numbers(timing, "times_s")[-(-warm_up // max(1, timing.count("block"))) :]


def _shares(timing: Event, times: Sequence[float], warm_up: int) -> Iterator[float]:
    """Yield the waiting in each block as a share of its step."""
    waits = _numbers(timing, "waits_s")[-(-warm_up // max(1, timing.count("block"))) :]
    if len(waits) == len(times):
        yield from (min(1.0, wait / time) for wait, time in zip(waits, times, strict=True))


def _numbers(timing: Event, name: str) -> tuple[float, ...]:
    values = timing.fields.get(name)
    found = [number(value) for value in values] if isinstance(values, list) else []
    return tuple(value for value in found if value is not None and 0 <= value < math.inf)


def _why_lost(job: Planned, timings: Sequence[Event], warm_up: int) -> str:
    if timings:
        steps = max(timing.count("block") * len(_numbers(timing, "times_s")) for timing in timings)
        return (
            f"{counted(job.gpus)}: the training ended after {steps} steps, of which {warm_up} are warm-up; let it be "
            "longer (--epochs of the bundled worker), or give a smaller --warm-up"
        )
    last = history.read(job.run).last("end")
    if last and last.count("status") == 0:
        return (
            f"{counted(job.gpus)}: run {job.spec.job_name} ended well and measured nothing; only a program that loops "
            "by slurmddp.Checkpointer's run.steps can be measured: time others yourself, and give --from-csv"
        )
    return f"{counted(job.gpus)}: run {job.spec.job_name} measured nothing; its output is in {job.run.logs}"
