"""A run's events with the metrics downsampled while they are read, and the number of all values. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import msgspec

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
    """In the order of the file; the metrics of each attempt follow all other events."""
    counts: Mapping[tuple[str, str], Mapping[str, ValueCount]]
    """By job and attempt, and by name; of all metrics, also of those that are not kept."""


def read_events(path: Path) -> SampledEvents:
    """Return the events of a file of JSON lines, without lines that are no event; none if there is no file."""
    try:
        with path.open("rb") as file:
            count = sum(_METRICS in line for line in file)
            file.seek(0)
            return downsample_events(file, 1 if count <= MOST_METRICS else -(-count * _OF_A_BUCKET // MOST_METRICS))
    except FileNotFoundError:
        return SampledEvents((), {})


def downsample_events(lines: Iterable[bytes], size: int) -> SampledEvents:
    """Return the events of lines of JSON, with the metrics of each attempt in buckets of this size.

    Each bucket of an attempt's metrics keeps its first and last, the least and most for each name, and the pairs with
    the fastest and the slowest steps. So a peak among a million stays (M4: Jugel et al., VLDB 2014).
    """
    others: list[Event] = []
    series: dict[tuple[str, str], _Series] = {}
    for line in lines:
        found = _decode_finite(line) if _METRICS in line else None
        found = found or _decode_any(line, others)
        if found is not None:
            series.setdefault((found.job, found.attempt), _Series(size)).add(found)
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
    event = next(parse_events([line]), None)
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

    size: int
    kept: list[_Metrics] = field(default_factory=list)
    bucket: list[_Metrics] = field(default_factory=list)
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """By the names of the finite values."""
    odd: Counter[str] = field(default_factory=Counter)
    before: _Metrics | None = None

    def add(self, found: _Metrics) -> None:
        """Add metrics; a full bucket is downsampled."""
        if self.before is not None:
            rate = rate_between(self.before.time, self.before.step, found.time, found.step)
            if rate is not None:
                found.values[RATE] = rate
        self.counts[(*found.values,)] += 1
        self.odd.update(found.odd)
        self.before = found
        self.bucket.append(found)
        if len(self.bucket) == self.size:
            self.kept += _select_extremes(self.bucket)
            self.bucket.clear()

    def events(self) -> Iterator[Event]:
        return parse_events(found.source for found in (*self.kept, *self.bucket))

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
