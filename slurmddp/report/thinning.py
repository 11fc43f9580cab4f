"""A run's events as they are read: of metrics in millions those that show the shape, and how many there were. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from slurmddp.history import Event, number

MOST_METRICS: Final = 40_000
"""That are held; from here on each attempt's are thinned, and again when it is reached again."""
_FIRST_SIZE: Final = 8
"""Metrics in a bucket when an attempt is first thinned; twice as many each further time."""
_MOST_OPEN: Final = 256
"""In a bucket before it is thinned for the first time."""
RATE: Final = "steps/s"
"""What is measured and not logged: the steps a second since the metrics before."""

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Tally:
    """How often something was logged by one name."""

    count: int
    odd: int
    """Of these, how many are `nan`, `inf` or `-inf`."""


@dataclass(frozen=True)
class Told:
    """Everything that a run has written down, thinned."""

    events: tuple[Event, ...]
    """In the order of the file, the metrics of each attempt together, behind all else."""
    tallies: Mapping[tuple[str, str], Mapping[str, Tally]]
    """By job and attempt, and by name; of all metrics, also those that are not held."""


def thinned(records: Iterable[Record]) -> Told:
    """Return the events of these records.

    Of each bucket of an attempt's metrics remain its first and last, for each name its least and most, and those
    between which the steps were fastest and slowest: a peak among a million stays (M4: Jugel et al., VLDB 2014).
    """
    others: list[Event] = []
    series: dict[tuple[str, str], _Series] = {}
    held = 0
    for record in records:
        if record.get("event") != "metrics":
            others += [event] if (event := Event.of(record)) else []
        elif event := Event.of(record):
            held += series.setdefault((event.job, event.attempt), _Series()).add(event)
            if held > MOST_METRICS:
                held = sum(one.shrink() for one in series.values())
    metrics = (event for one in series.values() for event in one.events())
    return Told((*others, *metrics), {key: one.tally() for key, one in series.items()})


@dataclass(frozen=True, slots=True)
class _Sample:
    """Metrics, with the finite values and the rate by which they are chosen."""

    event: Event
    values: Mapping[str, float]
    is_odd: bool
    """Whether a value is not finite."""


@dataclass
class _Series:
    """The metrics of one attempt, in buckets."""

    size: int = _FIRST_SIZE
    buckets: list[list[_Sample]] = field(default_factory=lambda: [[]])
    filled: int = 0
    """How many came into the last bucket."""
    counts: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    before: Event | None = None

    def add(self, event: Event) -> int:
        """Take one in; return how many more are held."""
        logged = dict(self._logged(event))
        rate = rate_between(self.before, event) if self.before else None
        if rate is not None:
            logged[RATE] = rate
        finite = {name: value for name, value in logged.items() if math.isfinite(value)}
        self.counts.update(logged.keys())
        self.odd.update(logged.keys() - finite.keys())
        if self.filled == self.size:
            self.buckets.append([])
            self.filled = 0
        bucket, self.before = self.buckets[-1], event
        bucket.append(_Sample(event, finite, len(finite) < len(logged)))
        self.filled += 1
        held = len(bucket) - 1
        if self.size > _FIRST_SIZE and (self.filled == self.size or held == _MOST_OPEN):
            bucket[:] = _telling(bucket)
        return len(bucket) - held

    def _logged(self, event: Event) -> Iterator[tuple[str, float]]:
        values = event.fields.get("values")
        for name, raw in values.items() if isinstance(values, Mapping) else ():
            value = raw if type(raw) is float else number(raw)
            if value is not None:
                yield name, value

    def shrink(self) -> int:
        """Leave half as many buckets, each of what shows the shape of two; return how many metrics remain."""
        pairs = (chain.from_iterable(self.buckets[at : at + 2]) for at in range(0, len(self.buckets), 2))
        self.filled += 0 if len(self.buckets) % 2 else self.size
        self.buckets, self.size = [_telling(list(pair)) for pair in pairs], 2 * self.size
        return sum(map(len, self.buckets))

    def events(self) -> Iterator[Event]:
        return (sample.event for bucket in self.buckets for sample in bucket)

    def tally(self) -> dict[str, Tally]:
        return {name: Tally(count, self.odd[name]) for name, count in self.counts.items()}


def rate_between(before: Event, event: Event) -> float | None:
    """Return the steps a second between two events that tell of a step; None where there were none."""
    steps, seconds = event.count("step") - before.count("step"), event.time - before.time
    return steps / seconds if steps > 0 and seconds > 0 else None


def _telling(bucket: Sequence[_Sample]) -> list[_Sample]:
    """Return those samples of a bucket that show its shape, in their order; of odd values the first."""
    least: dict[str, tuple[float, int]] = {}
    most: dict[str, tuple[float, int]] = {}
    odd: set[int] = set()
    for at, sample in enumerate(bucket):
        for name, value in sample.values.items():
            if name not in least or value < least[name][0]:
                least[name] = value, at
            if name not in most or value > most[name][0]:
                most[name] = value, at
        if sample.is_odd and not odd:
            odd = {at}
    wanted = {at for found in (least, most) for _, at in found.values()}
    before = {found[RATE][1] - 1 for found in (least, most) if RATE in found}
    kept = (wanted | before | odd | {0, len(bucket) - 1}) & set(range(len(bucket)))
    return [bucket[at] for at in sorted(kept)]
