"""How much of a run's time was of use, and what the rest was spent on. Pure.

Goodput is the time spent in steps that were kept, over all the time there was: see docs/report.md.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurmddp.report.attempts import ALLOCATED, Kind, Lap
from slurmddp.report.timeline import Timeline


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A run in numbers."""

    wall_s: float
    """From the first submission to the end, or until now."""
    allocated_s: float
    """In which a job of the run held its nodes."""
    seconds: Mapping[Kind, float]
    """What the time was spent on; together it is `wall_s`."""
    goodput: float | None
    """Of the allocated time; None when the steps are not known."""
    goodput_wall: float | None
    """Of all time; None when the steps are not known."""
    steps_taken: int
    steps_kept: int
    steps_repeated: int
    """Taken once more, for what had been done before was lost."""
    attempts: int
    restarts: int
    """In the same allocation."""
    requeues: int
    checkpoints: int


def figures(timeline: Timeline) -> Figures:
    """Return the numbers of a run."""
    seconds: dict[Kind, float] = {}
    for span in timeline.spans:
        seconds[span.kind] = seconds.get(span.kind, 0.0) + span.seconds
    wall_s = timeline.end - timeline.begin
    allocated_s = sum(seconds.get(kind, 0.0) for kind in ALLOCATED)
    useful_s = seconds.get("useful", 0.0) if any(lap.climb for lap in timeline.laps) else None
    taken, kept = (sum(pair) for pair in zip(*map(_steps, timeline.laps), strict=True)) if timeline.laps else (0, 0)
    return Figures(
        wall_s=wall_s,
        allocated_s=allocated_s,
        seconds=seconds,
        goodput=_share(useful_s, allocated_s),
        goodput_wall=_share(useful_s, wall_s),
        steps_taken=taken,
        steps_kept=kept,
        steps_repeated=taken - _distinct((lap.climb.first, lap.climb.last) for lap in timeline.laps if lap.climb),
        attempts=len(timeline.laps),
        restarts=_count(timeline.laps, "restart"),
        requeues=sum(_requeues(laps) for laps in _by_job(timeline.laps)),
        checkpoints=_count(timeline.laps, "checkpoint"),
    )


def _share(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None and whole > 0 else None


def _steps(lap: Lap) -> tuple[int, int]:
    """Return how many steps an attempt took, and how many of them were kept."""
    return (lap.climb.last - lap.climb.first, lap.kept - lap.climb.first) if lap.climb else (0, 0)


def _distinct(ranges: Iterable[tuple[int, int]]) -> int:
    """Return how many steps lie in any of these ranges."""
    count, reached = 0, 0
    for first, last in sorted(ranges):
        count += max(0, last - max(first, reached))
        reached = max(reached, last)
    return count


def _by_job(laps: Iterable[Lap]) -> Iterable[list[Lap]]:
    jobs: dict[str, list[Lap]] = {}
    for lap in laps:
        jobs.setdefault(lap.job, []).append(lap)
    return jobs.values()


def _requeues(laps: Sequence[Lap]) -> int:
    """Return how often a job went back into the queue: by what its script told, and by Slurm's count in its attempts.

    Slurm tells the script of none that somebody asked for, and the newest may have no attempt yet.
    """
    counts = (lap.name.partition(".")[0] for lap in laps)
    return max(_count(laps, "requeue"), *(int(count) for count in counts if re.fullmatch("[0-9]{1,9}", count)), 0)


def _count(laps: Iterable[Lap], kind: str) -> int:
    return sum(len(lap.all(kind)) for lap in laps)
