"""Draw a frame of `slurmddp watch` from a `View`, as lines of rich text. Pure."""

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from slurmddp.cli.status_format import format_metrics, format_time
from slurmddp.cli.watch.braille import Point, draw_bar, draw_curve
from slurmddp.cli.watch.view import View
from slurmddp.monitoring.event_words import describe_event
from slurmddp.monitoring.status import JobStatus, Progress
from slurmddp.report.axis import Scale
from slurmddp.runs.history import Event
from slurmddp.text import count, escape_text, format_duration

if TYPE_CHECKING:
    from rich.text import Text

_COLOURS: Final = {"running": "green", "queued": "yellow", "done": "cyan", "failed": "red", "cancelled": "magenta"}
_ALWAYS: Final = (("h", "help"), ("q", "quit"))
_KEYS: Final = (
    ("↑↓", "job"),
    ("l", "output"),
    ("c", "cancel"),
    ("r", "requeue"),
    ("s", "ask Slurm"),
    *_ALWAYS,
)
_OUTPUT_KEYS: Final = (("←→", "rank"), ("↑↓", "back"), ("l", "jobs"), *_ALWAYS)
_HELP: Final = (
    ("↑ ↓  or  k j", "choose a job; on the output page, scroll"),
    ("← →", "choose the rank whose output is shown"),
    ("l  or  Enter", "show the output on the whole screen, and back"),
    ("c", "cancel the chosen job, after confirmation"),
    ("r", "requeue the chosen job, after confirmation"),
    ("s", "ask Slurm now; it is asked every 10 s, and files are read every second"),
    ("h  or  ?", "show this page, and back"),
    ("q  or  Ctrl-C", "quit; jobs go on"),
)
_MOST_JOBS: Final = 6
_CURVE_LINES: Final = 5
_MOST_EVENTS: Final = 4
_NARROW: Final = 60
_NARROWEST: Final = 10
_LONGEST_METER: Final = 30
_SHORTEST_METER: Final = 5


def draw(view: View, width: int, height: int) -> "list[Text]":
    """Return exactly `height` lines of at most `width` columns."""
    pages: dict[str, Callable[[View, int, int], list[Text]]] = {
        "jobs": _jobs_page,
        "output": _output_page,
        "help": _help_page,
    }
    room = max(0, height - 2)
    body = pages[view.page](view, width, room)[:room]
    body += [_text("")] * (room - len(body))
    lines = [_header(view), *body, _footer(view, width)][:height]
    for line in lines:
        line.truncate(width)
    return lines


def _text(text: str, style: str = "") -> "Text":
    from rich.text import Text

    return Text(text, style=style, no_wrap=True, end="")


def _header(view: View) -> "Text":
    line = _text("slurmddp watch", "bold")
    line.append(f"  {datetime.fromtimestamp(view.now).astimezone():%H:%M:%S}", "")
    if silence := next((job.silence for job in view.jobs if job.silence), ""):
        return line.append(f"  {escape_text(silence)}", "red")
    if view.asking:
        return line.append("  asking Slurm", "dim")
    age = "" if view.asked is None else f"  Slurm's answer is {format_duration(view.now - view.asked)} old"
    return line.append(age, "dim")


def _footer(view: View, width: int) -> "Text":
    if view.question:
        return _text(f"{escape_text(view.question)} (y/n)", "bold reverse")
    if view.message:
        return _text(escape_text(view.message), "bold")
    keys = list(_OUTPUT_KEYS if view.page == "output" else _KEYS)
    while len(keys) > len(_ALWAYS) and sum(len(f"{key} {what}  ") for key, what in keys) > width + 2:
        keys.pop(-len(_ALWAYS) - 1)
    line = _text("")
    for key, what in keys:
        line.append(key, "bold").append(f" {what}  ", "dim")
    return line


def _jobs_page(view: View, width: int, room: int) -> "list[Text]":
    if not view.jobs:
        return [_text("no jobs yet" if view.asked else "asking Slurm", "dim")]
    lines = _job_rows(view, width, room)
    if not (job := view.job):
        return lines
    lines += [_rule(f"{job.job_id} {job.name}", width), *_details(job, width)]
    sections = (
        _curves(view, width) if room >= 16 and width >= _NARROW else [],  # noqa: PLR2004 a screen's lines
        [_event_line(event) for event in view.events[-_MOST_EVENTS:]] if room >= 12 else [],  # noqa: PLR2004 the same
    )
    for section in sections:
        if len(lines) + len(section) + 2 <= room:
            lines += section
    left = room - len(lines)
    if left > 1:
        lines += [_rule(f"rank {view.rank} and the batch script", width), *_output_lines(view.output, left - 1)]
    return lines


def _job_rows(view: View, width: int, room: int) -> "list[Text]":
    """Return rows of jobs around the chosen one."""
    most = max(1, min(_MOST_JOBS, room // 4, len(view.jobs)))
    first = max(0, min(view.chosen - most // 2, len(view.jobs) - most))
    shown = view.jobs[first : first + most]
    rows = [_job_row(job, view, is_chosen=job is view.job, width=width) for job in shown]
    hidden = len(view.jobs) - len(shown)
    if hidden and rows:
        rows[-1].append(f"  and {hidden} more", "dim")
    return rows


def _job_row(job: JobStatus, view: View, *, is_chosen: bool, width: int) -> "Text":
    name_width = 12 if width < _NARROW else 20
    line = _text("▶ " if is_chosen else "  ", "bold")
    line.append(f"{job.job_id:>8} ", "bold" if is_chosen else "")
    line.append(f"{escape_text(job.name)[:name_width]:{name_width}} ")
    line.append(f"{job.state:10} ", _COLOURS.get(job.phase, ""))
    line.append(f"{_elapsed(job, view)}{_limit(job)}")
    if job.phase != "done" and job.progress and job.progress.step is not None and job.progress.total:
        line.append(f"  {100 * job.progress.step / job.progress.total:3.0f}%")
    return line


def _elapsed(job: JobStatus, view: View) -> str:
    if job.elapsed_s is None:
        return ""
    since = view.now - view.asked if job.phase == "running" and view.asked is not None else 0
    return format_duration(job.elapsed_s + since)


def _limit(job: JobStatus) -> str:
    return f" of {format_duration(job.limit_s)}" if job.limit_s and job.phase == "running" else ""


def _details(job: JobStatus, width: int) -> "Iterator[Text]":
    """Yield the details of the chosen job: reason, nodes, progress, restarts."""
    where = f"on {', '.join(job.nodes[:4])}{' ...' if len(job.nodes) > 4 else ''}" if job.nodes else ""  # noqa: PLR2004 four fit
    start = f"expected to start {format_time(job.expected_start)}" if job.expected_start else ""
    why = job.meaning or (job.reason if job.reason != "None" else "")
    if text := "; ".join(filter(None, (why, start, where))):
        colour = "" if job.phase == "running" else _COLOURS.get(job.phase, "")
        yield from (
            _text(line, colour) for line in textwrap.wrap(escape_text(text), max(width, _NARROWEST), max_lines=2)
        )
    progress = job.progress
    if progress and progress.step is not None:
        total, numbers = progress.total or 0, "  ".join(_metrics(progress))
        line = _text(f"step {progress.step}/{total or '?'}  ")
        room = min(_LONGEST_METER, width - len(line) - len(numbers) - 2)
        if total and room >= _SHORTEST_METER:
            line.append(draw_bar(progress.step / total, room), "green").append("  ")
        yield line.append(numbers)
    if restarts := _restarts(job):
        yield _text(restarts, "yellow")


def _metrics(progress: Progress) -> Iterator[str]:
    yield from format_metrics(progress)
    if progress.checkpoint_age_s is not None:
        yield f"saved {format_duration(progress.checkpoint_age_s)} ago"


def _restarts(job: JobStatus) -> str:
    """Return the number of restarts and requeues, and the reason of the last one."""
    progress = job.progress
    if not progress:
        return ""
    counts = ((len(progress.restarts), "restart"), (len(progress.requeues), "requeue"))
    text = ", ".join(count(number, noun) for number, noun in counts if number)
    last = max((*progress.restarts, *progress.requeues), default=(0.0, ""))[1]
    return escape_text(f"{text}; the last: {last}") if text else ""


def _curves(view: View, width: int) -> "list[Text]":
    """Return the curves side by side, each with a legend; empty without data."""
    both = [(name, points) for name, points in (("loss", view.loss), ("samples/s", view.rate)) if points]
    if not both:
        return []
    each = (width - 2 * (len(both) - 1)) // len(both)
    columns = [_curve(name, points, each) for name, points in both]
    return [_join_columns(row, each, is_title=number == 0) for number, row in enumerate(zip(*columns, strict=True))]


def _curve(name: str, points: Sequence[Point], width: int) -> list[str]:
    finite = [value for _, value in points if math.isfinite(value)]
    scale = Scale.over(finite, may_be_log=True)
    lost = f", {len(points) - len(finite)} not finite" if len(finite) < len(points) else ""
    legend = f"{name} {finite[-1]:.3g}, {min(finite):.3g} to {max(finite):.3g}" if finite else f"{name}: no number"
    legend += f"{', log' if scale.is_log else ''}{lost}"
    return [legend, *draw_curve(points, scale, width, _CURVE_LINES)]


def _join_columns(cells: Sequence[str], each: int, *, is_title: bool) -> "Text":
    line = _text("")
    for number, cell in enumerate(cells):
        colour = "bold" if is_title else ("cyan", "green")[number]
        line.append(f"{cell[:each]:{each}}  ", colour)
    return line


def _event_line(event: Event) -> "Text":
    line = _text(f"{datetime.fromtimestamp(event.time).astimezone():%H:%M:%S} ", "dim")
    line.append(escape_text(event.kind), "bold")
    step = f"step {event.count('step')}" if "step" in event.fields else ""
    words = describe_event(event) or event.text("what") or event.text("reason") or step
    return line.append(f" {escape_text(': '.join(filter(None, (event.attempt, words))))}")


def _output_lines(lines: Sequence[str], room: int) -> "list[Text]":
    return [_text(line.expandtabs()) for line in (lines or ("no output yet",))[-room:]] if room > 0 else []


def _output_page(view: View, width: int, room: int) -> "list[Text]":
    job = view.job
    whose = f"{job.job_id} {job.name}, rank {view.rank} and the batch script" if job else "no job"
    back = f", {view.back} lines back" if view.back else ""
    return [_rule(whose + back, width), *_output_lines(view.output, room - 1)]


def _help_page(_view: View, _width: int, _room: int) -> "list[Text]":
    return [_text(f"  {keys:14} ", "bold").append(what, "") for keys, what in _HELP]


def _rule(title: str, width: int) -> "Text":
    return _text(f"─ {escape_text(title)} ".ljust(width, "─"), "dim")
