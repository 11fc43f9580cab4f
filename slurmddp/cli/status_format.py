"""The status of jobs as lines for people. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from slurmddp.monitoring.status import JobStatus, Progress
from slurmddp.monitoring.status.job_status import Happened
from slurmddp.text import WIDTH, count, escape_text, format_duration, format_table, shorten_text, wrap_text

if TYPE_CHECKING:
    from slurmddp.report.figures import Figures

_HEAD: Final = ("RUN", "JOB", "STATE", "TIME", "WHAT")
_LEAST_WHAT: Final = 24
"""Columns of the last cell that are shown on a terminal at least: names are never cut, since they are typed."""
_MOST_TASKS: Final = 4
"""More tasks of an array in the same state are shown as one row."""
_MOST_LISTED: Final = 5
"""Of more restarts or requeues only the last are listed."""
_MOST_NODES: Final = 8
_LABEL: Final = 12
_WHOLE_PACE: Final = 1000
"""From this number of samples a second on, the fraction is left out."""
_MAY_CHANGE: Final = frozenset({"queued", "running", "unknown"})
"""In these phases an old answer may no longer be right."""


def format_jobs(statuses: Sequence[JobStatus], *, each: bool = False, width: int = WIDTH) -> Iterator[str]:
    """Yield a table of `width` columns with a row for each job.

    Many tasks in one state are one row, except for tasks of a sweep with `each`.
    """
    groups: dict[tuple[str, str, str], list[JobStatus]] = {}
    for status in statuses:
        is_alone = not status.ref.suffix or (each and status.run is not None and status.run.sweep is not None)
        key = (status.job_id, "", "") if is_alone else (status.ref.array_id, status.state, status.reason)
        groups.setdefault(key, []).append(status)
    lines = format_table([_HEAD, *(row for group in groups.values() for row in _cells(group))])
    most = max(width, lines[0].index(_HEAD[-1]) + _LEAST_WHAT)
    yield from (shorten_text(line, most) for line in lines)


def format_job(status: JobStatus, figures: "Figures | None" = None) -> Iterator[str]:
    """Yield all details of one job, one per line; `figures` are those of its run, with all jobs and attempts."""
    name = f"{escape_text(_full_name(status))}: " if status.name else ""
    yield f"{name}job {status.job_id} is {escape_text(status.state)}"
    for label, text in (*_details(status), *(_format_figures(figures) if figures else ())):
        yield from wrap_text(text, f"  {label:{_LABEL}}", cut=True)


def _format_figures(figures: "Figures") -> Iterator[tuple[str, str]]:
    from slurmddp.report.attempts import KINDS

    hours = f"{figures.gpu_hours:.3g} GPU-hours" if figures.gpu_hours else f"{figures.node_hours:.3g} node-hours"
    yield "whole run", f"{format_duration(figures.wall_s)} from its first submission on; {hours}"
    spent = [(words, figures.seconds.get(kind, 0.0)) for kind, words in KINDS.items()]
    yield "spent on", ", ".join(f"{words} {format_duration(seconds)}" for words, seconds in spent if seconds >= 1)
    if figures.ettr is not None:
        again = f"; {count(figures.steps_repeated, 'step')} taken again" if figures.steps_repeated else ""
        yield "ETTR", f"{figures.ettr:.1%} of all time, {figures.goodput or 0:.1%} of the allocated time{again}"


def _cells(group: Sequence[JobStatus]) -> Iterator[tuple[str, ...]]:
    if len(group) <= _MOST_TASKS:
        yield from (_row(status, status.job_id, summarize(status)) for status in group)
        return
    first = group[0]
    name = first.run.job_name if first.run else first.name
    yield _row(
        replace(first, name=name),
        f"{first.ref.array_id}_*",
        f"{len(group)} tasks; {summarize(first)}".removesuffix("; "),
    )


def _row(status: JobStatus, job_id: str, text: str) -> tuple[str, ...]:
    time = "" if status.elapsed_s is None or status.phase == "queued" else format_duration(status.elapsed_s)
    return escape_text(_full_name(status)), job_id, escape_text(status.state), time, escape_text(text)


def _full_name(status: JobStatus) -> str:
    """Return the name of the run as a person types it; of a sweep's setting, with that of the sweep."""
    sweep = status.run.sweep if status.run and status.name == status.run.path.name else None
    return f"{sweep.path.name}/{status.name}" if sweep else status.name


def summarize(status: JobStatus) -> str:
    """Return in a few words why a job is pending, its progress, or how it ended."""
    if status.phase == "queued":
        start = f"starts {format_time(status.expected_start)}" if status.expected_start else ""
        words = [start, status.meaning.partition("; ")[0]]
    elif status.phase in ("running", "done"):
        stall = status.progress and status.progress.stall
        words = [format_stall(stall)] if stall else []
        words += [status.meaning.partition(":")[0], *_format_progress(status.progress, pace=False)]
    else:
        words = [status.meaning]
    old = f"{format_duration(status.age_s)} ago" if status.age_s >= 1 and status.phase in _MAY_CHANGE else ""
    return ", ".join(filter(None, [old, *words]))


def _format_progress(progress: Progress | None, *, pace: bool) -> Iterator[str]:
    if progress is None or progress.step is None:
        return
    yield f"step {progress.step}/{progress.total}" if progress.total else f"step {progress.step}"
    yield from format_metrics(progress, pace=pace)


def format_metrics(progress: Progress, *, pace: bool = True) -> Iterator[str]:
    """Yield the loss, the time left, and with `pace` the samples a second, as far as they are known."""
    if progress.loss is not None:
        yield f"loss {progress.loss:.4g}"
    if progress.left_s is not None:
        yield f"{format_duration(progress.left_s)} left"
    if pace and progress.samples_per_s is not None:
        yield f"{progress.samples_per_s:{'.4g' if progress.samples_per_s < _WHOLE_PACE else '.0f'}} samples/s"


def format_time(time: datetime) -> str:
    """Return a time for people; without the date if it is today."""
    local = time.astimezone()
    return f"{local:%H:%M:%S}" if local.date() == datetime.now().astimezone().date() else f"{local:%Y-%m-%d %H:%M}"


def _details(status: JobStatus) -> Iterator[tuple[str, str]]:
    is_plain = status.reason in ("NonZeroExitCode", status.meaning)
    limit = "no limit" if status.limit_s is None else f"limit {format_duration(status.limit_s)}"
    ran = "" if status.elapsed_s is None or status.phase == "queued" else format_duration(status.elapsed_s)
    more = len(status.nodes) - _MOST_NODES
    nodes = " ".join(status.nodes[:_MOST_NODES]) + (f" and {more} more" if more > 0 else "")
    partition = f"partition {status.partition}" if status.partition else ""
    known = {
        "why": "; ".join(filter(None, ("" if is_plain else status.reason, status.meaning))),
        "starts": f"{format_time(status.expected_start)}, as Slurm expects" if status.expected_start else "",
        "submitted": format_time(status.submitted) if status.submitted else "",
        "started": format_time(status.started) if status.started else "",
        "ended": format_time(status.ended) if status.ended else "",
        "time": ", ".join(filter(None, (ran, "" if status.source == "files" else limit))),
        "where": ", ".join(filter(None, (nodes, partition))),
        "exit status": status.exit_status,
        "came back": _format_times(status.restarts) if status.restarts else "",
    }
    yield from ((label, text) for label, text in known.items() if text)
    if status.progress:
        yield from _progress_details(status.progress)
    if status.run:
        yield "folder", str(status.run.path)
    source = "Slurm" if status.run is None else "the run's files"
    old = f", {format_duration(status.age_s)} old" if status.age_s >= 1 else ""
    yield "source", (source if status.source == "files" else status.source) + old
    if status.outcome.final and status.outcome.meaning.back:
        yield "to continue", status.outcome.meaning.back


def _progress_details(progress: Progress) -> Iterator[tuple[str, str]]:
    if progress.attempt:
        yield "attempt", progress.attempt
    if words := [*_format_progress(progress, pace=True)]:
        yield "progress", ", ".join(words)
    if progress.stall:
        yield "stalled", format_stall(progress.stall)
    if progress.use:
        yield "use", progress.use
    if progress.checkpoint_path or progress.checkpoint_step is not None:
        age = f", {format_duration(progress.checkpoint_age_s)} old" if progress.checkpoint_age_s is not None else ""
        yield "checkpoint", (progress.checkpoint_path or f"step {progress.checkpoint_step}") + age
    yield from (("tracker", link) for link in progress.trackers)
    yield from (("damaged", line) for line in progress.damage[:_MOST_LISTED])
    yield from _event_details("restarted", progress.restarts)
    yield from _event_details("requeued", progress.requeues)


def format_stall(stall: Happened) -> str:
    """Return since when there is no progress, and why."""
    return f"no progress since {format_time(datetime.fromtimestamp(stall[0]).astimezone())}: {stall[1]}"


def _event_details(label: str, events: Sequence[Happened]) -> Iterator[tuple[str, str]]:
    if len(events) > _MOST_LISTED:
        yield label, f"{_format_times(len(events))}; the last {_MOST_LISTED}:"
    for time, reason in events[-_MOST_LISTED:]:
        yield label, f"{format_time(datetime.fromtimestamp(time).astimezone())} {reason}"


def _format_times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
