"""A run in numbers: its time, how much of that was useful, its steps. Reads the run's files; Slurm is not asked."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurmddp.monitoring.status.job_status import JobStatus, read_spec
from slurmddp.report.attempts import ALLOCATED, TimeKind
from slurmddp.report.timeline import Timeline, build_timeline
from slurmddp.runs.facts import read_run
from slurmddp.runs.history import History
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import find_all_jobs
from slurmddp.runs.ownership import attempt_order
from slurmddp.runs.submissions import submissions
from slurmddp.slurm.job_info import JobRef
from slurmddp.slurm.values import parse_moment


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
    allocated_s = sum(seconds.get(kind, 0.0) for kind in ALLOCATED)
    attempts = timeline.attempts
    kinds = Counter(event.kind for attempt in attempts for event in attempt.events.events)
    # The supervisor has no event of a requeue that a user asked for, but Slurm counts them in the attempts' names; and
    # after a requeue there may be no attempt yet.
    events: Counter[str] = Counter()
    by_name: Counter[str] = Counter()
    for attempt in attempts:
        events[attempt.job_id] += len(attempt.events.all("requeue"))
        by_name[attempt.job_id] = max(by_name[attempt.job_id], attempt_order(attempt.name)[0])
    node_hours = sum(attempt.nodes * (attempt.end - attempt.begin) for attempt in attempts) / 3600
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
        gpu_hours=node_hours * gpus_per_node,
        goodput=_divide(useful_s, allocated_s),
        ettr=_divide(useful_s, wall_s),
        steps_taken=taken,
        steps_kept=sum(kept - progress.first for progress, kept in measured),
        steps_repeated=taken - distinct,
        restarts=kinds["restart"],
        requeues=(events | by_name).total(),
        checkpoints=kinds["checkpoint"],
    )


def _divide(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None and whole > 0 else None


def collect_figures(run: RunDir, statuses: Sequence[JobStatus], *, now: float) -> Figures:
    """Return a run in numbers, from the files of the run and the status of its jobs, without its diagnosis."""
    return compute_figures(collect_timeline(run, statuses, None, now)[1], count_gpus(read_spec(run)))


def count_gpus(spec: Mapping[str, Any]) -> int:
    """Return the GPUs of a node, by the job as it was last submitted."""
    number = str(spec.get("gpus-per-node", "")).rpartition(":")[2]
    return int(number) if re.fullmatch("[0-9]{1,3}", number) else 0


def collect_timeline(
    run: RunDir, statuses: Sequence[JobStatus], history: History | None, now: float
) -> tuple[tuple[Mapping[str, Any], ...], Timeline]:
    """Return the records of the run's submissions, and how it spent its time; `history` as for `read_run`."""
    # the job of a setting is an array of its sweep
    numbers = {JobRef.parse(job).array_id for job in find_all_jobs(run).jobs}
    submitted = tuple(item for item in submissions(run.sweep or run) if item["job"] in numbers)
    times = {item["job"]: time.timestamp() for item in submitted if (time := parse_moment(item.get("time")))}
    answers = {item.job_id: item.slurm for item in statuses if item.slurm}
    facts = read_run(run, answers, silent=any(item.silence for item in statuses), history=history)
    return submitted, build_timeline(facts, times, now=now)
