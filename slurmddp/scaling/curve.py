"""The law of a study as points of a curve, and the sizes worth predicting. Pure."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from slurmddp.scaling.fit import Law, Predicted

_REACH = 64
_BETWEEN = 4
"""Points of the curve for each doubling."""


def doublings(law: Law) -> tuple[int, ...]:
    """Return sizes to predict where none were asked for: up to 64 times the largest one, if the law reaches there."""
    largest = law.points[-1].gpus
    wanted = (largest * factor for factor in (2, 4, 8, 16, 32, _REACH))
    return tuple(size for size in wanted if law.largest is None or size <= law.largest)


def curve(law: Law, sizes: Sequence[int]) -> tuple[Predicted, ...]:
    """Return what the law says from the smallest of all sizes to the largest, as a line is drawn."""
    ends = sorted({point.gpus for point in law.points} | set(sizes))
    return tuple(law.predict(gpus) for gpus in _line(ends) if law.largest is None or gpus <= law.largest)


def _line(ends: Sequence[int]) -> Iterator[int]:
    """Yield whole numbers that lie evenly on a logarithmic axis, the given ones among them."""
    yield ends[0]
    for low, high in pairwise(ends):
        count = max(1, round(_BETWEEN * (high / low - 1)))
        inner = {round(low * (high / low) ** (number / count)) for number in range(1, count + 1)}
        yield from sorted(size for size in inner if low < size <= high)
