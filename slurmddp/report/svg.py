"""Where on a picture things lie: bars and curves as percentages of its width. Pure.

Text and marks are placed by percentages, so that they keep their size on any screen; the lines of a curve are drawn
in a square of SIDE by SIDE that is stretched.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slurmddp.report import number_format
from slurmddp.report.attempts import Kind, Lap, Span
from slurmddp.report.axis import Scale, time_ticks
from slurmddp.report.curves import HELD, STEPS_PER_S, THROUGHPUT, WRITE, Curve, Line
from slurmddp.report.timeline import Timeline
from slurmddp.runs.history import Event

SIDE: Final = 1000
MOST_MARKS: Final = 500
"""Of one bar."""
_EDGE: Final = 0.06
STYLES: Final = 6
"""Of lines, each another colour, every second one dashed; one more is for all the others."""

KINDS: Final[dict[Kind, str]] = {
    "useful": "useful steps",
    "held": "held up by checkpoints",
    "startup": "startup",
    "lost": "lost work",
    "ending": "ending",
    "unmeasured": "program (steps not known)",
    "queued": "in the queue",
    "absent": "no job",
}
"""What time is spent on, in words, in the order in which it is told."""

_TITLES: Final = {
    THROUGHPUT: "samples a second",
    STEPS_PER_S: "steps a second",
    HELD: "seconds that the training was held up",
    WRITE: "seconds until a checkpoint was durable",
}
_ODD_GLYPHS: Final = {"nan": "\N{MULTIPLICATION SIGN}", "inf": "▲", "-inf": "▼"}


@dataclass(frozen=True)
class Piece:
    """A part of a bar."""

    kind: str
    x: str
    width: str
    words: str


@dataclass(frozen=True)
class Mark:
    """A moment on a bar, or a value on the edge of a curve."""

    kind: str
    x: str
    words: str


@dataclass(frozen=True)
class Tick:
    """A round value on an axis."""

    at: str
    label: str
    anchor: str = "middle"
    """Which end of the label stands there: at the edges, the one that keeps it within."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A time from left to right."""

    pieces: tuple[Piece, ...]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One line of a chart."""

    style: int
    path: str
    label: str
    """`<job> <attempt>`."""
    number: int
    """Of the attempt, from 1; it stands where the line begins."""
    x: str
    y: str
    """Where that is."""
    line: Line


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A curve with its axes."""

    title: str
    description: str
    is_log: bool
    lines: tuple[Drawn, ...]
    odd: tuple[Mark, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def whole(timeline: Timeline) -> Bar:
    """Return everything in one bar."""
    marks = [mark for lap in timeline.laps for mark in _marks(timeline, lap) if mark.kind != "checkpoint"]
    return Bar(pieces=tuple(_piece(timeline, span) for span in timeline.spans), marks=_some(marks))


def of_lap(timeline: Timeline, lap: Lap) -> Bar:
    """Return one attempt, and the time before it, in the place that they have in the whole."""
    spans = (*lap.before, *lap.spans)
    return Bar(pieces=tuple(_piece(timeline, span) for span in spans), marks=_some(list(_marks(timeline, lap))))


def shares(seconds: Sequence[tuple[Kind, float]]) -> Bar:
    """Return times, one beside the other, as shares of all of them."""
    total, at, pieces = sum(value for _, value in seconds), 0.0, []
    for kind, value in seconds:
        if value > 0:
            said = f"{KINDS[kind]}: {number_format.duration(value)}, {number_format.percent(value / total)}"
            pieces.append(Piece(kind, _percent(at / total), _percent(value / total), said))
            at += value
    return Bar(pieces=tuple(pieces))


def axis(timeline: Timeline) -> tuple[Tick, ...]:
    """Return round times since the beginning."""
    length = timeline.end - timeline.begin
    return tuple(_tick(at / length if length else 0.0, _short(at)) for at in time_ticks(length))


def charts(found: Sequence[Curve], laps: Sequence[Lap]) -> list[Chart]:
    """Return curves as pictures above one another: a step lies at the same place in each."""
    steps = [step for curve in found for line in curve.lines for step, _ in (*line.points, *line.odd)]
    looks = styles(laps)
    return [_chart(curve, Scale.over([0, *steps]), looks) for curve in found]


def styles(laps: Sequence[Lap]) -> dict[str, tuple[int, int]]:
    """Return the number and the style of each attempt's lines; the newest have a style each, all before them one."""
    newest = [lap.label for lap in laps if lap.climb][: -STYLES - 1 : -1]
    looks = {label: style for style, label in enumerate(newest)}
    return {lap.label: (number, looks.get(lap.label, STYLES)) for number, lap in enumerate(laps, start=1)}


def _chart(curve: Curve, x: Scale, looks: Mapping[str, tuple[int, int]]) -> Chart:
    values = [value for line in curve.lines for _, value in line.points]
    y = Scale.over(values, may_be_log=True)
    return Chart(
        title=_TITLES.get(curve.name, curve.name),
        description=_description(curve, x, y),
        is_log=y.is_log,
        lines=tuple(_drawn(line, x, y, looks[line.label]) for line in curve.lines),
        odd=tuple(mark for line in curve.lines for mark in _odd(line, x)),
        x_ticks=tuple(_tick(x.at(step), f"{step:,.0f}") for step in x.ticks(whole=True)),
        y_ticks=tuple(Tick(_percent(1 - y.at(value)), number_format.figure(value)) for value in y.ticks() if values),
    )


def _piece(timeline: Timeline, span: Span) -> Piece:
    said = f"{KINDS[span.kind]}: {number_format.duration(span.seconds)} from {number_format.clock(span.begin)}"
    return Piece(span.kind, _at(timeline, span.begin), _percent(span.seconds / _length(timeline)), said)


def _marks(timeline: Timeline, lap: Lap) -> Iterator[Mark]:
    for event in lap.events:
        if said := _said(event):
            yield Mark(event.kind, _at(timeline, event.time), f"{said}, {number_format.clock(event.time)}")


def _some(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Return the marks, of very many evenly chosen ones with the first and the last: more than a screen shows apart."""
    many = len(marks) - 1
    if many < MOST_MARKS:
        return tuple(marks)
    return tuple(marks[place * many // (MOST_MARKS - 1)] for place in range(MOST_MARKS))


def _said(event: Event) -> str:
    match event.kind:
        case "checkpoint":
            return f"checkpoint of step {event.count('step'):,}"
        case "notice":
            return f"told to stop: {event.text('reason')} ({event.text('cause')})"
        case "requeue":
            return "back into the queue"
        case "cancel":
            return f"cancelled by {event.text('by')}"
        case "restart":
            return "started again in the same allocation"
    return ""


def _at(timeline: Timeline, time: float) -> str:
    return _percent((time - timeline.begin) / _length(timeline))


def _length(timeline: Timeline) -> float:
    return timeline.end - timeline.begin or 1.0


def _tick(share: float, label: str) -> Tick:
    anchor = "start" if share < _EDGE else "end" if share > 1 - _EDGE else "middle"
    return Tick(_percent(share), label, anchor)


def _short(seconds: float) -> str:
    """Return a round time in one unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:.0f} s" if seconds else "0"


def _drawn(line: Line, x: Scale, y: Scale, look: tuple[int, int]) -> Drawn:
    number, style = look
    places = [f"{SIDE * x.at(step):.1f} {SIDE * (1 - y.at(value)):.1f}" for step, value in line.points]
    path = f"M{'L'.join(places)}{'h0' if len(places) == 1 else ''}" if places else ""
    step, value = line.points[0] if line.points else (x.low, y.low)
    return Drawn(
        style=style,
        path=path,
        label=line.label,
        number=number,
        x=_percent(x.at(step)),
        y=_percent(1 - y.at(value)),
        line=line,
    )


def _odd(line: Line, x: Scale) -> Iterator[Mark]:
    for step, value in line.odd:
        name = str(value)
        yield Mark(_ODD_GLYPHS[name], _percent(x.at(step)), f"{name} at step {step:,}")


def _description(curve: Curve, x: Scale, y: Scale) -> str:
    count = sum(line.count for line in curve.lines)
    odd = sum(line.odd_count for line in curve.lines)
    drawn = any(line.points for line in curve.lines)
    reach = f", from {number_format.figure(y.low)} to {number_format.figure(y.high)}" if drawn else ""
    strange = f"; {odd:,} of them nan or infinite" if odd else ""
    steps = f"steps {math.floor(x.low):,} to {math.ceil(x.high):,}"
    attempts = f"{len(curve.lines)} attempt{'s' if len(curve.lines) > 1 else ''}"
    return f"{count:,} values of {attempts} over {steps}{reach}{strange}"


def _percent(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.3f}%"
