"""A run's events with the metrics downsampled while they are read, and the number of all values. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Literal

import msgspec

from slurmddp.runs.history import Event, number
from slurmddp.runs.layout import parse_records

MOST_METRICS: Final = 40_000
"""How many are kept; each time there are more, the metrics of each attempt are downsampled."""
_FIRST_SIZE: Final = 8
"""Metrics in a bucket at the first downsampling of an attempt; twice as many each further time."""
_MOST_OPEN: Final = 256
"""How many metrics the open bucket may hold before it is downsampled."""
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
    """In the order of the file; the metrics of each attempt follow all other events."""
    counts: Mapping[tuple[str, str], Mapping[str, ValueCount]]
    """By job and attempt, and by name; of all metrics, also of those that are not kept."""


def downsample_events(lines: Iterable[bytes]) -> SampledEvents:
    """Return the events of these lines of JSON, without lines that are no event.

    Each bucket of an attempt's metrics keeps its first and last, the least and most for each name, and the pairs with
    the fastest and the slowest steps. So a peak among a million stays (M4: Jugel et al., VLDB 2014).
    """
    others: list[Event] = []
    series: dict[tuple[str, str], _Series] = {}
    kept = 0
    for line in lines:
        found = _decode_finite(line) if _METRICS in line else None
        found = found or _decode_any(line, others)
        if found is not None:
            kept += series.setdefault((found.job, found.attempt), _Series()).add(found)
            if kept > MOST_METRICS:
                kept = sum(one.shrink() for one in series.values())
    metrics = (event for one in series.values() for event in one.events())
    return SampledEvents((*others, *metrics), {key: one.count_values() for key, one in series.items()})


class _Metrics(msgspec.Struct):
    """Metrics whose values are all finite numbers, as nearly all are."""

    time: float
    event: Literal["metrics"]
    job: str
    attempt: str
    step: float
    values: dict[str, float]
    source: bytes = b""
    odd: tuple[str, ...] = ()
    """Names of values that are not finite."""


_DECODER: Final = msgspec.json.Decoder(_Metrics)


def _decode_finite(line: bytes) -> _Metrics | None:
    try:
        found = _DECODER.decode(line)
    except ValueError:
        return None
    found.source = line
    return found


def _decode_any(line: bytes, others: list[Event]) -> _Metrics | None:
    """Return metrics that also have values which are not finite; add any other event to `others`."""
    event = next((found for record in parse_records([line]) if (found := Event.parse(record))), None)
    if event is None or event.kind != "metrics":
        others += [event] if event else []
        return None
    values = event.fields.get("values")
    logged = {str(name): number(raw) for name, raw in (values.items() if isinstance(values, Mapping) else ())}
    known = {name: value for name, value in logged.items() if value is not None}
    finite = {name: value for name, value in known.items() if math.isfinite(value)}
    return _Metrics(
        event.time, "metrics", event.job, event.attempt, event.count("step"), finite, line, (*(known.keys() - finite),)
    )


@dataclass
class _Series:
    """The metrics of one attempt, in buckets."""

    size: int = _FIRST_SIZE
    buckets: list[list[_Metrics]] = field(default_factory=lambda: [[]])
    filled: int = 0
    """How many were added to the last bucket."""
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """By the names of the finite values."""
    odd: Counter[str] = field(default_factory=Counter)
    before: _Metrics | None = None

    def add(self, found: _Metrics) -> int:
        """Add metrics; return how many more are kept."""
        if self.before is not None:
            rate = rate_between(self.before.time, self.before.step, found.time, found.step)
            if rate is not None:
                found.values[RATE] = rate
        self.counts[(*found.values,)] += 1
        self.odd.update(found.odd)
        if self.filled == self.size:
            self.buckets.append([])
            self.filled = 0
        bucket, self.before = self.buckets[-1], found
        bucket.append(found)
        self.filled += 1
        before = len(bucket) - 1
        if self.size > _FIRST_SIZE and (self.filled == self.size or before == _MOST_OPEN):
            bucket[:] = _select_extremes(bucket)
        return len(bucket) - before

    def shrink(self) -> int:
        """Join the buckets in pairs and downsample each; return how many metrics remain."""
        pairs = (chain.from_iterable(self.buckets[at : at + 2]) for at in range(0, len(self.buckets), 2))
        self.filled += 0 if len(self.buckets) % 2 else self.size
        self.buckets, self.size = [_select_extremes(list(pair)) for pair in pairs], 2 * self.size
        return sum(map(len, self.buckets))

    def events(self) -> Iterator[Event]:
        records = parse_records(found.source for bucket in self.buckets for found in bucket)
        return (event for record in records if (event := Event.parse(record)))

    def count_values(self) -> dict[str, ValueCount]:
        finite: Counter[str] = Counter()
        for names, count in self.counts.items():
            finite.update(dict.fromkeys(names, count))
        return {name: ValueCount(finite[name] + self.odd[name], self.odd[name]) for name in finite | self.odd}


def rate_between(time: float, step: float, later: float, step_later: float) -> float | None:
    """Return the steps per second between two times; None if there were none."""
    steps, seconds = step_later - step, later - time
    return steps / seconds if steps > 0 and seconds > 0 else None


def _select_extremes(bucket: Sequence[_Metrics]) -> list[_Metrics]:
    """Return the metrics that show a bucket's shape, in their order, and the first with a value that is not finite."""
    least: dict[str, tuple[float, int]] = {}
    most: dict[str, tuple[float, int]] = {}
    odd: set[int] = set()
    for at, sample in enumerate(bucket):
        for name, value in sample.values.items():
            if name not in least or value < least[name][0]:
                least[name] = value, at
            if name not in most or value > most[name][0]:
                most[name] = value, at
        if sample.odd and not odd:
            odd = {at}
    extremes = {at for found in (least, most) for _, at in found.values()}
    before = {found[RATE][1] - 1 for found in (least, most) if RATE in found}
    kept = (extremes | before | odd | {0, len(bucket) - 1}) & set(range(len(bucket)))
    return [bucket[at] for at in sorted(kept)]
