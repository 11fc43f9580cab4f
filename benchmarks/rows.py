"""A row of the table: samples of slurmddp and of its peers, taken in turn; their spread, and the bars. No files."""

import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Samples = tuple[float, ...]
Measure = Callable[[], float]

BAR = re.compile(r"(?P<word>at most|at least) (?P<limit>[0-9.]+) (?:of (?P<peer>.+)|(?P<unit>\S+))")


class Spread(NamedTuple):
    """The median of samples, and the quartiles around it."""

    low: float
    median: float
    high: float


class Bar(NamedTuple):
    """What is wanted of a row: its median, or that of its ratios to a peer, within a limit."""

    text: str
    at_least: bool
    limit: float
    peer: str | None

    def is_met(self, row: "Row") -> bool | None:
        """Tell whether the row meets it; None where the peer has no samples."""
        samples = row.ours if self.peer is None else row.ratios(self.peer)
        if not samples:
            return None
        median = spread(samples).median
        return median >= self.limit if self.at_least else median <= self.limit


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that was measured."""

    name: str
    unit: str
    ours: Samples
    peers: Mapping[str, Samples | str]
    """By the peer's name: its samples, each taken in turn with one of ours, or why there are none."""
    wanted: str = ""
    """Bars, as in "at most 1.1 of a warm copy; at most 2 s"."""

    def __post_init__(self) -> None:
        """Raise ValueError for samples that are no pairs, and for a bar that cannot be read."""
        for peer, samples in self.peers.items():
            if not isinstance(samples, str) and len(samples) != len(self.ours):
                raise ValueError(f"{self.name}: {len(samples)} samples of {peer}, but {len(self.ours)} of slurmddp")
        tuple(self.bars())

    def ratios(self, peer: str) -> Samples:
        """Return ours divided by the peer's, pair by pair; none for a peer without samples."""
        theirs = self.peers[peer]
        return () if isinstance(theirs, str) else tuple(a / b for a, b in zip(self.ours, theirs, strict=True))

    def bars(self) -> Iterator[Bar]:
        """Yield the bars of `wanted`."""
        for text in filter(None, self.wanted.split("; ")):
            found = BAR.fullmatch(text)
            if not found or (found["peer"] or self.unit) not in {*self.peers, found["unit"]}:
                raise ValueError(f"{self.name}: '{text}' is no bar of this row")
            yield Bar(text, found["word"] == "at least", float(found["limit"]), found["peer"])

    def missed(self) -> list[str]:
        """Return the bars that are not met."""
        return [bar.text for bar in self.bars() if bar.is_met(self) is False]


def spread(samples: Samples) -> Spread:
    """Return the quartiles of samples; those of one sample are itself."""
    if len(samples) == 1:
        return Spread(*samples * 3)
    return Spread(*statistics.quantiles(samples, method="inclusive"))


def seconds(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def in_turn(measures: Mapping[str, Measure], rounds: int, *, warm_up: bool = False) -> dict[str, Samples]:
    """Return the samples of each measure: every round calls each of them once, so that all see the same machine."""
    if warm_up:
        in_turn(measures, 1)
    taken = [{name: measure() for name, measure in measures.items()} for _ in range(rounds)]
    return {name: tuple(each[name] for each in taken) for name in measures}


def measured_row(
    name: str,
    unit: str,
    ours: Measure,
    peers: Mapping[str, Measure | str],
    *,
    rounds: int,
    warm_up: bool = False,
    wanted: str = "",
) -> Row:
    """Measure a row: ours and those peers that are no reason text, in turn."""
    theirs = {peer: measure for peer, measure in peers.items() if not isinstance(measure, str)}
    taken = in_turn({"": ours, **theirs}, rounds, warm_up=warm_up)
    found = {peer: given if isinstance(given, str) else taken[peer] for peer, given in peers.items()}
    return Row(name=name, unit=unit, ours=taken[""], peers=found, wanted=wanted)


def number(value: float) -> str:
    """Return a number with three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")  # noqa: PLR2004 three digits


def span(samples: Samples) -> str:
    """Return the median, and the quartiles in brackets."""
    low, median, high = map(number, spread(samples))
    return median if len(samples) == 1 else f"{median} ({low} to {high})"


def print_rows(rows: Iterable[Row]) -> None:
    """Print each row, and a line for each peer."""
    for row in rows:
        print(f"{row.name}: {span(row.ours)} {row.unit}", flush=True)
        for peer, samples in row.peers.items():
            said = samples if isinstance(samples, str) else f"{span(samples)} {row.unit}"
            ratio = f"; ratio {span(row.ratios(peer))}" if row.ratios(peer) else ""
            print(f"  {peer}: {said}{ratio}")
        for bar in row.bars():
            print(f"  wanted: {bar.text}: { {True: 'met', False: 'MISSED', None: 'not measured'}[bar.is_met(row)] }")
