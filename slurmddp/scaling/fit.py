"""A law fitted to measured times, and what it says of sizes that were not measured. Pure; numpy.

    T(n) = serial + compute/n + volume (n-1)/n + latency log2(n) + between (n-1)/n [on several nodes]

serial and compute: Amdahl (1967), "Validity of the single processor approach". volume: an all-reduce moves 2 (n-1)/n
times the gradients through the slowest link, whatever the number of ranks (Patarasuk & Yuan 2009, "Bandwidth optimal
all-reduce algorithms for clusters of workstations"); `between` is what links between nodes are slower than those
inside. latency: the rounds of a tree (Thakur, Rabenseifner & Gropp 2005, "Optimization of collective communication
operations in MPICH"). With the batch of a rank kept (weak), serial and compute are one. No coefficient is negative.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from slurmddp.errors import SlurmddpError
from slurmddp.scaling.measurements import Point, Scaling, work

Array = NDArray[Any]

DRAWS: Final = 1000
COVERED: Final = 0.9
"""How much of the draws lies in an interval."""
FLOOR: Final = 0.005
"""No time on a cluster is known better than to this share, however well a law passes through a few points."""
WORST: Final = 0.2
"""A law that misses the measured times by more than this share predicts nothing."""
FARTHEST: Final = 20.0
"""How far from the law, as a logarithm, a time is drawn: with one degree of freedom a few draws have no bound."""
_RANK_TOLERANCE: Final = 1e-9


class NoLawError(SlurmddpError):
    """What was measured determines no law, or none that speaks of a size."""


@dataclass(frozen=True)
class Term:
    """One part of the law.

    1, 1/n and (n-1)/n are linearly dependent, so that with a fixed batch times cannot tell the serial part from the
    volume of the all-reduce; what the law says of a size is the same however the two are parted.
    """

    name: str
    meaning: str


_CONSTANT: Final = Term("serial", "what does not shrink")
_COMPUTE: Final = Term("compute", "what is divided among the GPUs")
_STEP: Final = Term("compute", "a rank's own work")
_VOLUME: Final = Term("volume", "the gradients' way through the slowest link")
_LATENCY: Final = Term("latency", "the rounds of an all-reduce")
_BETWEEN: Final = Term("between", "the slower links between nodes")


@dataclass(frozen=True)
class Predicted:
    """What the law says of one size."""

    gpus: int
    time_s: float
    low_s: float
    high_s: float
    speed_up: float
    low: float
    high: float
    """Of the speed-up."""

    @property
    def efficiency(self) -> float:
        """The speed-up as a share of the GPUs."""
        return self.speed_up / self.gpus


@dataclass(frozen=True)
class Law:
    """A law that was fitted to points, and the fits to a thousand points that could as well have been measured."""

    scaling: Scaling
    terms: tuple[Term, ...]
    seconds: tuple[float, ...]
    """Coefficient of each term."""
    error: float
    """Standard deviation of a measured time from the law, as a share."""
    points: tuple[Point, ...]
    draws: Array
    """Coefficients, of shape [terms, draws]."""
    node_size: int | None
    """GPUs of a node; None where nobody says."""

    @cached_property
    def largest(self) -> int | None:
        """The largest size that it may speak of; None for any: between nodes nothing may have been measured."""
        if self.node_size is None or any((point.nodes or 1) > 1 for point in self.points):
            return None
        return self.node_size

    def predict(self, gpus: int) -> Predicted:
        """Return what the law says of a size, with the interval that holds nine tenths of the draws.

        Raises NoLawError for a size on several nodes where only one has been measured.
        """
        if self.largest and gpus > self.largest:
            raise NoLawError(
                f"{gpus} GPUs need several nodes of {self.largest}, and no size on more than one was measured: "
                f"nothing is known of the network between them; measure {2 * self.largest}, too"
            )
        nodes = None if self.node_size is None else -(-gpus // self.node_size)
        row = _row(self.terms, gpus, nodes)
        time_s, drawn_s = float(row @ np.asarray(self.seconds)), row @ self.draws
        done, base = work(gpus, self.scaling) / self._base_rate, self.points[0].gpus
        low_s, high_s = _interval(drawn_s, time_s)
        speed_ups = [base * done / seconds if seconds else math.inf for seconds in (time_s, high_s, low_s)]
        return Predicted(gpus, time_s, low_s, high_s, *speed_ups)

    @property
    def _base_rate(self) -> float:
        base = self.points[0]
        return work(base.gpus, self.scaling) / base.time_s


def fit(points: Sequence[Point], scaling: Scaling, node_size: int | None = None) -> Law:
    """Fit the law to points, each error counted as a share of its time; `node_size` is known from them where not given.

    Least squares without negative coefficients (Lawson & Hanson 1974, "Solving least squares problems", chapter 23).
    Intervals are of a parametric bootstrap (Efron & Tibshirani 1993, "An introduction to the bootstrap", chapter 6):
    times are drawn around the law and fitted again, with the error of the fit, itself drawn by the chi-squared law of
    its few degrees of freedom. Raises NoLawError for fewer sizes than parameters and one, and for times that no
    such law explains.
    """
    ordered = tuple(sorted(points, key=lambda point: point.gpus))
    terms = _terms(ordered, scaling)
    times_s = np.array([point.time_s for point in ordered])
    design = np.array([_row(terms, point.gpus, point.nodes) for point in ordered]) / times_s[:, None]
    _check_enough(len(ordered), terms)
    found = nonnegative(design, np.ones((len(ordered), 1)))
    expected = design @ found
    freedom = len(ordered) - int(np.linalg.matrix_rank(design, tol=_RANK_TOLERANCE))
    error = max(FLOOR, float(np.sqrt(((1 - expected) ** 2).sum() / freedom)))
    if error > WORST:
        raise NoLawError(
            f"the measured times miss the best law by {error:.0%}, so something else than computing and communicating "
            "decides (ranks that share a CPU or a disk, jobs beside them)"
        )
    random = np.random.default_rng(0)
    errors = error * np.sqrt(freedom / random.chisquare(freedom, DRAWS))
    shares = np.clip(errors * random.standard_normal((len(ordered), DRAWS)), -FARTHEST, FARTHEST)
    drawn = expected * np.exp(shares)
    seconds = tuple(float(value) for value in found[:, 0])
    return Law(scaling, terms, seconds, error, ordered, nonnegative(design, drawn), node_size or _node_size(ordered))


def _node_size(points: Sequence[Point]) -> int | None:
    """Return the most GPUs that a node was filled with; None where nobody says how many nodes there were."""
    filled = [-(-point.gpus // point.nodes) for point in points if point.nodes]
    return max(filled) if len(filled) == len(points) else None


def nonnegative(design: Array, wanted: Array) -> Array:
    """Return for each column of `wanted` the coefficients >= 0 with the least squares of `design @ x - wanted`.

    The solution is the plain one of some subset of the terms, so of the few there are each subset is tried; of those
    whose columns depend on each other, a smaller one does the same.
    """
    count, columns = design.shape[1], wanted.shape[1]
    best, solution = np.full(columns, np.inf), np.zeros((count, columns))
    scale = np.linalg.norm(design, axis=0)
    scale[scale == 0] = 1.0
    for subset in chain.from_iterable(combinations(range(count), size) for size in range(1, count + 1)):
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
    """Refuse to draw a law through its points: serial, compute and volume of a fixed batch count as two, see `Term`."""
    parameters = 4 if _BETWEEN in terms else 3
    if sizes <= parameters:
        raise NoLawError(
            f"{sizes} size{'s' if sizes > 1 else ''} measured, which gives no law: it has {parameters} parameters, so "
            f"at least {parameters + 1} sizes are needed, better more"
        )


def _terms(points: Sequence[Point], scaling: Scaling) -> tuple[Term, ...]:
    """Return the terms of which the points can tell: links between nodes only where those inside were measured too."""
    own = (_STEP,) if scaling == "weak" else (_CONSTANT, _COMPUTE)
    inside = any(point.gpus > 1 and point.nodes == 1 for point in points)
    across = any(point.nodes is not None and point.nodes > 1 for point in points)
    return (*own, _VOLUME, _LATENCY, *((_BETWEEN,) if inside and across else ()))


def _row(terms: Sequence[Term], gpus: int, nodes: int | None) -> Array:
    """Return what each term's coefficient is multiplied by at a size."""
    moved = (gpus - 1) / gpus
    factors = {
        _CONSTANT: 1.0,
        _COMPUTE: 1 / gpus,
        _STEP: 1.0,
        _VOLUME: moved,
        _LATENCY: float(np.log2(gpus)),
        _BETWEEN: moved if (nodes or 1) > 1 else 0.0,
    }
    return np.array([factors[term] for term in terms])


def _interval(drawn: Array, middle: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return min(float(low), middle), max(float(high), middle)
