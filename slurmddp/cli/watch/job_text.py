"""A job as text: its row in the table, its details, its events. Pure; control characters are escaped."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from rich.text import Text

from slurmddp.cli.status_format import format_stall, format_time
from slurmddp.monitoring.status import JobStatus, Progress
from slurmddp.runs.history import Event, describe_event
from slurmddp.text import count, escape_text, format_duration, list_some, shorten_text

HEAD: Final = ("RUN", "JOB", "STATE", "TIME", "STEP", "SAMPLES/S", "LEFT", "LOSS", "LIMIT", "NODELIST(REASON)")
_NAME_WIDTH: Final = 20
_REASON_WIDTH: Final = 60
_MOST_NODES: Final = 4


def format_row(job: JobStatus, since_s: float) -> tuple[Text, ...]:
    """Return the cells of a job below HEAD; Slurm said `since_s` seconds ago how long it has run."""
    progress, is_running = job.progress or Progress(), job.phase == "running"
    return (
        Text(shorten_text(job.name, _NAME_WIDTH)),
        Text(escape_text(job.job_id)),
        Text(escape_text(job.state), job.outcome.meaning.colour),
        _number(job.elapsed_s, lambda elapsed_s: format_duration(elapsed_s + is_running * since_s)),
        _number(progress.step, lambda step: f"{step:.0f}/{progress.total or '?'}"),
        _number(progress.samples_per_s if is_running else None, lambda rate: f"{rate:,.4g}"),
        _number(progress.left_s, format_duration),
        _number(progress.loss, lambda loss: f"{loss:.4g}"),
        _number(job.limit_s, format_duration),
        Text(shorten_text(list_some(job.nodes, _MOST_NODES) if is_running else job.meaning, _REASON_WIDTH)),
    )


def _number(value: float | None, describe: Callable[[float], str]) -> Text:
    return Text("" if value is None else describe(value), justify="right")


def format_details(job: JobStatus) -> Text:
    """Return why a job waits or ended, where it runs, its checkpoint, its restarts and the reason of the last one."""
    progress = job.progress or Progress()
    age_s, returns = progress.checkpoint_age_s, (*progress.restarts, *progress.requeues)
    saved = progress.checkpoint_path or f"of step {progress.checkpoint_step}"
    words = (
        job.meaning,
        f"expected to start {format_time(job.expected_start)}" if job.expected_start else "",
        format_stall(progress.stall) if progress.stall else "",
        progress.use,
        f"on {list_some(job.nodes, _MOST_NODES)}" if job.nodes else "",
        "" if age_s is None else f"checkpoint {saved}, {format_duration(age_s)} old",
        count(len(progress.restarts), "restart") if progress.restarts else "",
        count(len(progress.requeues), "requeue") if progress.requeues else "",
        f"the last: {max(returns)[1]}" if returns else "",
    )
    return Text(
        escape_text("; ".join(filter(None, words))), "" if job.phase == "running" else job.outcome.meaning.colour
    )


def format_event(event: Event) -> Text:
    """Return an event as a line: time, kind, attempt, and what happened."""
    step = f"step {event.count('step')}" if "step" in event.fields else ""
    words = describe_event(event) or event.text("what") or event.text("reason") or step
    return Text.assemble(
        (f"{datetime.fromtimestamp(event.time).astimezone():%H:%M:%S} ", "dim"),
        (escape_text(event.kind), "bold"),
        f" {escape_text(': '.join(filter(None, (event.attempt, words))))}",
    )
