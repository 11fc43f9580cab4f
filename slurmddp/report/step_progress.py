"""How far one attempt had got at which time, as its events tell. Pure."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from slurmddp.report.downsample import rate_between
from slurmddp.runs.history import Attempt, Event


@dataclass(frozen=True)
class Hold:
    """A time in which the training was held up for a checkpoint."""

    begin: float
    end: float
    step: int


@dataclass(frozen=True)
class Climb:
    """The steps of one attempt over time, in seconds since 1970."""

    points: tuple[tuple[float, int], ...]
    """Times at which so many steps were finished; neither falls, and there is at least one."""
    holds: tuple[Hold, ...]

    @property
    def began(self) -> float:
        """When the first step began."""
        return self.points[0][0]

    @property
    def first(self) -> int:
        """Steps finished when it began."""
        return self.points[0][1]

    @property
    def last(self) -> int:
        """Steps that are known to have been finished."""
        return self.points[-1][1]

    @property
    def seen(self) -> float:
        """When the last of them was finished, and saved."""
        return max(self.points[-1][0], *(hold.end for hold in self.holds), self.began)

    @property
    def saved(self) -> int:
        """The newest step that it made durable; that at which it began when none."""
        return max((hold.step for hold in self.holds), default=self.first)

    def time_of(self, step: int) -> float:
        """Return when so many steps were finished: between two known times, steps count as equally long."""
        place = bisect_left(self.points, step, key=lambda point: point[1])
        if place == 0:
            return self.began
        if place == len(self.points):
            return self.points[-1][0]
        (early, low), (late, high) = self.points[place - 1 : place + 1]
        return early + (late - early) * (step - low) / (high - low)


def rates(metrics: Sequence[Event]) -> Iterator[tuple[int, float]]:
    """Yield a step at which numbers were logged, and the steps a second since the time before."""
    for before, event in pairwise(metrics):
        rate = rate_between(before.time, before.count("step"), event.time, event.count("step"))
        if rate is not None:
            yield event.count("step"), rate


def climb(attempt: Attempt) -> Climb | None:
    """Return the steps of an attempt; None when it took none that are known."""
    holds = tuple(map(_hold, attempt.all("checkpoint")))
    known = [(event.time, event.count("step")) for event in attempt.all("metrics")]
    known += [(hold.begin, hold.step) for hold in holds]
    first = _first(attempt, any_known=bool(known))
    return Climb(tuple(_rising(first, sorted(known))), holds) if first else None


def _first(attempt: Attempt, *, any_known: bool) -> tuple[float, int] | None:
    """Return when the first step began, and the steps before it; of old records the nearest that they have."""
    loops = attempt.all("loop")
    event = loops[0] if loops else attempt.last("resume") or (attempt.last("start") if any_known else None)
    return (event.time, event.count("step")) if event else None


def _rising(first: tuple[float, int], known: list[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    yield first
    began, highest = first
    for time, step in known:
        if step >= highest:
            highest = step
            yield max(time, began), step


def _hold(event: Event) -> Hold:
    held_s, write_s = (_seconds(event, name) for name in ("held_s", "write_s"))
    return Hold(event.time - write_s - held_s, event.time - write_s, event.count("step"))


def _seconds(event: Event, name: str) -> float:
    value = event.number(name)
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0
