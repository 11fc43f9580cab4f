"""The CSV format of a scaling study, which `scale --csv` writes and `scale --from-csv` reads. Pure."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from slurmddp.errors import UsageError
from slurmddp.scaling.measurements import Point, Scaling, SizeResult
from slurmddp.text import WIDTH, count, quote_value, shorten_text

_COUNT = (1, 999_999, "a whole number, 1 or more, 999999 at most")
_ALLOWED: Final = {
    "gpus": _COUNT,
    "nodes": _COUNT,
    "communication": (0, 1, "a share, 0 to 1"),
}
_NUMBER: Final = (1e-12, 1e12, "a number above 0, 1e12 at most")
"""The smallest and largest value of the other columns, and the range in words."""


def format_csv(results: Sequence[SizeResult], scaling: Scaling) -> str:
    """Return the results as CSV; the cell of an unknown value is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*results[0].record, "scaling"])
    writer.writerows([*one.record.values(), scaling] for one in results)
    return stream.getvalue()


def parse_csv(content: str, place: str, scaling: Scaling | None) -> tuple[list[Point], Scaling]:
    """Return the sizes in a CSV with columns `gpus` and `seconds`; rows of the same size are repeats.

    `seconds` measure the whole training or a constant part of it (strong scaling), unless `scaling` or a column of that
    name says `weak`. Other columns of `format_csv` are optional. Raises UsageError with the line of a mistake.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(content.removeprefix("\ufeff")), skipinitialspace=True))
    except csv.Error as error:
        raise UsageError(f"{place}: {error}") from error
    if not rows or not {"gpus", "seconds"} <= set(rows[0]):
        first = content.partition("\n")[0].strip()
        hint = ", separated by ; where , is allowed" if ";" in first else ""
        found = f"the first line is {quote_value(shorten_text(first, WIDTH))}{hint}"
        raise UsageError(f"{place}: {found}; it must name the columns gpus and seconds, and each size needs a line")
    in_file = {row.get("scaling") or "" for row in rows} - {""}
    if not in_file <= {"weak", "strong"} or len(in_file) > 1:
        raise UsageError(
            f"{place}: column scaling holds {quote_value(', '.join(sorted(in_file)))}; weak or strong is allowed"
        )
    declared: Scaling | None = "weak" if "weak" in in_file else "strong" if in_file else None
    if scaling and declared and declared != scaling:
        raise UsageError(f"{place}: column scaling says {declared}, and --{scaling} was given; leave one out")
    chosen = scaling or declared or "strong"
    sizes: dict[int, list[Mapping[str, float]]] = {}
    for line, row in enumerate(rows, start=2):
        values = _parse_row(row, f"{place}, line {line}")
        sizes.setdefault(int(values["gpus"]), []).append(values)
    return [_build_point(gpus, repeats, chosen) for gpus, repeats in sizes.items()], chosen


def _parse_row(row: Mapping[str, str | None], place: str) -> Mapping[str, float]:
    """Return the numbers of a line, by column."""
    found = {}
    for name in ("gpus", "nodes", "seconds", "samples_per_s", "communication", "training_s"):
        cell = (row.get(name) or "").strip()
        if cell or name in ("gpus", "seconds"):
            least, most, what = _ALLOWED.get(name, _NUMBER)
            value = math.nan
            with suppress(ValueError, OverflowError):
                value = float(int(cell)) if name in ("gpus", "nodes") else float(cell)
            if not least <= value <= most:
                raise UsageError(f"{place}, column {name}: {quote_value(cell)} is not {what}")
            found[name] = value
    if found.get("nodes", 0) > found["gpus"]:
        raise UsageError(f"{place}: {found['nodes']:.0f} nodes are more than {count(int(found['gpus']), 'GPU')}")
    return found


def _build_point(gpus: int, repeats: Sequence[Mapping[str, float]], scaling: Scaling) -> Point:
    first = repeats[0]
    nodes, samples, training_s = first.get("nodes"), first.get("samples_per_s"), first.get("training_s")
    return Point(
        gpus=gpus,
        nodes=None if nodes is None else int(nodes),
        repeats_s=tuple((row["seconds"],) for row in repeats),
        samples=round(samples * first["seconds"]) if samples else None,
        communication=first.get("communication"),
        steps=training_s / first["seconds"] if training_s else 1.0 if scaling == "strong" and not samples else None,
    )
