"""Predict the times of sizes by the fitted law, for a table and for a plotted curve. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurmddp.scaling.fit import Law, NoLawError, PredictedSize, fit
from slurmddp.scaling.measurements import Point, Scaling

_FACTORS = (2, 4, 8, 16, 32, 64)
_CURVE_POINTS = 80


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


def _round_to_nodes(gpus: int, node_size: int) -> int:
    """Return the nearest size that fills all its nodes."""
    return gpus if gpus <= node_size else round(gpus / node_size) * node_size
