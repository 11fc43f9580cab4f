"""What was logged by name, over the steps: an attempt a line, thinned without hiding a peak. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slurmddp.report.attempts import Lap
from slurmddp.report.downsample import RATE, Tally
from slurmddp.report.step_progress import rates
from slurmddp.runs.history import Event, number

MOST_POINTS: Final = 1600
"""Of all lines of a picture together: more than a screen has columns."""
_LEAST_BUCKETS: Final = 4
_OF_A_BUCKET: Final = 4

LOSS, THROUGHPUT, STEPS_PER_S, HELD, WRITE = "loss", "samples_per_s", RATE, "held_s", "write_s"
_FIRST: Final = (LOSS, THROUGHPUT, STEPS_PER_S)

Point = tuple[int, float]
"""A step, and a finite value."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one attempt logged by one name."""

    label: str
    """`<job> <attempt>`."""
    points: tuple[Point, ...]
    """By step; of many, those that show the shape."""
    odd: tuple[Point, ...]
    """Values that are `nan`, `inf` or `-inf`, thinned likewise."""
    count: int
    """Values that were logged."""
    odd_count: int
    first: float | None
    last: float | None
    """The newest value, whatever it is; None where none was logged."""
    least: float | None
    most: float | None


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One name, and what each attempt logged by it."""

    name: str
    lines: tuple[Line, ...]
    """The oldest attempt first; at least one."""


def logged(laps: Sequence[Lap]) -> list[Curve]:
    """Return what was logged, loss and throughput first, then by name; and the steps a second, which are measured."""
    values: dict[str, dict[str, list[Point]]] = {}
    for lap in laps:
        for name, point in (*_values(lap.all("metrics")), *_rates(lap)):
            values.setdefault(name, {}).setdefault(lap.label, []).append(point)
    tallies = {lap.label: lap.tallies for lap in laps}
    return [_curve(name, values[name], tallies) for name in sorted(values, key=_rank)]


def checkpoints(laps: Sequence[Lap]) -> list[Curve]:
    """Return for how long the training was held up by each checkpoint, and how long writing it took."""
    found = []
    for name in (HELD, WRITE):
        lines = {lap.label: [(event.count("step"), value) for event, value in _numbers(lap, name)] for lap in laps}
        if any(lines.values()):
            found.append(_curve(name, {label: points for label, points in lines.items() if points}, {}))
    return found


def thin(points: Sequence[Point], buckets: int) -> list[Point]:
    """Return at most four points a bucket, in their order: its first, least, most and last.

    Nothing that is drawn from them lies elsewhere: the ends, and each bucket's range, are those of all points. The
    method is known as M4 (Jugel et al., VLDB 2014).
    """
    if len(points) <= _OF_A_BUCKET * buckets:
        return list(points)
    kept: list[Point] = []
    for bucket in range(buckets):
        first, end = (place * len(points) // buckets for place in (bucket, bucket + 1))
        places = range(first, end)
        wanted = {first, end - 1, min(places, key=lambda at: points[at][1]), max(places, key=lambda at: points[at][1])}
        kept += [points[at] for at in sorted(wanted)]
    return kept


def _rank(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)


def _values(events: Iterable[Event]) -> Iterator[tuple[str, Point]]:
    for event in events:
        found = event.fields.get("values")
        for name, raw in found.items() if isinstance(found, Mapping) else ():
            value = number(raw)
            if value is not None:
                yield str(name), (event.count("step"), value)


def _rates(lap: Lap) -> Iterator[tuple[str, Point]]:
    return ((STEPS_PER_S, point) for point in rates(lap.all("metrics")))


def _numbers(lap: Lap, name: str) -> Iterator[tuple[Event, float]]:
    found = ((event, event.number(name)) for event in lap.all("checkpoint"))
    return ((event, value) for event, value in found if value is not None)


def _curve(name: str, lines: Mapping[str, list[Point]], tallies: Mapping[str, Mapping[str, Tally]]) -> Curve:
    buckets = max(_LEAST_BUCKETS, MOST_POINTS // _OF_A_BUCKET // len(lines))
    known = {label: tallies.get(label, {}).get(name) for label in lines}
    return Curve(name=name, lines=tuple(_line(label, points, buckets, known[label]) for label, points in lines.items()))


def _line(label: str, points: list[Point], buckets: int, tally: Tally | None) -> Line:
    """Return a line; values logged for one step stay in the order in which they were."""
    ordered = sorted(points, key=lambda point: point[0])
    finite = [point for point in ordered if math.isfinite(point[1])]
    odd = [point for point in ordered if not math.isfinite(point[1])]
    values = [value for _, value in finite]
    return Line(
        label=label,
        points=tuple(thin(finite, buckets)),
        odd=tuple(odd[:: 1 + len(odd) // buckets]),
        count=tally.count if tally else len(ordered),
        odd_count=tally.odd if tally else len(odd),
        first=ordered[0][1] if ordered else None,
        last=ordered[-1][1] if ordered else None,
        least=min(values, default=None),
        most=max(values, default=None),
    )
