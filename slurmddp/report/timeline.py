"""How a run spent each moment from its first submission to its end: it waited, started, trained or lost time. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from slurmddp.outcome import Kind
from slurmddp.report.attempts import Span, StepProgress, TimedAttempt, build_attempts
from slurmddp.runs.facts import Run
from slurmddp.slurm.job_info import JobInfo, JobRef


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A run from its first submission to its end, or until now."""

    begin: float
    end: float
    attempts: tuple[TimedAttempt, ...]
    after: tuple[Span, ...] = ()
    """The time since the last attempt."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """All time from begin to end, in order and without a gap."""
        return (*(span for attempt in self.attempts for span in (*attempt.before, *attempt.spans)), *self.after)


def build_timeline(
    run: Run,
    submitted: Mapping[str, float] | None = None,
    *,
    known: Mapping[str, JobInfo] | None = None,
    now: float,
) -> Timeline:
    """Return when what happened; `submitted` are the times of the jobs, `known` is what Slurm says of each."""
    times, known = submitted or {}, known or {}
    attempts = _add_spans(build_attempts(run, known=known, now=now))
    begin = min([*times.values(), *(attempt.begin for attempt in attempts)], default=now)
    attempts = _add_waits(attempts, times, begin)
    after = _wait_after(attempts, times, known, now)
    end = after[-1].end if after else max((attempt.end for attempt in attempts), default=begin)
    return Timeline(begin=begin, end=end, attempts=tuple(attempts), after=after)


def _add_spans(attempts: Sequence[TimedAttempt]) -> list[TimedAttempt]:
    """Return the attempts with the steps that were kept, and how their time was spent."""
    is_measured = any(attempt.progress for attempt in attempts)
    done = []
    resumed_at: float = float("inf")
    for attempt in reversed(attempts):
        kept = (
            replace(attempt, kept=_count_kept(attempt, attempt.progress, resumed_at)) if attempt.progress else attempt
        )
        done.append(replace(kept, spans=tuple(merge_spans(_attempt_spans(kept, is_measured=is_measured)))))
        resumed_at = min(resumed_at, attempt.progress.first) if attempt.progress else resumed_at
    return done[::-1]


def _count_kept(attempt: TimedAttempt, progress: StepProgress, resumed_at: float) -> int:
    """Return the step up to which an attempt's work was used; `resumed_at` is the lowest step that others began at."""
    if resumed_at < float("inf"):
        return int(max(progress.first, min(resumed_at, progress.last)))
    return progress.last if attempt.outcome.kind in (Kind.RUNNING, Kind.DONE) else progress.saved


def _attempt_spans(attempt: TimedAttempt, *, is_measured: bool) -> Iterator[Span]:
    """Yield how an attempt's time was spent, in order; spans may be empty."""
    progress = attempt.progress
    if progress is None:
        started = attempt.last("start")
        trains_from = attempt.end if is_measured or started is None else min(started.time, attempt.end)
        yield Span("startup", attempt.begin, trains_from)
        yield Span("unmeasured", trains_from, attempt.end)
        return
    limits = (progress.began, *_useful_and_lost_end(attempt, progress))
    began, useful_end, lost_end = (min(max(time, attempt.begin), attempt.end) for time in limits)
    yield Span("startup", attempt.begin, began)
    yield from _useful_spans(progress, attempt.kept, began, useful_end)
    yield Span("lost", useful_end, lost_end)
    yield Span("ending", lost_end, attempt.end)


def _useful_and_lost_end(attempt: TimedAttempt, progress: StepProgress) -> tuple[float, float]:
    """Return when an attempt's last useful step ended, and when it ended to do work that was lost."""
    if attempt.outcome.kind is Kind.RUNNING:
        return attempt.end, attempt.end
    stall_ends = (stall.end for stall in progress.stalls if stall.step <= attempt.kept)
    useful_end = max([progress.time_of(attempt.kept), *stall_ends])
    if not attempt.is_clean:
        return useful_end, attempt.end
    return useful_end, progress.last_time if progress.last > attempt.kept else useful_end


def _useful_spans(progress: StepProgress, kept: int, begin: float, end: float) -> Iterator[Span]:
    """Yield the useful time, and the stalls by checkpoints in it."""
    at = begin
    for stall in sorted(progress.stalls, key=lambda stall: stall.begin):
        first, last = (min(max(time, at), end) for time in (stall.begin, stall.end))
        if stall.step <= kept:
            yield Span("useful", at, first)
            yield Span("held", first, last)
            at = last
    yield Span("useful", at, end)


def merge_spans(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans that are not empty; neighbours of one kind become one."""
    last: Span | None = None
    for span in spans:
        if span.end <= span.begin:
            continue
        if last and last.kind == span.kind:
            last = replace(last, end=span.end)
            continue
        if last:
            yield last
        last = span
    if last:
        yield last


def _add_waits(attempts: list[TimedAttempt], times: Mapping[str, float], begin: float) -> list[TimedAttempt]:
    """Return the attempts with the time before each: without a submitted job, and then in the queue."""
    done = []
    for before, attempt in zip([None, *attempts], attempts, strict=False):
        since = submitted = before.end if before else begin
        if before is None or before.job != attempt.job:
            own = times.get(JobRef.parse(attempt.job).array_id, attempt.begin)
            submitted = min([own, *(time for time in times.values() if time >= since)])
        done.append(replace(attempt, before=_wait_spans(since, submitted, attempt.begin)))
    return done


def _wait_after(
    attempts: list[TimedAttempt], times: Mapping[str, float], known: Mapping[str, JobInfo], now: float
) -> tuple[Span, ...]:
    """Return the time since the last attempt, if a job is in the queue."""
    queued = [job for job, state in known.items() if state.phase == "queued"]
    if not queued:
        return ()
    last = attempts[-1] if attempts else None
    since = last.end if last else min(times.values(), default=now)
    own = {last.job: since} if last else {}  # a requeued job waits since its last attempt
    submitted = min(own.get(job, times.get(JobRef.parse(job).array_id, since)) for job in queued)
    return _wait_spans(since, submitted, now)


def _wait_spans(since: float, submitted: float, until: float) -> tuple[Span, ...]:
    submitted = min(max(submitted, since), until)
    return tuple(merge_spans((Span("absent", since, submitted), Span("queued", submitted, until))))
