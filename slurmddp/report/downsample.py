"""A run's events with the metrics downsampled while they are read, and the number of all values. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from slurmddp.runs.files import open_or_empty
from slurmddp.runs.history import Event, number, parse_events

MOST_METRICS: Final = 4000
"""Of more metrics only those that show the shape of a bucket are kept."""
_OF_A_BUCKET: Final = 10
"""About so many metrics of a bucket are kept: those of four or five names."""
_METRICS: Final = b'"event": "metrics"'
RATE: Final = "steps/s"
"""A value that is measured and not logged: the steps per second since the metrics before."""


@dataclass(frozen=True)
class ValueCount:
    """How many values were logged by one name."""

    count: int
    odd: int
    """How many of them are `nan`, `inf` or `-inf`."""


@dataclass(frozen=True)
class SampledEvents:
    """The events of a run, with the metrics downsampled."""

    events: tuple[Event, ...]
    """In the order of the file; the metrics of each attempt follow all other events, and have `RATE` as a value."""
    counts: Mapping[tuple[str, str], Mapping[str, ValueCount]]
    """By job and attempt, and by name; of all metrics, also of those that are not kept."""


def read_events(path: Path) -> SampledEvents:
    """Return the events of a file of JSON lines, without lines that are no event; none if there is no file."""
    with open_or_empty(path) as file:
        count = sum(_METRICS in line for line in file)
        file.seek(0)
        size = 1 if count <= MOST_METRICS else -(-count * _OF_A_BUCKET // MOST_METRICS)
        return downsample_events(parse_events(file), size)


def downsample_events(events: Iterable[Event], size: int) -> SampledEvents:
    """Return the events, with the metrics of each attempt in buckets of this size.

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
    return SampledEvents((*others, *metrics), {key: one.count_values() for key, one in series.items()})


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
        self.bucket.append(_add_rate(event, self.before))
        self.before = event
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

    def count_values(self) -> dict[str, ValueCount]:
        return {name: ValueCount(count, self.odd[name]) for name, count in self.counts.items()}


def _add_rate(event: Event, before: Event | None) -> Event:
    """Return metrics with the steps per second since those before, unless no step or no time has passed."""
    if before is None:
        return event
    steps, seconds = event.count("step") - before.count("step"), event.time - before.time
    if steps <= 0 or seconds <= 0:
        return event
    return replace(event, fields={**event.fields, "values": {RATE: steps / seconds, **_values(event)}})


def _values(metrics: Event) -> Mapping[str, Any]:
    found = metrics.fields.get("values")
    return found if isinstance(found, Mapping) else {}
