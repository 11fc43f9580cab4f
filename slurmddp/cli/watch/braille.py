"""Draw curves and bars with characters. Pure."""

import math
from collections.abc import Sequence
from typing import Final

Point = tuple[float, float]
"""A step and its value."""

_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a braille character's dots: its left column from the top, then its right one (Unicode, 2800)."""
_BLANK: Final = 0x2800


def draw_curve(points: Sequence[Point], width: int, height: int, *, dots: bool = True) -> list[str]:
    """Return `height` lines of `width` characters; values that are not finite are left out.

    With `dots`, a braille character has two by four points; otherwise a point is a star.
    """
    across, down = (2, 4) if dots else (1, 1)
    marks = _connect(_column_rows(points, width * across, height * down))
    if not dots:
        return ["".join("*" if line in column else " " for column in marks) for line in range(height)]
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


def _column_rows(points: Sequence[Point], columns: int, rows: int) -> list[int | None]:
    """Return the row of each column's mean value, counted from the top; None for a column without points."""
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if not finite:
        return [None] * columns
    means = _column_means(finite, columns)
    known = [mean for mean in means if mean is not None]
    low, high = min(known), max(known)
    span = high - low
    return [None if mean is None else _row(mean - low, span, rows) for mean in means]


def _row(above: float, span: float, rows: int) -> int:
    """Return the row of a value that is `above` the lowest; the middle row if all values are equal."""
    return rows - 1 - round(above / span * (rows - 1)) if span > 0 and math.isfinite(span) else rows // 2


def _column_means(points: Sequence[Point], columns: int) -> list[float | None]:
    first, last = points[0][0], points[-1][0]
    sums, counts = [0.0] * columns, [0] * columns
    for step, value in points:
        column = round((step - first) / (last - first) * (columns - 1)) if last > first else 0
        sums[column] += value
        counts[column] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def draw_bar(part: float, width: int, *, dots: bool = True) -> str:
    """Return a bar of `width` characters, of which the share `part` is filled."""
    full = round(max(0.0, min(1.0, part)) * width)
    return ("━" if dots else "=") * full + ("╌" if dots else "-") * (width - full)
