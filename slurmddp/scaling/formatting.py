"""The results of a scaling study, as lines for people or as JSON. Pure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmddp.text import count, format_table

if TYPE_CHECKING:
    from slurmddp.scaling.measurements import Scaling, SizeResult

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


@dataclass(frozen=True, kw_only=True)
class Study:
    """The measured sizes, and the recommended one."""

    name: str
    scaling: "Scaling"
    results: "tuple[SizeResult, ...]"
    min_efficiency: float

    @property
    def recommended(self) -> "SizeResult":
        """The largest size with this efficiency, which is 1 at most; the smallest size always has it."""
        good = [one for one in self.results if one.efficiency >= self.min_efficiency - 1e-9]
        return max(good, key=lambda one: one.point.gpus)


def format_study(study: Study) -> list[str]:
    """Return the table and its explanations as lines; `-` stands for an unknown number."""
    rows = [tuple(head for head, _, _ in _COLUMNS), *(_cells(one.record) for one in study.results)]
    return [*format_table(rows, right=range(len(_COLUMNS))), *_explanations(study)]


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    return tuple("-" if record[name] is None else format(record[name], form) for _, name, form in _COLUMNS)


def _explanations(study: Study) -> list[str]:
    lines = [_recommendation(study)]
    base = study.results[0].point.gpus
    if base > 1:
        lines.append(
            f"Speed-up is relative to {base} GPUs, the smallest size measured, which count as a speed-up of {base}."
        )
    if any(one.efficiency > _SUPERLINEAR for one in study.results):
        lines.append(
            "More than 100%: something slows down the smallest size more than the larger ones (memory, caches, a disk)."
        )
    return lines


def _recommendation(study: Study) -> str:
    best, first = study.recommended, study.results[0]
    gpus, efficiency = count(best.point.gpus, "GPU"), f"{study.min_efficiency:.0%}"
    text = f"Use {gpus}: the largest size measured with {efficiency} efficiency or more"
    if best.gpu_hours is not None and first.gpu_hours is not None and best is not first:
        text += f"; {best.gpu_hours:.3g} GPU-hours, {first.gpu_hours:.3g} on {first.point.gpus}"
    return f"{text}."


def as_json(study: Study) -> dict[str, Any]:
    """Return all results, for JSON."""
    return {
        "name": study.name,
        "scaling": study.scaling,
        "points": [one.record for one in study.results],
        "advice": {"efficiency": study.min_efficiency, "gpus": study.recommended.point.gpus},
    }
