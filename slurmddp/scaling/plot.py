"""The picture of a scaling study: a file by matplotlib, or text for a terminal by plotext. Both are of extra `plot`."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmddp.errors import UsageError
from slurmddp.scaling.fit import COVERED, Predicted
from slurmddp.scaling.measurements import Figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS: Final = ("png", "svg")
_INK, _GREY, _MEASURED, _LAW = "#222222", "#8a8a8a", "#0b5fa5", "#d1661c"
_SIZE_IN: Final = (10.0, 4.6)
_DPI: Final = 150
_FEW: Final = 9
"""More ticks than these run into each other."""
_MISSING: Final = "a picture needs {}, which is not here; pip install 'slurmddp[plot]'"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What is to be seen."""

    title: str
    found: tuple[Figures, ...]
    line: tuple[Predicted, ...] = ()
    """The law, if there is one."""
    least: float
    """The efficiency that is wanted."""
    advised: int | None = None
    """The size to use."""

    @property
    def sizes(self) -> list[int]:
        """All sizes that are on the axis, the smallest first."""
        return sorted({one.point.gpus for one in self.found} | {one.gpus for one in self.line})


def drawn(picture: Picture) -> dict[str, bytes]:
    """Return the picture as the content of a file in each of FORMATS. Raises UsageError without matplotlib."""
    try:
        from matplotlib import rc_context  # noqa: PLC0415 - takes half a second, and is an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(_MISSING.format("matplotlib")) from error
    style: Any = {"font.size": 10, "svg.hashsalt": "slurmddp", "axes.edgecolor": _GREY, "text.color": _INK}
    with rc_context(style):
        figure = Figure(figsize=_SIZE_IN, layout="constrained", facecolor="white")
        left, right = figure.subplots(1, 2)
        figure.suptitle(picture.title, fontweight="bold")
        _draw_speed_up(left, picture)
        _draw_efficiency(right, picture)
        for axes in (left, right):
            _dress(axes, picture.sizes)
        return {kind: _saved(figure, kind) for kind in FORMATS}


def _saved(figure: Any, kind: str) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=_DPI, metadata={"Date": None} if kind == "svg" else None)
    return stream.getvalue()


def _draw_speed_up(axes: "Axes", picture: Picture) -> None:
    sizes = picture.sizes
    axes.plot(sizes, sizes, color=_GREY, linestyle="--", linewidth=1.2, label="ideal")
    _draw_law(axes, picture.line, [1.0] * len(picture.line))
    _draw_points(axes, picture.found, [1.0] * len(picture.found))
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("speed-up")
    axes.legend(frameon=False, loc="upper left")


def _draw_efficiency(axes: "Axes", picture: Picture) -> None:
    axes.axhline(100, color=_GREY, linestyle="--", linewidth=1.2)
    axes.axhline(100 * picture.least, color=_GREY, linestyle=":", linewidth=1.2)
    axes.annotate(
        f"wanted: {100 * picture.least:.0f} %",
        (1, 100 * picture.least),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 3),
        textcoords="offset points",
        horizontalalignment="right",
        color=_GREY,
    )
    _draw_law(axes, picture.line, [100 / one.gpus for one in picture.line])
    _draw_points(axes, picture.found, [100 / one.point.gpus for one in picture.found])
    _draw_advised(axes, picture)
    axes.set_ylim(0, max(110.0, 105 * max(one.efficiency * _longer(one) for one in picture.found)))
    axes.set_ylabel("efficiency (%)")


def _draw_law(axes: "Axes", line: Sequence[Predicted], factors: Sequence[float]) -> None:
    if not line:
        return
    sizes = [one.gpus for one in line]
    low, middle, high = (
        [factor * value for factor, value in zip(factors, values, strict=True)]
        for values in ([one.low for one in line], [one.speed_up for one in line], [one.high for one in line])
    )
    axes.fill_between(sizes, low, high, color=_LAW, alpha=0.18, linewidth=0, label=f"{100 * COVERED:.0f} % interval")
    axes.plot(sizes, middle, color=_LAW, linewidth=1.6, label="fitted law")


def _draw_points(axes: "Axes", found: Sequence[Figures], factors: Sequence[float]) -> None:
    """Draw what was measured, each with its spread: of a shorter time the speed-up is larger."""
    values, below, above = [], [], []
    for one, factor in zip(found, factors, strict=True):
        values.append(one.speed_up * factor)
        below.append(values[-1] * max(0.0, 1 - one.point.time_s / one.point.spread_s[1]))
        above.append(values[-1] * max(0.0, _longer(one) - 1))
    axes.errorbar(
        [one.point.gpus for one in found],
        values,
        yerr=[below, above],
        fmt="o",
        color=_MEASURED,
        capsize=3,
        markersize=6,
        zorder=3,
        label="measured",
    )


def _longer(one: Figures) -> float:
    """Return how many times as long as its shortest time the time of a size is."""
    return one.point.time_s / one.point.spread_s[0]


def _draw_advised(axes: "Axes", picture: Picture) -> None:
    for one in picture.found:
        if one.point.gpus == picture.advised:
            place = (one.point.gpus, 100 * one.efficiency)
            axes.plot(*place, "o", markersize=14, fillstyle="none", color=_MEASURED)
            axes.annotate(
                f"use {one.point.gpus}",
                place,
                xytext=(11, 3),
                textcoords="offset points",
                color=_MEASURED,
                fontweight="bold",
            )


def _dress(axes: "Axes", sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(_ticks(sizes))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.set_xlabel("GPUs")
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _ticks(sizes: Sequence[int]) -> list[int]:
    """Return the powers of two on the axis, every second or fourth one where there are many."""
    powers = [2**power for power in range(sizes[-1].bit_length()) if sizes[0] <= 2**power <= sizes[-1]] or list(sizes)
    return powers[:: -(-len(powers) // _FEW)]


def in_text(picture: Picture, width: int, height: int) -> str:
    """Return the speed-up as lines of characters, without colours; empty where plotext is not installed."""
    try:
        import plotext  # noqa: PLC0415 - as above
    except ImportError:
        return ""
    figure: Any = plotext.figure
    figure.clear.all()
    figure.plot_size(width, height)
    sizes = [one.point.gpus for one in picture.found]
    for label, marker, values in (("ideal", "·", sizes), ("measured", "●", [one.speed_up for one in picture.found])):
        signal = figure.signal([math.log2(size) for size in sizes], list(map(math.log2, values)), marker=marker)
        figure.draw(signal.label(label).lines(marker == "·"))
    for axis, name in enumerate(("GPUs", "speed-up")):
        figure.label(name, axis)
        figure.ruler(axis, 0).ticks([math.log2(size) for size in sizes], list(map(str, sizes)))
    return str(plotext.uncolorize(figure.build().string()))
