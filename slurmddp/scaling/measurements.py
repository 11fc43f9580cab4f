"""The measured time at each size, and the speed-up, efficiency and cost that follow; as lines and JSON. Pure."""

import statistics
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

from slurmddp.errors import UsageError
from slurmddp.text import count, format_table

Scaling = Literal["weak", "strong"]
"""weak: the batch of a rank is constant, so a step takes more samples. strong: the samples of a step are constant."""

_ROUNDING: Final = 0.01
"""A batch that is divided among ranks is rounded: so much may the samples of a step differ from the expected number."""
_SUPERLINEAR: Final = 1.02
"""An efficiency above this is no measurement error."""
_COLUMNS: Final = (
    ("GPUs", "gpus", "d"),
    ("nodes", "nodes", "d"),
    ("seconds", "seconds", ".4g"),
    ("samples/s", "samples_per_s", ".0f"),
    ("speed-up", "speed_up", ".2f"),
    ("efficiency", "efficiency", ".0%"),
    ("waiting", "communication", ".0%"),
    ("GPU-hours", "gpu_hours", ".3g"),
)
"""The head of a column, the number in it by its name in JSON, and its form."""


class Point(NamedTuple):
    """The measurement of one size."""

    gpus: int
    nodes: int
    repeats_s: tuple[tuple[float, ...], ...]
    """Seconds per step for each repeat; in the order of time."""
    samples: int | None = None
    """Samples per step, on all ranks together."""
    communication: float | None = None
    """Share of a step spent waiting for the gradients of other ranks, 0 to 1."""
    steps: int | None = None
    """Number of steps in the whole training."""

    @property
    def time_s(self) -> float:
        """The median of the medians of the repeats."""
        return statistics.median(map(statistics.median, self.repeats_s))

    @property
    def spread_s(self) -> tuple[float, float]:
        """The medians of the fastest and the slowest repeat; of a single repeat, the quartiles of its times."""
        if len(self.repeats_s) > 1:
            medians = [statistics.median(times) for times in self.repeats_s]
            return min(medians), max(medians)
        times = self.repeats_s[0]
        if len(times) == 1:
            return times[0], times[0]
        low, _, high = statistics.quantiles(times, n=4, method="inclusive")
        return low, high


class SizeResult(NamedTuple):
    """The results of one size, relative to the smallest one that was measured."""

    point: Point
    speed_up: float
    """Work per second relative to one GPU; for the smallest size, by definition, its number of GPUs."""

    @property
    def efficiency(self) -> float:
        """The speed-up divided by the number of GPUs."""
        return self.speed_up / self.point.gpus

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second on all ranks; None if the samples of a step are unknown."""
        return self.point.samples / self.point.time_s if self.point.samples else None

    @property
    def training_s(self) -> float | None:
        """Seconds of the whole training; None if its number of steps is unknown."""
        return self.point.steps * self.point.time_s if self.point.steps else None

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours of the whole training; None if its number of steps is unknown."""
        return None if self.training_s is None else self.point.gpus * self.training_s / 3600

    @property
    def record(self) -> dict[str, Any]:
        """All numbers, by their names in JSON."""
        low, high = self.point.spread_s
        return {
            "gpus": self.point.gpus,
            "nodes": self.point.nodes,
            "seconds": self.point.time_s,
            "seconds_low": low,
            "seconds_high": high,
            "repeats": len(self.point.repeats_s),
            "samples_per_s": self.samples_per_s,
            "speed_up": self.speed_up,
            "efficiency": self.efficiency,
            "communication": self.point.communication,
            "training_s": self.training_s,
            "gpu_hours": self.gpu_hours,
        }


def compare_sizes(points: Iterable[Point], scaling: Scaling) -> tuple[SizeResult, ...]:
    """Return the results of each size relative to the smallest one, sorted by size; there is at least one, each once.

    The speed-up is T(1)/T(n) for strong scaling, and n T(1)/T(n) for weak scaling. If the smallest size has n GPUs, its
    speed-up is n. Raises UsageError for samples per step that contradict the kind of scaling.
    """
    ordered = sorted(points, key=lambda point: point.gpus)
    base, results = ordered[0], []
    for point in ordered:
        work = point.gpus / base.gpus if scaling == "weak" else 1.0
        if base.samples and point.samples and abs(point.samples / base.samples / work - 1) > _ROUNDING:
            raise UsageError(
                f"--{scaling}: a step took {base.samples} samples on {count(base.gpus, 'GPU')} and "
                f"{point.samples} on {point.gpus}; with --weak they grow with the GPUs, with --strong they are constant"
            )
        results.append(SizeResult(point=point, speed_up=base.gpus * work * base.time_s / point.time_s))
    return tuple(results)


class Study(NamedTuple):
    """The measured sizes, and the recommended one."""

    name: str
    scaling: Scaling
    results: tuple[SizeResult, ...]
    min_efficiency: float

    @property
    def recommended(self) -> SizeResult:
        """The largest size with this efficiency, which is 1 at most; the smallest size always has it."""
        good = [one for one in self.results if one.efficiency >= self.min_efficiency - 1e-9]
        return max(good, key=lambda one: one.point.gpus)

    @property
    def record(self) -> dict[str, Any]:
        """All results, for JSON."""
        return {
            "name": self.name,
            "scaling": self.scaling,
            "points": [one.record for one in self.results],
            "advice": {"efficiency": self.min_efficiency, "gpus": self.recommended.point.gpus},
        }


def format_study(study: Study) -> list[str]:
    """Return the table and its explanations as lines; `-` stands for an unknown number."""
    records = [one.record for one in study.results]
    cells = [
        ["-" if record[name] is None else format(record[name], form) for _, name, form in _COLUMNS]
        for record in records
    ]
    table = format_table(cells, head=[head for head, _, _ in _COLUMNS], right=range(len(_COLUMNS)))
    best, first = study.recommended, study.results[0]
    gpus, efficiency = count(best.point.gpus, "GPU"), f"{study.min_efficiency:.0%}"
    advice = f"Use {gpus}: the largest size measured with {efficiency} efficiency or more"
    if best.gpu_hours is not None and first.gpu_hours is not None and best is not first:
        advice += f"; {best.gpu_hours:.3g} GPU-hours, {first.gpu_hours:.3g} on {first.point.gpus}"
    lines = [*table, f"{advice}."]
    base = first.point.gpus
    if base > 1:
        lines.append(
            f"Speed-up is relative to {base} GPUs, the smallest size measured, which count as a speed-up of {base}."
        )
    if any(one.efficiency > _SUPERLINEAR for one in study.results):
        lines.append(
            "More than 100%: something slows down the smallest size more than the larger ones (memory, caches, a disk)."
        )
    return lines
