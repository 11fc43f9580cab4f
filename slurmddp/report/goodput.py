"""How much of a run's time was useful, and how the rest was spent. Pure.

Goodput is the time of the steps that were kept, divided by all time: see docs/report.md.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurmddp.report.attempts import ALLOCATED, TimedAttempt, TimeKind
from slurmddp.report.timeline import Timeline


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A run in numbers."""

    wall_s: float
    """From the first submission to the end, or until now."""
    allocated_s: float
    """The time in which a job of the run had its nodes."""
    seconds: Mapping[TimeKind, float]
    """The time of each kind; the sum is `wall_s`."""
    goodput: float | None
    """Of the allocated time; None if the steps are not known."""
    goodput_wall: float | None
    """Of all time; None if the steps are not known."""
    steps_taken: int
    steps_kept: int
    steps_repeated: int
    """Steps that were taken again because their work had been lost."""
    restarts: int
    """In the same allocation."""
    requeues: int
    checkpoints: int


def compute_figures(timeline: Timeline) -> Figures:
    """Return the numbers of a run."""
    seconds: dict[TimeKind, float] = {}
    for span in timeline.spans:
        seconds[span.kind] = seconds.get(span.kind, 0.0) + span.seconds
    wall_s = timeline.end - timeline.begin
    allocated_s = sum(seconds.get(kind, 0.0) for kind in ALLOCATED)
    attempts = timeline.attempts
    measured = [(attempt.progress, attempt.kept) for attempt in attempts if attempt.progress]
    useful_s = seconds.get("useful", 0.0) if measured else None
    taken = sum(progress.last - progress.first for progress, _ in measured)
    return Figures(
        wall_s=wall_s,
        allocated_s=allocated_s,
        seconds=seconds,
        goodput=_divide(useful_s, allocated_s),
        goodput_wall=_divide(useful_s, wall_s),
        steps_taken=taken,
        steps_kept=sum(kept - progress.first for progress, kept in measured),
        steps_repeated=taken - _count_distinct((progress.first, progress.last) for progress, _ in measured),
        restarts=_count_events(attempts, "restart"),
        requeues=_count_requeues(attempts),
        checkpoints=_count_events(attempts, "checkpoint"),
    )


def _divide(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None and whole > 0 else None


def _count_distinct(ranges: Iterable[tuple[int, int]]) -> int:
    """Return how many steps lie in at least one of the ranges."""
    count, reached = 0, 0
    for first, last in sorted(ranges):
        count += max(0, last - max(first, reached))
        reached = max(reached, last)
    return count


def _count_requeues(attempts: Iterable[TimedAttempt]) -> int:
    """Return how often the jobs were requeued: by the supervisor's events, or by Slurm's count in the attempts' names.

    The supervisor has no event of a requeue that a user asked for; and after a requeue there may be no attempt yet.
    """
    events: Counter[str] = Counter()
    by_name: Counter[str] = Counter()
    for attempt in attempts:
        events[attempt.job] += len(attempt.all("requeue"))
        if match := re.match(r"([0-9]{1,9})(\.|\Z)", attempt.name):
            by_name[attempt.job] = max(by_name[attempt.job], int(match[1]))
    return (events | by_name).total()


def _count_events(attempts: Iterable[TimedAttempt], kind: str) -> int:
    return sum(len(attempt.all(kind)) for attempt in attempts)
