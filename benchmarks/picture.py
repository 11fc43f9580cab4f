"""The picture of the benchmarks: each ratio as a dot with its quartiles, on a logarithmic axis."""

import io
from collections.abc import Mapping
from typing import NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from results import Part
from rows import Spread, spread

GREY, LESS, MORE = "#8a8a8a", "#0b5fa5", "#d1661c"
WIDTH_IN, LINE_IN, MARGIN_IN = 11.0, 0.2, 1.0


class Dot(NamedTuple):
    """One ratio of slurmddp's figure to another's."""

    label: str
    ratio: Spread


def dots(parts: Mapping[str, Part]) -> list[Dot]:
    """Return all ratios in the order of the table."""
    return [
        Dot(f"{row.name} / {peer}", spread(row.ratios(peer)))
        for part in parts.values()
        for row in part.rows
        for peer in row.peers
        if row.ratios(peer)
    ]


def draw(parts: Mapping[str, Part]) -> bytes:
    """Return the picture as an svg file that is the same for the same figures."""
    shown = dots(parts)
    with rc_context({"font.size": 8, "svg.hashsalt": "slurmddp", "axes.edgecolor": GREY, "svg.fonttype": "none"}):
        figure = Figure(figsize=(WIDTH_IN, MARGIN_IN + LINE_IN * len(shown)), layout="constrained", facecolor="white")
        _draw_dots(figure.subplots(), shown)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()


def _draw_dots(axes: Axes, shown: list[Dot]) -> None:
    for place, dot in enumerate(shown):
        colour = LESS if dot.ratio.median <= 1 else MORE
        axes.plot([dot.ratio.low, dot.ratio.high], [place, place], color=colour, linewidth=3, alpha=0.4)
        axes.plot(dot.ratio.median, place, marker="o", markersize=4, color=colour)
    axes.axvline(1, color=GREY, linewidth=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("slurmddp's figure divided by the other's: less is better")
    axes.set_yticks(range(len(shown)), [dot.label for dot in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.grid(axis="x", color=GREY, alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)
