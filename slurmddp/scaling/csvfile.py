"""A scaling study as CSV: what `scale --csv` writes, and what `scale --from-csv` reads. Pure."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from slurmddp.errors import UsageError
from slurmddp.scaling.measurements import Figures, Point, Scaling, counted
from slurmddp.text import shown

COLUMNS: Final = (
    *("gpus", "nodes", "seconds", "seconds_low", "seconds_high", "repeats", "samples_per_s", "speed_up", "efficiency"),
    *("communication", "training_s", "gpu_hours", "scaling"),
)
_COUNT = (1, 999_999, "a whole number, 1 or more, 999999 at most")
_ALLOWED: Final = {
    "gpus": _COUNT,
    "nodes": _COUNT,
    "communication": (0, 1, "a share, 0 to 1"),
}
_NUMBER: Final = (1e-12, 1e12, "a number above 0, 1e12 at most")
"""Of the other columns: the least, the most, and both in words."""


def text(found: Sequence[Figures], scaling: Scaling) -> str:
    """Return the figures as CSV; a cell is empty where nothing is known."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_row(one, scaling) for one in found)
    return stream.getvalue()


def _row(one: Figures, scaling: Scaling) -> list[object]:
    point = one.point
    low, high = point.spread_s
    return [
        *(point.gpus, point.nodes, point.time_s, low, high, len(point.repeats_s), one.samples_per_s, one.speed_up),
        *(one.efficiency, point.communication, one.training_s, one.gpu_hours, scaling),
    ]


def read(content: str, place: str, scaling: Scaling | None) -> tuple[tuple[Point, ...], Scaling]:
    """Return the sizes in a CSV with columns `gpus` and `seconds`; rows of the same size are repeats.

    `seconds` are those of the whole training, or of a part of it that is the same for all sizes: strong, unless
    `scaling` or a column of that name says that they are of work that grows with the GPUs. Further columns of `text`
    are taken where they are there. Raises UsageError with the line of a mistake.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(content.removeprefix("\ufeff")), skipinitialspace=True))
    except csv.Error as error:
        raise UsageError(f"{place}: {error}") from error
    if not rows or not {"gpus", "seconds"} <= set(rows[0]):
        raise UsageError(f"{place}: a header with the columns gpus and seconds is needed, and a line for each size")
    of_file = {row.get("scaling") or "" for row in rows} - {""}
    if not of_file <= {"weak", "strong"} or len(of_file) > 1:
        raise UsageError(
            f"{place}: column scaling holds {shown(', '.join(sorted(of_file)))}; weak or strong is allowed"
        )
    said = next((known for known in ("weak", "strong") if known in of_file), None)
    if scaling and said and said != scaling:
        raise UsageError(f"{place}: column scaling says {said}, and --{scaling} was given; leave one out")
    chosen: Scaling = scaling or said or "strong"  # type: ignore[assignment]  # checked above
    sizes: dict[int, list[Mapping[str, float]]] = {}
    for values in _values(rows, place):
        sizes.setdefault(int(values["gpus"]), []).append(values)
    return tuple(_point(gpus, repeats, chosen) for gpus, repeats in sizes.items()), chosen


def _values(rows: Sequence[Mapping[str, str | None]], place: str) -> Iterator[Mapping[str, float]]:
    """Yield the numbers of each line by column."""
    for line, row in enumerate(rows, start=2):
        found = {}
        for name in ("gpus", "nodes", "seconds", "samples_per_s", "communication", "training_s"):
            cell = (row.get(name) or "").strip()
            if cell or name in ("gpus", "seconds"):
                found[name] = _number(cell, name, f"{place}, line {line}")
        if found.get("nodes", 0) > found["gpus"]:
            raise UsageError(
                f"{place}, line {line}: {found['nodes']:.0f} nodes for {counted(int(found['gpus']))} leave some without"
            )
        yield found


def _number(cell: str, name: str, place: str) -> float:
    least, most, what = _ALLOWED.get(name, _NUMBER)
    try:
        value = float(int(cell)) if name in ("gpus", "nodes") else float(cell)
    except (ValueError, OverflowError):
        value = math.nan
    if not least <= value <= most:
        raise UsageError(f"{place}, column {name}: {shown(cell)} is not {what}")
    return value


def _point(gpus: int, repeats: Sequence[Mapping[str, float]], scaling: Scaling) -> Point:
    first = repeats[0]
    known = {name: first[name] for name in ("nodes", "samples_per_s", "communication", "training_s") if name in first}
    samples, training_s = known.get("samples_per_s"), known.get("training_s")
    return Point(
        gpus=gpus,
        nodes=int(known["nodes"]) if "nodes" in known else None,
        repeats_s=tuple((row["seconds"],) for row in repeats),
        samples=round(samples * first["seconds"]) if samples else None,
        communication=known.get("communication"),
        steps=training_s / first["seconds"] if training_s else 1.0 if scaling == "strong" and not samples else None,
    )
