"""A job as text: its row in the table, its details, its events. Pure; control characters are escaped."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from rich.text import Text

from slurmddp.cli.status_format import details, format_jobs, show_state
from slurmddp.monitoring.status import JobStatus
from slurmddp.runs.history import Event, describe_event
from slurmddp.text import escape_text

_SHOWN_ELSEWHERE: Final = ("submitted", "started", "ended", "time", "ends", "progress", "folder", "source", "")
COLOURS: Final = {"red": "#ff9c9c", "green": "#60d060", "yellow": "#e0c040", "magenta": "#e090e0"}
"""For the dark background of the screen, with a contrast of 4.5 or more."""


def format_rows(jobs: Sequence[JobStatus], width: int) -> Iterator[Text]:
    """Yield the head and the rows of the table of `status`."""
    head, *lines = format_jobs(jobs, each=True, width=width) or [""]
    yield Text(head)
    begin = head.find("STATE")
    for job, line in zip(jobs, lines, strict=True):
        row = Text(line)
        row.stylize(_style(job), begin, begin + len(escape_text(show_state(job)[0])) if begin > 0 else begin)
        yield row


def _style(job: JobStatus) -> str:
    return f"bold {COLOURS.get(show_state(job)[1], '')}"


def format_details(job: JobStatus) -> Text:
    """Return the details that `status` shows of one job, without those that its row or the other parts show."""
    words = (f"{label}: {text}" for label, text in details(job) if label not in _SHOWN_ELSEWHERE)
    return Text(escape_text("; ".join(words)), "" if job.phase == "running" and not job.hang else _style(job))


def format_event(event: Event) -> Text:
    """Return an event as a line: its time, and what happened in words."""
    at = f"{datetime.fromtimestamp(event.time).astimezone():%H:%M:%S} "
    words = describe_event(event) or ": ".join(filter(None, (event.kind, event.text("reason"))))
    return Text.assemble((at, "dim"), escape_text(words))
