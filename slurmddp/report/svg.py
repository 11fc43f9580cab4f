"""The scales and paths of charts, and the parts of bars that can be seen; the templates make SVG of them. Pure.

Text and marks are placed by percentages, so they have the same size on any screen. The lines of a chart are drawn in a
square of SIDE by SIDE that is stretched.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from slurmddp.report.attempts import Span, TimedAttempt
from slurmddp.report.curves import RATE, THROUGHPUT, Curves, Point
from slurmddp.report.number_format import Scale
from slurmddp.submission.sweep import Result

SIDE: Final = 1000
MOST_PARTS: Final = 1000
"""Of a bar; of more spans, those that begin near each other are joined."""
STYLES: Final = 6
"""Styles of lines, each with a colour of its own, every second one dashed; one more is for all other lines."""

_TITLES: Final = {THROUGHPUT: "samples a second", RATE: "steps a second"}
"""Rates are shown from zero on, so that a small change looks small."""

Chart = Mapping[str, Any]
"""Its title, its scales `x` and `y`, and its lines or dots, as the templates read them."""


def place(share: float) -> str:
    """Return a place in a picture as SVG has it, from the share of its width or height, which may lie outside."""
    return f"{100 * min(max(share, 0.0), 1.0):.3f}%"


def join_short(spans: Sequence[Span], length_s: float) -> Sequence[Span]:
    """Return the spans of a bar of this length; what is joined is of the kind that has the most of its time."""
    if len(spans) <= MOST_PARTS:
        return spans
    groups = [list(near) for _, near in groupby(spans, key=lambda span: span.begin * MOST_PARTS // length_s)]
    longest = [max(group, key=lambda span: span.seconds) for group in groups]
    return [one._replace(begin=group[0].begin, end=group[-1].end) for one, group in zip(longest, groups, strict=True)]


def draw_charts(curves: Curves) -> Iterator[Chart]:
    """Yield the curves as charts with one scale of steps for all."""
    drawn = {name: [(line, line.points) for line in lines] for name, lines in curves.items()}
    x = Scale.over([0, *(step for lines in drawn.values() for _, points in lines for step, _ in points)])
    for name, lines in drawn.items():
        values = [value for _, points in lines for _, value in points]
        y = Scale.over([0.0, *values] if name in _TITLES else values, may_be_log=True)
        paths = [(line, points, _draw_path(points, x, y)) for line, points in lines]
        yield {"title": _TITLES.get(name, name), "x": x, "y": y, "lines": paths}


def draw_scatters(results: Sequence[Result], metric: str) -> Iterator[Chart]:
    """Yield a chart of a metric for each key that has several values, which stand side by side in their order.

    The first result is the best one, and so is the first dot.
    """
    found = [one for one in results if math.isfinite(one.metrics.get(metric, math.nan))]
    y = Scale.over([one.metrics[metric] for one in found], may_be_log=True)
    for key in dict.fromkeys(key for one in found for key in one.values):
        values = sorted({one.values.get(key, "") for one in found}, key=_value_order)
        if len(values) > 1:
            x = Scale(-0.5, len(values) - 0.5)
            points = [(values.index(one.values.get(key, "")), one.metrics[metric]) for one in found]
            dots = [_draw_path([point], x, y) for point in points]
            yield {"title": metric, "over": key, "marks": values, "x": x, "y": y, "dots": dots}


def _value_order(value: str) -> tuple[float, str]:
    """Return by what values are ordered: numbers by their size, other texts behind them."""
    try:
        return float(value), value
    except ValueError:
        return math.inf, value


def line_styles(attempts: Sequence[TimedAttempt]) -> dict[str, tuple[int, int]]:
    """Return the number and the style of each attempt's lines; only the newest have styles of their own."""
    newest = [attempt.label for attempt in attempts if attempt.progress][: -STYLES - 1 : -1]
    looks = {label: style for style, label in enumerate(newest)}
    return {one.label: (number, looks.get(one.label, STYLES)) for number, one in enumerate(attempts, start=1)}


def _draw_path(points: Sequence[Point], x: Scale, y: Scale) -> str:
    places = [f"{SIDE * x.at(step):.1f} {SIDE * (1 - y.at(value)):.1f}" for step, value in points]
    return f"M{'L'.join(places)}{'h0' if len(places) == 1 else ''}" if places else ""
