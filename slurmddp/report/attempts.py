"""The attempts of a run in their order, and the steps of each, from its events and what Slurm says. Pure."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from slurmddp.outcome import Kind, Outcome
from slurmddp.report.downsample import ValueCount
from slurmddp.runs.facts import Attempt, Run
from slurmddp.runs.history import AttemptEvents, Event
from slurmddp.slurm.job_info import JobInfo

TimeKind = Literal["absent", "queued", "startup", "useful", "held", "lost", "ending", "unmeasured"]

ALLOCATED: Final[tuple[TimeKind, ...]] = ("startup", "useful", "held", "lost", "ending", "unmeasured")
"""The kinds of time of a job that has its nodes."""


@dataclass(frozen=True)
class Span:
    """A time of one kind."""

    kind: TimeKind
    begin: float
    """Seconds since 1970."""
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


@dataclass(frozen=True)
class CheckpointStall:
    """A time in which a checkpoint held up the training."""

    begin: float
    end: float
    step: int


@dataclass(frozen=True)
class StepProgress:
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


@dataclass(frozen=True, kw_only=True)
class TimedAttempt(AttemptEvents):
    """One attempt, and how its time was spent."""

    begin: float
    """When the job got its nodes, or when the attempt before it ended on them."""
    end: float
    outcome: Outcome
    hosts: str = ""
    """A host list; empty if it is not known."""
    progress: StepProgress | None = None
    counts: Mapping[str, ValueCount] = field(default_factory=dict)
    """How many values each name had; empty if `events` are all that there were."""
    kept: int = 0
    """The step up to which later attempts, or the result, use its work."""
    before: tuple[Span, ...] = ()
    """The time since the attempt before it."""
    spans: tuple[Span, ...] = ()
    """From `begin` to `end`, without a gap."""

    @property
    def label(self) -> str:
        """Its name in a chart: `<job> <attempt>`."""
        return f"{self.job} {self.name}"

    @property
    def is_clean(self) -> bool:
        """Whether it ended by itself: it was complete, or told to stop."""
        return self.outcome.kind in (Kind.DONE, Kind.STOPPED)

    def spent(self, kind: TimeKind) -> float:
        """Return the seconds of one kind in it and in the time before it."""
        return sum(span.seconds for span in (*self.before, *self.spans) if span.kind == kind)


def build_attempts(run: Run, *, known: Mapping[str, JobInfo], now: float) -> list[TimedAttempt]:
    """Return the attempts in their order, still without spans; `known` is what Slurm says of each job."""
    found = sorted(map(_build_attempt, run.attempts), key=lambda attempt: (attempt.begin, attempt.end))
    newest = {attempt.job: attempt for attempt in found if attempt.job in known}
    return _separate(
        [
            _add_slurm_times(attempt, known[attempt.job], now) if newest.get(attempt.job) is attempt else attempt
            for attempt in found
        ]
    )


def _build_attempt(attempt: Attempt) -> TimedAttempt:
    events = attempt.events
    start, requeue = events.last("attempt_start"), events.last("requeue")
    return TimedAttempt(
        job=attempt.job_id,
        name=attempt.name,
        begin=min([event.time for event in events.events] + _allocation_time(start)),
        end=max(event.time for event in events.events if not (event.kind == "cancel" and requeue)),
        events=tuple(sorted(events.events, key=lambda event: event.time)),
        hosts=start.text("nodes") if start else "",
        outcome=attempt.outcome,
        progress=build_progress(events),
    )


def _allocation_time(start: Event | None) -> list[float]:
    """Return when the job got its nodes, if the attempt is the first on them and the time is known."""
    time = start.number("allocated") if start and start.attempt.endswith(".0") else None
    return [time] if time else []


def _add_slurm_times(attempt: TimedAttempt, job: JobInfo, now: float) -> TimedAttempt:
    """Return the newest attempt of a job with the times and the state that Slurm gives."""
    if attempt.name.endswith(".0") and job.started is not None:
        attempt = replace(attempt, begin=min(attempt.begin, job.started.timestamp()))
    if attempt.outcome.kind is Kind.RUNNING:
        return replace(attempt, end=max(attempt.end, now))
    return replace(attempt, end=max(attempt.end, job.ended.timestamp())) if job.ended is not None else attempt


def _separate(attempts: list[TimedAttempt]) -> list[TimedAttempt]:
    """Order the attempts by time, and cut each where the next begins."""
    done: list[TimedAttempt] = []
    for attempt in sorted(attempts, key=lambda attempt: (attempt.begin, attempt.end)):
        begin = attempt.begin
        if done:
            before = done[-1]
            done[-1] = replace(before, end=max(min(before.end, begin), before.begin))
            begin = done[-1].end if _allocation(before) == _allocation(attempt) else max(begin, before.begin)
        done.append(replace(attempt, begin=begin, end=max(attempt.end, begin)))
    return done


def _allocation(attempt: TimedAttempt) -> tuple[str, str]:
    return attempt.job, attempt.name.partition(".")[0]


def build_progress(attempt: AttemptEvents) -> StepProgress | None:
    """Return the steps of an attempt; None if none are known."""
    stalls = tuple(map(_build_stall, attempt.all("checkpoint")))
    points = [(event.time, event.count("step")) for event in attempt.all("metrics")]
    points += [(stall.begin, stall.step) for stall in stalls]
    first = _first_point(attempt, has_points=bool(points))
    return StepProgress(tuple(_drop_falling(first, sorted(points))), stalls) if first else None


def _first_point(attempt: AttemptEvents, *, has_points: bool) -> tuple[float, int] | None:
    """Return when the first step began, and how many were finished; old records have only the resume or the start."""
    loops = attempt.all("loop")
    event = loops[0] if loops else attempt.last("resume") or (attempt.last("start") if has_points else None)
    return (event.time, event.count("step")) if event else None


def _drop_falling(first: tuple[float, int], points: list[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    yield first
    began, highest = first
    for time, step in points:
        if step >= highest:
            highest = step
            yield max(time, began), step


def _build_stall(event: Event) -> CheckpointStall:
    held_s, write_s = (_positive_seconds(event, name) for name in ("held_s", "write_s"))
    return CheckpointStall(event.time - write_s - held_s, event.time - write_s, event.count("step"))


def _positive_seconds(event: Event, name: str) -> float:
    value = event.number(name)
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0
