"""Plot a scaling study by matplotlib, which is in the extra `plot`."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from slurmddp.errors import UsageError
from slurmddp.scaling.measurements import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS: Final = ("png", "svg")
_INK, _GREY, _MEASURED = "#222222", "#8a8a8a", "#0b5fa5"
_SIZE_IN: Final = (10.0, 4.6)
_DPI: Final = 150


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
        sizes = [one.point.gpus for one in study.results]
        left.plot(sizes, sizes, color=_GREY, linestyle="--", linewidth=1.2, label="ideal")
        _draw_sizes(left, study, "speed-up", [one.speed_up for one in study.results])
        left.set_yscale("log", base=2)
        left.yaxis.set_major_formatter("{x:g}")
        wanted, best = 100 * study.min_efficiency, study.recommended
        right.axhline(100, color=_GREY, linestyle="--", linewidth=1.2)
        right.axhline(wanted, color=_GREY, linestyle=":", linewidth=1.2, label=f"wanted: {wanted:.0f} %")
        _draw_sizes(right, study, "efficiency (%)", [100 * one.efficiency for one in study.results])
        place = (best.point.gpus, 100 * best.efficiency)
        right.plot(*place, "o", markersize=14, fillstyle="none", color=_MEASURED, label=f"use {best.point.gpus}")
        right.set_ylim(bottom=0)
        for axes in (left, right):
            axes.legend(frameon=False)
        files = {kind: io.BytesIO() for kind in FORMATS}
        for kind, file in files.items():
            figure.savefig(file, format=kind, dpi=_DPI, metadata={"Date": None} if kind == "svg" else None)
        return {kind: file.getvalue() for kind, file in files.items()}


def _draw_sizes(axes: "Axes", study: Study, title: str, values: Sequence[float]) -> None:
    """Draw a value of each measured size, and its spread: a shorter time is a larger value."""
    points = [one.point for one in study.results]
    sizes = [point.gpus for point in points]
    shares = [[point.time_s / end for end in point.spread_s] for point in points]
    below = [value * max(0.0, 1 - least) for value, (_, least) in zip(values, shares, strict=True)]
    above = [value * max(0.0, most - 1) for value, (most, _) in zip(values, shares, strict=True)]
    style: Any = {"color": _MEASURED, "capsize": 3, "markersize": 6, "zorder": 3, "label": "measured"}
    axes.errorbar(sizes, values, yerr=[below, above], fmt="o", **style)
    axes.set_xscale("log", base=2)
    axes.set(xticks=sizes, xlabel="GPUs", ylabel=title)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
