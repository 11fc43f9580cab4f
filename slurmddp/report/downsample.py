"""A run's events as they are read: of metrics in millions those that show the shape, and how many there were. Pure."""

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
"""That are held; from here on each attempt's are thinned, and again when it is reached again."""
_FIRST_SIZE: Final = 8
"""Metrics in a bucket when an attempt is first thinned; twice as many each further time."""
_MOST_OPEN: Final = 256
"""In a bucket before it is thinned for the first time."""
_METRICS: Final = b'"event": "metrics"'
RATE: Final = "steps/s"
"""What is measured and not logged: the steps a second since the metrics before."""


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


def thinned(lines: Iterable[bytes]) -> Told:
    """Return the events of these lines of JSON; what is none is left out.

    Of each bucket of an attempt's metrics remain its first and last, for each name its least and most, and those
    between which the steps were fastest and slowest: a peak among a million stays (M4: Jugel et al., VLDB 2014).
    """
    others: list[Event] = []
    series: dict[tuple[str, str], _Series] = {}
    held = 0
    for line in lines:
        found = _quickly(line) if _METRICS in line else None
        found = found or _carefully(line, others)
        if found is not None:
            held += series.setdefault((found.job, found.attempt), _Series()).add(found)
            if held > MOST_METRICS:
                held = sum(one.shrink() for one in series.values())
    metrics = (event for one in series.values() for event in one.events())
    return Told((*others, *metrics), {key: one.tally() for key, one in series.items()})


class _Metrics(msgspec.Struct):
    """Metrics as nearly all are: every value a finite number."""

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


def _quickly(line: bytes) -> _Metrics | None:
    try:
        found = _DECODER.decode(line)
    except ValueError:
        return None
    found.source = line
    return found


def _carefully(line: bytes, others: list[Event]) -> _Metrics | None:
    """Return metrics with an odd value; another event goes to the others."""
    event = next((found for record in parse_records([line]) if (found := Event.of(record))), None)
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
    """How many came into the last bucket."""
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """By the names of the finite values."""
    odd: Counter[str] = field(default_factory=Counter)
    before: _Metrics | None = None

    def add(self, found: _Metrics) -> int:
        """Take one in; return how many more are held."""
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
        held = len(bucket) - 1
        if self.size > _FIRST_SIZE and (self.filled == self.size or held == _MOST_OPEN):
            bucket[:] = _telling(bucket)
        return len(bucket) - held

    def shrink(self) -> int:
        """Leave half as many buckets, each of what shows the shape of two; return how many metrics remain."""
        pairs = (chain.from_iterable(self.buckets[at : at + 2]) for at in range(0, len(self.buckets), 2))
        self.filled += 0 if len(self.buckets) % 2 else self.size
        self.buckets, self.size = [_telling(list(pair)) for pair in pairs], 2 * self.size
        return sum(map(len, self.buckets))

    def events(self) -> Iterator[Event]:
        records = parse_records(found.source for bucket in self.buckets for found in bucket)
        return (event for record in records if (event := Event.of(record)))

    def tally(self) -> dict[str, Tally]:
        finite: Counter[str] = Counter()
        for names, count in self.counts.items():
            finite.update(dict.fromkeys(names, count))
        return {name: Tally(finite[name] + self.odd[name], self.odd[name]) for name in finite | self.odd}


def rate_between(time: float, step: float, later: float, step_later: float) -> float | None:
    """Return the steps a second between two times; None where there were none."""
    steps, seconds = step_later - step, later - time
    return steps / seconds if steps > 0 and seconds > 0 else None


def _telling(bucket: Sequence[_Metrics]) -> list[_Metrics]:
    """Return those of a bucket that show its shape, in their order; of those with odd values the first."""
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
    wanted = {at for found in (least, most) for _, at in found.values()}
    before = {found[RATE][1] - 1 for found in (least, most) if RATE in found}
    kept = (wanted | before | odd | {0, len(bucket) - 1}) & set(range(len(bucket)))
    return [bucket[at] for at in sorted(kept)]
