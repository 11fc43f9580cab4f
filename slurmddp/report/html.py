"""A run's report -> HTML, as text. Pure, but for reading its template and its style. The door to jinja2 for pages.

Names, logs and configuration are whoever's: each value is escaped, what cannot be printed is written as an escape, and
the page's own policy lets a browser load nothing and run nothing.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from slurmddp.report import curves, number_format, svg
from slurmddp.report.attempts import ALLOCATED
from slurmddp.report.collect import Report
from slurmddp.runs.history import Event

_FOLDER: Final = Path(__file__).parent
_LONGEST: Final = 4000
"""Characters of one value."""
MOST_LAPS: Final = 200
MOST_ROWS: Final = 300

_PHASES: Final = {
    "done": ("\N{CHECK MARK}", "finished"),
    "running": ("\N{BLACK RIGHT-POINTING TRIANGLE}", "running"),
    "queued": ("\N{HORIZONTAL ELLIPSIS}", "in the queue"),
    "failed": ("\N{BALLOT X}", "failed"),
    "cancelled": ("\N{BLACK SQUARE}", "cancelled"),
    "unknown": ("?", "unknown"),
}
OUTCOMES: Final = {
    "done": "finished",
    "stopped": "told to stop, its state saved",
    "crashed": "crashed",
    "failed": "failed for good",
    "fenced": "another attempt owned the run",
    "cancelled": "cancelled",
    "running": "running",
    "silent": "ended without a word",
}


@dataclass(frozen=True, kw_only=True)
class Slow:
    """A rank that all others waited for."""

    rank: int
    host: str
    times: int
    backward: str
    others: str


def page(report: Report) -> bytes:
    """Return the page, whole and by itself, in UTF-8."""
    css = (_FOLDER / "page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    text = (
        _environment()
        .get_template("page.html.j2")
        .render(
            _contents(report) | {"css": Markup(css), "css_digest": digest}  # noqa: S704 our own file
        )
    )
    return text.encode("utf-8", "replace")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        undefined=jinja2.StrictUndefined,
        finalize=_printed,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters |= {
        "duration": number_format.duration,
        "clock": number_format.clock,
        "figure": number_format.figure,
        "percent": number_format.percent,
    }
    return environment


def _printed(value: Any) -> Any:
    """Return a value that can do nothing to the text around it, and is no book."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    text = value if len(value) <= _LONGEST else value[:_LONGEST] + " ..."
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)


def _contents(report: Report) -> dict[str, Any]:
    timeline, found = report.timeline, report.figures
    seconds = [(kind, found.seconds.get(kind, 0.0)) for kind in svg.KINDS]
    last = report.submissions[-1] if report.submissions else None
    return {
        "report": report,
        "name": report.run.path.name,
        "phase": _PHASES[report.phase],
        "submission": last,
        "start": next((event for event in reversed(report.events) if event.kind == "start"), None),
        "zone": number_format.zone(report.written),
        "figures": found,
        "seconds": [(kind, value) for kind, value in seconds if value > 0],
        "kinds": svg.KINDS,
        "allocated": ALLOCATED,
        "shares": svg.shares(seconds),
        "whole": svg.whole(timeline),
        "axis": svg.axis(timeline),
        "laps": [(lap, svg.of_lap(timeline, lap), lap.last("start")) for lap in report.laps[-MOST_LAPS:]],
        "outcomes": OUTCOMES,
        "charts": svg.charts(curves.logged(report.laps), report.laps),
        "checkpoint_charts": svg.charts(curves.checkpoints(report.laps), report.laps),
        "styles": list(svg.styles(report.laps).items()),
        "old_style": svg.STYLES,
        "slow": list(_slow(report.events)),
        "findings": [event for event in report.events if event.kind == "finding"][-MOST_ROWS:],
        "happened": [(event, said) for event in report.events if (said := happened(event))][-MOST_ROWS:],
    }


def _slow(events: tuple[Event, ...]) -> Iterator[Slow]:
    named = sorted((event for event in events if event.kind == "straggler"), key=_rank_of)
    for rank, group in groupby(named, key=_rank_of):
        times = list(group)
        last = times[-1]
        yield Slow(
            rank=rank,
            host=last.text("slow_host"),
            times=len(times),
            backward=number_format.duration(last.number("backward_s") or 0.0),
            others=number_format.duration(last.number("others_s") or 0.0),
        )


def _rank_of(event: Event) -> int:
    return event.count("slow_rank")


def happened(event: Event) -> str:
    """Return what an event says, in words; empty for those that are told elsewhere, or too many."""
    words_of = _WORDS.get(event.kind)
    return words_of(event) if words_of else ""


_WORDS: Final[Mapping[str, Callable[[Event], str]]] = {
    "start": lambda event: f"{event.count('world_size')} ranks on {event.count('nodes')} node(s) have met",
    "resume": lambda event: f"goes on from step {event.count('step'):,}, {event.text('checkpoint')}",
    "notice": lambda event: f"told to stop: {event.text('reason')} ({event.text('cause')})",
    "requeue": lambda event: f"back into the queue: {event.text('reason')}",
    "fenced": lambda event: f"starts nothing: {event.text('reason')}",
    "job_end": lambda event: f"the job ended with status {event.count('status')}: {event.text('reason')}",
    "cancel": lambda event: f"cancelled by `slurmddp cancel` ({event.text('by')})",
    "restart": lambda event: f"started again after status {event.count('status')}: {event.text('reason')}",
    "checkpoint-failed": lambda event: f"step {event.count('step'):,} could not be saved: {event.text('reason')}",
    "end": lambda event: f"rank 0 ended with status {event.count('status')}: {event.text('reason')}",
}
