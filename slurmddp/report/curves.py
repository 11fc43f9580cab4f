"""The values that a run logged, downsampled while its events are read, and their curves over the steps.

A curve has a line for each attempt. Reads the events; writes nothing.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from slurmddp.report.attempts import TimedAttempt
from slurmddp.runs.files import numbered_lines, open_or_empty
from slurmddp.runs.history import Event, number, parse_events

MOST_METRICS: Final = 4000
"""Of more metrics only those that show the shape of a bucket are kept."""
_OF_A_BUCKET: Final = 10
"""About so many metrics of a bucket are kept: those of four or five names."""
_METRICS: Final = b'"event": "metrics"'
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


def read_events(path: Path) -> tuple[tuple[Event, ...], Counts]:
    """Return the events of a file of JSON lines as `downsample_events`; none if there is no file."""
    with open_or_empty(path, grows=True) as file:
        count = sum(_METRICS in line for _, line in numbered_lines(file))
        file.seek(0)
        size = 1 if count <= MOST_METRICS else -(-count * _OF_A_BUCKET // MOST_METRICS)
        return downsample_events(parse_events(line for _, line in numbered_lines(file)), size)


def downsample_events(events: Iterable[Event], size: int) -> tuple[tuple[Event, ...], Counts]:
    """Return the events, behind them each attempt's metrics, with `RATE`, in buckets of this size; and their counts.

    Each bucket of an attempt's metrics keeps its first and last, and the least and most for each name, `RATE` included.
    So a peak among a million stays (M4: Jugel et al., VLDB 2014).
    """
    others: list[Event] = []
    series: dict[tuple[str, str], _Series] = {}
    for event in events:
        if event.kind == "metrics":
            series.setdefault((event.job, event.attempt), _Series(size)).add(event)
        else:
            others.append(event)
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
    for name, raw in _values(metrics).items():
        if (value := number(raw)) is not None:
            yield str(name), value


@dataclass
class _Series:
    """The metrics of one attempt, in buckets."""

    size: int
    kept: list[Event] = field(default_factory=list)
    bucket: list[Event] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    before: Event | None = None

    def add(self, event: Event) -> None:
        """Add metrics; a full bucket is downsampled."""
        steps, seconds = (
            (event.count("step") - self.before.count("step"), event.time - self.before.time) if self.before else (0, 0)
        )
        self.before = event
        if steps > 0 and seconds > 0:
            event = replace(event, fields={**event.fields, "values": {RATE: steps / seconds, **_values(event)}})
        self.bucket.append(event)
        if len(self.bucket) == self.size:
            self.close_bucket()

    def close_bucket(self) -> None:
        """Count the bucket's values; keep the metrics that show its shape, and the first with an odd value."""
        finite: dict[str, list[tuple[float, int]]] = {}
        odd: list[int] = []
        for at, event in enumerate(self.bucket):
            for name, value in logged_values(event):
                self.counts[name] += 1
                if math.isfinite(value):
                    finite.setdefault(name, []).append((value, at))
                else:
                    self.odd[name] += 1
                    odd.append(at)
        extremes = {at for values in finite.values() for _, at in (min(values), max(values))}
        shown = extremes | {0, len(self.bucket) - 1, *odd[:1]}
        self.kept += [event for at, event in enumerate(self.bucket) if at in shown]
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
                lines.setdefault(name, []).append(_build_line(attempt.label, points))
    return lines


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
