"""A run's report as one HTML page. Reads its template and its style, no other file.

Names, logs and configuration are untrusted: each value is escaped for HTML, unprintable characters are written as
escapes, and the page's security policy forbids the browser to load or run anything.
"""

import base64
import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from slurmddp.report import curves, number_format, svg
from slurmddp.report.attempts import ALLOCATED, KINDS
from slurmddp.report.collect import Report
from slurmddp.runs.history import describe_event
from slurmddp.text import escape_text

_FOLDER: Final = Path(__file__).parent
_LONGEST: Final = 4000
"""Characters of one value."""
MOST_ATTEMPTS: Final = 200
MOST_ROWS: Final = 300

_SIGNS: Final = {
    "done": "\N{CHECK MARK}",
    "running": "\N{BLACK RIGHT-POINTING TRIANGLE}",
    "queued": "\N{HORIZONTAL ELLIPSIS}",
    "failed": "\N{BALLOT X}",
    "cancelled": "\N{BLACK SQUARE}",
    "unknown": "?",
}
CLASSES: Final = {"green": "good", "red": "bad"}
"""Of the page's style, by the colour of an outcome; `soft` for any other."""


def render_page(report: Report) -> bytes:
    """Return the page in UTF-8; it needs no other file."""
    css = (_FOLDER / "page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    values = _template_values(report) | {"css": Markup(css), "css_digest": digest}  # noqa: S704 a file of this package
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        undefined=jinja2.StrictUndefined,
        finalize=_make_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters |= {name: getattr(number_format, name) for name in ("duration", "clock", "figure", "percent")}
    return environment.get_template("page.html.j2").render(values).encode("utf-8", "replace")


def _make_printable(value: Any) -> Any:
    """Return a value with escapes for characters that cannot be printed; a long text is cut."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    text = value if len(value) <= _LONGEST else value[:_LONGEST] + " ..."
    return "\n".join(map(escape_text, text.split("\n")))


def _template_values(report: Report) -> dict[str, Any]:
    timeline, attempts, figures = report.timeline, report.attempts, report.figures
    seconds = [(kind, figures.seconds[kind]) for kind in KINDS if figures.seconds.get(kind, 0.0) > 0]
    last = report.submissions[-1] if report.submissions else None
    slow: dict[int, list[Any]] = {}
    for event in (event for event in report.events if event.kind == "straggler"):
        slow.setdefault(event.count("slow_rank"), []).append(event)
    others = (event for event in report.events if event.kind not in ("checkpoint", "straggler"))  # shown elsewhere
    happened = [(event, words) for event in others if (words := describe_event(event))]
    return {
        "report": report,
        "name": report.run.path.name,
        "sign": _SIGNS[report.phase],
        "submission": last,
        "start": next((event for event in reversed(report.events) if event.kind == "start"), None),
        "zone": f"{datetime.fromtimestamp(report.written).astimezone():%Z}",
        "figures": figures,
        "seconds": seconds,
        "kinds": KINDS,
        "allocated": ALLOCATED,
        "shares": svg.draw_shares(seconds),
        "whole": svg.draw_bar(timeline, timeline.spans, attempts, svg.MARKED - {"checkpoint"}),
        "axis": svg.draw_time_axis(timeline),
        "attempts": [
            (one, svg.draw_bar(timeline, (*one.before, *one.spans), [one]), one.events.last("start"))
            for one in attempts[-MOST_ATTEMPTS:]
        ],
        "classes": CLASSES,
        "charts": svg.draw_charts(curves.build_metric_curves(attempts, report.logged), attempts),
        "checkpoint_charts": svg.draw_charts(curves.build_checkpoint_curves(attempts), attempts),
        "styles": list(svg.line_styles(attempts).items()),
        "old_style": svg.STYLES,
        "slow": dict(sorted(slow.items())),
        "findings": [event for event in report.events if event.kind == "finding"][-MOST_ROWS:],
        "happened": happened[-MOST_ROWS:],
    }
