"""Curves over the steps: a line for each attempt. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from slurmddp.report.attempts import Attempt
from slurmddp.report.downsample import RATE, ValueCount, rate_between
from slurmddp.runs.history import Event, number

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
    first: float | None
    last: float | None
    """The newest value, also one that is not finite; None if none was logged."""
    least: float | None
    most: float | None


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The values of one name, a line for each attempt."""

    name: str
    lines: tuple[Line, ...]
    """The oldest attempt first; at least one."""


def build_metric_curves(attempts: Sequence[Attempt]) -> list[Curve]:
    """Return the curves of the logged values and of the steps per second: loss and throughput first, then by name."""
    values: dict[str, dict[str, list[Point]]] = {}
    for attempt in attempts:
        metrics = attempt.all("metrics")
        rates = ((STEPS_PER_S, point) for point in step_rates(metrics))
        for name, point in (*_logged_values(metrics), *rates):
            values.setdefault(name, {}).setdefault(attempt.label, []).append(point)
    counts = {attempt.label: attempt.counts for attempt in attempts}
    return [_build_curve(name, values[name], counts) for name in sorted(values, key=_sort_key)]


def build_checkpoint_curves(attempts: Sequence[Attempt]) -> list[Curve]:
    """Return how long each checkpoint held up the training, and how long it was written."""
    found = []
    for name in (HELD, WRITE):
        lines = {attempt.label: points for attempt in attempts if (points := _checkpoint_points(attempt, name))}
        if lines:
            found.append(_build_curve(name, lines, {}))
    return found


def _sort_key(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)


def _logged_values(events: Iterable[Event]) -> Iterator[tuple[str, Point]]:
    for event in events:
        found = event.fields.get("values")
        for name, raw in found.items() if isinstance(found, Mapping) else ():
            value = number(raw)
            if value is not None:
                yield str(name), (event.count("step"), value)


def step_rates(metrics: Sequence[Event]) -> Iterator[Point]:
    """Yield the steps per second between each two events with metrics, with the step of the later one."""
    for before, event in pairwise(metrics):
        rate = rate_between(before.time, before.count("step"), event.time, event.count("step"))
        if rate is not None:
            yield event.count("step"), rate


def _checkpoint_points(attempt: Attempt, name: str) -> list[Point]:
    found = ((event.count("step"), event.number(name)) for event in attempt.all("checkpoint"))
    return [(step, value) for step, value in found if value is not None]


def _build_curve(name: str, lines: Mapping[str, list[Point]], counts: Mapping[str, Mapping[str, ValueCount]]) -> Curve:
    known = {label: counts.get(label, {}).get(name) for label in lines}
    built = (_build_line(label, points, known[label]) for label, points in lines.items())
    return Curve(name=name, lines=tuple(built))


def _build_line(label: str, points: list[Point], logged: ValueCount | None) -> Line:
    """Return a line; several values of one step keep their order."""
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
        first=ordered[0][1] if ordered else None,
        last=ordered[-1][1] if ordered else None,
        least=min(values, default=None),
        most=max(values, default=None),
    )
