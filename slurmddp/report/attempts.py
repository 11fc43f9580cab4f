"""The attempts of a run with their times and steps, from its events and what Slurm says. Pure."""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Final, Literal

from slurmddp.outcome import Kind
from slurmddp.runs.facts import Attempt, Run
from slurmddp.runs.history import AttemptEvents
from slurmddp.slurm.hostlist import try_expand
from slurmddp.slurm.job_info import JobInfo

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
class TimedAttempt(Attempt):
    """One attempt, and how its time was spent."""

    begin: float
    """When the job got its nodes, or when the attempt before it ended on them."""
    end: float
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

    @property
    def allocation(self) -> tuple[str, str]:
        """The job, and which of its starts by Slurm it was: the attempts in one allocation follow one another."""
        return self.job_id, self.name.partition(".")[0]

    @property
    def nodes(self) -> int:
        """How many nodes the job had; 1 if it is not known."""
        start = self.events.last("start")
        return (start.count("nodes") if start else len(try_expand(self.hosts) or ())) or 1

    def spent(self, kind: TimeKind) -> float:
        """Return the seconds of one kind in it and in the time before it."""
        return sum(span.seconds for span in (*self.before, *self.spans) if span.kind == kind)


def build_attempts(run: Run, now: float) -> list[TimedAttempt]:
    """Return the attempts in the order of time, each cut where the next begins; still without spans."""
    found = [
        _build_attempt(attempt, job.slurm if attempt is job.attempts[-1] else None, now)
        for job in run.jobs
        for attempt in job.attempts
    ]
    done: list[TimedAttempt] = []
    for attempt in sorted(found, key=lambda attempt: (attempt.begin, attempt.end)):
        begin = attempt.begin
        if done:
            before = done[-1]
            done[-1] = replace(before, end=max(min(before.end, begin), before.begin))
            begin = done[-1].end if before.allocation == attempt.allocation else max(begin, before.begin)
        done.append(replace(attempt, begin=begin, end=max(attempt.end, begin)))
    return done


def _build_attempt(attempt: Attempt, slurm: JobInfo | None, now: float) -> TimedAttempt:
    """Return an attempt with its time and steps; `slurm` is what Slurm says of the job, of its newest attempt alone."""
    events, requeue, start = attempt.events.events, attempt.events.last("requeue"), attempt.events.last("attempt_start")
    begins: list[float | None] = [min(event.time for event in events)]
    if attempt.name.endswith(".0"):  # the first in its allocation
        begins.append(start.number("allocated") or None if start else None)
        begins.append(slurm.started.timestamp() if slurm and slurm.started else None)
    ends = [event.time for event in events if not (event.kind == "cancel" and requeue)]
    if attempt.outcome.kind is Kind.RUNNING:
        ends.append(now)
    elif slurm and slurm.has_ended and slurm.ended:
        ends.append(slurm.ended.timestamp())
    begin = min(time for time in begins if time is not None)
    return TimedAttempt(**vars(attempt), begin=begin, end=max(ends), progress=build_progress(attempt.events))


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
