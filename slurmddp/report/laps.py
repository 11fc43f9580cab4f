"""The attempts of a run, one after the other, from what its events, its scripts and Slurm tell of them. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from slurmddp.history import Attempt, Event, History
from slurmddp.outcome import DONE, FAILED, FENCED, STOPPED
from slurmddp.report.climb import Climb, climb
from slurmddp.report.records import Said
from slurmddp.report.thinning import Tally
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


def attempts(
    history: History,
    said: Sequence[Said],
    *,
    lived: Mapping[str, Sequence[float]],
    known: Mapping[str, JobInfo],
    now: float,
) -> list[Lap]:
    """Return the attempts with their times; what these were spent on is not told yet. Arguments are `build`'s."""
    return _apart(_placed(_laps(history, said), lived, known, now))


def _laps(history: History, said: Sequence[Said]) -> list[Lap]:
    """Return the attempts by their first sign; from whole seconds where the batch script alone has spoken."""
    found = {(attempt.job, attempt.name): _of_events(attempt) for attempt in history.attempts}
    for line in said:
        key = line.job, line.attempt
        lap = found.get(key) or Lap(job=line.job, name=line.attempt, begin=line.time, end=line.time, events=())
        found[key] = _with_words(lap, line)
    return sorted(found.values(), key=lambda lap: (lap.begin, lap.end))


def _of_events(attempt: Attempt) -> Lap:
    end, left = attempt.last("end"), attempt.left
    told = left or end
    status = next((event.count("status") for event in (end, left) if event and "status" in event.fields), None)
    return Lap(
        job=attempt.job,
        name=attempt.name,
        begin=min(event.time for event in attempt.events),
        end=max(event.time for event in attempt.events if not (event.kind == "cancel" and attempt.last("requeue"))),
        events=tuple(sorted(attempt.events, key=lambda event: event.time)),
        outcome=_outcome(status) if status is not None else _without_status(attempt),
        reason=told.text("reason") if told else "",
        climb=climb(attempt),
    )


def _without_status(attempt: Attempt) -> Outcome:
    return "stopped" if attempt.left else "cancelled" if attempt.last("cancel") else "silent"


def _with_words(lap: Lap, line: Said) -> Lap:
    if line.status is None:
        return replace(lap, hosts=line.hosts, begin=min(lap.begin, line.time))
    return replace(lap, outcome=_outcome(line.status), reason=line.reason, end=max(lap.end, line.time))


def _outcome(status: int) -> Outcome:
    return _OUTCOMES.get(status, "crashed")


def _placed(
    laps: list[Lap], lived: Mapping[str, Sequence[float]], known: Mapping[str, JobInfo], now: float
) -> list[Lap]:
    """Return the attempts with the times that only Slurm or the batch script's count of its age tell."""
    births = {key: time for job, ages in lived.items() for key, time in _births(job, ages, laps)}
    newest = {lap.job: lap for lap in laps if lap.job in known}
    return [
        _told(_born(lap, births), known[lap.job], now) if newest.get(lap.job) is lap else _born(lap, births)
        for lap in laps
    ]


def _births(job: str, ages: Sequence[float], laps: list[Lap]) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield the first attempt of each allocation that ended in a requeue, and when the allocation began."""
    left = [event for lap in laps if lap.job == job for event in lap.all("requeue")]
    for event, age in zip(left, ages, strict=True) if len(left) == len(ages) else ():
        yield (job, f"{event.attempt.partition('.')[0]}.0"), event.time - age


def _born(lap: Lap, births: Mapping[tuple[str, str], float]) -> Lap:
    return replace(lap, begin=min(lap.begin, births.get((lap.job, lap.name), lap.begin)))


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
            turn = max(_turn(before, lap), before.begin)
            done[-1] = replace(before, end=min(before.end, turn))
            begin = done[-1].end if _is_same(before, lap) else turn
        done.append(replace(lap, begin=begin, end=max(lap.end, begin)))
    return done


def _turn(before: Lap, lap: Lap) -> float:
    """Return when an attempt took over; the batch script has said when it started the ranks in whole seconds."""
    restart = before.last("restart") if _is_same(before, lap) else None
    return min(max(lap.begin, restart.time), lap.end) if restart else lap.begin


def _is_same(before: Lap, lap: Lap) -> bool:
    """Tell whether both are starts of the ranks in one allocation."""
    return before.job == lap.job and _allocation(before) == _allocation(lap)


def _allocation(lap: Lap) -> str:
    return lap.name.partition(".")[0]
