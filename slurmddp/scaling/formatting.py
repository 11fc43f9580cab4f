"""What a scaling study has found: as lines for people, as JSON for programs. Pure."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmddp.scaling.measurements import counted
from slurmddp.text import table

if TYPE_CHECKING:
    from slurmddp.scaling.fit import Law, Predicted
    from slurmddp.scaling.measurements import Figures, Scaling
    from slurmddp.scaling.prediction import Outlook

_MORE_THAN_ALL: Final = 1.02
"""An efficiency that is no error of the measurement."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What was measured, and what follows from it."""

    name: str
    scaling: "Scaling"
    found: "tuple[Figures, ...]"
    ahead: "Outlook"
    least: float
    advised: "Figures | None"


def lines(study: Study) -> list[str]:
    """Return the table, and what follows from it, for people."""
    head = ("GPUs", "nodes", "seconds", "samples/s", "speed-up", "efficiency", "waiting", "GPU-hours")
    rows = [head, *map(_cells, study.found), *map(_predicted_cells, study.ahead.predicted)]
    return [*table(rows, right=range(len(head))), *_words(study)]


def _cells(one: "Figures") -> tuple[str, ...]:
    point = one.point
    return (
        str(point.gpus),
        _or_dash(point.nodes, "d"),
        f"{point.time_s:.4g}",
        _or_dash(one.samples_per_s, ".0f"),
        f"{one.speed_up:.2f}",
        f"{one.efficiency:.0%}",
        _or_dash(point.communication, ".0%"),
        _or_dash(one.gpu_hours, ".3g"),
    )


def _predicted_cells(one: "Predicted") -> tuple[str, ...]:
    share = f"~{one.low / one.gpus:.0%}..{one.high / one.gpus:.0%}"
    return str(one.gpus), "", f"~{one.time_s:.4g}", "", f"~{one.speed_up:.2f}", share, "", ""


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _words(study: Study) -> list[str]:
    said = [_advice(study), *_further(study)]
    base = study.found[0].point.gpus
    if base > 1:
        said.append(
            f"Counted from {base} GPUs, the smallest size measured, as if they did {base} times the work of one."
        )
    if any(one.efficiency > _MORE_THAN_ALL for one in study.found):
        said.append(
            "More than 100%: the smallest size is held up by what larger ones have less of (memory, caches, a disk)."
        )
    if study.ahead.predicted:
        said.append("~: predicted by the law that was fitted, with the interval of nine in ten; not measured.")
    if study.ahead.silence:
        said.append(f"{'' if study.ahead.predicted else 'No prediction: '}{study.ahead.silence}.")
    return said


def _further(study: Study) -> list[str]:
    """Return what the law says of larger sizes that would do as well, and is sure of."""
    above = study.advised.point.gpus if study.advised else 0
    good = [one for one in study.ahead.predicted if one.gpus > above and one.low / one.gpus >= study.least]
    return [f"By the law, {good[-1].gpus} GPUs would have it, too; measure before you rely on it."] if good else []


def _advice(study: Study) -> str:
    best = study.advised
    if best is None:
        return f"No size has an efficiency of {study.least:.0%}."
    text = f"Use {counted(best.point.gpus)}: the largest size measured with {study.least:.0%} efficiency or more"
    first = study.found[0]
    if best.gpu_hours is not None and first.gpu_hours is not None and best is not first:
        text += f"; {best.gpu_hours:.3g} GPU-hours, {first.gpu_hours:.3g} on {first.point.gpus}"
    return f"{text}."


def as_json(study: Study) -> dict[str, Any]:
    """Return all that is known, for programs."""
    return {
        "name": study.name,
        "scaling": study.scaling,
        "points": [_point_as_json(one) for one in study.found],
        "advice": {"efficiency": study.least, "gpus": study.advised.point.gpus if study.advised else None},
        "law": _law_as_json(study.ahead.law) if study.ahead.law else None,
        "silence": study.ahead.silence,
        "predicted": [
            {
                "gpus": one.gpus,
                "seconds": one.time_s,
                "seconds_low": one.low_s,
                "seconds_high": one.high_s,
                "speed_up": one.speed_up,
                "speed_up_low": one.low,
                "speed_up_high": one.high if math.isfinite(one.high) else None,
                "efficiency": one.efficiency,
            }
            for one in study.ahead.predicted
        ],
    }


def _point_as_json(one: "Figures") -> dict[str, Any]:
    low, high = one.point.spread_s
    return {
        "gpus": one.point.gpus,
        "nodes": one.point.nodes,
        "seconds": one.point.time_s,
        "seconds_low": low,
        "seconds_high": high,
        "repeats": len(one.point.repeats_s),
        "samples_per_s": one.samples_per_s,
        "speed_up": one.speed_up,
        "efficiency": one.efficiency,
        "communication": one.point.communication,
        "training_s": one.training_s,
        "gpu_hours": one.gpu_hours,
    }


def _law_as_json(law: "Law") -> dict[str, Any]:
    terms = {term.name: seconds for term, seconds in zip(law.terms, law.seconds, strict=True)}
    return {"seconds": terms, "error": law.error}
