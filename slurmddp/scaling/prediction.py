"""What the law of a study says: of sizes that were asked for, of some more, and as a line to be drawn. Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from slurmddp.scaling.fit import Law, NoLawError, Predicted, fit
from slurmddp.scaling.measurements import Point, Scaling

_FACTORS = (2, 4, 8, 16, 32, 64)
_INNER = 8
"""Points of a drawn line for each doubling."""


@dataclass(frozen=True)
class Outlook:
    """What can be said of sizes that were not measured."""

    law: Law | None = None
    predicted: tuple[Predicted, ...] = ()
    silence: str = ""
    """Why nothing is said of some size, or of all; empty where something is."""

    @property
    def line(self) -> tuple[Predicted, ...]:
        """The law from the smallest of all sizes to the largest, as a line is drawn: through sizes that fill nodes."""
        if self.law is None:
            return ()
        ends = sorted({point.gpus for point in self.law.points} | {one.gpus for one in self.predicted})
        full = {_filling(gpus, self.law.node_size or 1) for gpus in _line(ends)} | set(ends)
        return tuple(self.law.predict(gpus) for gpus in sorted(full))


def outlook(points: Sequence[Point], scaling: Scaling, *, node_size: int | None, sizes: Sequence[int] = ()) -> Outlook:
    """Return what the points say of `sizes`; where none are given, of 2 to 64 times the largest one."""
    try:
        law = fit(points, scaling, node_size)
    except NoLawError as error:
        return Outlook(silence=str(error))
    predicted, silence = [], ""
    for gpus in sizes or [law.points[-1].gpus * factor for factor in _FACTORS]:
        try:
            predicted.append(law.predict(gpus))
        except NoLawError as error:
            silence = silence or str(error)
    return Outlook(law, tuple(predicted), silence)


def _filling(gpus: int, node_size: int) -> int:
    """Return the nearest size that leaves no node partly empty."""
    return gpus if gpus <= node_size else round(gpus / node_size) * node_size


def _line(ends: Sequence[int]) -> Iterator[int]:
    """Yield whole numbers that lie evenly on a logarithmic axis, the given ones among them."""
    yield ends[0]
    for low, high in pairwise(ends):
        count = max(1, round(_INNER * math.log2(high / low)))
        inner = {round(low * (high / low) ** (number / count)) for number in range(1, count + 1)}
        yield from sorted(size for size in inner if low < size <= high)
