"""The parts of the screen: the table of jobs, a curve, lines of text; and a job and an event as text.

Control characters are escaped.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import ClassVar, Final

from rich.text import Text
from textual.app import RenderResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import DataTable
from textual_plotext import PlotextPlot

from slurmddp.cli.status_format import details, format_jobs, show_state
from slurmddp.cli.watch.sources import Point
from slurmddp.monitoring.status import JobStatus
from slurmddp.report.number_format import Scale
from slurmddp.runs.history import Event, describe_event
from slurmddp.text import escape_text

_SHOWN_ELSEWHERE: Final = ("submitted", "started", "ended", "time", "ends", "progress", "folder", "source", "")
COLOURS: Final = {"red": "#ff9c9c", "green": "#60d060", "yellow": "#e0c040", "magenta": "#e090e0"}
"""For the dark background of the screen, with a contrast of 4.5 or more."""


class JobTable(DataTable[Text]):
    """One row for each job; the cursor chooses one, and stays with it when others come or go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor_up", "The job above", show=False),
        Binding("down,j", "cursor_down", "The job below", show=False),
        Binding("left", "app.change_rank(-1)", "The rank before", show=False),
        Binding("right", "app.change_rank(1)", "The next rank", show=False),
        Binding("enter", "app.toggle_output", "Output", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="jobs", cursor_type="row", cursor_foreground_priority="css")
        self._lines: Sequence[Text] = ()
        self._ids: Sequence[str] = ()

    def show(self, jobs: Sequence[JobStatus]) -> None:
        """Show these jobs."""
        width = self.app.size.width - 2 * self.cell_padding - self.styles.scrollbar_size_vertical
        row, ids, chosen = self.cursor_row, [job.job_id for job in jobs], self.chosen
        lines = [*format_rows(jobs, width)]
        if (ids, lines) == (self._ids, self._lines):
            return
        self._ids, self._lines = ids, lines
        self.clear(columns=True)
        self.add_column(lines[0])
        for job_id, line in zip(ids, lines[1:], strict=True):
            self.add_row(line, key=job_id)
        self.move_cursor(row=ids.index(chosen) if chosen in ids else min(row, len(ids) - 1))

    @property
    def chosen(self) -> str:
        """The id of the chosen job; empty without jobs."""
        return str(self.ordered_rows[self.cursor_row].key.value) if self.row_count else ""


class Curve(PlotextPlot):
    """A metric over the steps, on a logarithmic scale if its values need one. Values that are not finite are left out.

    plotext gets places from 0 to 1 instead of the numbers, so that none is too large for it.
    """

    def __init__(self, title: str, colour: str, *, from_zero: bool = False) -> None:
        super().__init__()
        self._base = (0.0,) if from_zero else ()
        self._title, self._colour, self._points = title, colour, tuple[Point, ...]()

    def show(self, points: Sequence[Point]) -> None:
        """Draw these points, which are in the order of their steps."""
        finite = tuple(point for point in points if math.isfinite(point[1]))
        values = [value for _, value in finite]
        title = f" {values[-1]:,.4g}, {min(values):,.4g} to {max(values):,.4g}" if values else ": no number yet"
        lost = f", {len(points) - len(finite)} not finite" if len(finite) < len(points) else ""
        self.border_title = Text(f"{self._title}{title}{lost}")
        if finite != self._points:
            self._points = finite
            self.refresh()

    def render(self) -> RenderResult:
        """Draw the points of each half of a column as their median."""
        steps = Scale.over(step for step, _ in self._points)
        values = Scale.over((*self._base, *(value for _, value in self._points)), may_be_log=True)
        columns: dict[int, list[float]] = {}
        last = 2 * max(1, self.size.width) - 1
        for step, value in self._points:
            columns.setdefault(round(steps.at(step) * last), []).append(values.at(value))
        self.plt.clear_figure()
        self.plt.plot([*columns], [*map(statistics.median_low, columns.values())], marker="braille", color=self._colour)
        self.plt.xlim(0, last)
        self.plt.ylim(0, 1)
        self.plt.xaxes(lower=True, upper=False)
        self.plt.yaxes(left=True, right=False)
        if self._points:
            ticks = steps.ticks(whole=True)
            self.plt.xticks([steps.at(tick) * last for tick in ticks], [f"{tick:,.0f}" for tick in ticks])
            ticks = values.ticks()
            ticks = ticks[:: 1 + len(ticks) // max(1, self.size.height // 2)]
            self.plt.yticks([values.at(tick) for tick in ticks], [f"{tick:,.4g}" for tick in ticks])
        return super().render()


class LogView(ScrollView, can_focus=True):
    """The last lines of a text; they stand still while the user reads further up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "Scroll up", show=False),
        Binding("down,j", "scroll_down", "Scroll down", show=False),
        Binding("shift+left", "scroll_left", "Scroll left", show=False),
        Binding("shift+right", "scroll_right", "Scroll right", show=False),
        Binding("left", "app.change_rank(-1)", "The rank before", show=False),
        Binding("right", "app.change_rank(1)", "The next rank", show=False),
    ]

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self._lines: Sequence[Text] = ()

    def on_mount(self) -> None:
        """Stay at the end in any size, until the user scrolls."""
        self.anchor()

    def show(self, lines: Sequence[Text], *, restart: bool) -> None:
        """Show these lines, unless the user reads further up; with `restart` go to their end."""
        if self.scroll_target_y < self.max_scroll_y and not restart:
            return
        if lines != self._lines:
            self._lines = lines
            self.virtual_size = Size(max((line.cell_len for line in lines), default=0), len(lines))
            self.refresh()
        self.scroll_end(animate=False, force=True, immediate=True, x_axis=False)

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen."""
        left, top = self.scroll_offset
        line = self._lines[top + y] if top + y < len(self._lines) else Text()
        shown = line[left:]
        shown.truncate(self.size.width, overflow="ellipsis")
        return Strip(shown.render(self.app.console)).extend_cell_length(self.size.width).apply_style(self.rich_style)


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
