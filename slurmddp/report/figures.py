"""A run in numbers: its time, how much of that was useful, its steps. Reads the run's files; Slurm is not asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmddp.monitoring.status import JobStatus, read_facts
from slurmddp.monitoring.status.job_status import count_gpus
from slurmddp.report.attempts import TimeKind
from slurmddp.report.timeline import Timeline, build_timeline
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import find_all_jobs
from slurmddp.runs.ownership import attempt_order


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A run in numbers: see docs/report.md."""

    wall_s: float
    """From the first submission to the end, or until now."""
    allocated_s: float
    """The time in which a job of the run had its nodes."""
    seconds: Mapping[TimeKind, float]
    """The time of each kind; the sum is `wall_s`."""
    node_hours: float
    """Hours in which a job of the run had its nodes, times the nodes."""
    gpus_per_node: int
    gpu_hours: float
    """The same, times the GPUs of a node; 0 without GPUs."""
    goodput: float | None
    """The share of the allocated time that was spent in steps that were kept; None if the steps are not known."""
    ettr: float | None
    """The same share of all time, with the queue: the effective training time ratio of https://arxiv.org/abs/2410.21680."""
    steps_taken: int
    steps_kept: int
    steps_repeated: int
    """Steps that were taken again because their work had been lost."""
    restarts: int
    """In the same allocation."""
    requeues: int
    checkpoints: int


def compute_figures(timeline: Timeline, gpus_per_node: int = 0) -> Figures:
    """Return the numbers of a run."""
    seconds: dict[TimeKind, float] = {}
    for span in timeline.spans:
        seconds[span.kind] = seconds.get(span.kind, 0.0) + span.seconds
    wall_s = timeline.end - timeline.begin
    allocated_s = sum(one.end - one.begin for one in timeline.allocations)
    attempts = timeline.attempts
    node_hours = sum(one.node_hours for one in timeline.allocations)
    measured = [(attempt.progress, attempt.kept) for attempt in attempts if attempt.progress]
    useful_s = seconds.get("useful", 0.0) if measured else None
    taken = sum(progress.last - progress.first for progress, _ in measured)
    distinct = reached = 0  # the steps that lie in at least one attempt
    for first, last in sorted((progress.first, progress.last) for progress, _ in measured):
        distinct += max(0, last - max(first, reached))
        reached = max(reached, last)
    return Figures(
        wall_s=wall_s,
        allocated_s=allocated_s,
        seconds=seconds,
        node_hours=node_hours,
        gpus_per_node=gpus_per_node,
        gpu_hours=node_hours * gpus_per_node,
        goodput=_divide(useful_s, allocated_s),
        ettr=_divide(useful_s, wall_s),
        steps_taken=taken,
        steps_kept=sum(kept - progress.first for progress, kept in measured),
        steps_repeated=taken - distinct,
        restarts=sum(len(job.restarts) for job in timeline.run.jobs),
        # a requeue that a user asked for has no event, but Slurm counts it in the attempts' names
        requeues=sum(
            max([len(job.requeues), *(attempt_order(attempt.name)[0] for attempt in job.attempts)])
            for job in timeline.run.jobs
        ),
        checkpoints=sum(len(attempt.events.all("checkpoint")) for attempt in attempts),
    )


def _divide(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None and whole > 0 else None


def collect_figures(run: RunDir, statuses: Sequence[JobStatus], *, now: float) -> Figures:
    """Return a run in numbers, from the files of the run and the status of its jobs, without its diagnosis."""
    timeline = build_timeline(read_facts(run, statuses), find_all_jobs(run).records, now=now)
    return compute_figures(timeline, count_gpus(run))
