"""Draw curves and bars with characters. Pure."""

import math
import statistics
from collections.abc import Sequence
from typing import Final

from slurmddp.report.axis import Scale

Point = tuple[float, float]
"""A step and its value."""

_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a braille character's dots: its left column from the top, then its right one (Unicode, 2800)."""
_BLANK: Final = 0x2800


def draw_curve(points: Sequence[Point], scale: Scale, width: int, height: int) -> list[str]:
    """Return `height` lines of `width` characters of two by four points; values that are not finite are left out."""
    marks = _connect(_column_rows(points, scale, 2 * width, 4 * height))
    return ["".join(_character(marks, column, line) for column in range(width)) for line in range(height)]


def _character(marks: Sequence[range], column: int, line: int) -> str:
    bits = 0
    for side, rows in enumerate(marks[2 * column : 2 * column + 2]):
        bits |= sum(_DOTS[side][row] for row in range(4) if 4 * line + row in rows)
    return chr(_BLANK + bits) if bits else " "


def _connect(rows: Sequence[int | None]) -> list[range]:
    """Return the rows to mark in each column, which connect it to the previous column."""
    marks, before = [], None
    for row in rows:
        marks.append(range(0) if row is None else _between(before, row))
        before = row if row is not None else before
    return marks


def _between(before: int | None, row: int) -> range:
    if before is None or before == row:
        return range(row, row + 1)
    return range(before + 1, row + 1) if before < row else range(row, before)


def _column_rows(points: Sequence[Point], scale: Scale, columns: int, rows: int) -> list[int | None]:
    """Return the row of each column's median value, counted from the top; None for a column without points."""
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    medians = _column_medians(finite, columns) if finite else [None] * columns
    return [None if median is None else rows - 1 - round(scale.at(median) * (rows - 1)) for median in medians]


def _column_medians(points: Sequence[Point], columns: int) -> list[float | None]:
    first, last = points[0][0], points[-1][0]
    values: list[list[float]] = [[] for _ in range(columns)]
    for step, value in points:
        values[round((step - first) / (last - first) * (columns - 1)) if last > first else 0].append(value)
    return [statistics.median_low(found) if found else None for found in values]


def draw_bar(part: float, width: int) -> str:
    """Return a bar of `width` characters, of which the share `part` is filled."""
    full = round(max(0.0, min(1.0, part)) * width)
    return "━" * full + "╌" * (width - full)
