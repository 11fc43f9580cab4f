"""What was measured at each size, and what it amounts to. Pure."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from slurmddp.errors import UsageError

Scaling = Literal["weak", "strong"]
"""weak: the batch of a rank stays, and a step takes more samples. strong: the samples of a step stay."""

HOUR_S: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Point:
    """One size, measured."""

    gpus: int
    nodes: int | None = None
    """None where nobody says."""
    repeats_s: tuple[tuple[float, ...], ...]
    """Seconds a step, or for the whole work; of each repeat, in the order of time."""
    samples: int | None = None
    """Samples of a step, on all ranks together."""
    communication: float | None = None
    """Share of a step that waits for other ranks' gradients, 0 to 1."""
    steps: float | None = None
    """How many such times the whole training takes; 1 where the seconds are those of the whole."""

    @property
    def time_s(self) -> float:
        """The median over the repeats, of which each gives its own median."""
        return statistics.median(map(statistics.median, self.repeats_s))

    @property
    def spread_s(self) -> tuple[float, float]:
        """The shortest and the longest repeat; of a single one the middle half of its times."""
        if len(self.repeats_s) > 1:
            medians = [statistics.median(times) for times in self.repeats_s]
            return min(medians), max(medians)
        times = self.repeats_s[0]
        if len(times) == 1:
            return times[0], times[0]
        low, _, high = statistics.quantiles(times, n=4, method="inclusive")
        return low, high


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one size amounts to, beside the smallest one that was measured."""

    point: Point
    speed_up: float
    """How many times as much work a second as one GPU does; of the smallest size its own number, by definition."""

    @property
    def efficiency(self) -> float:
        """The speed-up as a share of the GPUs."""
        return self.speed_up / self.point.gpus

    @property
    def samples_per_s(self) -> float | None:
        """Samples of all ranks a second; None where it is not known how many a step takes."""
        return self.point.samples / self.point.time_s if self.point.samples else None

    @property
    def training_s(self) -> float | None:
        """Seconds of the whole training; None where its length is not known."""
        return self.point.steps * self.point.time_s if self.point.steps else None

    @property
    def gpu_hours(self) -> float | None:
        """What the whole training costs."""
        return None if self.training_s is None else self.point.gpus * self.training_s / HOUR_S


def figures(points: Iterable[Point], scaling: Scaling) -> tuple[Figures, ...]:
    """Return what each size amounts to, the smallest first, which is what the others are compared with.

    Speed-up is T(1)/T(n) where the work of a time stays (strong), and n T(1)/T(n) where it grows (weak); a smallest
    size of more than one GPU counts as that many. Raises UsageError without points, or for two of one size.
    """
    ordered = sorted(points, key=lambda point: point.gpus)
    sizes = [point.gpus for point in ordered]
    if not sizes:
        raise UsageError("no size was measured")
    if len(set(sizes)) < len(sizes):
        raise UsageError(f"a size was given twice: {', '.join(map(str, sizes))}")
    _check_work(ordered, scaling)
    base = ordered[0]
    per_time = [work(point.gpus, scaling) / point.time_s for point in ordered]
    return tuple(
        Figures(point=point, speed_up=base.gpus * rate / per_time[0])
        for point, rate in zip(ordered, per_time, strict=True)
    )


def counted(gpus: int) -> str:
    """Return a number of GPUs in words."""
    return f"{gpus} GPU{'' if gpus == 1 else 's'}"


def work(gpus: int, scaling: Scaling) -> float:
    """Return how much is done in the time of a size, in any unit."""
    return float(gpus) if scaling == "weak" else 1.0


def _check_work(ordered: Sequence[Point], scaling: Scaling) -> None:
    """Refuse what was measured otherwise than it is called: the samples of the steps tell."""
    base = ordered[0]
    for point in ordered[1:]:
        if not (base.samples and point.samples):
            continue
        grown, expected = point.samples / base.samples, work(point.gpus, scaling) / work(base.gpus, scaling)
        if abs(grown / expected - 1) > 0.01:  # noqa: PLR2004 - batches are rounded
            raise UsageError(
                f"--{scaling}: a step took {base.samples} samples on {counted(base.gpus)} and {point.samples} on "
                f"{point.gpus}; with --weak they grow with the GPUs, with --strong they stay"
            )


def advised(found: Sequence[Figures], least: float) -> Figures | None:
    """Return the size to use: the largest one whose efficiency is at least `least`, so the fastest that pays.

    None where no size has it, which the smallest one always does unless `least` is above 1.
    """
    return max((one for one in found if one.efficiency >= least - 1e-9), key=lambda one: one.point.gpus, default=None)
