"""Fit a law to measured times, and predict the times of other sizes from it. Pure; uses numpy.

    T(n) = serial + compute/n + volume (n-1)/n + latency log2(n) + between (n-1)/n [on several nodes]

serial and compute: Amdahl (1967), "Validity of the single processor approach". volume: an all-reduce moves 2 (n-1)/n
times the gradients through the slowest link (Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms for
clusters of workstations"); `between` is the extra time of links between nodes. latency: the rounds of a tree (Thakur,
Rabenseifner & Gropp 2005, "Optimization of collective communication operations in MPICH"). With weak scaling, serial
and compute are one term. No coefficient is negative.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from slurmddp.errors import SlurmddpError
from slurmddp.scaling.measurements import Point, Scaling, relative_work
from slurmddp.text import count

Array = NDArray[Any]

DRAWS: Final = 1000
COVERED: Final = 0.9
"""The share of the draws inside an interval."""
FLOOR: Final = 0.005
"""The least relative error that is assumed, since a law may pass through a few points by chance."""
WORST: Final = 0.2
"""A law with a larger relative error is not used."""
FARTHEST: Final = 20.0
"""The largest logarithm by which a draw differs from the law; with one degree of freedom there is no other bound."""
_RANK_TOLERANCE: Final = 1e-9
_FACTORS: Final = (2, 4, 8, 16, 32, 64)
_CURVE_POINTS: Final = 80


class NoLawError(SlurmddpError):
    """The measurements determine no law, or none that holds for a size."""


Term = Literal["serial", "compute", "step", "volume", "latency", "between"]
"""One term of the law; `step` is the rank's own work, which is constant with weak scaling.

1, 1/n and (n-1)/n are linearly dependent, so with a fixed batch the serial part cannot be separated from the volume of
the all-reduce; the predictions are the same for every split.
"""


@dataclass(frozen=True)
class PredictedSize:
    """The prediction for one size."""

    gpus: int
    time_s: float
    low_s: float
    high_s: float
    speed_up: float
    low: float
    high: float
    """`low` and `high` are the interval of the speed-up."""

    @property
    def efficiency(self) -> float:
        """The speed-up divided by the number of GPUs."""
        return self.speed_up / self.gpus


@dataclass(frozen=True)
class Law:
    """A fitted law, and the fits of the bootstrap, from which intervals are computed."""

    scaling: Scaling
    terms: tuple[Term, ...]
    seconds: tuple[float, ...]
    """Coefficient of each term."""
    error: float
    """Relative standard deviation of the measured times from the law."""
    points: tuple[Point, ...]
    draws: Array
    """Coefficients, of shape [terms, draws]."""
    node_size: int | None
    """GPUs of a node; None if unknown."""

    @cached_property
    def largest(self) -> int | None:
        """The largest size that can be predicted: one node, if no larger size was measured; None for no limit."""
        if self.node_size is None or any((point.nodes or 1) > 1 for point in self.points):
            return None
        return self.node_size

    def predict(self, gpus: int) -> PredictedSize:
        """Return the prediction for a size, with its 90 % interval.

        Raises NoLawError for a size on several nodes if only sizes on one node were measured.
        """
        if self.largest and gpus > self.largest:
            raise NoLawError(
                f"{gpus} GPUs need several nodes of {self.largest}, but only sizes on one node were measured, "
                f"without the network between nodes; measure {2 * self.largest}, too"
            )
        nodes = None if self.node_size is None else -(-gpus // self.node_size)
        row = _row(self.terms, gpus, nodes)
        time_s, drawn_s = float(row @ np.asarray(self.seconds)), row @ self.draws
        base = self.points[0]
        base_rate = relative_work(base.gpus, self.scaling) / base.time_s
        done = relative_work(gpus, self.scaling) / base_rate
        low_s, high_s = _interval(drawn_s, time_s)
        speed_ups = [base.gpus * done / seconds if seconds else math.inf for seconds in (time_s, high_s, low_s)]
        return PredictedSize(gpus, time_s, low_s, high_s, *speed_ups)


@dataclass(frozen=True)
class Prediction:
    """The fitted law, and its predictions for sizes that were not measured."""

    law: Law | None = None
    predicted: tuple[PredictedSize, ...] = ()
    silence: str = ""
    """Why there is no prediction for a size, or for all; empty if there are all."""

    @property
    def curve(self) -> tuple[PredictedSize, ...]:
        """The predictions from the smallest to the largest size, at sizes that fill their nodes; for a plot."""
        if self.law is None:
            return ()
        ends = sorted({point.gpus for point in self.law.points} | {one.gpus for one in self.predicted})
        between = (round(float(gpus)) for gpus in np.geomspace(ends[0], ends[-1], _CURVE_POINTS))
        full = {_round_to_nodes(gpus, self.law.node_size or 1) for gpus in between} | set(ends)
        return tuple(self.law.predict(gpus) for gpus in sorted(full))


def predict_sizes(
    points: Sequence[Point], scaling: Scaling, *, node_size: int | None, sizes: Sequence[int] = ()
) -> Prediction:
    """Fit the law and predict `sizes`; the default is 2 to 64 times the largest point."""
    try:
        law = fit(points, scaling, node_size)
    except NoLawError as error:
        return Prediction(silence=str(error))
    predicted, silence = [], ""
    for gpus in sizes or [law.points[-1].gpus * factor for factor in _FACTORS]:
        try:
            predicted.append(law.predict(gpus))
        except NoLawError as error:
            silence = silence or str(error)
    return Prediction(law, tuple(predicted), silence)


def fit(points: Sequence[Point], scaling: Scaling, node_size: int | None = None) -> Law:
    """Fit the law to points by relative errors; `node_size` is derived from the points if it is not given.

    Least squares without negative coefficients (Lawson & Hanson 1974, "Solving least squares problems", chapter 23).
    Intervals come from a parametric bootstrap (Efron & Tibshirani 1993, "An introduction to the bootstrap", chapter 6):
    times are drawn around the law and fitted again, with the error of the fit, itself drawn by the chi-squared law of
    its few degrees of freedom. Raises NoLawError unless there are more sizes than parameters, and for times that
    the law cannot explain.
    """
    ordered = tuple(sorted(points, key=lambda point: point.gpus))
    terms = _terms(ordered, scaling)
    times_s = np.array([point.time_s for point in ordered])
    design = np.array([_row(terms, point.gpus, point.nodes) for point in ordered]) / times_s[:, None]
    _check_enough(len(ordered), terms)
    found = solve_nonnegative(design, np.ones((len(ordered), 1)))
    expected = design @ found
    freedom = len(ordered) - int(np.linalg.matrix_rank(design, tol=_RANK_TOLERANCE))
    error = max(FLOOR, float(np.sqrt(((1 - expected) ** 2).sum() / freedom)))
    if error > WORST:
        raise NoLawError(
            f"the measured times differ from the best law by {error:.0%}, so something other than computing and "
            "communication decides (ranks that share a CPU or a disk, other jobs on the nodes)"
        )
    random = np.random.default_rng(0)
    errors = error * np.sqrt(freedom / random.chisquare(freedom, DRAWS))
    shares = np.clip(errors * random.standard_normal((len(ordered), DRAWS)), -FARTHEST, FARTHEST)
    drawn = expected * np.exp(shares)
    seconds = tuple(float(value) for value in found[:, 0])
    return Law(
        scaling, terms, seconds, error, ordered, solve_nonnegative(design, drawn), node_size or _node_size(ordered)
    )


def _node_size(points: Sequence[Point]) -> int | None:
    """Return the largest number of GPUs used on a node; None if the number of nodes of a point is unknown."""
    filled = [-(-point.gpus // point.nodes) for point in points if point.nodes]
    return max(filled) if len(filled) == len(points) else None


def solve_nonnegative(design: Array, wanted: Array) -> Array:
    """Return for each column of `wanted` the coefficients >= 0 with the least squares of `design @ x - wanted`.

    The solution is the unconstrained one of some subset of the terms. There are few terms, so every subset is tried,
    except those with linearly dependent columns, for which a smaller subset gives the same.
    """
    terms, columns = design.shape[1], wanted.shape[1]
    best, solution = np.full(columns, np.inf), np.zeros((terms, columns))
    scale = np.linalg.norm(design, axis=0)
    scale[scale == 0] = 1.0
    for subset in chain.from_iterable(combinations(range(terms), size) for size in range(1, terms + 1)):
        chosen = list(subset)
        part = design[:, chosen] / scale[chosen]
        if np.linalg.matrix_rank(part, tol=_RANK_TOLERANCE) < len(chosen):
            continue
        found = np.linalg.pinv(part) @ wanted
        left = ((part @ found - wanted) ** 2).sum(axis=0)
        better = (found >= 0).all(axis=0) & (left < best)
        best[better] = left[better]
        solution[:, better] = 0
        solution[np.ix_(chosen, better)] = found[:, better] / scale[chosen][:, None]
    return solution


def _check_enough(sizes: int, terms: Sequence[Term]) -> None:
    """Raise NoLawError unless there are more sizes than parameters; `Term` says why a fixed batch has one less."""
    parameters = 4 if "between" in terms else 3
    if sizes <= parameters:
        raise NoLawError(
            f"{count(sizes, 'size')} measured, too few for a law with {parameters} parameters: measure at least "
            f"{parameters + 1}, better more"
        )


def _terms(points: Sequence[Point], scaling: Scaling) -> tuple[Term, ...]:
    """Return the terms that the points determine: `between` needs sizes of several ranks on one and on more nodes."""
    own: tuple[Term, ...] = ("step",) if scaling == "weak" else ("serial", "compute")
    inside = any(point.gpus > 1 and point.nodes == 1 for point in points)
    across = any(point.nodes is not None and point.nodes > 1 for point in points)
    return (*own, "volume", "latency", "between") if inside and across else (*own, "volume", "latency")


def _row(terms: Sequence[Term], gpus: int, nodes: int | None) -> Array:
    """Return the factor of each term's coefficient at a size."""
    moved = (gpus - 1) / gpus
    factors: dict[Term, float] = {
        "serial": 1.0,
        "compute": 1 / gpus,
        "step": 1.0,
        "volume": moved,
        "latency": float(np.log2(gpus)),
        "between": moved if (nodes or 1) > 1 else 0.0,
    }
    return np.array([factors[term] for term in terms])


def _interval(drawn: Array, middle: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return min(float(low), middle), max(float(high), middle)


def _round_to_nodes(gpus: int, node_size: int) -> int:
    """Return the nearest size that fills all its nodes."""
    return gpus if gpus <= node_size else round(gpus / node_size) * node_size
