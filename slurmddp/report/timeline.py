"""How a run spent each moment from its first submission to its end: it waited, started, trained or lost time. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from slurmddp.outcome import Kind
from slurmddp.report.attempts import Span, TimedAttempt, TimeKind, time_attempts
from slurmddp.runs.allocations import Allocation, list_allocations
from slurmddp.runs.facts import Run
from slurmddp.slurm.job_info import JobRef
from slurmddp.slurm.values import parse_moment


class Timeline(NamedTuple):
    """A run from its first submission to its end, or until now."""

    begin: float
    end: float
    run: Run
    allocations: tuple[Allocation, ...]
    attempts: tuple[TimedAttempt, ...]
    after: tuple[Span, ...] = ()
    """The time since the last attempt."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """All time from begin to end, in order and without a gap."""
        return (*(span for attempt in self.attempts for span in (*attempt.before, *attempt.spans)), *self.after)

    @property
    def interruptions(self) -> Iterator[tuple[TimedAttempt, float | None]]:
        """Yield what ended before the training was done, with the seconds to the next step or rendezvous, if any."""
        for number, attempt in enumerate(self.attempts, start=1):
            if attempt.outcome.kind not in (Kind.DONE, Kind.RUNNING, Kind.UNKNOWN):
                later = (span.begin for one in self.attempts[number:] for span in one.spans if span.kind != "startup")
                yield attempt, next((begin - attempt.end for begin in later), None)


def build_timeline(run: Run, records: Iterable[Mapping[str, Any]], *, now: float) -> Timeline:
    """Return when what happened in a run; `records` are those of its submissions."""
    times = {record["job"]: time.timestamp() for record in records if (time := parse_moment(record.get("time")))}
    allocations = tuple(list_allocations(run, now=now))
    attempts = _add_spans([*time_attempts(allocations)])
    begin = min([*times.values(), *(attempt.begin for attempt in attempts)], default=now)
    attempts = _add_waits(attempts, times, begin)
    last = attempts[-1] if attempts else None
    since = last.end if last else min(times.values(), default=now)
    own = {last.job_id: since} if last else {}  # a requeued job waits since its last attempt
    queued = [job.job_id for job in run.jobs if job.outcome.meaning.phase == "queued"]
    submitted = [own.get(job, times.get(JobRef.parse(job).array_id, since)) for job in queued]
    after = _wait_spans(since, min(submitted), now) if submitted else ()
    end = after[-1].end if after else max((attempt.end for attempt in attempts), default=begin)
    return Timeline(run=run, begin=begin, end=end, allocations=allocations, attempts=tuple(attempts), after=after)


def _add_spans(attempts: Sequence[TimedAttempt]) -> list[TimedAttempt]:
    """Return the attempts with the steps that were kept, and how their time was spent."""
    is_measured = any(attempt.progress for attempt in attempts)
    done = []
    resumed_at: float = float("inf")
    for attempt in reversed(attempts):
        if progress := attempt.progress:
            if progress.last < resumed_at < float("inf"):  # its survivors saved steps of which it had logged nothing
                progress = progress.reached(int(resumed_at), attempt.end)
            goes_on = attempt.outcome.kind in (Kind.RUNNING, Kind.DONE)
            kept = progress.last if goes_on else progress.saved
            if resumed_at < float("inf"):  # the lowest step that later attempts began at
                kept = int(max(progress.first, min(resumed_at, progress.last)))
            attempt = replace(attempt, progress=progress, kept=kept)  # noqa: PLW2901
            resumed_at = min(resumed_at, progress.first)
        parts = _attempt_parts(attempt, is_measured=is_measured)
        done.append(replace(attempt, spans=join_spans(attempt.begin, parts, attempt.end)))
    return done[::-1]


def _attempt_parts(attempt: TimedAttempt, *, is_measured: bool) -> Iterator[tuple[TimeKind, float]]:
    """Yield how an attempt's time was spent, in order: each kind, and when that time ended."""
    progress = attempt.progress
    if progress is None:
        started = attempt.events.last("start")
        yield "startup", attempt.end if is_measured or started is None else started.time
        yield "unmeasured", attempt.end
        return
    kept = sorted((stall for stall in progress.stalls if stall.step <= attempt.kept), key=lambda stall: stall.begin)
    useful_end = lost_end = max([progress.time_of(attempt.kept), *(stall.end for stall in kept)])
    if attempt.outcome.kind is Kind.RUNNING:
        useful_end = lost_end = attempt.end
    elif attempt.outcome.kind not in (Kind.DONE, Kind.STOPPED):  # it did not end by itself
        lost_end = attempt.end
    elif progress.last > attempt.kept:
        lost_end = progress.last_time
    yield "startup", progress.began
    for stall in kept:
        yield "useful", stall.begin
        yield "held", stall.end
    yield "useful", useful_end
    yield "lost", lost_end
    yield "ending", attempt.end


def join_spans(begin: float, parts: Iterable[tuple[TimeKind, float]], end: float) -> tuple[Span, ...]:
    """Return parts of the time from `begin` to `end`, each up to its own end, if it does not lie before.

    Empty ones are left out, and neighbours of one kind become one.
    """
    spans: list[Span] = []
    for kind, until in parts:
        at = spans[-1].end if spans else begin
        until = min(until, end)  # noqa: PLW2901
        if until > at and spans and spans[-1].kind == kind:
            spans[-1] = spans[-1]._replace(end=until)
        elif until > at:
            spans.append(Span(kind, at, until))
    return tuple(spans)


def _add_waits(attempts: list[TimedAttempt], times: Mapping[str, float], begin: float) -> list[TimedAttempt]:
    """Return the attempts with the time before each: without a submitted job, and then in the queue."""
    done = []
    for before, attempt in zip([None, *attempts], attempts, strict=False):
        since = submitted = before.end if before else begin
        if before is None or before.job_id != attempt.job_id:
            own = times.get(JobRef.parse(attempt.job_id).array_id, attempt.begin)
            submitted = min([own, *(time for time in times.values() if time >= since)])
        done.append(replace(attempt, before=_wait_spans(since, submitted, attempt.begin)))
    return done


def _wait_spans(since: float, submitted: float, until: float) -> tuple[Span, ...]:
    return join_spans(since, (("absent", submitted), ("queued", until)), until)
