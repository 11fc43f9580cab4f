"""The attempts of a run, one after the other, from what its events and Slurm tell of them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from slurmddp.exit_codes import DONE, FAILED, FENCED, STOPPED
from slurmddp.report.downsample import Tally
from slurmddp.report.step_progress import Climb, climb
from slurmddp.runs.history import Attempt, Event, History
from slurmddp.slurm.job_info import JobInfo

Kind = Literal["absent", "queued", "startup", "useful", "held", "lost", "ending", "unmeasured"]

ALLOCATED: Final[tuple[Kind, ...]] = ("startup", "useful", "held", "lost", "ending", "unmeasured")
"""What a job that holds its nodes can spend a moment on."""

Outcome = Literal["done", "stopped", "crashed", "failed", "fenced", "cancelled", "running", "silent"]

_TERMINATED: Final = 143
"""A program's own answer to SIGTERM."""
_OUTCOMES: Final[Mapping[int, Outcome]] = {
    DONE: "done",
    STOPPED: "stopped",
    _TERMINATED: "stopped",
    FAILED: "failed",
    FENCED: "fenced",
}


@dataclass(frozen=True)
class Span:
    """A time that was spent on one thing."""

    kind: Kind
    begin: float
    """Seconds since 1970."""
    end: float

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.end - self.begin


@dataclass(frozen=True, kw_only=True)
class Lap:
    """One attempt, and what its time was spent on."""

    job: str
    name: str
    """`<SLURM_RESTART_COUNT>.<n>`."""
    begin: float
    """When the job got its nodes, or when the attempt before it had ended on them."""
    end: float
    events: tuple[Event, ...]
    hosts: str = ""
    """As a host list; empty when unknown."""
    outcome: Outcome = "silent"
    reason: str = ""
    climb: Climb | None = None
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    """How often something was logged by each name; empty where its events are all that there were."""
    kept: int = 0
    """The step up to which its work was of use."""
    before: tuple[Span, ...] = ()
    """The time since the attempt before it."""
    spans: tuple[Span, ...] = ()
    """From `begin` to `end`, without a gap."""

    @property
    def label(self) -> str:
        """What its lines are called: `<job> <attempt>`."""
        return f"{self.job} {self.name}"

    @property
    def is_clean(self) -> bool:
        """Whether it left by itself, its state durable."""
        return self.outcome in ("done", "stopped")

    def spent(self, kind: Kind) -> float:
        """Return the seconds that it, or the time before it, were spent on one thing."""
        return sum(span.seconds for span in (*self.before, *self.spans) if span.kind == kind)

    def all(self, kind: str) -> list[Event]:
        """Return its events of one kind, the oldest first."""
        return [event for event in self.events if event.kind == kind]

    def last(self, kind: str) -> Event | None:
        """Return its newest event of one kind."""
        return next((event for event in reversed(self.events) if event.kind == kind), None)


def attempts(history: History, *, known: Mapping[str, JobInfo], now: float) -> list[Lap]:
    """Return the attempts with their times; what these were spent on is not told yet. Arguments are `build`'s."""
    laps = sorted(map(_of_events, history.attempts), key=lambda lap: (lap.begin, lap.end))
    newest = {lap.job: lap for lap in laps if lap.job in known}
    told = [_told(lap, known[lap.job], now) if newest.get(lap.job) is lap else lap for lap in laps]
    return _apart(told)


def _of_events(attempt: Attempt) -> Lap:
    start, end = attempt.last("attempt_start"), _end(attempt)
    cancel = attempt.last("cancel")
    return Lap(
        job=attempt.job,
        name=attempt.name,
        begin=min([event.time for event in attempt.events] + _allocation_time(start)),
        end=max(event.time for event in attempt.events if not (event.kind == "cancel" and attempt.last("requeue"))),
        events=tuple(sorted(attempt.events, key=lambda event: event.time)),
        hosts=start.text("nodes") if start else "",
        outcome=_outcome(end) if end else "cancelled" if cancel else "silent",
        reason=end.text("reason") if end else "",
        climb=climb(attempt),
    )


def _allocation_time(start: Event | None) -> list[float]:
    """Return when the job got its nodes, where an attempt is the first on them and that is known."""
    time = start.number("allocated") if start and start.attempt.endswith(".0") else None
    return [time] if time else []


def _end(attempt: Attempt) -> Event | None:
    """Return the event that tells best how the ranks ended: the supervisor's, else rank 0's."""
    kinds = ("attempt_end", "restart", "end", "requeue", "fenced", "job_end")
    return next((event for kind in kinds if (event := attempt.last(kind))), None)


def _outcome(end: Event) -> Outcome:
    if end.kind in ("requeue", "fenced"):
        return "stopped" if end.kind == "requeue" else "fenced"
    return _OUTCOMES.get(end.count("status"), "crashed") if "status" in end.fields else "crashed"


def _told(lap: Lap, job: JobInfo, now: float) -> Lap:
    """Return the newest attempt of a job with what Slurm says of it."""
    if lap.name.endswith(".0") and job.started is not None:
        lap = replace(lap, begin=min(lap.begin, job.started.timestamp()))
    if job.phase == "running" and not lap.last("requeue") and lap.outcome == "silent":
        return replace(lap, end=max(lap.end, now), outcome="running")
    return replace(lap, end=max(lap.end, job.ended.timestamp())) if job.ended is not None else lap


def _apart(laps: list[Lap]) -> list[Lap]:
    """Return the attempts one after the other: what goes on behind the start of the next is of no avail."""
    done: list[Lap] = []
    for lap in sorted(laps, key=lambda lap: (lap.begin, lap.end)):
        begin = lap.begin
        if done:
            before = done[-1]
            done[-1] = replace(before, end=max(min(before.end, begin), before.begin))
            begin = done[-1].end if _is_same(before, lap) else max(begin, before.begin)
        done.append(replace(lap, begin=begin, end=max(lap.end, begin)))
    return done


def _is_same(before: Lap, lap: Lap) -> bool:
    """Tell whether both are starts of the ranks in one allocation."""
    return before.job == lap.job and _allocation(before) == _allocation(lap)


def _allocation(lap: Lap) -> str:
    return lap.name.partition(".")[0]
