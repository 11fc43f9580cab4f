"""The reports as HTML pages, each one file. Reads the templates and the style; looks for the pages of other runs.

Names, logs and configuration are untrusted: each value is escaped for HTML, unprintable characters are written as
escapes, and the page's security policy forbids the browser to load or run anything.
"""

import base64
import hashlib
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from slurmddp.report import curves, number_format, svg
from slurmddp.report.attempts import ALLOCATED, KINDS, TimeKind
from slurmddp.report.collect import Report
from slurmddp.report.number_format import list_days
from slurmddp.runs.history import Event, describe_event, list_use
from slurmddp.runs.layout import RunDir
from slurmddp.text import escape_text

_FOLDER: Final = Path(__file__).parent
_LONGEST: Final = 4000
"""Characters of one value."""
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
_FILTERS: Final = (
    *(number_format.duration, number_format.clock, number_format.figure, number_format.percent),
    *(svg.place, svg.join_short, describe_event, list_use),
)


def render_page(report: Report) -> bytes:
    """Return the page of a run in UTF-8; it needs no other file."""
    found, slow = report.figures.seconds, dict[int, list[Event]]()
    for event in report.facts.history.all("straggler"):
        slow.setdefault(event.count("slow_rank"), []).append(event)
    others = (event for event in report.facts.history.events if event.kind not in ("checkpoint", "straggler"))
    values = {
        "report": report,
        "seconds": {kind: found[kind] for kind in KINDS if found.get(kind)},
        "charts": list(svg.draw_charts(curves.build_metric_curves(report.attempts, report.logged))),
        "styles": svg.line_styles(report.attempts),
        "slow": dict(sorted(slow.items())),
        "happened": [(event, words) for event in others if (words := describe_event(event))],
        "time_ticks": number_format.time_ticks,
    }
    return _render("run.html.j2", report.written, values)


def render_runs(folder: RunDir, rows: Sequence[Report], *, since: float, now: float, by: str = "") -> bytes:
    """Return the page of a folder's runs since a time in UTF-8, or of a sweep's settings, sorted by a metric."""
    days = list_days(max(since, min((row.timeline.begin for row in rows), default=now)), now)
    pages = [row.run.report.relative_to(folder.path) if row.run.report.is_file() else "" for row in rows]
    results = [row.result for row in rows if row.result]
    names = sorted({name for one in results for name in one.metrics}, key=lambda name: (name != by, name))
    values = {
        "name": folder.path.name,
        "rows": [(row, quote(os.fsencode(page))) for row, page in zip(rows, pages, strict=True)],
        "since": since,
        "hours": _sum_hours(rows, since, math.inf),
        "periods": [(begin, end, _sum_hours(rows, max(begin, since), end)) for begin, end in pairwise(days)],
        "failures": [(one, row.name) for row in rows for one in row.causes.values()],
        "keys": dict.fromkeys(key for one in results for key in one.values),
        "metrics": names,
        "by": by if by in names else "",
        "charts": list(svg.draw_scatters(results, by)),
        "styles": {},
    }
    return _render("runs.html.j2", now, values)


def _sum_hours(rows: Iterable[Report], begin: float, end: float) -> Mapping[TimeKind, float]:
    """Return the GPU-hours of each kind in a part of the time; a node without GPUs counts as one GPU."""
    hours = defaultdict[TimeKind, float](float)
    for row in rows:
        for attempt in row.attempts:
            each = attempt.nodes * (row.figures.gpus_per_node or 1) / 3600
            for span in attempt.spans:
                hours[span.kind] += each * max(0.0, min(span.end, end) - max(span.begin, begin))
    return hours


def _render(template: str, written: float, values: Mapping[str, Any]) -> bytes:
    css = (_FOLDER / "page.css").read_text("utf-8")
    shared = {
        "css": Markup(css),  # noqa: S704 a file of this package
        "css_digest": base64.b64encode(hashlib.sha256(css.encode()).digest()).decode(),
        "written": written,
        "zone": f"{datetime.fromtimestamp(written).astimezone():%Z}",
        "kinds": KINDS,
        "allocated": ALLOCATED,
        "classes": CLASSES,
        "signs": _SIGNS,
        "old_style": svg.STYLES,
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        undefined=jinja2.StrictUndefined,
        finalize=_make_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters |= {function.__name__: function for function in _FILTERS}
    return environment.get_template(template).render({**shared, **values}).encode("utf-8", "replace")


def _make_printable(value: Any) -> Any:
    """Return a value with escapes for characters that cannot be printed; a long text is cut."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    text = value if len(value) <= _LONGEST else value[:_LONGEST] + " ..."
    return "\n".join(map(escape_text, text.split("\n")))
