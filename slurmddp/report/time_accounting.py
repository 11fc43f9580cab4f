"""What the time of attempts was spent on, by the steps that they took and that were kept. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from slurmddp.report.attempts import Lap, Span
from slurmddp.report.step_progress import Climb


def spent(laps: list[Lap]) -> list[Lap]:
    """Return the attempts with what their time was spent on."""
    is_measured = any(lap.climb for lap in laps)
    done = []
    later: float = float("inf")
    for lap in reversed(laps):
        made = replace(lap, kept=_kept(lap, later)) if lap.climb else lap
        done.append(replace(made, spans=tuple(merged(_spans(made, is_measured=is_measured)))))
        later = min(later, lap.climb.first) if lap.climb else later
    return done[::-1]


def _kept(lap: Lap, later: float) -> int:
    """Return the step up to which an attempt's work is in what came of it; `later` is where others went on from."""
    if lap.climb is None:
        return 0
    if later < float("inf"):
        return int(max(lap.climb.first, min(later, lap.climb.last)))
    return lap.climb.last if lap.outcome in ("running", "done") else lap.climb.saved


def _spans(lap: Lap, *, is_measured: bool) -> Iterator[Span]:
    """Yield what an attempt's time was spent on, also empty ones."""
    if lap.climb is None:
        started = lap.last("start")
        trains_from = lap.end if is_measured or started is None else min(started.time, lap.end)
        yield Span("startup", lap.begin, trains_from)
        yield Span("unmeasured", trains_from, lap.end)
        return
    began, kept_until, lost_until = (min(max(time, lap.begin), lap.end) for time in _turns(lap, lap.climb))
    yield Span("startup", lap.begin, began)
    yield from _useful(lap.climb, lap.kept, began, kept_until)
    yield Span("lost", kept_until, lost_until)
    yield Span("ending", lost_until, lap.end)


def _turns(lap: Lap, steps: Climb) -> tuple[float, float, float]:
    """Return when an attempt began to train, and until when it did work of use, and of none."""
    if lap.outcome == "running":
        return steps.began, lap.end, lap.end
    kept_until = max(
        [steps.time_of(lap.kept), *(hold.end for hold in steps.holds if hold.step <= lap.kept)], default=steps.began
    )
    if not lap.is_clean:
        return steps.began, kept_until, lap.end
    return steps.began, kept_until, steps.seen if steps.last > lap.kept else kept_until


def _useful(steps: Climb, kept: int, begin: float, end: float) -> Iterator[Span]:
    """Yield a time of useful steps, and the checkpoints that held them up."""
    at = begin
    for hold in sorted(steps.holds, key=lambda hold: hold.begin):
        first, last = (min(max(time, at), end) for time in (hold.begin, hold.end))
        if hold.step <= kept:
            yield Span("useful", at, first)
            yield Span("held", first, last)
            at = last
    yield Span("useful", at, end)


def merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans that are not empty, neighbours of a kind as one."""
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
