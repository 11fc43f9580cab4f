"""A curve with axes, drawn by plotext."""

import math
import statistics
from collections.abc import Sequence

from rich.text import Text
from textual.app import RenderResult
from textual_plotext import PlotextPlot

from slurmddp.report.number_format import Scale

Point = tuple[float, float]
"""A step and its value."""


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
