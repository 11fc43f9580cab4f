"""The status of jobs as lines for people. Pure."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from slurmddp.monitoring.status import JobStatus, Progress
from slurmddp.monitoring.status.job_status import Happened
from slurmddp.slurm.job_info import is_job_id
from slurmddp.text import count, escape_text, format_duration, format_table, wrap_text

if TYPE_CHECKING:
    from slurmddp.report.figures import Figures

HEAD: Final = ("RUN", "JOB", "STATE", "TIME", "TOTAL", "GPU-HOURS", "WHAT")
_WIDE: Final = 110
"""From so many columns on, there is room for the GPU-hours."""
_SAME_S: Final = 5
"""Times that differ by less are the same: one is by Slurm's clock, the other by that of a node."""
_MOST_TASKS: Final = 4
"""More tasks of an array in the same state are shown as one row."""
_MOST_LISTED: Final = 5
"""Of more restarts and requeues only the last are listed."""
_MOST_NODES: Final = 8
_LABEL: Final = 12
_WHOLE_PACE: Final = 1000
"""From this number of samples a second on, the fraction is left out."""
_MAY_CHANGE: Final = frozenset({"queued", "running", "unknown"})
"""In these phases an old answer may no longer be right."""


def format_jobs(statuses: Sequence[JobStatus], *, each: bool = False, width: int = sys.maxsize) -> list[str]:
    """Return a table of at most `width` columns with a row for each job; without `each`, one for tasks in one state."""
    groups: dict[tuple[str, ...], list[JobStatus]] = {}
    for status in statuses:
        is_alone = each or not status.ref.suffix
        key = (status.job_id,) if is_alone else (status.ref.array_id, show_state(status)[0], status.reason)
        groups.setdefault(key, []).append(status)
    rows = [row for group in groups.values() for row in _rows(group, has_room=width >= _WIDE)]
    return format_table(rows, head=HEAD, right=(HEAD.index("GPU-HOURS"),), width=width)


def show_state(status: JobStatus) -> tuple[str, str]:
    """Return the word in the column STATE, HUNG for a job that runs without progress, and its colour if it has one."""
    return ("HUNG", "red") if status.hang else (status.state, status.outcome.meaning.colour)


def format_job(status: JobStatus, figures: "Figures | None" = None) -> Iterator[str]:
    """Yield all details of one job, one per line; `figures` are those of its run, with all jobs and attempts."""
    name = f"{escape_text(_full_name(status))}: " if status.name else ""
    yield f"{name}job {status.job_id} is {escape_text(show_state(status)[0])}"
    yield from format_labelled((*details(status), *(_format_figures(figures) if figures else ())))


def format_labelled(texts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield texts as lines behind their labels."""
    for label, text in texts:
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


def _rows(group: Sequence[JobStatus], *, has_room: bool) -> Iterator[tuple[str, ...]]:
    """Yield a row for each job of a group, or one for many; TOTAL is empty where it is TIME."""
    if len(group) > _MOST_TASKS:
        first = group[0]
        job = first._replace(name=first.run.job_name if first.run else first.name)
        same = summarize(first) if first.phase == "queued" else f"{first.job_id}: {first.meaning}" * bool(first.meaning)
        what = f"{len(group)} tasks; {same}".rstrip("; ")
        yield (_full_name(job), f"{first.ref.array_id}_*", show_state(first)[0], "", "", "", what)
        return
    for status in group:
        ran, total = None if status.phase == "queued" else status.elapsed_s, status.total_s
        more = None if (total or 0) - (ran or 0) < _SAME_S else total
        yield (
            *(_full_name(status), status.job_id, show_state(status)[0]),
            *("" if time_s is None else format_duration(time_s) for time_s in (ran, more)),
            f"{status.gpu_hours:.2f}" if has_room and status.gpu_hours is not None else "",
            summarize(status),
        )


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
        step, *more = _format_progress(status.progress)
        hang = f"hung {format_hang(status.hang)}" if status.hang else ""
        words = [hang, status.meaning.partition(":")[0], step, format_end(status), *more]
    else:
        words = [re.sub(r"; see \S+", "", status.meaning)]
    old = f"{format_duration(status.age_s)} ago" if status.age_s >= 1 and status.phase in _MAY_CHANGE else ""
    return ", ".join(filter(None, [old, *words]))


def _format_progress(progress: Progress | None) -> Iterator[str]:
    """Yield the step, which may be empty, and the metrics."""
    progress = progress or Progress()
    yield "" if progress.step is None else f"step {progress.step}" + f"/{progress.total}" * bool(progress.total)
    yield from format_metrics(progress, left=False)


def format_end(status: JobStatus) -> str:
    """Return when a job ends at its measured speed, and its limit, as in `ends 14:20, limit at 16:00`."""
    progress, limit, end = status.progress, None, None
    if status.phase == "running" and status.started and status.limit_s is not None:
        limit = status.started + timedelta(seconds=status.limit_s)
    if progress and progress.left_s is not None and not progress.stall:
        end = datetime.now().astimezone() + timedelta(seconds=progress.left_s)
    words = (
        f"ends {format_time(end, short=True)}" if end else "",
        f"limit at {format_time(limit, short=True)}" if limit else "",
    )
    return (", after its " if end and limit and end > limit else ", ").join(filter(None, words))


def format_metrics(progress: Progress, *, left: bool = True) -> Iterator[str]:
    """Yield the loss, the time left unless it is not wanted, and the samples a second, as far as they are known."""
    if progress.loss is not None:
        yield f"loss {progress.loss:.4g}"
    if left and progress.left_s is not None:
        yield f"{format_duration(progress.left_s)} left"
    if progress.samples_per_s is not None:
        yield f"{progress.samples_per_s:{'.4g' if progress.samples_per_s < _WHOLE_PACE else '.0f'}} samples/s"


def format_time(time: datetime, *, short: bool = False) -> str:
    """Return a time for people; without the date if it is today, and if `short` without seconds and year."""
    local, year, seconds = time.astimezone(), "" if short else "%Y-", "" if short else ":%S"
    is_today = local.date() == datetime.now().astimezone().date()
    return local.strftime(f"%H:%M{seconds}" if is_today else f"{year}%m-%d %H:%M")


def details(status: JobStatus) -> Iterator[tuple[str, str]]:
    """Yield what is known of one job beside its name and state, each with its label."""
    is_plain = status.reason in ("NonZeroExitCode", status.meaning)
    more = len(status.nodes) - _MOST_NODES
    nodes = " ".join(status.nodes[:_MOST_NODES]) + (f" and {more} more" if more > 0 else "")
    partition = f"partition {status.partition}" if status.partition else ""
    known = {
        "hung": format_hang(status.hang) if status.hang else "",
        "why": "; ".join(filter(None, ("" if is_plain else status.reason, status.meaning))),
        "starts": f"{format_time(status.expected_start)}, as Slurm expects" if status.expected_start else "",
        "submitted": format_time(status.submitted) if status.submitted else "",
        "started": format_time(status.started) if status.started else "",
        "ended": format_time(status.ended) if status.ended else "",
        "time": ", ".join(_format_times(status)),
        "where": ", ".join(filter(None, (nodes, partition))),
        "exit status": status.outcome.exit_status,
    }
    yield from ((label, text) for label, text in known.items() if text)
    yield from _progress_details(status, status.progress or Progress())
    if status.run:
        yield "folder", str(status.run.path)
    source = "Slurm" if status.run is None else "the run's files"
    old = f", {format_duration(status.age_s)} old" if status.age_s >= 1 else ""
    yield "source", (source if status.source == "files" else status.source) + old
    if status.outcome.final and status.outcome.meaning.back:
        is_other = status.run is None or is_job_id(status.run.path.name)  # it is of sbatch, or of an executor
        yield "next", "submit it again as you did before" if is_other else status.outcome.meaning.back


def _format_times(status: JobStatus) -> Iterator[str]:
    """Yield the time since the last start, that of all starts, and the limit of each."""
    ran = None if status.phase == "queued" else status.elapsed_s
    if ran is not None:
        yield format_duration(ran)
    if status.total_s is not None and status.total_s != ran:
        yield f"{format_duration(status.total_s)} in all starts of the run"
    if status.source != "files":
        yield "no limit" if status.limit_s is None else f"limit {format_duration(status.limit_s)}"


def _progress_details(status: JobStatus, progress: Progress) -> Iterator[tuple[str, str]]:
    if words := [*filter(None, _format_progress(progress))]:
        yield "progress", ", ".join(words)
    if progress.left_s is not None and not progress.stall:
        yield "ends", f"{format_end(status).removeprefix('ends ')}; {format_duration(progress.left_s)} left at its pace"
    if progress.use:
        yield "use", progress.use
    if progress.checkpoint_path or progress.checkpoint_step is not None:
        age = f", {format_duration(progress.checkpoint_age_s)} old" if progress.checkpoint_age_s is not None else ""
        yield "checkpoint", (progress.checkpoint_path or f"step {progress.checkpoint_step}") + age
    yield from (("damaged", line) for line in progress.damage[:_MOST_LISTED])
    starts = [(time, f"restarted: {reason}") for time, reason in progress.restarts]
    starts += [(time, f"requeued: {reason}") for time, reason in progress.requeues]
    requeues = max(len(progress.requeues), status.restarts or 0)
    counts = (("requeued", requeues), ("restarted", len(progress.restarts)))
    again = [f"{verb} {'once' if number == 1 else f'{number} times'}" for verb, number in counts if number]
    if progress.attempt or again:
        last = f"the last {_MOST_LISTED}:" if len(starts) > _MOST_LISTED else ""
        yield "attempt", ", ".join(filter(None, (progress.attempt, *again, last)))
    for time, text in sorted(starts)[-_MOST_LISTED:]:
        yield "", f"{format_time(datetime.fromtimestamp(time).astimezone())} {text}"


def format_hang(hang: Happened) -> str:
    """Return since when there is no progress, and why."""
    return f"since {format_time(datetime.fromtimestamp(hang[0]).astimezone())}: {hang[1]}"
