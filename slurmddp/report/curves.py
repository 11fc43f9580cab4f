"""Curves over the steps: a line for each attempt. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slurmddp.report.attempts import TimedAttempt
from slurmddp.report.downsample import RATE, ValueCount, logged_values

MOST_ODD: Final = 400
"""How many values that are not finite a line shows."""

LOSS, THROUGHPUT, STEPS_PER_S, HELD, WRITE = "loss", "samples_per_s", RATE, "held_s", "write_s"
_FIRST: Final = (LOSS, THROUGHPUT, STEPS_PER_S)

Point = tuple[int, float]
"""A step, and a finite value."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The values that one attempt logged by one name."""

    label: str
    """`<job> <attempt>`."""
    points: tuple[Point, ...]
    """By step."""
    odd: tuple[Point, ...]
    """Values that are `nan`, `inf` or `-inf`; of many some."""
    count: int
    """Values that were logged."""
    odd_count: int
    first: float
    last: float
    """The newest value, also one that is not finite."""
    least: float | None
    """Of the finite values; None if there is none."""
    most: float | None


Curves = Mapping[str, Sequence[Line]]
"""By name, a line for each attempt, the oldest first; at least one."""


def build_metric_curves(attempts: Sequence[TimedAttempt]) -> Curves:
    """Return the curves of the logged values and of the steps per second: loss and throughput first, then by name."""
    lines: dict[str, list[Line]] = {}
    for attempt in attempts:
        points: dict[str, list[Point]] = {}
        for event in attempt.events.all("metrics"):
            for name, value in logged_values(event):
                points.setdefault(name, []).append((event.count("step"), value))
        for name, own in points.items():
            lines.setdefault(name, []).append(_build_line(attempt.label, own, attempt.counts.get(name)))
    return {name: lines[name] for name in sorted(lines, key=_sort_key)}


def build_checkpoint_curves(attempts: Sequence[TimedAttempt]) -> Curves:
    """Return how long each checkpoint held up the training, and how long it was written."""
    lines: dict[str, list[Line]] = {}
    for name in (HELD, WRITE):
        for attempt in attempts:
            found = ((event.count("step"), event.number(name)) for event in attempt.events.all("checkpoint"))
            if points := [(step, value) for step, value in found if value is not None]:
                lines.setdefault(name, []).append(_build_line(attempt.label, points))
    return lines


def _sort_key(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)


def _build_line(label: str, points: list[Point], logged: ValueCount | None = None) -> Line:
    """Return a line of at least one point; several values of one step keep their order."""
    ordered = sorted(points, key=lambda point: point[0])
    finite = [point for point in ordered if math.isfinite(point[1])]
    odd = [point for point in ordered if not math.isfinite(point[1])]
    values = [value for _, value in finite]
    return Line(
        label=label,
        points=tuple(finite),
        odd=tuple(odd[:: 1 + len(odd) // MOST_ODD]),
        count=logged.count if logged else len(ordered),
        odd_count=logged.odd if logged else len(odd),
        first=ordered[0][1],
        last=ordered[-1][1],
        least=min(values, default=None),
        most=max(values, default=None),
    )
