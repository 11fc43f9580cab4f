"""Rows as lines of text, in columns. Pure."""

from collections.abc import Container, Sequence
from typing import Final

from slurmddp.fields import printable

__all__ = ["WIDTH", "duration", "printable", "shortened", "table"]

WIDTH: Final = 80
"""Columns of a terminal that everybody has."""


def table(rows: Sequence[Sequence[str]], *, right: Container[int] = ()) -> list[str]:
    """Return the rows as lines, in columns as wide as their widest cell; columns in `right` end at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_cells(row, widths, right)).rstrip() for row in rows]


def _cells(row: Sequence[str], widths: Sequence[int], right: Container[int]) -> list[str]:
    cells = enumerate(zip(row, widths, strict=True))
    return [cell.rjust(width) if number in right else cell.ljust(width) for number, (cell, width) in cells]


def duration(time_s: float) -> str:
    """Return a time in its two largest units: 1d12h, 1m30s."""
    whole = int(time_s)
    parts = zip((whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60), "dhms", strict=True)
    words = [f"{number}{unit}" for number, unit in parts if number]
    return "".join(words[:2]) or "0s"


def shortened(text: str, width: int) -> str:
    """Return a printable text of at most so many columns; dots stand for what was left out."""
    line = printable(text)
    return line if len(line) <= width else f"{line[: max(0, width - 3)]}..."
