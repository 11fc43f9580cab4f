"""When a run waited, started, trained and lost time. Pure.

Of each moment between the first submission and the end it tells what it was spent on, once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from slurmddp.report.attempts import Lap, Span, attempts
from slurmddp.report.records import Submission
from slurmddp.report.time_accounting import merged, spent
from slurmddp.runs.history import History
from slurmddp.slurm.job_info import JobInfo


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A run from its first submission to its end, or until now."""

    begin: float
    end: float
    laps: tuple[Lap, ...]
    after: tuple[Span, ...] = ()
    """What the time since the last attempt was spent on."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """Everything from begin to end, in order and without a gap."""
        return (*(span for lap in self.laps for span in (*lap.before, *lap.spans)), *self.after)


def build(
    history: History,
    submissions: Sequence[Submission] = (),
    *,
    known: Mapping[str, JobInfo] | None = None,
    now: float,
) -> Timeline:
    """Return when what happened; `known` is what Slurm says of each job."""
    times = {item.job: item.time for item in submissions if item.time is not None}
    laps = spent(attempts(history, known=known or {}, now=now))
    begin = min([*times.values(), *(lap.begin for lap in laps)], default=now)
    laps = _with_waits(laps, times, begin)
    after = _waiting(laps, times, known or {}, now)
    end = after[-1].end if after else max((lap.end for lap in laps), default=begin)
    return Timeline(begin=begin, end=end, laps=tuple(laps), after=after)


def _with_waits(laps: list[Lap], times: Mapping[str, float], begin: float) -> list[Lap]:
    waits = (
        _wait(begin if before is None else before.end, lap, before, times)
        for before, lap in pairwise([None, *laps])
        if lap
    )
    return [replace(lap, before=tuple(wait)) for lap, wait in zip(laps, waits, strict=True)]


def _wait(since: float, lap: Lap, before: Lap | None, times: Mapping[str, float]) -> Iterator[Span]:
    """Yield what the time before an attempt was spent on: nobody had asked, or the job was in the queue."""
    asked = since
    if before is None or before.job != lap.job:
        own = times.get(_number(lap.job), lap.begin)
        asked = min([own, *(time for time in times.values() if time >= since)])
    asked = min(max(asked, since), lap.begin)
    return merged((Span("absent", since, asked), Span("queued", asked, lap.begin)))


def _waiting(laps: list[Lap], times: Mapping[str, float], known: Mapping[str, JobInfo], now: float) -> tuple[Span, ...]:
    """Return the time since the last attempt, when a job is in the queue."""
    queued = [job for job, state in known.items() if state.phase == "queued"]
    if not queued:
        return ()
    since = laps[-1].end if laps else min(times.values(), default=now)
    asked = min(since if laps and job == laps[-1].job else times.get(_number(job), since) for job in queued)
    asked = min(max(asked, since), now)
    return tuple(merged((Span("absent", since, asked), Span("queued", asked, now))))


def _number(job: str) -> str:
    """Return the id that sbatch gave, of a task of an array too."""
    return job.partition("_")[0]
