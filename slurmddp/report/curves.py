"""The values that a run logged, downsampled while its events are read, and their curves over the steps.

A curve has a line for each attempt. Reads the events; writes nothing.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

from slurmddp.report.attempts import TimedAttempt
from slurmddp.runs.history import Event, number, read_frequent, read_outline
from slurmddp.runs.layout import RunDir

MOST_METRICS: Final = 4000
"""Of more metrics only those that show the shape of a bucket are kept."""
MOST_SAVES: Final = 1000
"""So many checkpoints of an attempt are drawn."""
MOST_NAMES: Final = 100
"""Of an attempt; others are left out."""
MOST_ATTEMPTS: Final = 2000
"""Of more, the metrics are left out."""
_OF_A_BUCKET: Final = 10
"""About so many metrics of a bucket are kept: those of four or five names."""
RATE: Final = "steps/s"
"""A value that is measured and not logged: the steps per second since the metrics before."""
MOST_ODD: Final = 400
"""How many values that are not finite a line shows."""

LOSS, THROUGHPUT, STEPS_PER_S, HELD, WRITE = "loss", "samples_per_s", RATE, "held_s", "write_s"
_FIRST: Final = (LOSS, THROUGHPUT, STEPS_PER_S)


@dataclass(frozen=True)
class ValueCount:
    """How many values were logged by one name."""

    count: int
    odd: int
    """How many of them are `nan`, `inf` or `-inf`."""


Counts = Mapping[tuple[str, str], Mapping[str, ValueCount]]
"""By job and attempt, and by name; of all metrics, also of those that are not kept."""


def read_events(run: RunDir) -> tuple[tuple[Event, ...], Counts]:
    """Return the events of a run as `downsample_events`; none if there is no file."""
    others = (event for event in read_outline(run).events if event.kind not in ("metrics", "checkpoint"))
    count, frequent = read_frequent(run)
    size = 1 if count <= MOST_METRICS else -(-count * _OF_A_BUCKET // MOST_METRICS)
    return downsample_events(chain(others, frequent), size)


def downsample_events(events: Iterable[Event], size: int) -> tuple[tuple[Event, ...], Counts]:
    """Return the events, behind them each attempt's metrics, with `RATE`, in buckets of this size; and their counts.

    Each bucket of an attempt's metrics keeps its first and last, and the least and most for each name, `RATE` included.
    So a peak among a million stays (M4: Jugel et al., VLDB 2014).
    """
    others: list[Event] = []
    series: dict[tuple[str, str], _Series] = {}
    for event in events:
        key = event.job, event.attempt
        if event.kind != "metrics":
            others.append(event)
        elif key in series or len(series) < MOST_ATTEMPTS:
            series.setdefault(key, _Series(size)).add(event)
    for one in series.values():
        one.close_bucket()
    metrics = (event for one in series.values() for event in one.kept)
    counts = {
        key: {name: ValueCount(count, one.odd[name]) for name, count in one.counts.items()}
        for key, one in series.items()
    }
    return (*others, *metrics), counts


def logged_values(metrics: Event) -> Iterator[tuple[str, float]]:
    """Yield the values of metrics by name; what is no number is left out."""
    return _numbers(_values(metrics))


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    return ((str(name), value) for name, raw in values.items() if (value := number(raw)) is not None)


@dataclass
class _Series:
    """The metrics of one attempt, in buckets."""

    size: int
    kept: list[Event] = field(default_factory=list)
    bucket: list[tuple[Event, Mapping[str, Any]]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    before: tuple[int, float] | None = None
    """Step and time of the metrics before."""

    def add(self, event: Event) -> None:
        """Add metrics; a full bucket is downsampled."""
        step, before = event.count("step"), self.before
        self.before = step, event.time
        steps, seconds = (step - before[0], event.time - before[1]) if before else (0, 0)
        values = _values(event)
        self.bucket.append((event, {RATE: steps / seconds, **values} if steps > 0 and seconds > 0 else values))
        if len(self.bucket) == self.size:
            self.close_bucket()

    def close_bucket(self) -> None:
        """Count the bucket's values; keep the metrics that show its shape, and the first with an odd value."""
        finite: dict[str, list[tuple[float, int]]] = {}
        odd: list[int] = []
        for at, (_, values) in enumerate(self.bucket):
            for name, value in _numbers(values):
                if name not in self.counts and len(self.counts) >= MOST_NAMES:
                    continue
                self.counts[name] += 1
                if math.isfinite(value):
                    finite.setdefault(name, []).append((value, at))
                else:
                    self.odd[name] += 1
                    odd.append(at)
        extremes = {at for values in finite.values() for _, at in (min(values), max(values))}
        shown = extremes | {0, len(self.bucket) - 1, *odd[:1]}
        for at, (event, values) in enumerate(self.bucket):
            if at in shown:
                own = {name: value for name, value in values.items() if name in self.counts}
                self.kept.append(replace(event, fields={**event.fields, "values": own}))
        self.bucket.clear()


def _values(metrics: Event) -> Mapping[str, Any]:
    found = metrics.fields.get("values")
    return found if isinstance(found, Mapping) else {}


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


def build_metric_curves(attempts: Sequence[TimedAttempt], counts: Counts) -> Curves:
    """Return the curves of the logged values and of the steps per second: loss and throughput first, then by name."""
    lines: dict[str, list[Line]] = {}
    for attempt in attempts:
        points: dict[str, list[Point]] = {}
        for event in attempt.events.all("metrics"):
            for name, value in logged_values(event):
                points.setdefault(name, []).append((event.count("step"), value))
        for name, own in points.items():
            logged = counts.get((attempt.job_id, attempt.name), {}).get(name)
            lines.setdefault(name, []).append(_build_line(attempt.label, own, logged))
    return {name: lines[name] for name in (*_FIRST, *sorted(lines.keys() - {*_FIRST})) if name in lines}


def build_checkpoint_curves(attempts: Sequence[TimedAttempt]) -> Curves:
    """Return how long each checkpoint held up the training, and how long it was written."""
    lines: dict[str, list[Line]] = {}
    for name in (HELD, WRITE):
        for attempt in attempts:
            found = ((event.count("step"), event.number(name)) for event in attempt.events.all("checkpoint"))
            if points := [(step, value) for step, value in found if value is not None]:
                odd = sum(not math.isfinite(value) for _, value in points)
                line = _build_line(attempt.label, _outline(points), ValueCount(len(points), odd))
                lines.setdefault(name, []).append(line)
    return lines


def _outline(points: list[Point]) -> list[Point]:
    """Return points that show the same shape, `MOST_SAVES` or a little more: the least and the most of each bucket."""
    size = 2 * len(points) // MOST_SAVES
    if size <= 1:
        return points
    buckets = (points[at : at + size] for at in range(0, len(points), size))
    return [point for bucket in buckets for point in sorted((min(bucket, key=_height), max(bucket, key=_height)))]


def _height(point: Point) -> float:
    return point[1]


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
