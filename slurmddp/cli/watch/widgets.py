"""The parts of the screen: a curve, and lines of text."""

import math
import statistics
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import RenderResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual_plotext import PlotextPlot

from slurmddp.cli.watch.sources import Point
from slurmddp.report.number_format import Scale


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
        self._follows = True

    def show(self, lines: Sequence[Text], *, restart: bool) -> None:
        """Show these lines; with `restart` go to their end."""
        self._follows = self._follows or restart
        if not self._follows:
            return
        if lines != self._lines:
            self._lines = lines
            self.virtual_size = Size(max((line.cell_len for line in lines), default=0), len(lines))
            self.refresh()
        self.scroll_end(animate=False, force=True, immediate=True, x_axis=False)

    def release_anchor(self) -> None:
        """Stand still: the user scrolls."""
        super().release_anchor()
        self._follows = False

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the end when the user has come back to it."""
        super().watch_scroll_y(old_value, new_value)
        self._follows = self._follows or new_value >= self.max_scroll_y

    def action_scroll_end(self) -> None:
        """Go to the end, and follow it again."""
        self._follows = True
        super().action_scroll_end()

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen."""
        left, top = self.scroll_offset
        line = self._lines[top + y] if top + y < len(self._lines) else Text()
        shown = line[left:]
        shown.truncate(self.size.width, overflow="ellipsis")
        return Strip(shown.render(self.app.console)).extend_cell_length(self.size.width).apply_style(self.rich_style)
