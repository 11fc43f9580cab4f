"""The values that a run logged, thinned while its events are read, and their curves over the steps.

A curve has a line for each attempt. Reads the events; writes nothing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from slurmddp.report.attempts import TimedAttempt
from slurmddp.runs.history import Event, read_frequent, read_outline
from slurmddp.runs.layout import RunDir

MOST_METRICS: Final = 4000
"""About so many points of each name are drawn of a run."""
MOST_SAVES: Final = 1000
"""About so many checkpoints of an attempt are drawn."""
MOST_NAMES: Final = 100
"""Of an attempt; others are left out."""
MOST_ATTEMPTS: Final = 2000
"""Of more, the metrics are left out."""
_OF_A_BUCKET: Final = 4
RATE: Final = "steps/s"
"""A value that is measured and not logged: the steps per second since the metrics before."""
MOST_ODD: Final = 400
"""How many values that are not finite a line shows."""

LOSS, THROUGHPUT, HELD, WRITE = "loss", "samples_per_s", "held_s", "write_s"
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
    _odd: list[Point] = field(default_factory=list)

    def add(self, step: int, value: float) -> None:
        """Add a value."""
        self.first = value if self.count == 0 else self.first
        self.last = value
        self.count += 1
        if not math.isfinite(value):
            self._odd += [(step, value)] if self.odd_count % self.size == 0 else []
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

    @property
    def odd(self) -> list[Point]:
        """The values that are not finite; of many some."""
        return self._odd[:: 1 + len(self._odd) // MOST_ODD]

    @property
    def least(self) -> float | None:
        """Of the finite values; None if there is none."""
        return min((value for _, value in self.points), default=None)

    @property
    def most(self) -> float | None:
        """Of the finite values; None if there is none."""
        return max((value for _, value in self.points), default=None)


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


def _bucket_size(count: int, most: int) -> int:
    return 1 if count <= most else -(-count * _OF_A_BUCKET // most)


def _add_values(lines: Lines, label: str, size: int, step: int, values: Mapping[str, float | None]) -> None:
    """Add the values of one moment to the lines of an attempt."""
    for name, value in values.items():
        if value is not None and (name in lines or len(lines) < MOST_NAMES):
            lines.setdefault(name, Line(label, size)).add(step, value)


def read_events(run: RunDir) -> tuple[tuple[Event, ...], Logged]:
    """Return the events of a run and its lines, as `thin_events`; none if there is no file."""
    others = (event for event in read_outline(run).events if event.kind not in ("metrics", "checkpoint"))
    count, frequent = read_frequent(run)
    return thin_events(chain(others, frequent), count)


def thin_events(events: Iterable[Event], count: int) -> tuple[tuple[Event, ...], Logged]:
    """Return the events, behind them each attempt's metrics without their values, of many some; and the values' lines.

    `count` is that of the metrics, or a larger number.
    """
    size = _bucket_size(count, MOST_METRICS)
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
        self.steps.append(replace(event, fields={"step": step}))
        self.seen += 1
        _add_values(self.lines, self.label, self.size, step, pace | event.values)


def build_metric_curves(attempts: Sequence[TimedAttempt], logged: Logged) -> Curves:
    """Return the curves of the logged values and of the steps per second: loss and throughput first, then by name."""
    curves = _join_lines(logged.get(attempt.label, {}) for attempt in attempts)
    return {name: curves[name] for name in (*_FIRST, *sorted(curves.keys() - {*_FIRST})) if name in curves}


def build_checkpoint_curves(attempts: Sequence[TimedAttempt]) -> Curves:
    """Return how long each checkpoint held up the training, and how long it was written."""
    found: list[Lines] = []
    for attempt in attempts:
        lines, saves = Lines(), attempt.events.all("checkpoint")
        size = _bucket_size(len(saves), MOST_SAVES)
        for event in saves:
            values = {name: event.number(name) for name in (HELD, WRITE)}
            _add_values(lines, attempt.label, size, event.count("step"), values)
        found.append(lines)
    return _join_lines(found)


def _join_lines(attempts: Iterable[Lines]) -> dict[str, list[Line]]:
    """Return the lines of all attempts by name."""
    curves: dict[str, list[Line]] = {}
    for lines in attempts:
        for name, line in lines.items():
            curves.setdefault(name, []).append(line)
    return curves
