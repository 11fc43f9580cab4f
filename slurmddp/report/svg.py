"""Bars and charts as numbers for SVG. Pure.

Text and marks are placed by percentages, so they have the same size on any screen. The lines of a chart are drawn in a
square of SIDE by SIDE that is stretched.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from slurmddp.report import number_format
from slurmddp.report.attempts import KINDS, Span, TimedAttempt, TimeKind
from slurmddp.report.curves import HELD, RATE, THROUGHPUT, WRITE, Curves, Line
from slurmddp.report.number_format import Scale, time_ticks
from slurmddp.report.timeline import Timeline
from slurmddp.runs.history import describe_event
from slurmddp.text import format_duration

SIDE: Final = 1000
MOST_MARKS: Final = 500
"""On one bar."""
MOST_PARTS: Final = 1000
"""Of a bar; of more spans, those that are too short to be seen are joined."""
_EDGE: Final = 0.06
STYLES: Final = 6
"""Styles of lines, each with a colour of its own, every second one dashed; one more is for all other lines."""

_TITLES: Final = {
    THROUGHPUT: "samples a second",
    RATE: "steps a second",
    HELD: "seconds that the training was held up",
    WRITE: "seconds until a checkpoint was durable",
}
_FROM_ZERO: Final = frozenset(_TITLES)
"""Rates and durations are shown from zero on, so that a small change looks small."""
MARKED: Final = frozenset({"checkpoint", "notice", "requeue", "cancel", "restart"})
"""The kinds of events that have a mark on a bar."""
_ODD_GLYPHS: Final = {"nan": "\N{MULTIPLICATION SIGN}", "inf": "▲", "-inf": "▼"}


@dataclass(frozen=True)
class Mark:
    """A part of a bar, a moment on it, or a value on the edge of a curve. A bar is a list of parts and moments."""

    kind: str
    x: str
    words: str
    width: str = ""
    """Of a part of a bar; a moment has none."""


@dataclass(frozen=True)
class Tick:
    """A round value on an axis."""

    at: str
    label: str
    anchor: str = "middle"
    """The part of the label that stands there: at an edge of the chart, the end that keeps the label inside."""


Chart = Mapping[str, Any]
"""A curve with its axes, as the page's template reads it."""


def draw_bar(
    timeline: Timeline, spans: Sequence[Span], attempts: Sequence[TimedAttempt], kinds: Collection[str] = MARKED
) -> list[Mark]:
    """Return spans at their place in the bar of the run, with the attempts' events of these kinds as moments.

    There are at most MOST_MARKS moments: of more, evenly chosen ones.
    """
    pieces, length = [], timeline.end - timeline.begin or 1.0
    for span in _join_short(spans, length / MOST_PARTS) if len(spans) > MOST_PARTS else spans:
        words = f"{KINDS[span.kind]}: {number_format.duration(span.seconds)} from {number_format.clock(span.begin)}"
        place = _percent((span.begin - timeline.begin) / length)
        pieces.append(Mark(span.kind, place, words, _percent(span.seconds / length)))
    events = [event for attempt in attempts for event in attempt.events.events if event.kind in kinds]
    for event in events[:: -(-len(events) // MOST_MARKS) or 1]:
        words = f"{describe_event(event)}, {number_format.clock(event.time)}"
        pieces.append(Mark(event.kind, _percent((event.time - timeline.begin) / length), words))
    return pieces


def _join_short(spans: Sequence[Span], shortest_s: float) -> Iterator[Span]:
    """Yield the spans, short ones joined with those behind them to one of the kind that has the most of its time."""
    joined: list[Span] = []
    for span in spans:
        joined.append(span)
        if span.end - joined[0].begin >= shortest_s or span is spans[-1]:
            longest = max(joined, key=lambda one: one.seconds)
            yield replace(longest, begin=joined[0].begin, end=span.end)
            joined.clear()


def draw_shares(seconds: Sequence[tuple[TimeKind, float]]) -> list[Mark]:
    """Return the kinds of time next to each other, each as its share of the total; all are longer than 0."""
    total, at, pieces = sum(value for _, value in seconds), 0.0, []
    for kind, value in seconds:
        share = value / total
        words = f"{KINDS[kind]}: {number_format.duration(value)}, {number_format.percent(share)}"
        pieces.append(Mark(kind, _percent(at), words, _percent(share)))
        at += share
    return pieces


def draw_time_axis(timeline: Timeline) -> tuple[Tick, ...]:
    """Return ticks at round times since the beginning."""
    length = timeline.end - timeline.begin
    return tuple(_tick(at / length if length else 0.0, format_duration(at)) for at in time_ticks(length))


def draw_charts(curves: Curves, attempts: Sequence[TimedAttempt]) -> list[Chart]:
    """Return the curves as charts with one scale of steps for all."""
    steps = [step for lines in curves.values() for line in lines for step, _ in (*line.points, *line.odd)]
    looks = line_styles(attempts)
    return [_draw_chart(name, lines, Scale.over([0, *steps]), looks) for name, lines in curves.items()]


def line_styles(attempts: Sequence[TimedAttempt]) -> dict[str, tuple[int, int]]:
    """Return the number and the style of each attempt's lines; only the newest have styles of their own."""
    newest = [attempt.label for attempt in attempts if attempt.progress][: -STYLES - 1 : -1]
    looks = {label: style for style, label in enumerate(newest)}
    return {one.label: (number, looks.get(one.label, STYLES)) for number, one in enumerate(attempts, start=1)}


def _draw_chart(name: str, lines: Sequence[Line], x: Scale, looks: Mapping[str, tuple[int, int]]) -> Chart:
    values = [value for line in lines for _, value in line.points]
    y = Scale.over([0.0, *values] if name in _FROM_ZERO else values, may_be_log=True)
    odd = [(step, value) for line in lines for step, value in line.odd]
    return {
        "title": _TITLES.get(name, name),
        "description": f"{sum(line.count for line in lines):,} values; the table below has their range",
        "is_log": y.is_log,
        "lines": [_draw_line(line, x, y, looks[line.label]) for line in lines],
        "odd": [
            Mark(_ODD_GLYPHS[f"{value}"], _percent(x.at(step)), f"{value} at step {step:,}") for step, value in odd
        ],
        "x_ticks": [_tick(x.at(step), f"{step:,.0f}") for step in x.ticks(whole=True)],
        "y_ticks": [Tick(_percent(1 - y.at(value)), number_format.figure(value)) for value in y.ticks() if values],
    }


def _tick(share: float, label: str) -> Tick:
    anchor = "start" if share < _EDGE else "end" if share > 1 - _EDGE else "middle"
    return Tick(_percent(share), label, anchor)


def _draw_line(line: Line, x: Scale, y: Scale, look: tuple[int, int]) -> Mapping[str, Any]:
    """Return a line with its path; the number of the attempt, from 1, is drawn where the line begins."""
    number, style = look
    places = [f"{SIDE * x.at(step):.1f} {SIDE * (1 - y.at(value)):.1f}" for step, value in line.points]
    path = f"M{'L'.join(places)}{'h0' if len(places) == 1 else ''}" if places else ""
    step, value = line.points[0] if line.points else (x.low, y.low)
    place = {"x": _percent(x.at(step)), "y": _percent(1 - y.at(value))}
    return {"line": line, "style": style, "path": path, "number": number, **place}


def _percent(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.3f}%"
