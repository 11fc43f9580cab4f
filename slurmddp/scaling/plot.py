"""Plot a scaling study by matplotlib, which is in the extra `plot`."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from slurmddp.errors import UsageError
from slurmddp.scaling.measurements import SizeResult, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS: Final = ("png", "svg")
_INK, _GREY, _MEASURED = "#222222", "#8a8a8a", "#0b5fa5"
_SIZE_IN: Final = (10.0, 4.6)
_DPI: Final = 150
_MOST_TICKS: Final = 9
"""The labels of more ticks would overlap."""


def draw_files(study: Study) -> dict[str, bytes]:
    """Return the plot as the content of a file in each of FORMATS; raise UsageError without matplotlib."""
    try:
        from matplotlib import rc_context  # noqa: PLC0415 - takes half a second, and is an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise UsageError("--picture needs matplotlib, which is missing; type: pip install 'slurmddp[plot]'") from error
    style: Any = {"font.size": 10, "svg.hashsalt": "slurmddp", "axes.edgecolor": _GREY, "text.color": _INK}
    with rc_context(style):
        figure = Figure(figsize=_SIZE_IN, layout="constrained", facecolor="white")
        left, right = figure.subplots(1, 2)
        figure.suptitle(f"{study.name}: {study.scaling} scaling", fontweight="bold")
        _draw_speed_up(left, study)
        _draw_efficiency(right, study)
        sizes = _sizes(study)
        powers = [2**power for power in range(sizes[-1].bit_length()) if sizes[0] <= 2**power <= sizes[-1]] or sizes
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_xticks(powers[:: -(-len(powers) // _MOST_TICKS)])  # of many only every second or later one
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.minorticks_off()
            axes.set_xlabel("GPUs")
            axes.grid(visible=True, color="#e6e6e6", linewidth=0.8)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
        files = {kind: io.BytesIO() for kind in FORMATS}
        for kind, file in files.items():
            figure.savefig(file, format=kind, dpi=_DPI, metadata={"Date": None} if kind == "svg" else None)
        return {kind: file.getvalue() for kind, file in files.items()}


def _draw_speed_up(axes: "Axes", study: Study) -> None:
    sizes = _sizes(study)
    axes.plot(sizes, sizes, color=_GREY, linestyle="--", linewidth=1.2, label="ideal")
    _draw_sizes(axes, study, lambda _: 1.0)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("speed-up")
    axes.legend(frameon=False, loc="upper left")


def _draw_efficiency(axes: "Axes", study: Study) -> None:
    wanted = 100 * study.min_efficiency
    axes.axhline(100, color=_GREY, linestyle="--", linewidth=1.2)
    axes.axhline(wanted, color=_GREY, linestyle=":", linewidth=1.2)
    right_edge = axes.get_yaxis_transform()
    axes.text(1, wanted, f"wanted: {wanted:.0f} % ", transform=right_edge, ha="right", va="bottom", color=_GREY)
    _draw_sizes(axes, study, lambda gpus: 100 / gpus)
    best = study.recommended
    place = (best.point.gpus, 100 * best.efficiency)
    axes.plot(*place, "o", markersize=14, fillstyle="none", color=_MEASURED)
    text = f"use {best.point.gpus}"
    axes.annotate(text, place, xytext=(11, 3), textcoords="offset points", color=_MEASURED, fontweight="bold")
    axes.set_ylim(0, max(110.0, 105 * max(one.efficiency * _time_over_shortest(one) for one in study.results)))
    axes.set_ylabel("efficiency (%)")


def _draw_sizes(axes: "Axes", study: Study, share: Callable[[int], float]) -> None:
    """Draw the measured sizes with their spreads: the speed-up, times the share that it counts for at a size.

    A shorter time is a larger speed-up.
    """
    values = [one.speed_up * share(one.point.gpus) for one in study.results]
    below = [max(0.0, 1 - one.point.time_s / one.point.spread_s[1]) for one in study.results]
    above = [max(0.0, _time_over_shortest(one) - 1) for one in study.results]
    axes.errorbar(
        _sizes(study),
        values,
        yerr=[[value * part for value, part in zip(values, parts, strict=True)] for parts in (below, above)],
        fmt="o",
        color=_MEASURED,
        capsize=3,
        markersize=6,
        zorder=3,
        label="measured",
    )


def _time_over_shortest(one: SizeResult) -> float:
    """Return the time of a size relative to its shortest time."""
    return one.point.time_s / one.point.spread_s[0]


def _sizes(study: Study) -> list[int]:
    return [one.point.gpus for one in study.results]
