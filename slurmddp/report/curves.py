"""The values that a run logged, thinned while its events are read, and their curves over the steps.

A curve has a line for each attempt. Reads the events; writes nothing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from slurmddp.report.attempts import TimedAttempt
from slurmddp.runs.history import Event, History, read_frequent, read_outline
from slurmddp.runs.layout import RunDir

MOST_METRICS: Final = 4000
"""About so many points of each name are drawn of a run."""
MOST_NAMES: Final = 100
"""Of an attempt; others are left out."""
MOST_ATTEMPTS: Final = 2000
"""Of more, the metrics are left out."""
_OF_A_BUCKET: Final = 4
RATE: Final = "steps/s"
"""A value that is measured and not logged: the steps per second since the metrics before."""

LOSS, THROUGHPUT = "loss", "samples_per_s"
_FIRST: Final = (LOSS, THROUGHPUT, RATE)

Point = tuple[int, float]
"""A step, and a value."""


@dataclass
class Line:
    """The values that one attempt logged by one name: all are counted, and of many only some are drawn.

    Each bucket keeps its first, last, least and most. So a peak among a million stays (M4: Jugel et al., VLDB 2014).
    """

    label: str
    """`<job> <attempt>`."""
    size: int
    """Values of a bucket."""
    count: int = 0
    """Values that were logged."""
    odd_count: int = 0
    """How many of them are `nan`, `inf` or `-inf`."""
    first: float = math.nan
    last: float = math.nan
    """The newest value, also one that is not finite."""
    _kept: list[Point] = field(default_factory=list)
    _bucket: list[Point] = field(default_factory=list)

    def add(self, step: int, value: float) -> None:
        """Add a value."""
        self.first = value if self.count == 0 else self.first
        self.last = value
        self.count += 1
        if not math.isfinite(value):
            self.odd_count += 1
            return
        self._bucket.append((step, value))
        if len(self._bucket) == self.size:
            self._kept += _outline(self._bucket)
            self._bucket.clear()

    @property
    def points(self) -> list[Point]:
        """The finite values that are drawn, by step; several values of one step keep their order."""
        return sorted([*self._kept, *_outline(self._bucket)], key=lambda point: point[0])


Lines = dict[str, Line]
"""Of one attempt, by name."""
Logged = Mapping[str, Lines]
"""By the label of the attempt."""
Curves = Mapping[str, Sequence[Line]]
"""By name, a line for each attempt, the oldest first; at least one."""


def _outline(points: Sequence[Point]) -> list[Point]:
    """Return the first, the last, the least and the most of points, in their order."""
    if not points:
        return []
    places = range(len(points))
    heights = [value for _, value in points]
    shown = {0, len(points) - 1, min(places, key=heights.__getitem__), max(places, key=heights.__getitem__)}
    return [points[place] for place in sorted(shown)]


def read_events(run: RunDir) -> tuple[History, Logged]:
    """Return the events of a run by their time, and its lines, as `thin_events`; none if there is no file."""
    outline, (count, frequent) = read_outline(run), read_frequent(run)
    others = (event for event in outline.events if event.kind not in ("metrics", "checkpoint"))
    events, logged = thin_events(chain(others, frequent), count)
    return History(tuple(sorted(events, key=lambda event: event.time)), outline.damage), logged


def thin_events(events: Iterable[Event], count: int) -> tuple[tuple[Event, ...], Logged]:
    """Return the events, behind them each attempt's metrics without their values, of many some; and the values' lines.

    `count` is that of the metrics, or a larger number.
    """
    size = 1 if count <= MOST_METRICS else -(-count * _OF_A_BUCKET // MOST_METRICS)
    others: list[Event] = []
    logged: dict[str, _Metrics] = {}
    for event in events:
        label = f"{event.job} {event.attempt}"
        if event.kind != "metrics":
            others.append(event)
        elif label in logged or len(logged) < MOST_ATTEMPTS:
            logged.setdefault(label, _Metrics(label, size)).add(event)
    metrics = (event for one in logged.values() for event in one.steps)
    return (*others, *metrics), {label: one.lines for label, one in logged.items()}


@dataclass
class _Metrics:
    """The metrics of one attempt."""

    label: str
    size: int
    lines: Lines = field(default_factory=dict)
    steps: list[Event] = field(default_factory=list)
    """The first of each bucket, and the newest, without their values."""
    seen: int = 0

    def add(self, event: Event) -> None:
        """Add metrics, and the steps per second since those before."""
        step, pace = event.count("step"), dict[str, float]()
        if self.steps:
            steps, seconds = step - self.steps[-1].count("step"), event.time - self.steps[-1].time
            pace = {RATE: steps / seconds} if steps > 0 and seconds > 0 else {}
            if (self.seen - 1) % self.size:
                self.steps.pop()
        self.steps.append(event._replace(fields={"step": step}))
        self.seen += 1
        for name, value in (pace | event.values).items():
            if name in self.lines or len(self.lines) < MOST_NAMES:
                self.lines.setdefault(name, Line(self.label, self.size)).add(step, value)


def build_metric_curves(attempts: Sequence[TimedAttempt], logged: Logged) -> Curves:
    """Return the curves of the logged values and of the steps per second: loss and throughput first, then by name."""
    curves: dict[str, list[Line]] = {}
    for attempt in attempts:
        for name, line in logged.get(attempt.label, {}).items():
            curves.setdefault(name, []).append(line)
    return {name: curves[name] for name in (*_FIRST, *sorted(curves.keys() - {*_FIRST})) if name in curves}
