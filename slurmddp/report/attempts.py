"""The attempts of a run with their times and steps, from its allocations and events. Pure."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from slurmddp.runs.allocations import Allocation
from slurmddp.runs.facts import Attempt
from slurmddp.runs.history import AttemptEvents

TimeKind = Literal["absent", "queued", "startup", "useful", "held", "lost", "ending", "unmeasured"]

KINDS: Final[dict[TimeKind, str]] = {
    "useful": "useful steps",
    "held": "held up by checkpoints",
    "startup": "startup",
    "lost": "lost work",
    "ending": "ending",
    "unmeasured": "program (steps not known)",
    "queued": "in the queue",
    "absent": "no job",
}
"""The kinds of time in words, in the order of the page."""
ALLOCATED: Final[tuple[TimeKind, ...]] = ("startup", "useful", "held", "lost", "ending", "unmeasured")
"""The kinds of time of a job that has its nodes."""


class Span(NamedTuple):
    """A time of one kind."""

    kind: TimeKind
    begin: float
    """Seconds since 1970."""
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


class CheckpointStall(NamedTuple):
    """A time in which a checkpoint held up the training."""

    begin: float
    end: float
    step: int


class StepProgress(NamedTuple):
    """The steps of one attempt over time, in seconds since 1970."""

    points: tuple[tuple[float, int], ...]
    """Times, and how many steps were finished by then; neither falls, and there is at least one point."""
    stalls: tuple[CheckpointStall, ...]

    @property
    def began(self) -> float:
        """When the first step began."""
        return self.points[0][0]

    @property
    def first(self) -> int:
        """How many steps were finished when the attempt began its first step."""
        return self.points[0][1]

    @property
    def last(self) -> int:
        """How many steps are known to be finished."""
        return self.points[-1][1]

    @property
    def last_time(self) -> float:
        """When the last known step was finished, and its checkpoint copied."""
        return max(self.points[-1][0], *(stall.end for stall in self.stalls), self.began)

    @property
    def saved(self) -> int:
        """The newest step with a durable checkpoint; the first step if there is none."""
        return max((stall.step for stall in self.stalls), default=self.first)

    def time_of(self, step: int) -> float:
        """Return when so many steps were finished; between two known times, all steps take equally long."""
        index = bisect_left(self.points, step, key=lambda point: point[1])
        if index == 0:
            return self.began
        if index == len(self.points):
            return self.points[-1][0]
        (early, low), (late, high) = self.points[index - 1 : index + 1]
        return early + (late - early) * (step - low) / (high - low)

    def reached(self, step: int, end: float) -> "StepProgress":
        """Return the progress of an attempt that finished so many steps, more than are known: at its pace, by `end`."""
        taken, (time, last) = self.last - self.first, self.points[-1]
        due = time + (time - self.began) * (step - last) / taken if taken else end
        return self._replace(points=(*self.points, (max(time, min(due, end)), step)))


@dataclass(frozen=True, kw_only=True)
class TimedAttempt(Attempt):
    """One attempt, and how its time was spent."""

    begin: float
    """When the job got its nodes, or when the attempt before it ended on them."""
    end: float
    nodes: int
    progress: StepProgress | None = None
    kept: int = 0
    """The step up to which later attempts, or the result, use its work."""
    before: tuple[Span, ...] = ()
    """The time since the attempt before it."""
    spans: tuple[Span, ...] = ()
    """From `begin` to `end`, without a gap."""

    @property
    def label(self) -> str:
        """Its name in a chart: `<job> <attempt>`."""
        return f"{self.job_id} {self.name}"

    def spent(self, kind: TimeKind) -> float:
        """Return the seconds of one kind in it and in the time before it."""
        return sum(span.seconds for span in (*self.before, *self.spans) if span.kind == kind)


def time_attempts(allocations: Iterable[Allocation]) -> Iterator[TimedAttempt]:
    """Yield the attempts of allocations, which share their time without a gap; still without spans."""
    for allocation in allocations:
        begin = allocation.begin
        begins = [min(event.time for event in one.events.events) for one in allocation.attempts[1:]]
        limits = [*map(min, begins, (one.events.seen for one in allocation.attempts)), allocation.end]
        for attempt, limit in zip(allocation.attempts, limits, strict=False):
            end = min(max(begin, limit), allocation.end)
            steps = build_progress(attempt.events)
            yield TimedAttempt(**vars(attempt), begin=begin, end=end, nodes=allocation.nodes, progress=steps)
            begin = end


def build_progress(attempt: AttemptEvents) -> StepProgress | None:
    """Return the steps of an attempt; None if none are known."""
    stalls = []
    for event in attempt.all("checkpoint"):
        values = (event.number(name) or 0.0 for name in ("held_s", "write_s"))
        held_s, write_s = (value if math.isfinite(value) and value > 0 else 0.0 for value in values)
        stalls.append(CheckpointStall(event.time - write_s - held_s, event.time - write_s, event.count("step")))
    points = [(event.time, event.count("step")) for event in attempt.all("metrics")]
    points += [(stall.begin, stall.step) for stall in stalls]
    loops = attempt.all("loop")  # old records have none: there the resume, or the start, is when the first step began
    first = loops[0] if loops else attempt.last("resume") or (attempt.last("start") if points else None)
    if first is None:
        return None
    known = [(first.time, first.count("step"))]
    for time, step in sorted(points):
        if step >= known[-1][1]:
            known.append((max(time, first.time), step))
    return StepProgress(tuple(known), tuple(stalls))
